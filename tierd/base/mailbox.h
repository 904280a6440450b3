// Closures that other threads hand to a loop. The loop takes no lock for them: a thread that was put off its processor while it held one would keep the loop waiting for
// milliseconds (measured, with 64 of them on two processors).
//
// Owner: whoever has threads that answer a loop. Post and PostBounded: any thread. Everything else: the loop's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tierd/base/handoff.h"
#include "tierd/base/unique_fd.h"

namespace tierd {

class Mailbox {
 public:
  using Job = std::function<void()>;

  // Ends the process where there is no descriptor for it.
  Mailbox();
  ~Mailbox() { Close(); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Readable while something waits.
  int fd() const { return fd_.get(); }
  // False after Close(): the job is dropped. Where memory runs out it throws, and nothing was posted.
  bool Post(Job job);
  // Like Post, but waits while `limit` jobs are there already; of several that wait for the same place, all may come in.
  bool PostBounded(Job job, std::size_t limit);
  // Runs at most `budget` jobs, in the order in which they came; returns how many. What a job throws ends the call; those behind it wait for the next one.
  std::size_t Run(std::size_t budget);
  bool empty() const { return first_ == nullptr && handed_.empty(); }
  // Drops what waits and wakes every PostBounded; afterwards nobody touches a job any more. Idempotent.
  void Close();

 private:
  struct Letter {
    Job job;
    Letter* next = nullptr;
  };

  void Signal();
  void Rest();
  void MakeRoom();

  UniqueFd fd_;
  Handoff<Letter> handed_;
  Letter* first_ = nullptr;             // taken and not run yet
  std::atomic<std::size_t> count_{0};   // jobs that wait
  std::atomic<bool> signalled_{false};  // fd_ is readable, or about to be
  std::atomic<bool> closed_{false};
  std::atomic<unsigned> posting_{0};    // threads inside Post
  std::atomic<unsigned> waiting_{0};    // threads that wait for room
  std::atomic<std::uint32_t> turn_{0};  // moves on when there may be room
};

}  // namespace tierd
