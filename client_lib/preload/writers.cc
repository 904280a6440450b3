#include "client_lib/preload/writers.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <cstring>

#include "client_lib/preload/changes.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/mounts.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/preload/root_names.h"
#include "client_lib/src/process.h"

namespace tierd::preload {
namespace {

constexpr int kNumbers = 4096;
constexpr int kInherited = 16;  // numbers that a program may be started with

constinit std::atomic<std::uint64_t> writers[kNumbers / 64] = {};
constinit std::atomic<std::uint64_t> inode_of[kNumbers] = {};
constinit std::atomic<FILE*> stream_of[kNumbers] = {};
constinit std::atomic<std::uint32_t> writer_count{0};
// The highest one beyond; 0: there was none. Which file it is nobody remembers, so any may be being written from now on. Its close asks the kernel.
constinit std::atomic<int> highest_beyond{0};

// Files that were changed here by one of several names; the latest ones, the staleness bound holds for those before.
constexpr std::uint32_t kManyNamed = 64;
constinit std::atomic<std::uint64_t> many_named[kManyNamed] = {};
constinit std::atomic<std::uint32_t> many_named_count{0};

// Directories that are watched, by the hash of their names: two of one hash are both read from the
// source.
constexpr std::uint32_t kWatched = 1024;
constinit std::atomic<std::uint64_t> watched[kWatched] = {};
constinit std::atomic<std::uint32_t> watched_count{0};

std::uint64_t HashOf(const char* path, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<unsigned char>(path[i])) * 0x100000001b3u;
  return hash != 0 ? hash : 1;
}

void Mark(int fd, std::uint64_t inode) {
  if (fd >= kNumbers) {
    for (int highest = highest_beyond.load(std::memory_order_relaxed); fd > highest && !highest_beyond.compare_exchange_weak(highest, fd, std::memory_order_relaxed);) {
    }
    writer_count.fetch_add(1, std::memory_order_acq_rel);
    return;
  }
  raw::Note(fd);
  inode_of[fd].store(inode, std::memory_order_release);
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if ((writers[fd / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) == 0) writer_count.fetch_add(1, std::memory_order_acq_rel);
}

bool IsRegular(int fd, struct stat& st) { return raw::Stat(fd, st) == 0 && S_ISREG(st.st_mode); }

// What is written to by that number; of one beyond only the name tells whether it is a source's.
bool NameOfWriter(int fd, client::PathText& text) { return NameOfDescriptor(fd, text) && (fd < kNumbers || NameInSource(text)); }

void Flush(int fd) {
  if (fd >= kNumbers) return;
  FILE* stream = stream_of[fd].load(std::memory_order_acquire);
  if (fd == 1) stream = stdout;
  if (fd == 2) stream = stderr;
  if (stream == nullptr || ::ftrylockfile(stream) != 0) return;  // another thread is in it: waiting for that might be for ever
  ::fflush_unlocked(stream);
  ::funlockfile(stream);
}

template <typename Visit>
void ForEachWriter(Visit visit) {
  for (int word = 0; word < kNumbers / 64; ++word) {
    for (std::uint64_t bits = writers[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) visit(word * 64 + __builtin_ctzll(bits));
  }
  for (int fd = kNumbers; fd <= HighestWriterBeyond(); ++fd) {
    if (MayBeWriter(fd)) visit(fd);
  }
}

}  // namespace

void NoteWriter(int fd) {
  Place place;
  struct stat st;
  Room name;
  if (fd < 0 || !PlaceOfDescriptor(fd, place) || !S_ISREG(place.mode) || !MayBeOnSource(place)) return;
  client::PathText* const text = name.Get();
  if (text != nullptr && (!NameOfDescriptor(fd, *text) || !NameInSource(*text))) return;
  if (!IsRegular(fd, st)) return;
  Mark(fd, st.st_ino);
  if (st.st_nlink > 1) NoteOtherNames(st.st_ino);
  if (text != nullptr) TellChange(text->text, false);
  else TellDoubt();
  MaterialiseFile(st.st_ino, fd);  // last: what is opened from the mark on is the source's
}

bool IsWriter(int fd) {
  return fd >= 0 && fd < kNumbers && (writers[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1) != 0;
}

int HighestWriterBeyond() { return highest_beyond.load(std::memory_order_relaxed); }

bool MayBeWriter(int fd) {
  if (fd < kNumbers || fd > HighestWriterBeyond()) return IsWriter(fd);
  const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && (flags & O_PATH) == 0;
}

void ForgetWriter(int fd) {
  if (!IsWriter(fd)) return;
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  stream_of[fd].store(nullptr, std::memory_order_relaxed);
  if ((writers[fd / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0) writer_count.fetch_sub(1, std::memory_order_acq_rel);
}

void NoteCopy(int from, int to) {
  if (to < 0 || !MayBeWriter(from)) return;
  if (from < kNumbers) return Mark(to, inode_of[from].load(std::memory_order_acquire));
  struct stat st;
  Room name;
  if (IsRegular(from, st) && (name.Get() == nullptr || NameOfWriter(from, *name.Get()))) Mark(to, st.st_ino);
}

void NoteStream(int fd, FILE* stream) {
  if (IsWriter(fd)) stream_of[fd].store(stream, std::memory_order_release);
}

void NoteOtherNames(std::uint64_t inode) {
  for (const auto& one : many_named) {
    if (one.load(std::memory_order_acquire) == inode) return;  // a file that is written to again and again does not push the others out
  }
  const std::uint32_t at = many_named_count.fetch_add(1, std::memory_order_acq_rel);
  many_named[at % kManyNamed].store(inode, std::memory_order_release);
  if (at == 0) writer_count.fetch_add(1, std::memory_order_acq_rel);  // from now on there is something to look at
}

void NoteWatchedDirectory(const char* path) {
  const std::uint64_t hash = HashOf(path, std::strlen(path));
  for (const auto& one : watched) {
    const std::uint64_t known = one.load(std::memory_order_acquire);
    if (known == hash) return;
    if (known == 0) break;
  }
  const std::uint32_t at = watched_count.fetch_add(1, std::memory_order_acq_rel);
  watched[at % kWatched].store(hash, std::memory_order_release);
  if (at == 0)
    writer_count.fetch_add(1,
                           std::memory_order_acq_rel);  // from now on there is something to look at
}

namespace {

bool IsWatched(const char* path, std::size_t bytes) {
  const std::uint64_t hash = HashOf(path, bytes);
  for (const auto& one : watched) {
    const std::uint64_t known = one.load(std::memory_order_acquire);
    if (known == hash) return true;
    if (known == 0) return false;
  }
  return false;
}

bool AnyWatched() { return watched_count.load(std::memory_order_acquire) != 0; }

}  // namespace

bool IsWatchedDirectory(const char* path) {
  return AnyWatched() && IsWatched(path, std::strlen(path));
}

bool IsInWatchedDirectory(const char* path) {
  if (!AnyWatched()) return false;
  const char* const end = std::strrchr(path, '/');
  return end != nullptr && IsWatched(path, static_cast<std::size_t>(end - path));
}

bool AnyWriters() { return writer_count.load(std::memory_order_relaxed) != 0; }

bool BeingWritten(std::uint64_t inode) {
  if (!AnyWriters()) return false;
  if (HighestWriterBeyond() != 0) return true;
  bool found = false;
  for (const auto& one : many_named) found = found || one.load(std::memory_order_acquire) == inode;
  ForEachWriter([&](int fd) { found = found || inode_of[fd].load(std::memory_order_acquire) == inode; });
  return found;
}

ClosingWriter::ClosingWriter(int fd) : fd_(fd) {
  struct stat st;
  if (!MayBeWriter(fd) || (fd >= kNumbers && !IsRegular(fd, st))) return;
  held_ = ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_) == 0;
  client::PathText* const text = name_.Get();
  if (text == nullptr) TellDoubt();
  writer_ = text != nullptr && NameOfWriter(fd, *text);
  if (fd < kNumbers) inode_ = inode_of[fd].load(std::memory_order_acquire);
  else if (!writer_) return;
  if (IsRegular(fd, st) && st.st_nlink > 1) NoteOtherNames(st.st_ino);  // it may have got them since
  ForgetWriter(fd);  // before the close: afterwards the number may be another thread's
}

ClosingWriter::~ClosingWriter() {
  if (held_) ::pthread_setcancelstate(cancel_state_, nullptr);
}

void ClosingWriter::Tell() {
  if (!writer_) return;
  const client::KeepErrno keep;
  TellChange(name_.Get()->text, false);
}

void ClosingWriter::Undo() {
  if (writer_ && fd_ < kNumbers) Mark(fd_, inode_);
}

// ---- a process's life ------------------------------------------------------------------------------------------------------

void AdoptWriters() {
  if (process.roots.count == 0) return;  // who may be a source is not known yet
  for (int fd = 0; fd < kInherited; ++fd) {
    const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
    struct stat st;
    Room name;
    if (flags < 0 || (flags & O_PATH) != 0 || !IsRegular(fd, st)) continue;
    if (name.Get() == nullptr || !NameOfDescriptor(fd, *name.Get()) || !BelowPrefixes(name.Get()->text)) continue;
    if ((flags & O_ACCMODE) == O_RDONLY) {
      MarkSourceFile(fd);
      continue;
    }
    Mark(fd, st.st_ino);
    if (st.st_nlink > 1) NoteOtherNames(st.st_ino);
  }
}

namespace {

void TellWriter(int fd) {
  const client::KeepErrno keep;
  Room name;
  if (name.Get() != nullptr && NameOfWriter(fd, *name.Get())) TellChange(name.Get()->text, false);
}

}  // namespace

void TellClosedByExec() {
  if (!AnyWriters()) return;
  ForEachWriter([](int fd) {
    if ((raw::Call(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC) != 0) TellWriter(fd);
  });
}

void TellWriters() {
  if (AnyWriters()) ForEachWriter(TellWriter);
}

void EndWriters(Streams streams) {
  if (!AnyWriters()) return;
  ForEachWriter([streams](int fd) {
    if (streams == Streams::kFlush) Flush(fd);  // libc would do it after us
    ClosingWriter closing(fd);
    closing.Tell();
  });
}

}  // namespace tierd::preload
