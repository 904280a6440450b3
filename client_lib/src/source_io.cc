#include "client_lib/src/source_io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/abi/time_ns.h"

namespace tierd::client {
namespace {

constexpr std::uint32_t kDefaultBlock = 4096;  // st_blksize when nobody knows

// Some file systems refuse to wait for what lies on tape when they are asked with O_NONBLOCK: without it from now on. False: it was not that.
bool WaitsFromNow(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0 && ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

}  // namespace

void AttrFromStat(const struct stat& st, tier_attr& attr) {
  attr = {};
  attr.size = sizeof attr;
  attr.dev = st.st_dev;
  attr.ino = st.st_ino;
  attr.bytes = static_cast<std::uint64_t>(st.st_size);
  attr.mode = st.st_mode;
  attr.nlink = static_cast<std::uint32_t>(st.st_nlink);
  attr.uid = st.st_uid;
  attr.gid = st.st_gid;
  attr.blksize = static_cast<std::uint64_t>(st.st_blksize);
  attr.blocks = static_cast<std::uint64_t>(st.st_blocks);
  attr.atime_ns = abi::TimeNs(st.st_atim);
  attr.mtime_ns = abi::TimeNs(st.st_mtim);
  attr.ctime_ns = abi::TimeNs(st.st_ctim);
  attr.origin = TIER_FROM_BYPASS;
}

int OpenLeasedFile(const char* path) {
  struct stat st;
  if (::fstatat(AT_FDCWD, path, &st, 0) != 0) return -1;
  if (S_ISREG(st.st_mode)) return ::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  errno = EWOULDBLOCK;
  return -1;
}

int OpenSourceFile(const char* path, tier_attr& attr) {
  struct stat st;
  const int fd = OpenSourceFile(path, st);
  if (fd >= 0) AttrFromStat(st, attr);
  return fd;
}

int ProbeSourceFile(const char* path, tier_attr& attr) {
  const int fd = OpenSourceFile(path, attr);
  if (fd < 0) return fd;
  ::close(fd);
  return 0;
}

int StatSource(const char* path, bool follow, tier_attr& attr) {
  struct stat st;
  if (::fstatat(AT_FDCWD, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) return -errno;
  AttrFromStat(st, attr);
  return 0;
}

int StatDescriptor(int fd, tier_attr& attr) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return -errno;
  AttrFromStat(st, attr);
  return 0;
}

ssize_t ReadSourceOn(int fd, void* buffer, std::size_t count, std::int64_t offset, std::uint64_t size, ssize_t got, int* error) {
  std::size_t done = 0;
  for (;;) {
    if (got == 0) return static_cast<ssize_t>(done);
    if (got < 0 && errno != EINTR && (errno != EAGAIN || !WaitsFromNow(fd))) {
      if (error == nullptr || done == 0) return -errno;
      *error = -errno;
      return static_cast<ssize_t>(done);
    }
    if (got > 0) done += static_cast<std::size_t>(got);
    if (done >= count || (size != 0 && done > 0 && static_cast<std::uint64_t>(offset) + done >= size)) return static_cast<ssize_t>(done);
    got = ::pread(fd, static_cast<char*>(buffer) + done, count - done, offset + static_cast<std::int64_t>(done));
  }
}

void AttrFromFacts(const FileFacts& facts, std::uint64_t dev, tier_attr& attr) {
  attr = {};
  attr.size = sizeof attr;
  attr.dev = facts.attrs.dev != 0 ? facts.attrs.dev : dev;
  attr.ino = facts.ino;
  attr.bytes = facts.size;
  attr.mode = facts.attrs.mode;
  attr.nlink = facts.attrs.nlink;
  attr.uid = facts.attrs.uid;
  attr.gid = facts.attrs.gid;
  attr.blksize = facts.attrs.blksize != 0 ? facts.attrs.blksize : kDefaultBlock;
  attr.blocks = facts.kind == abi::SlotKind::kSymlink ? 0 : (facts.size + 4095) / 4096 * 8;  // a link lies in its inode
  attr.atime_ns = facts.atime_ns;
  attr.mtime_ns = facts.mtime_ns;
  attr.ctime_ns = facts.ctime_ns;
}

FileFacts FactsFromAttr(const tier_attr& attr) {
  FileFacts facts;
  facts.size = attr.bytes;
  facts.ino = attr.ino;
  facts.mtime_ns = attr.mtime_ns;
  facts.ctime_ns = attr.ctime_ns;
  facts.atime_ns = attr.atime_ns;
  facts.kind = S_ISDIR(attr.mode) ? abi::SlotKind::kDirectory : abi::SlotKind::kFile;
  facts.has_attrs = true;
  facts.attrs.dev = attr.dev;
  facts.attrs.mode = attr.mode;
  facts.attrs.uid = attr.uid;
  facts.attrs.gid = attr.gid;
  facts.attrs.nlink = attr.nlink;
  facts.attrs.blksize = static_cast<std::uint32_t>(attr.blksize);
  return facts;
}

int GiveAttr(const tier_attr& attr, tier_attr* to) {
  if (to == nullptr || to->size < sizeof to->size) return -EINVAL;
  const std::uint64_t room = to->size;
  const std::size_t bytes = room < sizeof attr ? static_cast<std::size_t>(room) : sizeof attr;
  std::memcpy(reinterpret_cast<char*>(to) + sizeof to->size, reinterpret_cast<const char*>(&attr) + sizeof to->size, bytes - sizeof to->size);
  return 0;
}

}  // namespace tierd::client
