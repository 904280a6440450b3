// Reading the source directly, with the caller's own credentials: what open, fstat and read give. Errors are negative errnos.
// Pure functions over descriptors; any thread.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/src/index_view.h"
#include "tier/tier.h"

namespace tierd::client {

// What O_NONBLOCK refuses (EWOULDBLOCK): a regular file under another process's write lease (F_SETLEASE), for whose end open(2) waits. fd, or -1 with errno.
int OpenLeasedFile(const char* path);
// A regular file of the source, open for reading. fd or -errno: -EISDIR for a directory, -EINVAL for other things. `st`, `attr`: as of the open.
inline int OpenSourceFile(const char* path, struct stat& st) {
  // O_NONBLOCK: a FIFO must not hang the call; to regular files it means next to nothing.
  int fd;
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == EWOULDBLOCK) [[unlikely]] fd = OpenLeasedFile(path);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) [[unlikely]] return -errno;
  if (::fstat(fd, &st) != 0) [[unlikely]] {
    const int error = -errno;
    ::close(fd);
    return error;
  }
  if (!S_ISREG(st.st_mode)) [[unlikely]] {
    ::close(fd);
    return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
  }
  return fd;
}
int OpenSourceFile(const char* path, tier_attr& attr);
// As OpenSourceFile, and closes it: 0 or -errno.
int ProbeSourceFile(const char* path, tier_attr& attr);
// stat or lstat.
int StatSource(const char* path, bool follow, tier_attr& attr);
// fstat.
int StatDescriptor(int fd, tier_attr& attr);
// Up to `count` bytes: fewer only at the end of the file. `size`: what the file had when it was opened, if the caller knows: a short read that ends there is
// not followed by one that says so. An error behind some bytes is the result, unless there is an `error` for it: then the bytes are, as read(2) has it.
// (ReadSourceOn: the rest, after a first pread that gave `got`.)
ssize_t ReadSourceOn(int fd, void* buffer, std::size_t count, std::int64_t offset, std::uint64_t size, ssize_t got, int* error);
inline ssize_t ReadSource(int fd, void* buffer, std::size_t count, std::int64_t offset, std::uint64_t size = 0, int* error = nullptr) {
  const ssize_t got = ::pread(fd, buffer, count, offset);
  const bool whole = got > 0 && (static_cast<std::size_t>(got) == count || static_cast<std::uint64_t>(offset + got) == size);
  return whole ? got : ReadSourceOn(fd, buffer, count, offset, size, got, error);
}

// Fields of tier_attr, whatever its caller's `size` was.
void AttrFromStat(const struct stat& st, tier_attr& attr);
void AttrFromFacts(const FileFacts& facts, std::uint64_t dev, tier_attr& attr);
FileFacts FactsFromAttr(const tier_attr& attr);
// Copies what the caller's struct (its size set) has room for. -EINVAL: no room for anything.
int GiveAttr(const tier_attr& attr, tier_attr* to);

}  // namespace tierd::client
