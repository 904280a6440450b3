// Finds out which of two I/O engines reads a source faster, on the real requests of its first busy moments: nothing is read
// for the sake of measuring, and no byte twice. The engines take turns (preferred, other, other, preferred), so that what grows
// or falls steadily meanwhile favours neither. Only like is compared: the trial starts over when nothing waits for a moment (then
// the engine was not the limit), when the window changes, and when a large read ends, beside which small ones are slow.
// A source of which only large files are read keeps the preferred engine, unmeasured.
// Pure; owner: one SourceReader; loop thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tierd/io/io_engine.h"

namespace tierd::source {

class EngineTrial {
 public:
  // `preferred` serves until the trial begins, and stays unless the other is clearly faster, in requests and in bytes: in both halves
  // of the trial, and of a second one some time later.
  explicit EngineTrial(io::EngineKind preferred) : preferred_(preferred), current_(preferred) {}

  // Engine to send the next request with.
  io::EngineKind current() const { return current_; }
  bool running() const { return running_; }
  bool decided() const { return decided_; }
  // The outcome, of which people are told: no turn of a trial is one.
  io::EngineKind chosen() const { return running_ ? preferred_ : current_; }
  // As many small reads as half a trial has came one after the other.
  bool ready() const { return !running_ && !decided_ && in_a_row_ >= kTurns * kMeasured / 2; }
  // Begins the first turn. Call when ready, enough requests wait, and the window has found its size. `window`: how many may be in
  // flight; to be held until the trial is over.
  void Start(std::uint32_t window);
  // A read of `bytes`, sent with `kind`, ended without error. `window`: as above; 0: none waited meanwhile.
  void OnComplete(io::EngineKind kind, std::size_t bytes, std::int64_t now_ns, std::uint32_t window);
  // Ends the trial for the preferred engine: the other cannot be made, or the source hangs. `why` goes to the report.
  void Abort(std::string why);
  // "threads 12,304/s against io_uring 9,120/s", or why there are no numbers.
  std::string Report() const;

  // Requests a turn measures, after as many as the window holds, which belong to the turn before.
  static constexpr std::uint32_t kMeasured = 192;
  static constexpr std::uint32_t kTurns = 4;
  // From here on a read is large: a chunk, most likely, which has as much of the link as hundreds of small files.
  static constexpr std::size_t kLargeBytes = 1 << 20;

 private:
  struct Turn {
    std::int64_t spent_ns = 0;
    std::uint64_t bytes = 0;
  };
  io::EngineKind Other() const;
  void BeginTurn();
  void StartOver();
  bool OtherWins(std::size_t preferred_turn, std::size_t other_turn) const;
  void Decide();

  io::EngineKind preferred_;
  io::EngineKind current_;
  bool running_ = false;
  bool decided_ = false;
  bool other_won_ = false;          // a trial
  std::uint32_t in_a_row_ = 0;      // small reads since the last large one, or trial
  std::uint32_t window_ = 0;        // completions of each turn that are not measured
  std::uint32_t turn_ = 0;
  std::uint32_t seen_ = 0;          // completions of this turn's engine in this turn
  std::int64_t started_ns_ = 0;
  std::array<Turn, kTurns> turns_;
  std::string why_ = "not measured yet";
};

const char* EngineKindName(io::EngineKind kind);

}  // namespace tierd::source
