// How requests end: what a completion is worth, what is tried again, and what the waiter hears.
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/source/source_reader_impl.h"

namespace tierd::source {
namespace {

// Mismatches of ctime or ino alone after which (size, mtime) must do (HAZARDS W8), and how many files must show them before the
// whole source is taken to be like that.
constexpr std::uint32_t kWeakAfter = 3;
constexpr std::uint64_t kWeakFiles = 3;

// Of descriptors or memory on this node: nothing that the source has said of the file. (Where it is the server that has no memory, a
// while later it may have some, too.)
bool IsShortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }
// How often a request is sent again after one, and how long nothing is sent then, the first time; each further time twice as long.
constexpr std::uint32_t kShortageAttempts = 4;
constexpr std::int64_t kShortagePauseNs = 10'000'000;

bool SameContentStamps(const io::FileStat& a, const io::FileStat& b) {
  return a.dev == b.dev && a.size == b.size && a.mtime_ns == b.mtime_ns;
}

std::size_t LatencyBucket(std::int64_t latency_ns) {
  const auto units = static_cast<std::uint64_t>(std::max<std::int64_t>(latency_ns - 1, 0)) / 100'000;
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(units)), kLatencyBuckets - 1);
}

// Bytes that a read of a file of this size must give.
std::size_t WantedBytes(const ReadRequest& read, std::uint64_t size) {
  if (read.offset >= size) return 0;
  const std::size_t most = read.capacity + io::TotalBytes(read.further) + (read.rest == nullptr || read.rest->empty() ? 0 : read.rest->most());
  return static_cast<std::size_t>(std::min<std::uint64_t>(most, size - read.offset));
}

StatReply ToStatReply(const Operation& op, const ReadResult& result) {
  StatReply reply;
  reply.opened = op.opens && result.error == ReadError::kNone;
  reply.error = result.error;
  reply.sys_errno = result.sys_errno;
  reply.stat = result.version;
  reply.stat_sent_ns = result.stat_sent_ns;
  reply.racy = result.racy;
  reply.in_the_making = result.in_the_making;
  return reply;
}

}  // namespace

void FlightList::Append(Operation* op) {
  op->older = newest_;
  op->newer = nullptr;
  (newest_ != nullptr ? newest_->newer : oldest_) = op;
  newest_ = op;
}

void FlightList::Remove(Operation* op) {
  (op->older != nullptr ? op->older->newer : oldest_) = op->newer;
  (op->newer != nullptr ? op->newer->older : newest_) = op->older;
  op->older = op->newer = nullptr;
}

bool SourceReaderImpl::SameVersion(const io::FileStat& a, const io::FileStat& b) const {
  return weak_source_ ? SameContentStamps(a, b) : a.SameVersion(b);
}

void SourceReaderImpl::OnRead(std::uint64_t id, const io::FileReadResult& r) {
  const auto found = operations_.find(id);
  TIERD_CHECK(found != operations_.end());
  Operation& op = *found->second;
  Land(op, r.bytes, r.error == 0);
  if (IsShortage(r.error) && WaitAgain(op, r.error)) return;
  ReadResult result;
  result.buffer = op.read.buffer;
  const Verdict verdict = Judge(op, r, &result);
  if (verdict == Verdict::kAgain) {
    counters_.bytes_discarded += r.bytes;
    if (!op.abandoned && !stopped_) {
      Send(op);
      return;
    }
    result.error = stopped_ ? ReadError::kStopped : ReadError::kTimeout;
  } else if (result.error != ReadError::kNone || op.abandoned) {
    counters_.bytes_discarded += r.bytes;
  }
  End(op, result);
}

void SourceReaderImpl::OnStat(std::uint64_t id, const io::StatResult& r) {
  const auto found = operations_.find(id);
  TIERD_CHECK(found != operations_.end());
  Operation& op = *found->second;
  Land(op, 0, false);
  if (IsShortage(r.error) && WaitAgain(op, r.error)) return;
  if (r.error == ESTALE && !op.reopened && !op.abandoned && !stopped_) {
    op.reopened = true;
    ++counters_.stale_reopens;
    Send(op);
    return;
  }
  ReadResult result;
  result.version = r.stat;
  result.stat_sent_ns = r.stat_sent_ns;
  if (r.error == EXDEV || (r.error == 0 && r.stat.dev != source_->root_stat().dev)) {
    result.error = ReadError::kOutside;
  } else if (IsShortage(r.error)) {
    result.error = ReadError::kNoBuffer;
  } else if (r.error != 0) {
    result.error = ReadError::kErrno;
    result.sys_errno = r.error;
  } else {
    result.racy = stamps_.IsYoung(r.stat, op.sent_real_ns);
    result.in_the_making = stamps_.IsInTheMaking(r.stat, op.sent_real_ns);
  }
  End(op, result);
}

void SourceReaderImpl::OnOpened(std::uint64_t id, const io::FileReadResult& r) {
  Operation& op = *operations_.at(id);
  io::StatResult stat;
  stat.error = r.error;
  stat.stat = r.after;
  stat.stat_sent_ns = op.sent_ns;
  // It is no regular file any more. A stat tells what it is.
  if (r.error == EINVAL) op.opens = false;
  const bool again = r.error == EINVAL && !op.abandoned && !stopped_;
  if (!again) return OnStat(id, stat);
  Land(op, 0, false);
  Send(op);
}

// Back into the queue, for fewer to be in flight with it. False: that was tried often enough, or nobody waits.
bool SourceReaderImpl::WaitAgain(Operation& op, int error) {
  if (op.abandoned || stopped_ || op.shortages >= kShortageAttempts) return false;
  const auto priority = static_cast<std::size_t>(op.read.priority);
  try {
    queues_[priority].push_front(static_cast<std::uint64_t>(op.id));
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++queued_[priority];
  op.in_flight = false;
  const std::int64_t now_ns = clock_.PreciseNs();
  // A source may say of one file that it has no memory, whoever asks: that concerns nobody else.
  const std::size_t path = std::hash<std::string>{}(op.read.path);
  const bool alone = error == ENOMEM && (short_of_memory_path_ == 0 || short_of_memory_path_ == path);
  if (error == ENOMEM) short_of_memory_path_ = path;
  if (!alone && now_ns >= paused_until_ns_) {  // else those are meant that ran short together with others
    window_.OnShortage();
    paused_until_ns_ = now_ns + (kShortagePauseNs << op.shortages);
  }
  ++op.shortages;
  return true;
}

// Accounts for a completion; the operation may be sent again afterwards.
void SourceReaderImpl::Land(Operation& op, std::size_t bytes, bool good) {
  const std::int64_t now_ns = clock_.PreciseNs();
  const std::int64_t latency_ns = now_ns - op.sent_ns;
  ++(op.is_stat ? counters_.stat_latency : counters_.latency)[LatencyBucket(latency_ns)];
  (op.is_stat ? counters_.stat_latency_ns_sum : counters_.latency_ns_sum) += static_cast<std::uint64_t>(std::max<std::int64_t>(latency_ns, 0));
  counters_.bytes_read += bytes;
  byte_budget_.Take(static_cast<std::int64_t>(bytes) - op.charged);
  last_completion_ns_ = now_ns;
  probe_wait_ns_ = options_.probe_interval_ns;
  if (op.probe) {
    op.probe = false;
    --probes_;
  }
  const bool backlog = Waiting() > 0;
  if (op.hung) {
    op.hung = false;
    --hung_;
    ++counters_.late_completions;
  } else {
    flight_.Remove(&op);
    --in_flight_;
    // Without a backlog it keeps its size, as it has to during a trial.
    if (good) window_.OnComplete(bytes, latency_ns, now_ns, backlog && !trial_.running());
  }
  if (good) trial_.OnComplete(op.engine, bytes, now_ns, backlog ? window_.size() : 0);
}

// One odd file (compressed, inline) says nothing of the source; three do.
void SourceReaderImpl::NoteDirectRefused(Operation& op) {
  op.plain = true;
  if (direct_refused_ || DirectRefused(op.read.path)) return;
  refused_files_[refused_count_++] = std::hash<std::string>{}(op.read.path);
  direct_refused_ = refused_count_ == refused_files_.size();
}

bool SourceReaderImpl::DirectRefused(const std::string& path) const {
  const auto known = refused_files_.begin() + refused_count_;
  return refused_count_ != 0 && std::find(refused_files_.begin(), known, std::hash<std::string>{}(path)) != known;
}

SourceReaderImpl::Verdict SourceReaderImpl::Judge(Operation& op, const io::FileReadResult& r, ReadResult* result) {
  if (r.error == ESTALE && !op.reopened) {
    op.reopened = true;
    ++counters_.stale_reopens;
    return Verdict::kAgain;
  }
  if (r.direct_refused) NoteDirectRefused(op);
  // A server may have taken the flag, and then refuse every read of that descriptor.
  if (r.error == EINVAL && r.direct_refused) return Verdict::kAgain;
  // EINVAL is the engine's word for streams, which it does not stat. Should the source mean it, the client will hear it too.
  if (r.error == EINVAL || (r.opened && r.error == 0 && !S_ISREG(r.before.mode))) {
    result->error = ReadError::kNotRegular;
    return Verdict::kFinal;
  }
  // EXDEV: the path crosses a mount, a bind mount of the same device too.
  if (r.error == EXDEV || (r.error == 0 && r.before.dev != source_->root_stat().dev)) {
    result->error = ReadError::kOutside;
    return Verdict::kFinal;
  }
  if (IsShortage(r.error)) {
    result->error = ReadError::kNoBuffer;
    return Verdict::kFinal;
  }
  if (r.error != 0) {
    result->error = ReadError::kErrno;
    result->sys_errno = r.error;
    return Verdict::kFinal;
  }
  return JudgeVersion(op, r, result);
}

SourceReaderImpl::Verdict SourceReaderImpl::JudgeVersion(Operation& op, const io::FileReadResult& r, ReadResult* result) {
  result->version = r.after;
  result->stat_sent_ns = r.stat_sent_ns;
  const bool weakly_same = SameContentStamps(r.before, r.after);
  const bool complete = r.bytes == WantedBytes(op.read, r.after.size);
  if (!SameVersion(r.before, r.after) || !complete) {
    if (r.before.ctime_ns != r.after.ctime_ns) {
      stamps_.NoteChange(op.sent_real_ns, clock_.RealtimeNs(), r.after.ctime_ns);
    }
    ++op.mismatches;
    op.only_weak = op.only_weak && weakly_same && complete;
    if (!op.only_weak || op.mismatches < kWeakAfter) {
      if (op.mismatches < options_.version_attempts) {
        ++counters_.version_retries;
        return Verdict::kAgain;
      }
      result->error = ReadError::kChanged;
      return Verdict::kFinal;
    }
    result->weak_version = true;
    weak_source_ = ++weak_files_ >= kWeakFiles;
  } else if (weak_source_ && !r.before.SameVersion(r.after)) {
    result->weak_version = true;
  }
  const bool expected = !op.read.expected || SameVersion(*op.read.expected, r.after) ||
                        (result->weak_version && SameContentStamps(*op.read.expected, r.after));
  if (!expected) {
    result->error = ReadError::kChanged;
    return Verdict::kFinal;
  }
  if (result->weak_version) ++counters_.weak_versions;
  result->racy = stamps_.IsYoung(r.after, op.sent_real_ns);
  result->in_the_making = stamps_.IsInTheMaking(r.after, op.sent_real_ns);
  if (result->racy) ++counters_.racy_reads;
  result->bytes = r.bytes;
  return Verdict::kFinal;
}

// From now on the operation counts as hung: its slot goes to others.
void SourceReaderImpl::Declare(Operation& op) {
  TIERD_CHECK(op.in_flight && !op.hung);
  op.hung = true;
  flight_.Remove(&op);
  --in_flight_;
  ++hung_;
  ++counters_.hung_total;
  if (trial_.running()) trial_.Abort("not measured: the source hung");
  EngineFor(op.engine).CompensateHung(1);
  if (hung_ == options_.hung_cap) RefuseDemand();
}

void SourceReaderImpl::RefuseDemand() {
  while (Operation* op = Front(0)) {
    ++counters_.refused_hung;
    EndLater(*op, ReadError::kHung);
  }
}

// The deadline passed (and has left deadlines_).
void SourceReaderImpl::Expire(Operation& op) {
  op.read.deadline_ns = 0;
  ReadResult result;
  result.error = ReadError::kTimeout;
  result.buffer = op.read.buffer;
  if (!op.in_flight) {
    End(op, result);
    return;
  }
  if (!op.hung) Declare(op);
  op.abandoned = true;
  result.buffer_held = !op.is_stat;
  ++(op.is_stat ? counters_.stats : counters_.reads)[static_cast<std::size_t>(result.error)];
  Call(op, result);
}

std::unique_ptr<Operation> SourceReaderImpl::Extract(Operation& op) {
  if (!op.in_flight) LeaveQueue(op);
  const auto number = static_cast<std::uint64_t>(op.id);
  if (op.read.deadline_ns != 0) deadlines_.erase({op.read.deadline_ns, number});
  const auto found = operations_.find(number);
  std::unique_ptr<Operation> owned = std::move(found->second);
  operations_.erase(found);
  return owned;
}

void SourceReaderImpl::End(Operation& op, ReadResult result) {
  const std::unique_ptr<Operation> owned = Extract(op);
  if (!owned->abandoned) {
    ++(op.is_stat ? counters_.stats : counters_.reads)[static_cast<std::size_t>(result.error)];
    Call(*owned, result);
  } else if (!owned->is_stat && owned->read.on_buffer_free) {
    owned->read.on_buffer_free(result);
  }
}

void SourceReaderImpl::EndLater(Operation& op, ReadError error) {
  ReadResult result;
  result.error = error;
  result.buffer = op.read.buffer;
  finished_.push_back(Finished{Extract(op), result});
  Signal();
}

std::size_t SourceReaderImpl::Deliver(std::size_t budget) {
  std::size_t ran = 0;
  while (ran < budget && !finished_.empty()) {
    const Finished finished = std::move(finished_.front());
    finished_.pop_front();
    ++(finished.op->is_stat ? counters_.stats : counters_.reads)[static_cast<std::size_t>(finished.result.error)];
    Call(*finished.op, finished.result);
    ++ran;
  }
  return ran;
}

void SourceReaderImpl::Call(const Operation& op, const ReadResult& result) {
  if (op.is_stat) {
    if (op.stat_done) op.stat_done(ToStatReply(op, result));
  } else if (op.read.done) {
    op.read.done(result);
  }
}

}  // namespace tierd::source
