// When do the leases of a session stop to count? With its process, and with every child that inherited a view: HAZARDS 1 (S3a-S3c), 2.5, 2.6.
//
// Threads: a process that uses a view of A; its forked child that goes on using it (fork scenario only); the daemon, which evicts, scans, reuses the
// frame for B, and at some moment hears that the socket was closed or that the process ended.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/machine.h"

namespace tierd::model {

enum class SessionMutation : std::uint8_t {
  kNone,
  // Socket closed, process alive.
  kS3aDroppedAtEof,            // leases stop to count when the socket closes
  kS3bRevokedBeforeCopy,       // the same, and the reader tests `revoked` before it copies
  kS3cRevokedAfterCopy,        // the same, and it tests after the copy: safe for copies, not for views
  // fork with a live view.
  kParentClearsFrozenLease,
  kEndsWithTheParent,          // the session ends with the parent process although a child lives
  kChildClosesTheSocket,       // the child closes what it inherited: end of file and parent gone come together
};

struct SessionConfig {
  bool fork = false;
  bool zero_copy = true;   // the bytes are looked at twice while the lease is held; else copied once, then checked
  int acts = 4;            // evict, scan, reuse
  SessionMutation mutation = SessionMutation::kNone;
};

class SessionModel final : public Model {
 public:
  explicit SessionModel(const SessionConfig& config) : config_(config) {}
  int threads() const override { return config_.fork ? 3 : 2; }
  State Initial() const override;
  int Choices(const State& state, int thread) const override;
  void Step(Cpu& cpu, int choice) const override;
  std::string CellName(int cell) const override;
  std::string ThreadName(int thread) const override;
  std::string ViolationText(std::uint8_t) const override { return "a reader used bytes of another file"; }

 private:
  bool Is(SessionMutation mutation) const { return config_.mutation == mutation; }
  void ReaderStep(Cpu& cpu) const;
  void ParentStep(Cpu& cpu) const;
  void ChildStep(Cpu& cpu) const;
  void Look(Cpu& cpu, std::uint8_t next) const;

  const SessionConfig config_;
};

}  // namespace tierd::model
