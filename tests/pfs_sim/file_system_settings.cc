// Attributes as shown, run-time settings, and the reports.
#include <algorithm>
#include <iterator>

#include "tests/pfs_sim/file_system.h"

namespace pfs_sim {
namespace {

constexpr uint64_t kNsPerS = 1000000000;

void RoundDown(uint64_t granularity_ns, uint64_t* sec, uint32_t* nsec) {
  if (granularity_ns <= 1) return;
  const uint64_t ns = *sec * kNsPerS + *nsec;
  const uint64_t rounded = ns - ns % granularity_ns;
  *sec = rounded / kNsPerS;
  *nsec = static_cast<uint32_t>(rounded % kNsPerS);
}

std::string Quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string Field(std::string_view name, uint64_t value) {
  return "\"" + std::string(name) + "\":" + std::to_string(value);
}

std::string KindName(const FaultRule& rule) {
  switch (rule.kind) {
    case FaultKind::kErrno: return std::to_string(rule.error);
    case FaultKind::kHang: return "hang";
    case FaultKind::kShort: return "short";
    case FaultKind::kFlip: return "flip";
    case FaultKind::kStaleAttr: return "stale_attr";
    case FaultKind::kDelay: return "delay";
  }
  return "?";
}

}  // namespace

void FileSystem::FillAttr(Node* node, const struct stat& st, bool frozen, fuse_attr* out) {
  out->ino = st.st_ino;
  out->size = static_cast<uint64_t>(st.st_size);
  out->blocks = static_cast<uint64_t>(st.st_blocks);
  out->atime = static_cast<uint64_t>(st.st_atim.tv_sec);
  out->mtime = static_cast<uint64_t>(st.st_mtim.tv_sec);
  out->ctime = static_cast<uint64_t>(st.st_ctim.tv_sec);
  out->atimensec = static_cast<uint32_t>(st.st_atim.tv_nsec);
  out->mtimensec = static_cast<uint32_t>(st.st_mtim.tv_nsec);
  out->ctimensec = static_cast<uint32_t>(st.st_ctim.tv_nsec);
  out->mode = st.st_mode;
  out->nlink = static_cast<uint32_t>(st.st_nlink);
  out->uid = st.st_uid;
  out->gid = st.st_gid;
  out->rdev = static_cast<uint32_t>(st.st_rdev);
  out->blksize = static_cast<uint32_t>(st.st_blksize);
  out->flags = 0;
  RoundDown(stamp_granularity_ns_, &out->mtime, &out->mtimensec);
  RoundDown(stamp_granularity_ns_, &out->ctime, &out->ctimensec);
  if (!attr_shifts_.empty()) ShiftAttr(node, out);
  if (HoldsStale()) {
    const auto [seen, added] = frozen_.try_emplace(st.st_ino, *out);
    if (frozen) *out = seen->second;
  }
}

bool FileSystem::HoldsStale() const {
  return std::any_of(faults_.rules().begin(), faults_.rules().end(), [](const FaultRule& rule) {
    return rule.kind == FaultKind::kStaleAttr;
  });
}

void FileSystem::ShiftAttr(Node* node, fuse_attr* out) {
  const std::string path = nodes_.PathOf(node);
  for (AttrShift& shift : attr_shifts_) {
    if (!GlobMatches(shift.path, path)) continue;
    const uint64_t times = shift.each ? ++shift.answers : 1;
    out->ino += shift.ino * times;
    const uint64_t ns = out->ctime * kNsPerS + out->ctimensec + shift.ctime_ns * times;
    out->ctime = ns / kNsPerS;
    out->ctimensec = static_cast<uint32_t>(ns % kNsPerS);
  }
}

bool FileSystem::Hidden(const std::string& path) const {
  return std::any_of(hidden_.begin(), hidden_.end(), [&](const std::string& pattern) {
    return GlobMatches(pattern, path);
  });
}

void FileSystem::SetLatency(Op op, uint64_t usec) {
  const std::lock_guard lock(mutex_);
  latency_us_[Index(op)] = usec;
}

void FileSystem::SetLatencyAll(uint64_t usec) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kOpCount; ++i) {
    if (IsCosted(static_cast<Op>(i))) latency_us_[i] = usec;
  }
}

void FileSystem::SetStampGranularity(uint64_t nsec) {
  const std::lock_guard lock(mutex_);
  stamp_granularity_ns_ = nsec;
}

void FileSystem::AddAttrShift(AttrShift shift) {
  const std::lock_guard lock(mutex_);
  attr_shifts_.push_back(std::move(shift));
}

void FileSystem::ClearAttrShifts() {
  const std::lock_guard lock(mutex_);
  attr_shifts_.clear();
}

void FileSystem::Hide(std::string pattern) {
  const std::lock_guard lock(mutex_);
  hidden_.push_back(std::move(pattern));
}

void FileSystem::ClearHidden() {
  const std::lock_guard lock(mutex_);
  hidden_.clear();
}

uint64_t FileSystem::AddFault(FaultRule rule) {
  const std::lock_guard lock(mutex_);
  return faults_.Add(std::move(rule));
}

bool FileSystem::RemoveFault(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const bool found = faults_.Remove(id);
  if (!HoldsStale()) frozen_.clear();
  return found;
}

void FileSystem::ClearFaults() {
  const std::lock_guard lock(mutex_);
  faults_.Clear();
  frozen_.clear();
}

size_t FileSystem::ReleaseHung(int error) {
  std::vector<Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    for (const std::vector<char>& message : hung_) {
      Request request;
      request.header = reinterpret_cast<const fuse_in_header*>(message.data());
      request.body = message.data() + sizeof(fuse_in_header);
      request.body_size = message.size() - sizeof(fuse_in_header);
      request.released = true;
      FaultRule failing;
      failing.error = error;
      if (error != 0) request.fault = &failing;
      answers.push_back(Dispatch(request));
    }
    hung_.clear();
  }
  ReplyWriter writer(dev_fd_, counters_);
  for (Answer& answer : answers) Send(std::move(answer), writer);
  return answers.size();
}

std::string FileSystem::CountersJson() {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"ops\":{";
  for (size_t i = 0; i < kOpCount; ++i) {
    out += (i == 0 ? "\"" : ",\"") + std::string(OpName(static_cast<Op>(i))) + "\":{" +
           Field("count", counters_.requests[i]) + "," + Field("errors", counters_.errors[i]) + "," +
           Field("latency_us", counters_.latency_us[i]) + "}";
  }
  out += "}," + Field("bytes_read", counters_.bytes_read) + "," +
         Field("bytes_written", counters_.bytes_written) + "," +
         Field("in_flight", counters_.in_flight) + "," +
         Field("max_concurrency", counters_.max_concurrency) + "," +
         Field("hung", hung_.size()) + "," + Field("faults", counters_.faults) + "," +
         Field("interrupts", counters_.interrupts) + "," + Field("forgets", counters_.forgets) +
         "," + Field("nodes", nodes_.node_count()) + "," +
         Field("open_handles", nodes_.handle_count()) + "}";
  return out;
}

std::string FileSystem::PathsJson(const std::string& prefix) {
  const std::lock_guard lock(mutex_);
  std::string out = "{";
  for (const auto& [path, totals] : nodes_.Totals(prefix)) {
    if (out.size() > 1) out += ",";
    out += Quote(path) + ":{" + Field("opens", totals.opens) + "," + Field("reads", totals.reads) +
           "," + Field("bytes", totals.bytes) + "}";
  }
  return out + "}";
}

std::string FileSystem::StatusJson() {
  const std::lock_guard lock(mutex_);
  std::string out = "{\"latency_us\":{";
  for (size_t i = 0; i < kOpCount; ++i) {
    out += (i == 0 ? "" : ",") + Field(OpName(static_cast<Op>(i)), latency_us_[i]);
  }
  out += "}," + Field("bandwidth", scheduler_.bandwidth()) + "," +
         Field("concurrency", scheduler_.concurrency()) + "," +
         Field("timeout_ms", options_.timeout_ms) + "," + Field("init_flags", init_flags_) + "," +
         Field("stamp_granularity_ns", stamp_granularity_ns_) + ",\"hidden\":[";
  for (size_t i = 0; i < hidden_.size(); ++i) out += (i == 0 ? "" : ",") + Quote(hidden_[i]);
  out += "],\"faults\":[";
  for (size_t i = 0; i < faults_.rules().size(); ++i) {
    const FaultRule& rule = faults_.rules()[i];
    out += (i == 0 ? "{" : ",{") + Field("id", rule.id) + ",\"op\":" +
           Quote(rule.op ? std::string(OpName(*rule.op)) : "all") + ",\"path\":" +
           Quote(rule.path) + ",\"errno\":" + Quote(KindName(rule)) + "," +
           Field("seen", rule.seen) + "," + Field("fired", rule.fired) + "}";
  }
  return out + "]}";
}

void FileSystem::ResetCounters() {
  const std::lock_guard lock(mutex_);
  counters_.Reset();
  nodes_.ResetTotals();
}

}  // namespace pfs_sim
