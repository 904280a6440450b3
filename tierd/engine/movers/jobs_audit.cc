// Jobs that look and do not bring: walks (what is there?) and verification of SSD records (is it what it says?).
#include <sys/stat.h>

#include <cerrno>

#include <algorithm>

#include "tierd/engine/movers/jobs_impl.h"

namespace tierd::engine {
namespace {
constexpr std::size_t kReadsAhead = 8;
constexpr std::size_t kPlacedPerTurn = 1024;
constexpr std::size_t kAuditedPerTurn = 4096;  // objects, or records that have left since
constexpr std::int64_t kResolveNs = 5'000'000'000;
constexpr std::int64_t kShortageRestNs = 100'000'000;  // without memory each try would be over at once

// Why a path that goes through a link is not walked.
std::string WhereItLeads(const SourceUnit& unit, const std::string& path, const Result<source::ResolvedPath>& resolved) {
  const std::string link = unit.options.path + "/" + path;
  if (resolved.ok()) return link + " is a link: what it leads to is " + unit.options.path + "/" + resolved->canonical;
  const int error = resolved.status().sys_errno();
  if (error == EXDEV) return link + " leads out of the source, or to another file system";
  if (error == ENOENT || error == ELOOP) return link + " leads nowhere";
  return resolved.status().ToString();
}
}  // namespace

std::uint64_t Jobs::Walk(std::vector<Item> items) {
  if (running_ >= kRunningJobs) return 0;
  const JobPtr job = NewJob(JobKind::kWalk, std::move(items));
  Try(job, [&] {
    WalkItems(job);
    PumpWalk(job);
  });
  return job->status.id;
}

std::uint64_t Jobs::WalkOf(const SourceUnit& unit, std::string_view path) const {
  const auto comes_by = [&](const Item& item) { return item.unit == &unit && AtOrBelow(path, item.path); };
  for (const auto& [id, job] : jobs_) {
    if (job->status.kind == JobKind::kWalk && !job->over() && std::any_of(job->items.begin(), job->items.end(), comes_by)) return id;
  }
  return 0;
}

void Jobs::StatTree(const JobPtr& job, const Item& item) {
  SourceUnit* unit = item.unit;
  const std::string path = item.path;
  source::WalkRequest walk;
  walk.path = path;
  walk.with_stat = true;
  walk.on_batch = [this, job, unit, begun = clock_.MonotonicNs()](const source::WalkBatch& batch) {
    if (job->over()) return;
    for (const source::WalkEntry& entry : batch.entries) {
      if (!entry.has_stat) continue;
      Observe(job, {unit, batch.directory.empty() ? entry.name : batch.directory + "/" + entry.name, entry.stat, begun});
      if (!S_ISREG(entry.stat.mode)) continue;
      ++job->status.files_done;
      job->status.bytes_done += entry.stat.size;
    }
    if (batch.last && batch.error == 0) Observe(job, {unit, batch.directory, batch.stat, begun});
    if (batch.last && batch.error == EXDEV && job->status.error.empty()) job->status.error = unit->options.path + "/" + batch.directory + " is a mount: another file system is not of the source";
  };
  walk.on_done = [this, job, unit, path](const source::WalkTotals& totals) {
    if (job->over()) return;
    Try(job, [&] {
      if (totals.directories == 0 && totals.first_error == ENOTDIR) return StatOne(job, *unit, path);
      if (totals.directories == 0 && totals.first_error == ELOOP) {
        unit->resolver->Resolve(path, clock_.MonotonicNs() + kResolveNs, [this, job, unit, path](const Result<source::ResolvedPath>& resolved) {
          if (job->over()) return;
          Try(job, [&] {
            if (job->status.error.empty()) job->status.error = WhereItLeads(*unit, path, resolved);
            --job->walks_under_way;
            PumpWalk(job);
          });
        });
        return;
      }
      if (totals.complete()) job->walked.emplace_back(unit, path);
      else if (job->status.error.empty()) job->status.error = tierd::Status::FromErrno(totals.first_error, "list " + unit->options.path + "/" + path).ToString();
      job->status.files_total = job->status.files_done;
      --job->walks_under_way;
      PumpWalk(job);
    });
  };
  job->walks.emplace_back(unit, unit->job_walker->Start(std::move(walk)));
}

// There is nothing to list: a file is asked for itself.
void Jobs::StatOne(const JobPtr& job, SourceUnit& unit, const std::string& path) {
  source::StatQuery query;
  query.path = path;
  query.priority = source::Priority::kPrefetch;
  query.done = [this, job, &unit, path](const source::StatReply& reply) {
    if (job->over()) return;
    Try(job, [&] {
      if (reply.error == source::ReadError::kNone) {
        Observe(job, {&unit, path, reply.stat, reply.stat_sent_ns});
        if (S_ISREG(reply.stat.mode)) job->status.bytes_done += reply.stat.size;
        job->status.files_done += S_ISREG(reply.stat.mode) ? 1 : 0;
        job->walked.emplace_back(&unit, path);
      } else if (job->status.error.empty()) {
        const int error = reply.error == source::ReadError::kErrno ? reply.sys_errno : ETIMEDOUT;
        job->status.error = tierd::Status::FromErrno(error, "stat " + unit.options.path + "/" + path).ToString();
      }
      job->status.files_total = job->status.files_done;
      --job->walks_under_way;
      PumpWalk(job);
    });
  };
  unit.reader->Stat(std::move(query));
}

// False: the index has no room for it just now.
bool Jobs::Place(const JobPtr& job, const Seen& seen) {
  const auto observed = fetcher_.Observe(*seen.unit, seen.path, seen.stat, seen.begun_ns);
  if (observed == Fetcher::Observed::kNoRoom && job->status.error.empty()) job->status.error = "the index of files has no room for " + seen.unit->options.path + "/" + seen.path;
  return observed != Fetcher::Observed::kLater;
}

// The index takes so many new names and then grows: what came meanwhile waits, and the walks of the job with it (RestWalks).
void Jobs::Observe(const JobPtr& job, Seen seen) {
  if (!job->unplaced.empty() || !Place(job, seen)) job->unplaced.push_back(std::move(seen));
}

void Jobs::PumpWalk(const JobPtr& job) {
  for (std::size_t placed = 0; placed < kPlacedPerTurn && !job->unplaced.empty(); ++placed) {
    if (!Place(job, job->unplaced.front())) break;
    job->unplaced.pop_front();
  }
  if (job->walks_under_way != 0 || !job->unplaced.empty()) return;
  for (const auto& [unit, path] : job->walked) {
    if (job->status.error.empty()) unit->walked.Note(path, clock_.MonotonicNs());
  }
  End(job);
}

std::uint64_t Jobs::VerifyRecords(std::vector<Item> items) {
  if (running_ >= kRunningJobs || ssd_ == nullptr) return 0;
  const JobPtr job = NewJob(JobKind::kVerify, std::move(items));
  job->heard_ns = job->status.started_ns;
  Try(job, [&] { PumpRecords(job); });
  return job->status.id;
}

// The records to read are looked up a slice at a time: each is compared with all that was asked for, which may be thousands of paths.
void Jobs::FindRecords(const JobPtr& job) {
  const std::size_t objects = catalogue_.object_slots();
  const std::size_t slice = std::max<std::size_t>(1, kAuditedPerTurn / std::max<std::size_t>(1, job->items.size()));
  const std::size_t end = std::min(objects, job->looked_at + slice);
  for (; job->looked_at < end; ++job->looked_at) {
    const auto id = static_cast<ObjectId>(job->looked_at);
    if (!placement_.OnSsd(id)) continue;
    const FileId file = catalogue_.object(id).file;
    const bool wanted = job->items.empty() || std::any_of(job->items.begin(), job->items.end(), [&](const Item& item) {
      return item.unit->index == catalogue_.file(file).source && catalogue_.IsBelow(file, item.path);
    });
    if (!wanted) continue;
    job->records.push_back(id);
    ++job->status.files_total;
    ++job->status.expected_files;
  }
  job->status.walking = job->looked_at < objects;
}

// The device is out, or hangs, or there is no memory to ask it: for so long that nobody should wait any more.
bool Jobs::IsInVain(const Job& job) const {
  if (job.status.walking || (job.records.empty() && job.reads_under_way == 0)) return false;
  return (ssd_->health() != ssd::SsdHealth::kHealthy || job.rests_until_ns != 0) && clock_.MonotonicNs() - job.heard_ns >= kSsdPatienceNs;
}

void Jobs::GiveUpRecords(const JobPtr& job) {
  std::string& error = job->status.error;
  if (!error.empty()) error += "; ";
  error += job->rests_until_ns != 0 ? "there is no memory to read the SSD tier: " : "the SSD tier answers no more: ";
  error += std::to_string(job->records.size() + job->reads_under_way) + " records were not read (tierctl status)";
  job->records.clear();
  End(job);
}

void Jobs::PumpRecords(const JobPtr& job) {
  if (job->status.walking) FindRecords(job);
  if (IsInVain(*job)) return GiveUpRecords(job);
  if (clock_.MonotonicNs() < job->rests_until_ns) return;
  for (std::size_t looked_at = 0; looked_at < kAuditedPerTurn && !job->over() && job->reads_under_way < kReadsAhead && !job->records.empty(); ++looked_at) {
    const ObjectId object = job->records.back();
    job->records.pop_back();
    if (!ReadRecord(job, object)) {
      job->records.push_back(object);  // the device is busy or recovering: at the next turn
      return;
    }
  }
  if (!job->over() && !job->status.walking && job->records.empty() && job->reads_under_way == 0) End(job);
}

// False: the tier refuses for now.
bool Jobs::ReadRecord(const JobPtr& job, ObjectId object) {
  if (!placement_.OnSsd(object)) {  // left meanwhile: nothing to check
    --job->status.expected_files;
    return true;
  }
  const ObjectRecord& record = catalogue_.object(object);
  const SourceUnit& unit = *sources_[catalogue_.file(record.file).source];
  const ssd::RecordIdentity identity = placement_.IdentityOf(object, ssd_->DatasetGeneration(unit.dataset_id));
  const ssd::SsdLocation location = record.ssd;
  auto buffer = std::make_shared<io::AlignedBuffer>(ssd_->NeedsOf(record.bytes).padded_bytes);  // shared with the read, which may outlive the job
  if (buffer->empty()) {
    job->rests_until_ns = clock_.MonotonicNs() + kShortageRestNs;
    return false;
  }
  const auto done = [this, job, object, location, buffer](const ssd::ReadResult& result) {
    --job->reads_under_way;
    if (job->over()) return;
    const std::int64_t now_ns = clock_.MonotonicNs();
    if (result.is_shortage()) {
      job->rests_until_ns = now_ns + kShortageRestNs;
      return Try(job, [&] { job->records.push_back(object); });
    }
    job->heard_ns = now_ns;
    job->rests_until_ns = 0;
    const bool moved = !placement_.OnSsd(object) || catalogue_.object(object).ssd != location;
    if (result.outcome == ssd::ReadOutcome::kOk) {
      ++job->status.files_done;
      ++job->status.verified_files;
      job->status.verified_bytes += result.bytes;
      job->status.bytes_done += result.bytes;
    } else if (moved) {
      --job->status.expected_files;
    } else {
      ++job->status.files_failed;
      if (job->status.error.empty()) job->status.error = "record of " + catalogue_.PathOf(catalogue_.object(object).file) + " does not verify";
      fetcher_.DropRecord(object, result);
    }
  };
  const auto status = ssd_->Read(location, identity, buffer->span(), done, ssd::ReadClass::kBackground);
  if (status.ok()) {
    ++job->reads_under_way;
    return true;
  }
  if (status.code() == Code::kBusy) return false;
  ++job->status.files_failed;
  placement_.EvictSsd(object, EvictCause::kDamaged);
  return true;
}

}  // namespace tierd::engine
