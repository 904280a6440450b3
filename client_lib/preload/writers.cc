#include "client_lib/preload/writers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cstring>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/process.h"
#include "client_lib/src/process.h"
#include "tier/tier.h"

namespace tierd::preload {
namespace {

constexpr int kNumbers = 4096;  // writers with larger numbers are told at their open only
constexpr int kInherited = 16;  // numbers that a program may be started with
constexpr std::size_t kInodes = 64;

constinit std::atomic<std::uint64_t> writers[kNumbers / 64] = {};
constinit std::atomic<std::uint32_t> writer_count{0};
// Inodes open for writing; one that found no place makes all suspect until the last writer is closed.
constinit std::atomic<std::uint64_t> inodes[kInodes] = {};
constinit std::atomic<bool> too_many{false};

void TellPath(const char* path, bool recursive) {
  Count(counters.invalidations);
  (void)tier_invalidate(nullptr, &path, 1, recursive ? TIER_RECURSIVE : 0);  // unheard: the core reads the source until it could be told
}

bool Mark(int fd) {
  if (fd >= kNumbers) return false;
  raw::Note(fd);
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if ((writers[fd / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) != 0) return false;
  writer_count.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void Unmark(int fd) {
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if ((writers[fd / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) == 0) return;
  if (writer_count.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (auto& inode : inodes) inode.store(0, std::memory_order_relaxed);
  too_many.store(false, std::memory_order_relaxed);
}

void NoteInode(std::uint64_t inode) {
  for (auto& slot : inodes) {
    std::uint64_t none = 0;
    if (slot.load(std::memory_order_relaxed) == inode || slot.compare_exchange_strong(none, inode, std::memory_order_acq_rel)) return;
  }
  too_many.store(true, std::memory_order_relaxed);
}

bool IsRegular(int fd, struct stat& st) { return raw::Stat(fd, st) == 0 && S_ISREG(st.st_mode); }

}  // namespace

void NoteWriter(int fd) {
  struct stat st;
  client::PathText name;
  if (fd < 0 || !IsRegular(fd, st) || !NameOfDescriptor(fd, name) || !BelowRoots(name.text)) return;
  NoteInode(st.st_ino);
  Mark(fd);
  TellPath(name.text, false);
}

bool IsWriter(int fd) {
  return fd >= 0 && fd < kNumbers && (writers[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1) != 0;
}

void NoteCopy(int from, int to) {
  if (to >= 0 && IsWriter(from)) Mark(to);
}

bool AnyWriters() { return writer_count.load(std::memory_order_relaxed) != 0; }

bool BeingWritten(std::uint64_t inode) {
  if (!AnyWriters()) return false;
  if (too_many.load(std::memory_order_relaxed)) return true;
  for (const auto& slot : inodes) {
    if (slot.load(std::memory_order_acquire) == inode) return true;
  }
  return false;
}

ClosingWriter::ClosingWriter(int fd) {
  if (!IsWriter(fd)) return;
  writer_ = NameOfDescriptor(fd, name_);
  Unmark(fd);
}

void ClosingWriter::Tell() {
  if (!writer_) return;
  const client::KeepErrno keep;
  TellPath(name_.text, false);
}

// ---- paths -----------------------------------------------------------------------------------------------------------------

namespace {

bool NameOfPath(int directory, const char* path, client::PathText& name) {
  const int fd = raw::Open(directory, path, O_PATH | O_CLOEXEC);
  if (fd < 0) return false;
  const bool named = NameOfDescriptor(fd, name);
  raw::Close(fd);
  return named;
}

// The directory by the kernel's name, the last component as it stands.
bool NameOfEntry(int directory, const char* path, client::PathText& name) {
  std::size_t end = std::strlen(path);
  while (end > 1 && path[end - 1] == '/') --end;
  std::size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') --begin;
  const std::size_t bytes = end - begin;
  const bool dots = (bytes == 1 && path[begin] == '.') || (bytes == 2 && path[begin] == '.' && path[begin + 1] == '.');
  if (bytes == 0 || dots) return NameOfPath(directory, path, name);
  client::PathText parent;
  if (begin >= sizeof parent.text) return false;
  std::memcpy(parent.text, path, begin);
  parent.text[begin] = '\0';
  if (!NameOfPath(directory, begin == 0 ? "." : parent.text, name)) return false;
  std::size_t used = std::strlen(name.text);
  if (used == 1) used = 0;
  if (used + 1 + bytes >= sizeof name.text) return false;
  name.text[used] = '/';
  std::memcpy(name.text + used + 1, path + begin, bytes);
  name.text[used + 1 + bytes] = '\0';
  return true;
}

}  // namespace

ChangedName::ChangedName(int directory, const char* path, Changes what) {
  if (!Active() || path == nullptr) return;
  inside_ = (what == Changes::kEntry ? NameOfEntry(directory, path, name_) : NameOfPath(directory, path, name_)) && BelowRoots(name_.text);
}

ChangedName::ChangedName(int fd) {
  if (!Active() || fd < 0) return;
  inside_ = NameOfDescriptor(fd, name_) && BelowRoots(name_.text);
}

void ChangedName::Tell(bool recursive) const {
  if (!inside_) return;
  const client::KeepErrno keep;
  TellPath(name_.text, recursive);
}

// ---- a process's life ------------------------------------------------------------------------------------------------------

void AdoptWriters() {
  if (process.roots.count == 0) return;  // who may be a source is not known yet
  for (int fd = 0; fd < kInherited; ++fd) {
    const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
    struct stat st;
    client::PathText name;
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0 || !IsRegular(fd, st)) continue;
    if (!NameOfDescriptor(fd, name) || !BelowPrefixes(name.text)) continue;
    NoteInode(st.st_ino);
    Mark(fd);
  }
}

void EndWriters(bool flush) {
  if (!AnyWriters()) return;
  if (flush) ::fflush(nullptr);  // libc would do it after us
  for (int fd = 0; fd < kNumbers; ++fd) {
    if (!IsWriter(fd)) continue;
    ClosingWriter closing(fd);
    closing.Tell();
  }
}

}  // namespace tierd::preload
