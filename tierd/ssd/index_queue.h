// The loop thread's side of the index: updates go to the index worker in order, bounded in bytes. What does not fit is dropped: the
// region then stays "being written" in the index and is read from its own table of contents at the next start.
//
// Owner: the tier; loop thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tierd/ssd/recovery.h"
#include "tierd/ssd/worker.h"

namespace tierd::ssd {

class IndexQueue {
 public:
  IndexQueue(const SsdOptions& options, std::string index_path, Mailbox& mailbox, SsdCounters& counters);
  ~IndexQueue();

  // Runs the recovery on the worker and keeps the index that it opens. `done` runs on the loop, unless StopRecovery() was faster.
  void Recover(RecoveryInput input, RecoverySinks sinks, Job before_done, std::function<void(const RecoveryReport&)> done);

  // A recovery under way ends behind the region that it reads just now, or between two records; any thread.
  void StopRecovery();

  // `done` runs on the loop when the region may be overwritten, whatever the index said.
  void BeginRegion(std::uint32_t region, std::uint64_t epoch, Job done);
  void EndRegion(TocBuilder toc);
  // Nothing that lies there is wanted any more: no start finds it, though the region is not overwritten yet.
  void EndEmpty(std::uint32_t region, std::uint64_t epoch);
  // Of a record in a region that has not ended yet, too.
  void Remove(const IndexKey& key);
  // What the index has of a closed region, removed records too, takes the place of what is in `into`, which is the worker's until `done` runs on the loop.
  // False: it has nothing that holds, `into` is as before.
  void ReadContents(std::uint32_t region, std::uint64_t epoch, std::shared_ptr<RecordBatch> into, std::function<void(bool)> done);
  // Sends collected removals; once per tick and before regions end.
  void FlushRemovals();
  bool idle() const { return worker_.pending() == 0; }
  // Drops what waits and joins.
  void Stop() { worker_.Stop(); }

 private:
  struct Shared;  // what jobs touch
  void Ended(std::size_t bytes, bool ok);

  const SsdOptions& options_;
  Mailbox& mailbox_;
  SsdCounters& counters_;
  std::vector<IndexKey> removals_;
  std::unique_ptr<Shared> shared_;
  Worker worker_;  // last: joined before the rest dies
};

}  // namespace tierd::ssd
