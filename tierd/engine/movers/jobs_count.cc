// Bytes of a prefetch or a warm-up, chunk by chunk, and how many are to come. A file of one chunk counts when it ends. One of several counts as its chunks land and, at
// its end, with what is left of its size: each file once in the end, whatever became of its chunks since they landed. A file that has to be brought again, has changed, or
// proves to be another's counts from the start again: what is shown stands still meanwhile, and does not fall. All of it is some look-ups per chunk.
#include <algorithm>

#include "tierd/engine/movers/jobs_impl.h"

namespace tierd::engine {

void Jobs::ShowCount(Job& job) {
  JobStatus& status = job.status;
  status.bytes_done = std::max(status.bytes_done, job.bytes_landed);
  status.bytes_known = std::max(status.bytes_done, job.bytes_met);
  status.files_sized = status.files_done + job.counted.size();
}

// Its first chunk is there. By a link it counts only if it will be one of the job's at its end, as far as that is known.
void Jobs::BeginCount(const JobPtr& job, const std::shared_ptr<File>& file) {
  if (job->over() || file->id == kNoFile || file->chunks <= 1) return;
  const FileRecord& record = catalogue_.file(file->id);
  if ((record.flags & kFileUsed) == 0) return;
  if (file->linked && (job->linked.contains(record.key) || job->ComesBy(file->unit, file->path))) return;
  if (!job->counted.emplace(record.key, file).second) return;  // by another name it counts already
  file->counts = true;
  file->key = record.key;
  file->version_tag = record.version_tag;
  file->size = catalogue_.SizeOf(file->id);
  job->bytes_met += file->size;
}

void Jobs::CountChunk(const JobPtr& job, const std::shared_ptr<File>& file, std::uint32_t chunk) {
  if (job->over()) return;
  if (!IsAsCounted(*file)) {
    (void)EndCount(job, file);
    return;
  }
  const ObjectId object = catalogue_.ObjectOf(file->id, chunk);
  const std::uint64_t bytes = object == kNoObject ? 0 : std::min<std::uint64_t>(catalogue_.object(object).bytes, file->size - file->landed);
  file->landed += bytes;
  job->bytes_landed += bytes;
  ShowCount(*job);
}

// The version that was met is the one that is known now.
bool Jobs::IsAsCounted(const File& file) const {
  const FileRecord& record = catalogue_.file(file.id);
  return (record.flags & kFileUsed) != 0 && record.version_tag == file.version_tag;
}

// Takes back what the file counts with, and returns what had landed of the version that is known now.
std::uint64_t Jobs::EndCount(const JobPtr& job, const std::shared_ptr<File>& file) {
  if (!file->counts) return 0;
  file->counts = false;
  job->counted.erase(file->key);
  job->bytes_met -= file->size;
  job->bytes_landed -= file->landed;
  ShowCount(*job);
  return IsAsCounted(*file) ? file->landed : 0;
}

// A file of the job has ended: `bytes` of it were brought, which is all, or, of one that failed or found no room, what had landed.
void Jobs::CountEnded(const JobPtr& job, const std::shared_ptr<File>& file, std::uint64_t bytes) {
  if (!job->counted.empty() && file->id != kNoFile && file->worst.outcome == BringOutcome::kCached) {
    const auto other = job->counted.find(catalogue_.file(file->id).key);  // the same by another name, which is to be none of the job's
    if (other != job->counted.end()) (void)EndCount(job, std::shared_ptr<File>(other->second));
  }
  job->bytes_met += bytes;
  job->bytes_landed += bytes;
  ShowCount(*job);
}

}  // namespace tierd::engine
