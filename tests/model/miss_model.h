// A miss: the reader leases (fill 0), asks, and uses the frame that the reply names. HAZARDS 1 (S1a-S1c), 2.3; messages.h FetchReply.
//
// Modelled: one key whose slot keeps its version (the hit path has a model of its own), two frames, one session, requests and replies in order on a
// socket, a reader that may time out, go on, and ask again. After the reply it narrows its lease to the frame's fill number.
#pragma once

#include <string>

#include "tests/model/machine.h"

namespace tierd::model {

enum class MissMutation : std::uint8_t {
  kNone,
  kS1bLateReply,          // any reply is taken, whatever request it answers
  kS1cReplyWithoutFrame,  // the reply says "done", the reader looks at the location word again
  kLeaseAfterReply,       // the lease is taken when the reply came
};

struct MissConfig {
  int asks = 2;   // of the reader, the first included
  int acts = 5;   // of the daemon besides its answers
  MissMutation mutation = MissMutation::kNone;
};

class MissModel final : public Model {
 public:
  explicit MissModel(const MissConfig& config) : config_(config) {}
  int threads() const override { return 2; }
  State Initial() const override;
  int Choices(const State& state, int thread) const override;
  void Step(Cpu& cpu, int choice) const override;
  bool Sleeps(const State& state, int thread) const override;
  std::string CellName(int cell) const override;
  std::string ThreadName(int thread) const override { return thread == 0 ? "reader" : "daemon"; }
  std::string ViolationText(std::uint8_t code) const override;

 private:
  bool Is(MissMutation mutation) const { return config_.mutation == mutation; }
  void ReaderStep(Cpu& cpu, int choice) const;
  void TakeReply(Cpu& cpu) const;
  void AskAgain(Cpu& cpu) const;
  void Use(Cpu& cpu) const;

  const MissConfig config_;
};

}  // namespace tierd::model
