// One io_uring: set-up with what this kernel has, batches of submissions that may stop half-way, batches of completions.
//
// Owner: one UringEngine. The thread that created it is the only one to use it (IORING_SETUP_SINGLE_ISSUER).
// It does not know requests: an entry is told apart by its user_data, whose lowest bit belongs to the ring.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "tierd/base/status.h"
#include "tierd/io/engine_faults.h"

namespace tierd::io {

// Two ways to be told of completions (measured in bench/io_engines).
enum class RingStyle : std::uint8_t {
  // Task work runs only when the ring is entered: cheapest for transfers, which complete in interrupts.
  kTransfers,
  // Completions of io-wq workers are posted by the worker, which then goes on with the next entry of its chain. With deferred
  // task work each link would go through the loop thread.
  kChains,
};

struct RingOptions {
  RingStyle style = RingStyle::kTransfers;
  unsigned submission_entries = 256;
  unsigned completion_entries = 1024;
  int event_fd = -1;
  EngineFaults* faults = nullptr;
};

class UringRing {
 public:
  struct Completion {
    std::uint64_t user_data;  // with kCancelledBit cleared
    std::int32_t result;
  };
  // Set in user_data of entries that the ring replaced (see Submit); zero in what callers put there.
  static constexpr std::uint64_t kCancelledBit = 1;

  // kUnsupported, naming the reason, if this kernel or its policy has no usable io_uring.
  static Result<std::unique_ptr<UringRing>> Create(const RingOptions& options);
  // Does not wait for entries in flight; the kernel cancels what it can.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  // Makes room for `count` entries, submitting if need be; false: not now, completions must be taken first.
  bool Reserve(unsigned count);
  // The next entry, to be filled by io_uring_prep_*; only after Reserve.
  io_uring_sqe* Next();
  // Hands everything prepared to the kernel. False if some of it remains (the kernel is short of memory or wants its
  // completions taken); call again later.
  // Where the kernel stops inside a chain of links it forgets the link, and the rest would run too early: on a descriptor that is not
  // read yet, or no longer ours. The rest is then replaced by no-ops that complete with -ECANCELED.
  bool Submit();
  bool HasUnsubmitted() const { return io_uring_sq_ready(&ring_) > 0; }
  // Has the kernel post what it holds back, which signals the event once more: where that is cleared afterwards, it wakes nobody for what Take finds at once.
  void Gather();
  // Up to `count` completions; 0: there are none.
  unsigned Take(Completion* out, unsigned count);
  // Take would find some, perhaps after entering the kernel.
  bool HasCompletions() const;
  // Threads that the kernel may use for operations that block, of each of its two kinds. Best effort.
  void SetWorkers(unsigned count);

  std::uint64_t enters() const { return enters_; }

 private:
  explicit UringRing(EngineFaults* faults) : faults_(faults) {}
  Status SetUp(const RingOptions& options);
  Status Probe();
  bool HoldsBack() const;
  int Enter();
  int EnterLimited(unsigned limit);
  void CutBrokenChain();

  EngineFaults* faults_;
  io_uring ring_{};
  bool ready_ = false;
  std::uint64_t enters_ = 0;
};

}  // namespace tierd::io
