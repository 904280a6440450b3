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

  // Whether the write came off. After one that did not the index may tell an old story; the next start makes it anew from the regions.
  template <typename Write>
  bool Update(Write&& write) {
    if (index == nullptr) return false;
    try {
      if (write(*index).ok()) return true;
      index.reset();
      if (RecordIndex::Destroy(path, env).ok()) return false;
    } catch (const std::bad_alloc&) {
      // The library does not stand a lack of memory and may hold locks for ever now: nothing of it is touched again.
      (void)index.release();
    }
    Insist([&] { ::unlink((path + "/CURRENT").c_str()); });
    return false;
  }
};

namespace {
constexpr std::size_t kRemovalsPerBatch = 1024;
constexpr std::size_t kMostRemovals = 65'536;  // waiting for room in the queue
}  // namespace

IndexQueue::IndexQueue(const SsdOptions& options, std::string index_path, Mailbox& mailbox, SsdCounters& counters)
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
    Insist([&] {
      before_done();
      mailbox_.Post([done, report = outcome.report] { done(report); });
    });
  });
}

// On the worker: an update of so many bytes is over.
void IndexQueue::Ended(std::size_t bytes, bool ok) {
  if (!ok) Insist([this] { mailbox_.Post([this] { ++counters_.index_errors; }); });
  shared_->queued_bytes -= bytes;
}

void IndexQueue::StopRecovery() { shared_->recovery_stopped = true; }

// Here as below a job is posted first, which may throw, and counted then. An end that is counted before its beginning is no harm: only this thread looks.
void IndexQueue::BeginRegion(std::uint32_t region, std::uint64_t epoch, Job done) {
  worker_.Post([this, shared = shared_.get(), region, epoch, done = std::move(done)] {
    TIERD_KILL_POINT("ssd.region.before_open_record");
    const bool ok = shared->Update([&](RecordIndex& index) { return index.BeginRegion(region, epoch); });
    TIERD_KILL_POINT("ssd.region.after_open_record");
    mailbox_.Post([this, ok, done] {
      if (!ok) ++counters_.index_errors;
      done();
    });
  });
  ++counters_.index_updates;
}

void IndexQueue::EndRegion(TocBuilder toc) {
  FlushRemovals();
  const std::size_t bytes = toc.bytes();
  if (shared_->queued_bytes.load(std::memory_order_relaxed) + bytes > options_.index_queue_bytes) {
    ++counters_.index_updates_dropped;
    return;
  }
  worker_.Post([this, shared = shared_.get(), toc = std::move(toc), bytes] {
    TIERD_KILL_POINT("ssd.region.before_index");
    const bool ok = shared->Update([&](RecordIndex& index) { return index.EndRegion(toc); });
    TIERD_KILL_POINT("ssd.region.after_index");
    Ended(bytes, ok);
  });
  shared_->queued_bytes += bytes;
  ++counters_.index_updates;
}

void IndexQueue::EndEmpty(std::uint32_t region, std::uint64_t epoch) {
  TocBuilder empty;
  empty.Reset(region, epoch);
  EndRegion(std::move(empty));
}

void IndexQueue::ReadContents(std::uint32_t region, std::uint64_t epoch, std::shared_ptr<RecordBatch> into, std::function<void(bool)> done) {
  worker_.Post([this, shared = shared_.get(), region, epoch, into = std::move(into), done = std::move(done)] {
    bool found = false;
    // As an update: the library does not stand a lack of memory in a look-up either. One that finds nothing is no reason to give the index up.
    (void)shared->Update([&](const RecordIndex& index) {
      RecordBatch records;
      found = index.VisitContents(region, epoch, [&](const RecoveredRecord& record) { records.Add(record); }).ok();
      if (found) std::swap(*into, records);
      return Status::Ok();
    });
    mailbox_.Post([done, found] { done(found); });
  });
}

void IndexQueue::Remove(const IndexKey& key) {
  removals_.push_back(key);
  if (removals_.size() >= kRemovalsPerBatch) FlushRemovals();
}

void IndexQueue::FlushRemovals() {
  if (removals_.empty()) return;
  const std::size_t bytes = removals_.size() * sizeof(IndexKey);
  if (shared_->queued_bytes.load(std::memory_order_relaxed) + bytes > options_.index_queue_bytes) {
    if (removals_.size() < kMostRemovals) return;  // a later tick may find room
    // The next start knows these records again. They are what the source held when they were read, and are compared with it before they are served.
    ++counters_.index_updates_dropped;
    removals_.clear();
    return;
  }
  worker_.Post([this, shared = shared_.get(), keys = removals_, bytes] {
    Ended(bytes, shared->Update([&](RecordIndex& index) { return index.Remove(keys); }));
  });
  removals_.clear();
  shared_->queued_bytes += bytes;
  ++counters_.index_updates;
}

}  // namespace tierd::ssd
