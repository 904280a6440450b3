#include "tierd/engine/movers/jobs_impl.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

namespace tierd::engine {
namespace {
constexpr std::uint64_t kBytesAhead = std::uint64_t{64} << 20;  // on their way at a time, by the mean size seen
constexpr std::size_t kMinAhead = 16;
constexpr std::size_t kMaxAhead = 1536;
constexpr std::size_t kPerTurn = 256;
constexpr std::size_t kChunksAhead = 8;       // of one large file: two requests of four chunks
constexpr std::size_t kDroppedPerTurn = 4096;  // names of jobs that are over: below half a millisecond
constexpr std::uint64_t kRefusalsToStop = 256;  // warm-up ends when the tiers have been full for so many files in a row
}  // namespace

Jobs::Jobs(Catalogue& catalogue, Placement& placement, Fetcher& fetcher, SourceTable& sources, const Clock& clock)
    : catalogue_(catalogue), placement_(placement), fetcher_(fetcher), sources_(sources), clock_(clock) {}
Jobs::~Jobs() = default;

Jobs::JobPtr Jobs::NewJob(JobKind kind, std::vector<Item> items) {
  auto job = std::make_shared<Job>();
  job->status.id = next_id_++;
  job->status.kind = kind;
  job->status.started_ns = clock_.MonotonicNs();
  job->status.paths = items.size();
  if (!items.empty()) job->status.path = items.front().unit->options.path + (items.front().path.empty() ? "" : "/" + items.front().path);
  job->items = std::move(items);
  jobs_.emplace(job->status.id, job);
  ++running_;
  return job;
}

std::uint64_t Jobs::Prefetch(std::vector<Item> items, PrefetchOptions options) {
  if (running_ >= kRunningJobs) return 0;
  const JobPtr job = NewJob(JobKind::kPrefetch, std::move(items));
  job->options = options;
  job->status.owner = options.owner;
  job->status.pid = options.pid;
  Try(job, [&] {
    std::erase_if(job->items, [&](const Item& item) { return !job->places.emplace(item.unit, item.path).second; });
    job->asked = job->places;
    WalkItems(job);
  });
  return job->status.id;
}

void Jobs::WarmUp(SourceUnit& unit, const std::string& directory) {
  // What this one goes through as well.
  std::vector<std::uint64_t> covered;
  for (const auto& [id, job] : jobs_) {
    if (job->warm_unit == &unit && !job->over() && (directory.empty() || (job->items.front().path + "/").starts_with(directory + "/"))) covered.push_back(id);
  }
  for (const std::uint64_t id : covered) Cancel(id);
  const JobPtr job = NewJob(JobKind::kWarmup, {{&unit, directory}});
  job->options.evict = false;
  job->status.owner = JobOwner::kDaemon;
  job->warm_unit = &unit;
  Try(job, [&] { WalkItems(job); });
}

void Jobs::WalkItems(const JobPtr& job) {
  job->walks_under_way = job->items.size();
  job->next_item = 0;
  WalkSome(job);
}

// A source that hangs, or is slow, keeps the names of its jobs waiting, and those jobs' walks resting: no other job's.
void Jobs::RestWalks(const JobPtr& job, std::size_t most_names) {
  const bool rest = !job->over() && (IsRestingWarmUp(*job) || !job->unplaced.empty() || job->queue.size() > (job->rests ? most_names / 2 : most_names));
  if (std::exchange(job->rests, rest) == rest) return;
  for (const auto& [unit, walk] : job->walks) rest ? unit->job_walker->Rest(walk) : unit->job_walker->GoOn(walk);
}

// Each is a request to the source or has to wait for others': some 1 us.
void Jobs::WalkSome(const JobPtr& job) {
  for (std::size_t begun = 0; begun < kPerTurn && !job->over() && job->next_item < job->items.size(); ++begun) {
    const Item& item = job->items[job->next_item++];
    if (job->status.kind == JobKind::kWalk) StatTree(job, item);
    else if (job->status.state == JobState::kVerifying) WalkAgain(job, item);
    else WalkItem(job, item);
  }
}

void Jobs::WalkItem(const JobPtr& job, const Item& item) {
  SourceUnit* unit = item.unit;
  source::WalkRequest walk;
  walk.path = item.path;
  walk.recursive = job->options.recursive;
  const std::string path = item.path;
  walk.on_batch = [this, job, unit, path](const source::WalkBatch& batch) {
    if (job->over()) return;
    const bool deeper = job->IsDeeper(unit, batch.directory, path);
    for (const source::WalkEntry& entry : batch.entries) {
      const bool link = entry.type == DT_LNK && job->status.kind == JobKind::kPrefetch;
      if (deeper || !job->options.recursive || (entry.type != DT_REG && !link)) continue;
      std::string name = batch.directory.empty() ? entry.name : batch.directory + "/" + entry.name;
      if (job->IsPlace(unit, name)) continue;  // has a walk of its own
      if (!job->linked.empty() && job->linked.erase(catalogue_.KeyOf(unit->wire_id, name)) != 0) continue;  // a link has led to it, and it was counted then
      job->queue.push_back({unit, std::move(name), link ? Name::Kind::kLink : Name::Kind::kFile});
      ++job->status.files_total;
    }
    const bool is_file = (batch.error == ENOTDIR || batch.error == ELOOP) && batch.directory == path;
    if (batch.last && batch.error != 0 && !is_file && job->status.error.empty())
      job->status.error = tierd::Status::FromErrno(batch.error, "list " + unit->options.path + "/" + batch.directory).ToString();
  };
  walk.on_done = [this, job, unit, path](const source::WalkTotals& totals) {
    if (job->over()) return;
    --job->walks_under_way;
    if (totals.directories == 0 && (totals.first_error == ENOTDIR || totals.first_error == ELOOP)) {  // the item is a file, or is found through links
      job->queue.push_back({unit, path, Name::Kind::kAsked});
      ++job->status.files_total;
    } else if (!job->options.recursive && totals.directories != 0) {
      ++job->status.files_total;
      RefuseDirectory(job, unit, path);
    } else if (totals.directories == 0 && totals.first_error != 0) {  // nothing is there, or it cannot be listed
      ++job->status.files_total;
      ++job->status.files_failed;
    } else if (!totals.complete() && !totals.cancelled && job->status.error.empty()) {
      job->status.error = "could not list everything below " + unit->options.path + "/" + path;
    }
    job->status.walking = job->walks_under_way != 0;
    Try(job, [&] {
      PumpJob(job);
      MaybeVerify(job);
    });
  };
  job->walks.emplace_back(unit, unit->job_walker->Start(std::move(walk)));
}

bool Jobs::Pump() {
  bool more = DropNames();
  std::vector<JobPtr> active;
  for (auto& [id, job] : jobs_) {
    if (!job->over()) active.push_back(job);
  }
  const std::size_t most_names = std::max(kNamesOfJob, most_names_ / std::max<std::size_t>(active.size(), 1));
  for (const JobPtr& job : active) {
    const std::size_t before = job->queue.size();
    for (const std::shared_ptr<File>& file : std::exchange(job->paused, {})) {
      if (!file->in_turn) BringMore(job, file);
    }
    more |= !job->paused.empty();
    RestWalks(job, most_names);
    if (job->walks_under_way != 0 && !job->rests) Try(job, [&] { WalkSome(job); });
    PumpJob(job);
    if (!job->over() && job->synced && !job->linked.empty()) VerifyLinked(job);
    if (job->synced) Try(job, [&] { MaybeEnd(job); });
    if (job->status.kind == JobKind::kPrefetch || job->status.kind == JobKind::kWarmup) MaybeVerify(job);
    more |= before - std::min(before, job->queue.size()) >= kPerTurn;
    more |= job->status.kind == JobKind::kVerify && !job->over() && job->status.walking;
    more |= job->walks_under_way != 0 && !job->over() && !job->rests && job->next_item < job->items.size();
    more |= job->synced && !job->over() && (!job->linked.empty() || job->walks_under_way == 0);
  }
  return more;
}

// A cancelled job may leave a hundred thousand of them (HAZARDS 5). True: there are more.
bool Jobs::DropNames() {
  if (!names_left_) return false;
  std::size_t dropped = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job->over()) continue;
    for (; job->has_names(); ++dropped) {
      if (dropped == kDroppedPerTurn) return true;
      if (!job->queue.empty()) job->queue.pop_front();
      else job->linked.erase(job->linked.begin());
    }
  }
  names_left_ = false;
  return false;
}

std::size_t Jobs::names_waiting() const {
  return std::accumulate(jobs_.begin(), jobs_.end(), std::size_t{0}, [](std::size_t sum, const auto& entry) { return sum + entry.second->queue.size() + entry.second->linked.size(); });
}

// A dataset that does not fit is not warmed: its readers promote it by themselves, in their order.
bool Jobs::OutgrowsTiers(const Job& job) const {
  const std::uint64_t room = placement_.ram_capacity() + placement_.ssd_capacity();
  if (job.files_seen == 0 || (job.files_seen < 64 && job.bytes_seen < room / 8)) return false;  // a few say little of all, unless they are large
  const std::uint64_t estimate = job.bytes_seen / job.files_seen * job.status.files_total;
  return estimate > room;
}

bool Jobs::IsRestingWarmUp(const Job& job) const { return job.warm_unit != nullptr && clock_.MonotonicNs() < warm_ups_rest_until_ns_; }

void Jobs::PumpJob(const JobPtr& job) {
  if (job->over() || job->status.state == JobState::kVerifying || IsRestingWarmUp(*job)) return;
  if (job->status.kind == JobKind::kVerify) return PumpRecords(job);
  if (job->status.kind == JobKind::kWalk) return PumpWalk(job);
  // Until the SSD index is read nothing can be written there: what is prefetched should survive a restart.
  if (job->warm_unit == nullptr && ssd_ != nullptr && ssd_->status().recovering) return;
  const bool for_ssd = job->options.ssd_only || job->awaits_ssd;
  if (for_ssd && SsdStalls()) return;
  job->awaits_ssd = false;
  if (job->warm_unit != nullptr && !placement_.HasFrames()) return;  // nobody could be served what it brings
  if (job->warm_unit != nullptr && (job->refusals >= kRefusalsToStop || OutgrowsTiers(*job))) return End(job);
  const std::uint64_t mean = job->files_seen == 0 ? kBytesAhead / 64 : std::max<std::uint64_t>(1, job->bytes_seen / job->files_seen);
  const std::size_t limit = std::clamp<std::size_t>(kBytesAhead / mean, kMinAhead, kMaxAhead);
  // Files that are cached already end at once: a turn takes a bounded number of them (HAZARDS 5).
  for (std::size_t started = 0; started < kPerTurn && !job->over() && job->files_under_way < limit && !job->queue.empty(); ++started) {
    Name name = std::move(job->queue.front());
    job->queue.pop_front();
    BringFile(job, std::move(name));
  }
}

void Jobs::BringFile(const JobPtr& job, Name name) {
  auto file = std::make_shared<File>();
  file->unit = name.unit;
  file->path = name.path;
  file->name = std::move(name.path);
  file->kind = name.kind;
  Fetcher::BringRequest request = RequestFor(job, *file, 0);
  request.done = [this, job, file](const BringResult& result) { Try(job, [&] { OnFirstChunk(job, file, result); }); };
  file->under_way = 1;
  ++job->files_under_way;
  fetcher_.Bring(*file->unit, std::move(request));  // does not throw, and answers in any case
}

Fetcher::BringRequest Jobs::RequestFor(const JobPtr& job, const File& file, std::uint32_t chunk) {
  return {.path = file.path,
          .chunk = chunk,
          .ssd_only = job->options.ssd_only,
          .evict = job->options.evict,
          .priority = source::Priority::kPrefetch,
          .done = {}};
}

void Jobs::OnFirstChunk(const JobPtr& job, const std::shared_ptr<File>& file, const BringResult& result) {
  file->id = result.file;
  TakeTarget(*file);
  if (file->id != kNoFile) file->chunks = std::max<std::uint32_t>(1, catalogue_.ChunkCount(file->id));
  if (file->id != kNoFile && job->options.pin && result.outcome == BringOutcome::kCached) placement_.SetPinned(file->id, true);
  if (result.outcome == BringOutcome::kCached) BeginCount(job, file);
  OnChunk(job, file, 0, result);
}

void Jobs::OnChunk(const JobPtr& job, const std::shared_ptr<File>& file, std::uint32_t chunk, const BringResult& result) {
  --file->under_way;
  ++file->ended;
  if (file->counts && result.outcome == BringOutcome::kCached) CountChunk(job, file, chunk);
  if (result.outcome != BringOutcome::kCached && file->worst.outcome != BringOutcome::kFailed) file->worst = result;
  if (file->worst.outcome != BringOutcome::kCached || job->over()) file->next = file->chunks;  // no more of it
  if (!file->in_turn) BringMore(job, file);
}

// Chunks that are cached already are answered inside the call: a turn takes a bounded number of them (HAZARDS 5), and none recurses.
void Jobs::BringMore(const JobPtr& job, const std::shared_ptr<File>& file) {
  file->in_turn = true;
  const bool survived = Survives([&] {
    for (std::size_t asked = 0; file->next < file->chunks && file->under_way < kChunksAhead; ++asked) {
      if (asked == kPerTurn) {
        job->paused.push_back(file);
        break;
      }
      Fetcher::BringRequest request = RequestFor(job, *file, file->next);
      request.done = [this, job, file, chunk = file->next](const BringResult& result) { Try(job, [&] { OnChunk(job, file, chunk, result); }); };
      ++file->under_way;
      ++file->next;
      fetcher_.Bring(*file->unit, std::move(request));
    }
  });
  file->in_turn = false;
  if (!survived) {  // no more of it
    file->worst = {BringOutcome::kFailed, file->id, abi::Fallback::kNoFrame, ENOMEM};
    file->next = file->chunks;
  }
  if (file->under_way == 0 && file->next >= file->chunks && !file->closed) {
    file->closed = true;
    EndFile(job, file);
  }
}

std::string Jobs::WhyNot(const File& file) {
  const std::string what = "could not read " + file.unit->options.path + "/" + file.path;
  if (file.worst.sys_errno != 0) return tierd::Status::FromErrno(file.worst.sys_errno, what).ToString();
  switch (file.worst.reason) {
    case abi::Fallback::kChanged: return what + ": it changes all the time";
    case abi::Fallback::kNotRegular: return what + ": not a regular file";
    case abi::Fallback::kPath: return what + ": it leads out of the source";
    case abi::Fallback::kTooLarge: return what + ": its size, or one of its times, is beyond what the cache can hold";
    case abi::Fallback::kSourceSlow: return what + ": the source does not answer";
    default: return what + ": " + abi::FallbackName(file.worst.reason);
  }
}

void Jobs::Failed(const JobPtr& job, const File& file) {
  ++job->status.files_failed;
  if (job->status.error.empty()) job->status.error = WhyNot(file);
}

// The SSD tier has room for it, and takes it when it has been read again (HAZARDS 2.12).
void Jobs::NoteRacy(const JobPtr& job, const File& file) {
  const std::uint16_t flags = file.id == kNoFile || !job->options.ssd_only ? std::uint16_t{0} : catalogue_.file(file.id).flags;
  if (!job->status.error.empty() || (flags & kFileUsed) == 0 || (flags & kFileRacy) == 0) return;
  job->status.error = "the SSD takes no file that was written just before it was read: " + file.unit->options.path + "/" + file.path;
}

// Nothing is appended just now, and may be in a while: under a stream of writes many a device does not answer for seconds. One that goes on like that is not waited for.
bool Jobs::SsdStalls() {
  if (ssd_ == nullptr || !ssd_->stalls()) {
    ssd_stalls_since_ns_ = 0;
    return false;
  }
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (ssd_stalls_since_ns_ == 0) ssd_stalls_since_ns_ = now_ns;
  return now_ns - ssd_stalls_since_ns_ < kSsdPatienceNs;
}

void Jobs::EndFile(const JobPtr& job, const std::shared_ptr<File>& file) {
  if (job->over()) return;  // what has become of it is said, and its names are dropped
  const std::uint64_t landed = EndCount(job, file);
  const bool led_to_other_kind = file->kind != Name::Kind::kFile && file->worst.outcome == BringOutcome::kFailed && file->worst.reason == abi::Fallback::kNotRegular;
  if (led_to_other_kind) return WalkBehind(job, file);
  --job->files_under_way;
  JobStatus& status = job->status;
  const bool no_room = file->worst.outcome == BringOutcome::kNoRoom;
  const bool stalls = no_room && SsdStalls();
  const bool for_a_moment = no_room && job->options.ssd_only && file->worst.reason == abi::Fallback::kNoFrame;  // staging buffers ran out, not regions
  if ((for_a_moment || stalls) && job->requeued < 4 * status.files_total && placement_.SsdFree() > kBytesAhead) {
    ++job->requeued;
    job->awaits_ssd |= stalls;
    job->queue.push_back({file->unit, file->name, file->kind});
    return;
  }
  if (file->kind != Name::Kind::kFile && !IsOfJob(job, *file)) {
    --status.files_total;
    return MaybeVerify(job);
  }
  std::uint64_t bytes = landed;
  switch (file->worst.outcome) {
    case BringOutcome::kCached:
      bytes = file->id == kNoFile || (catalogue_.file(file->id).flags & kFileUsed) == 0 ? 0 : catalogue_.SizeOf(file->id);
      ++status.files_done;
      ++job->files_seen;
      job->bytes_seen += bytes;
      job->refusals = 0;
      break;
    case BringOutcome::kNoRoom:
      ++status.files_no_room;
      ++job->refusals;
      NoteRacy(job, *file);
      if (ssd_ != nullptr && ssd_->health() != ssd::SsdHealth::kHealthy && job->status.error.empty()) job->status.error = "the SSD tier takes nothing: its device fails, or does not answer (tierctl status)";
      break;
    case BringOutcome::kFailed:
      Failed(job, *file);
      break;
  }
  CountEnded(job, file, bytes);
  MaybeVerify(job);
}

void Jobs::MaybeVerify(const JobPtr& job) {
  if (job->over() || job->status.state == JobState::kVerifying) return;
  if (job->walks_under_way != 0 || !job->queue.empty() || job->files_under_way != 0) return;
  if (job->warm_unit != nullptr) return End(job);
  if (placement_.backfilling()) return;  // Pump comes back
  job->status.state = JobState::kVerifying;
  if (ssd_ == nullptr) return Verify(job);
  ssd_->Sync([this, job](const tierd::Status& status) {
    if (job->over()) return;
    Try(job, [&] {
      if (!status.ok() && job->status.error.empty()) job->status.error = status.ToString();
      Verify(job);
    });
  });
}

void Jobs::End(const JobPtr& job) {
  JobStatus& status = job->status;
  status.ended_ns = std::max<std::int64_t>(1, clock_.MonotonicNs());
  status.walking = false;
  names_left_ |= job->has_names();
  job->counted.clear();
  CancelWalks(*job);
  const bool complete = job->status.kind != JobKind::kPrefetch
                            ? status.files_failed + status.files_no_room == 0 && status.error.empty()
                            : status.verified_files == status.expected_files && status.error.empty() && status.files_failed == 0;
  status.state = complete ? JobState::kDone : JobState::kPartial;
  --running_;
  ForgetOldest(*job);
}

void Jobs::ForgetOldest(const Job& newest) {
  const bool of_program = newest.status.owner == JobOwner::kProgram;
  const auto alike = [&](const auto& entry) { return entry.second->over() && (entry.second->status.owner == JobOwner::kProgram) == of_program; };
  for (auto left = std::count_if(jobs_.begin(), jobs_.end(), alike); left > static_cast<std::ptrdiff_t>(kRememberedJobs); --left) {
    const auto oldest = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) { return alike(entry) && !entry.second->has_names(); });
    if (oldest == jobs_.end() || oldest->second.get() == &newest) break;
    jobs_.erase(oldest);
  }
}

void Jobs::CancelWalks(const Job& job) {
  for (const auto& [unit, walk] : job.walks) unit->job_walker->Cancel(walk);
}

bool Jobs::Cancel(std::uint64_t id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end() || it->second->over()) return false;
  const JobPtr job = it->second;
  End(job);
  job->status.state = JobState::kCancelled;
  return true;
}

void Jobs::Abandon() {
  for (const auto& [id, job] : jobs_) Abandon(job);
}

void Jobs::Abandon(const JobPtr& job) {
  if (job->over()) return;
  CancelWalks(*job);
  job->status.error = "out of memory";  // short enough to need none
  job->status.ended_ns = std::max<std::int64_t>(1, clock_.MonotonicNs());
  job->status.walking = false;
  job->status.state = JobState::kPartial;
  names_left_ |= job->has_names();
  job->unplaced.clear();
  job->counted.clear();
  --running_;
}

const JobStatus* Jobs::Find(std::uint64_t id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second->status;
}

std::vector<JobStatus> Jobs::List() const {
  std::vector<JobStatus> list;
  list.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) list.push_back(job->status);
  return list;
}

}  // namespace tierd::engine
