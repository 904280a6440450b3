#include "tierd/ssd/index_queue.h"

#include <unistd.h>

#include <utility>

#include "tierd/base/kill_point.h"

namespace tierd::ssd {

struct IndexQueue::Shared {
  std::string path;
  std::unique_ptr<RecordIndex> index;      // index worker only
  std::atomic<std::size_t> queued_bytes{0};
  std::atomic<bool> recovery_stopped{false};

  leveldb::Env* env = nullptr;

  // After a failed write the index may tell an old story; the next start makes it anew from the regions.
  void GiveUp() {
    index.reset();
    if (!RecordIndex::Destroy(path, env).ok()) ::unlink((path + "/CURRENT").c_str());
  }
};

namespace {
constexpr std::size_t kRemovalsPerBatch = 1024;
}  // namespace

IndexQueue::IndexQueue(const SsdOptions& options, std::string index_path, LoopMailbox& mailbox, SsdCounters& counters)
    : options_(options), mailbox_(mailbox), counters_(counters), shared_(std::make_unique<Shared>()), worker_("tierd-index", 1) {
  shared_->path = std::move(index_path);
  shared_->env = options.index_env;
}

IndexQueue::~IndexQueue() { worker_.Stop(); }

void IndexQueue::Recover(RecoveryInput input, RecoverySinks sinks, Job before_done, std::function<void(const RecoveryReport&)> done) {
  input.stop = &shared_->recovery_stopped;
  worker_.Post([this, shared = shared_.get(), input = std::move(input), sinks = std::move(sinks), before_done = std::move(before_done),
                done = std::move(done)] {
    RecoveryOutcome outcome = RunRecovery(input, sinks);
    shared->index = std::move(outcome.index);
    before_done();
    mailbox_.Post([done, report = std::move(outcome.report)] { done(report); });
  });
}

void IndexQueue::StopRecovery() { shared_->recovery_stopped = true; }

void IndexQueue::BeginRegion(std::uint32_t region, std::uint64_t epoch, Job done) {
  ++counters_.index_updates;
  worker_.Post([this, shared = shared_.get(), region, epoch, done = std::move(done)] {
    TIERD_KILL_POINT("ssd.region.before_open_record");
    const bool had = shared->index != nullptr;
    const bool ok = had && shared->index->BeginRegion(region, epoch).ok();
    if (had && !ok) shared->GiveUp();
    TIERD_KILL_POINT("ssd.region.after_open_record");
    mailbox_.Post([this, ok, done] {
      if (!ok) ++counters_.index_errors;
      done();
    });
  });
}

void IndexQueue::EndRegion(TocBuilder toc) {
  FlushRemovals();
  const std::size_t bytes = toc.bytes();
  if (shared_->queued_bytes.load(std::memory_order_relaxed) + bytes > options_.index_queue_bytes) {
    ++counters_.index_updates_dropped;
    return;
  }
  shared_->queued_bytes += bytes;
  ++counters_.index_updates;
  worker_.Post([this, shared = shared_.get(), toc = std::move(toc), bytes] {
    TIERD_KILL_POINT("ssd.region.before_index");
    const bool had = shared->index != nullptr;
    const bool ok = had && shared->index->EndRegion(toc).ok();
    if (had && !ok) shared->GiveUp();
    TIERD_KILL_POINT("ssd.region.after_index");
    shared->queued_bytes -= bytes;
    if (!ok) mailbox_.Post([this] { ++counters_.index_errors; });
  });
}

void IndexQueue::Remove(const IndexKey& key) {
  removals_.push_back(key);
  if (removals_.size() >= kRemovalsPerBatch) FlushRemovals();
}

void IndexQueue::FlushRemovals() {
  if (removals_.empty()) return;
  std::vector<IndexKey> keys = std::exchange(removals_, {});
  const std::size_t bytes = keys.size() * sizeof(IndexKey);
  if (shared_->queued_bytes.load(std::memory_order_relaxed) + bytes > options_.index_queue_bytes) {
    ++counters_.index_updates_dropped;
    return;
  }
  shared_->queued_bytes += bytes;
  ++counters_.index_updates;
  worker_.Post([this, shared = shared_.get(), keys = std::move(keys), bytes] {
    const bool had = shared->index != nullptr;
    const bool ok = had && shared->index->Remove(keys).ok();
    if (had && !ok) shared->GiveUp();
    shared->queued_bytes -= bytes;
    if (!ok) mailbox_.Post([this] { ++counters_.index_errors; });
  });
}

}  // namespace tierd::ssd
