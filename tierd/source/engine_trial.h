// Finds out which of two I/O engines reads a source faster, on the real requests of its first busy moments: nothing is read
// for the sake of measuring, and no byte twice. The engines take turns (preferred, other, preferred, other); a turn counts
// only if requests were waiting all the time, so that the engine was the limit.
// Pure; owner: one SourceReader; loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tierd/io/io_engine.h"

namespace tierd::source {

class EngineTrial {
 public:
  // `preferred` serves until the trial begins, and wins ties.
  explicit EngineTrial(io::EngineKind preferred) : preferred_(preferred), current_(preferred) {}

  // Engine to send the next request with.
  io::EngineKind current() const { return current_; }
  bool running() const { return running_; }
  bool decided() const { return decided_; }
  // Begins the first turn. Call when enough requests wait for all turns.
  void Start(std::uint32_t window);
  // A request sent with `kind` ended without error. `window`: how many may be in flight now; 0: none waited meanwhile.
  void OnComplete(io::EngineKind kind, std::int64_t now_ns, std::uint32_t window);
  // Ends the trial for the preferred engine: the other cannot be made, or the source hangs. `why` goes to the report.
  void Abort(std::string why);
  // "threads 12,304/s against io_uring 9,120/s", or why there are no numbers.
  std::string Report() const;

  // Requests a turn measures, after as many as the window holds, which belong to the turn before.
  static constexpr std::uint32_t kMeasured = 192;
  static constexpr std::uint32_t kTurns = 4;

 private:
  io::EngineKind Other() const;
  void BeginTurn(std::uint32_t window);
  void Decide();

  io::EngineKind preferred_;
  io::EngineKind current_;
  bool running_ = false;
  bool decided_ = false;
  std::uint32_t skip_ = 0;          // completions of this turn that are not measured
  std::uint32_t turn_ = 0;
  std::uint32_t seen_ = 0;          // completions of this turn's engine in this turn
  std::int64_t started_ns_ = 0;
  std::array<std::int64_t, 2> spent_ns_{};  // preferred, other
  std::string why_ = "not measured yet";
};

const char* EngineKindName(io::EngineKind kind);

}  // namespace tierd::source
