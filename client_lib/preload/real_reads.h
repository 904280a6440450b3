// Descriptors that are the source's own although they are of files below a source: reads through them went around the cache, and count as such (`bypass`). Known by number, in
// the marks of raw.h; numbers from raw::kWatched on are not marked, and what is read through those is not counted.
//
// A stream of libc's reads by itself: what it read is counted when it is closed, by the offset of its descriptor. A stream that the end of the process closes is not counted.
// Any thread, signal handlers too. No lock, no system call for a descriptor that is not marked.
#pragma once

#include <errno.h>

#include <cstdint>

#include "client_lib/preload/raw.h"
#include "client_lib/src/clock.h"

namespace tierd::preload {

// One call that read `bytes` of the source in `took_ns`; < 0: it was not timed.
void CountRealRead(std::uint64_t bytes, std::int64_t took_ns);
// Whether a daemon hears of the time that such a read takes.
bool IsTimed();

inline bool ReadsSource(int fd) { return raw::HasMark(fd, raw::kOfSource); }
// The number has just been given out, or is a copy of `from`.
inline void MarkSourceFile(int fd) { raw::Mark(fd, raw::kOfSource); }
inline void MarkSourceStream(int fd) {
  raw::Unmark(fd, raw::kOfSource);
  raw::Mark(fd, raw::kStreamOfSource);
}
inline void ForgetSourceFile(int fd) { raw::Unmark(fd, raw::kOfSource | raw::kStreamOfSource); }
inline void CopySourceMark(int from, int to) {
  if (ReadsSource(from)) MarkSourceFile(to);
  else ForgetSourceFile(to);
}

// `read` is the next library's call on such a descriptor.
template <typename Read>
__attribute__((noinline)) auto CountedRead(Read read) {
  const std::int64_t start_ns = IsTimed() ? client::PreciseNs() : 0;
  const auto got = read();
  if (got > 0) CountRealRead(static_cast<std::uint64_t>(got), start_ns != 0 ? client::PreciseNs() - start_ns : -1);
  return got;
}
// The same on any descriptor that is not ours.
template <typename Read>
__attribute__((always_inline)) inline auto ReadReal(int fd, Read read) {
  if (ReadsSource(fd)) [[unlikely]] return CountedRead(read);
  return read();
}

// Before a stream of libc's is closed.
void CountSourceStream(int fd);

}  // namespace tierd::preload
