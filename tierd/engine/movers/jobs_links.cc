// Names that lead elsewhere. A link to a file brings that file, and the next reader finds its alias; a link to a directory makes the directory an item of the
// job. What the items come by under its own name is counted there, by the item that is nearest above it, and each other file once. A link that leads nowhere, out of the source, or up to a directory that a path of the request lies in, is passed over; one that was asked for by
// itself has failed.
#include <sys/stat.h>

#include <cerrno>

#include "tierd/engine/movers/jobs_impl.h"

namespace tierd::engine {
namespace {
constexpr std::size_t kVerifiedPerTurn = 4096;
}  // namespace

bool Jobs::Job::ComesBy(const SourceUnit* unit, std::string_view path) const {
  for (std::string above(path);; above.resize(above.rfind('/') == std::string::npos ? 0 : above.rfind('/'))) {
    if (places.contains({unit, above})) return true;
    if (above.empty()) return false;
  }
}

bool Jobs::Job::IsDeeper(const SourceUnit* unit, std::string_view path, const std::string& item) const {
  if (places.size() <= 1) return false;
  for (std::string at(path); at.size() > item.size(); at.resize(at.rfind('/') == std::string::npos ? 0 : at.rfind('/'))) {
    if (places.contains({unit, at})) return true;
  }
  return false;
}

bool Jobs::Job::LeadsUp(const SourceUnit* unit, const std::string& directory) const {
  const auto next = asked.lower_bound({unit, directory.empty() ? directory : directory + "/"});
  return next != asked.end() && next->first == unit && AtOrBelow(next->second, directory);
}

// The chunks to come are asked for by the file's own path: to follow a link costs the source.
void Jobs::TakeTarget(File& file) const {
  if (file.kind == Name::Kind::kFile || file.id == kNoFile || (catalogue_.file(file.id).flags & kFileUsed) == 0) return;
  std::string target = catalogue_.PathOf(file.id);
  file.linked = target != file.path;
  file.path = std::move(target);
}

// False: the name, which may be a link, adds no file to the job.
bool Jobs::IsOfJob(const JobPtr& job, const File& file) {
  if (file.linked && file.worst.outcome != BringOutcome::kFailed) {
    return !job->ComesBy(file.unit, file.path) && job->linked.insert(catalogue_.KeyOf(file.unit->wire_id, file.path)).second;
  }
  if (file.kind == Name::Kind::kAsked || file.worst.outcome != BringOutcome::kFailed) return true;
  const int error = file.worst.sys_errno;
  return file.worst.reason != abi::Fallback::kPath && error != ENOENT && error != ENOTDIR && error != ELOOP;
}

// It is no file: a directory, perhaps. The file stays under way until that is known.
void Jobs::WalkBehind(const JobPtr& job, const std::shared_ptr<File>& file) {
  file->unit->resolver->Resolve(file->path, 0, [this, job, file](const Result<source::ResolvedPath>& resolved) {
    Try(job, [&] { OnResolved(job, file, resolved); });
  });
}

void Jobs::RefuseDirectory(const JobPtr& job, SourceUnit* unit, const std::string& path) {
  File file;
  file.unit = unit;
  file.path = path;
  file.worst = {BringOutcome::kFailed, kNoFile, abi::Fallback::kNone, EISDIR};
  Failed(job, file);
}

void Jobs::OnResolved(const JobPtr& job, const std::shared_ptr<File>& file, const Result<source::ResolvedPath>& resolved) {
  --job->files_under_way;
  if (job->over()) return;
  const bool directory = resolved.ok() && S_ISDIR(resolved->stat.mode);
  if (directory && !job->options.recursive) {
    RefuseDirectory(job, file->unit, file->path);
  } else if (directory) {
    --job->status.files_total;
    if (!job->ComesBy(file->unit, resolved->canonical) && !job->LeadsUp(file->unit, resolved->canonical)) {
      job->places.emplace(file->unit, resolved->canonical);
      job->items.push_back({file->unit, resolved->canonical});
      ++job->walks_under_way;
      job->status.walking = true;
    }
  } else if (resolved.ok() && file->kind == Name::Kind::kLink) {  // a socket, a device
    --job->status.files_total;
  } else {
    if (!resolved.ok()) file->worst = {BringOutcome::kFailed, kNoFile, abi::Fallback::kNone, resolved.status().sys_errno() != 0 ? resolved.status().sys_errno() : EBUSY};
    Failed(job, *file);
  }
  MaybeVerify(job);
}

void Jobs::VerifyLinked(const JobPtr& job) {
  for (std::size_t verified = 0; verified < kVerifiedPerTurn && !job->linked.empty(); ++verified) {
    const FileId file = catalogue_.Find(*job->linked.begin());
    job->linked.erase(job->linked.begin());
    VerifyFile(job, file);
  }
}

}  // namespace tierd::engine
