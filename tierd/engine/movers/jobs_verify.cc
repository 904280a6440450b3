// The second look of a prefetch: what was asked for, against what is in a tier now.
#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tierd/engine/movers/jobs_impl.h"

namespace tierd::engine {
namespace {
constexpr std::size_t kFilesPerTurn = 2048;         // files of the catalogue
constexpr std::size_t kMissingRemembered = 1'000'000;  // more count whenever they are missing
constexpr std::int64_t kBelievedGoneNs = 3'600'000'000'000;
}  // namespace

void Jobs::Verify(const JobPtr& job) {
  job->walks.clear();
  job->synced = true;
  job->known_before = catalogue_.NextSequence();
  for (auto& [id, earlier] : jobs_) {  // what is missing, and since when, goes from job to job
    if (earlier->over()) job->missing_since_ns.merge(std::exchange(earlier->missing_since_ns, {}));
  }
  if (job->items.empty()) return End(job);
  WalkItems(job);
}

void Jobs::WalkAgain(const JobPtr& job, const Item& item) {
  SourceUnit* unit = item.unit;
  const std::string path = item.path;
  source::WalkRequest walk;
  walk.path = path;
  walk.recursive = job->options.recursive;
  walk.on_batch = [this, job, unit, path](const source::WalkBatch& batch) {
    if (job->over() || !job->options.recursive || job->IsDeeper(unit, batch.directory, path)) return;
    for (const source::WalkEntry& entry : batch.entries) {
      if (entry.type != DT_REG) continue;
      const std::string name = batch.directory.empty() ? entry.name : batch.directory + "/" + entry.name;
      if (!job->IsPlace(unit, name)) VerifyFile(job, catalogue_.Find(catalogue_.KeyOf(unit->wire_id, name)));
    }
  };
  walk.on_done = [this, job, unit, path](const source::WalkTotals& totals) {
    if (job->over()) return;
    if (totals.directories == 0 && (totals.first_error == ENOTDIR || totals.first_error == ELOOP)) {
      const FileId file = catalogue_.Find(catalogue_.KeyOf(unit->wire_id, path));
      if (file == kNoFile || (catalogue_.file(file).flags & kFileAlias) == 0) VerifyFile(job, file);  // what links led to is looked at apart
    } else if (!totals.complete() && job->status.error.empty()) {
      job->status.error = "could not list everything again to verify";
    }
    --job->walks_under_way;  // after the last one Pump goes on
  };
  job->walks.emplace_back(unit, unit->job_walker->Start(std::move(walk)));
}

void Jobs::VerifyFile(const JobPtr& job, FileId file) {
  ++job->status.expected_files;
  if (file == kNoFile) return;
  job->shown.Add(file);
  if (!job->missing_since_ns.empty()) job->missing_since_ns.erase(catalogue_.file(file).key);
  if ((catalogue_.file(file).flags & (kFileChecked | kFileNotRegular)) != kFileChecked) return;
  const std::uint32_t chunks = catalogue_.ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_.ObjectOf(file, chunk);
    if (!placement_.OnSsd(object) && (job->options.ssd_only || !placement_.InRam(object))) return;
  }
  ++job->status.verified_files;
  job->status.verified_bytes += catalogue_.SizeOf(file);
}

// Where a server of the source is down, names are missing from listings, and a stat says ENOENT (HAZARDS 2.15): what was seen at the source before and is not
// shown now is asked for, and is not there. Nobody can tell that from a file that was deleted. So such a file counts until it is shown again, is forgotten because
// somebody invalidates it, or has been missing for an hour of second looks. What only a record of an earlier life speaks of does not count.
bool Jobs::Job::IsMissing(FileId file, const FileRecord& record, std::int64_t now_ns) {
  if ((record.flags & (kFileUsed | kFileChecked | kFileNotRegular)) != (kFileUsed | kFileChecked) || shown.Has(file)) return false;
  if (record.version_tag > known_before) return false;  // became known since
  if (missing_since_ns.size() >= kMissingRemembered) return true;
  return now_ns - missing_since_ns.try_emplace(record.key, now_ns).first->second < kBelievedGoneNs;
}

// Ends a job whose second walks are over, when it has looked for what they were not shown: some of the catalogue in each turn.
void Jobs::MaybeEnd(const JobPtr& job) {
  if (job->over() || !job->synced || !job->linked.empty() || job->walks_under_way != 0) return;
  const std::int64_t now_ns = clock_.MonotonicNs();
  const std::size_t slots = job->options.recursive ? catalogue_.file_slots() : 0;  // no directory of its own: none that lacks some
  const std::size_t end = std::min(slots, job->looked_at + kFilesPerTurn);
  for (; job->looked_at < end; ++job->looked_at) {
    const auto file = static_cast<FileId>(job->looked_at);
    const FileRecord& record = catalogue_.file(file);
    if ((record.flags & kFileUsed) == 0 || job->shown.Has(file)) continue;
    const SourceUnit& unit = *sources_[record.source];
    if (!job->ComesBy(&unit, catalogue_.DirectoryPath(record.dir)) || !job->IsMissing(file, record, now_ns)) continue;
    ++job->status.expected_files;
    if (job->status.error.empty())
      job->status.error = unit.options.path + "/" + catalogue_.PathOf(file) + " was there and is not listed now: is part of the source down? (if it was deleted: tierctl evict --invalidate)";
  }
  if (job->looked_at < slots) return;
  job->shown = {};
  End(job);
}

}  // namespace tierd::engine
