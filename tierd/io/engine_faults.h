// The seam through which tests make an engine meet outcomes that a healthy kernel seldom gives: errors, short counts, a
// stuck step, partial submissions. The daemon has none.
//
// Owner: the test; outlives every request, abandoned ones included. Outcome() runs on the thread that made the step: the loop
// thread for io_uring, any worker (several at once) for the pool.
#pragma once

#include <cstdint>

namespace tierd::io {

// The steps of which requests are made.
enum class Step : std::uint8_t {
  kOpen = 0,
  kStatBefore = 1,
  kRead = 2,
  kStatAfter = 3,
  kAdvise = 4,
  kClose = 5,
  kStat = 6,
  kReadv = 7,
  kWritev = 8,
};

class EngineFaults {
 public:
  virtual ~EngineFaults() = default;
  // `result` is what the kernel said: a count, a descriptor, 0 or -errno. What is returned takes its place: a negative errno, or for
  // transfers a smaller count. Not asked for kClose.
  virtual long Outcome(Step step, long result) = 0;
  // io_uring: how many of `pending` (> 0) prepared entries the next submission hands over, 0..pending; 0 is a kernel
  // without memory for them.
  virtual unsigned SubmitLimit(unsigned pending) = 0;
  // io_uring: entries of the completion ring; 0 leaves the choice to the engine.
  virtual unsigned CompletionEntries() = 0;
};

}  // namespace tierd::io
