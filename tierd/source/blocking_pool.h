// Worker threads for file system calls that may block, even for minutes: a thread that hangs is replaced by another (up to a
// limit), and outlives the pool if it must. Tasks run on workers and post closures, which Poll() runs on the loop thread.
//
// Owner: TreeWalker, PathResolver. Everything is for the loop thread, except TaskContext, which belongs to the task's
// worker. What a task or a posted closure refers to must outlive the pool or be shared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tierd/base/clock.h"
#include "tierd/base/status.h"
#include "tierd/source/request_budget.h"

namespace tierd::source {

class TaskContext;
// Where memory runs out in a task it ends there, and its thread takes the next one: what it owes the loop it must have caught before.
using Task = std::function<void(TaskContext&)>;

struct PoolOptions {
  std::uint32_t threads = 4;            // workers at most; started when there is work
  std::uint32_t max_replacements = 16;  // further ones while others hang
  std::int64_t hung_after_ns = 5'000'000'000;
  // Closures waiting for the loop; TaskContext::Post pauses its worker beyond it.
  std::size_t max_posted = 4096;
  bool newest_first = false;            // order of waiting tasks: depth first for trees, else first come first served
};

class BlockingPool {
 public:
  BlockingPool(const Clock& clock, const PoolOptions& options);
  // Tells tasks to stop, waits shortly for those that do, and leaves those that hang to themselves. Posted closures are dropped.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // `tag` groups tasks for CountHung. kNoSpace if no thread could be started and none is there.
  Status Submit(std::uint64_t tag, Task task);
  // Has `closure` run by a later Poll(), after all that were posted before.
  void Post(std::function<void()> closure);
  // Runs at most `budget` posted closures, without a lock (mailbox.h); returns how many ran. What a closure throws ends the call; those behind it wait for the next one.
  std::size_t Poll(std::size_t budget);
  // Finds workers that hang and starts replacements.
  void Tick(std::int64_t now_ns);
  int event_fd() const;
  // Tasks waiting or running.
  std::size_t pending() const;
  std::size_t hung() const;
  // As of the last Tick.
  std::size_t CountHung(std::uint64_t tag) const;

 private:
  friend class TaskContext;
  struct Shared;
  // Shared with every worker thread: one that hangs outlives the pool.
  std::shared_ptr<Shared> shared_;
};

// What a running task may do. Used by its worker thread only.
class TaskContext {
 public:
  // Hands `closure` to the loop. Blocks while too many wait there (not counted as hanging). False: the pool is going away.
  bool Post(std::function<void()> closure);
  // The same, and where memory has run out it waits for some: the loop must hear of it. `closure` is copied.
  void PostSurely(const std::function<void()>& closure);
  // Says that the task makes progress: what hangs is one call, not a long task. Post says it too.
  void Alive();
  // Takes one request from `budget`. False: it allows none yet (the worker has rested for that, 100 ms at most, not counted as
  // hanging) or the pool is going away; ask again unless the work is given up.
  bool Draw(RequestBudget& budget, bool low_priority);
  // Rests for 100 ms, not counted as hanging. False: the pool is going away.
  bool Rest();
  // Adds a task; never blocks.
  void Submit(std::uint64_t tag, Task task);
  bool stopping() const;

 private:
  friend class BlockingPool;
  friend struct BlockingPool::Shared;
  TaskContext(const std::shared_ptr<BlockingPool::Shared>& shared, std::uint64_t worker) : shared_(shared), worker_(worker) {}
  const std::shared_ptr<BlockingPool::Shared>& shared_;
  std::uint64_t worker_;
};

}  // namespace tierd::source
