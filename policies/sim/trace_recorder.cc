#include "policies/sim/trace_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tierd::sim {

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path) { return Create(AT_FDCWD, path, path); }

Result<std::unique_ptr<TraceFile>> TraceFile::Create(int directory, const std::string& name, const std::string& path) {
  const int fd = ::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Status::FromErrno(errno, path);
  return std::unique_ptr<TraceFile>(new TraceFile(fd));
}

TraceFile::~TraceFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status TraceFile::Append(const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = ::write(fd_, bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Status::FromErrno(errno, "write the trace");
    at += static_cast<std::size_t>(wrote);
  }
  return Status::Ok();
}

Status TraceFile::Close() {
  const int fd = std::exchange(fd_, -1);
  return ::close(fd) != 0 && errno != EINTR ? Status::FromErrno(errno, "close the trace") : Status::Ok();
}

void TraceRecorder::SayLost() {
  if (lost_ == 0) return;
  writer_.Lost(lost_);
  progress_.lost += lost_;
  lost_ = 0;
}

void TraceRecorder::Note(const Read& read) {
  progress_.full |= progress_.bytes + waiting_.size() >= most_bytes_;
  if (progress_.full || waiting_.size() >= kMostWaiting) {
    ++lost_;
    return;
  }
  SayLost();
  if (began_ns_ < 0) began_ns_ = read.time_ns, epoch_ = read.epoch;
  if (read.epoch != epoch_) writer_.Epoch();
  epoch_ = read.epoch;
  const auto [object, is_new] = objects_.try_emplace(read.key, Known{static_cast<std::uint32_t>(objects_.size()), 0});
  if (object->second.id >= kMaxTraceObjects) return NoteLost(1);
  if (is_new || object->second.bytes != read.bytes) {
    const std::uint32_t file = files_.try_emplace(read.file_key, static_cast<std::uint32_t>(files_.size())).first->second;
    writer_.Object(object->second.id, {.bytes = read.bytes, .file = file, .chunk = read.chunk});
    object->second.bytes = read.bytes;
    progress_.objects = objects_.size();
  }
  last_us_ = std::max(last_us_, static_cast<std::uint64_t>(std::max<std::int64_t>(read.time_ns - began_ns_, 0)) / 1000);
  writer_.Access({.id = object->second.id, .consumer = read.consumer, .time_us = last_us_});
  ++progress_.accesses;
}

std::string TraceRecorder::Take(bool all) {
  if (all) {
    SayLost();
    writer_.Flush();
  }
  if (!all && waiting_.size() < kWorthWriting) return {};
  progress_.bytes += waiting_.size();
  return std::exchange(waiting_, {});
}

}  // namespace tierd::sim
