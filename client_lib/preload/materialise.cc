#include "client_lib/preload/materialise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/abi/time_ns.h"
#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/directories.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/src/added_memory.h"
#include "client_lib/src/file_limit.h"

namespace tierd::preload {
namespace {

// Numbers that are kept so that a conversion finds one when the process has used up all of its own: a read must not fail with EMFILE. What is spent is put back at
// the end of the conversion, when there is a number more again.
constexpr int kReserve = 8;  // HAZARDS 3
constinit std::atomic<int> reserve[kReserve] = {-1, -1, -1, -1, -1, -1, -1, -1};
constinit std::atomic<bool> reserve_made{false};

void FillReserve() {
  for (auto& slot : reserve) {
    if (slot.load(std::memory_order_relaxed) >= 0) continue;
    const int fd = PlaceholderFrom(OwnBase());
    if (fd < 0) return;
    if (!HoldOwn(fd, slot)) raw::Close(fd);
  }
}

enum class Version { kOpened, kAny };

// May wait for the source.
int OpenSource(const Description& d, const char* path, Version version) {
  const int shown = path == d.path ? O_NOATIME | O_NONBLOCK | O_NOFOLLOW : O_NOATIME | O_NONBLOCK;  // a name in /proc is a link
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (d.flags & shown);
  int fd = WithReserve([&] { return raw::Open(AT_FDCWD, path, flags); });
  if (fd == -EPERM) fd = WithReserve([&] { return raw::Open(AT_FDCWD, path, flags & ~O_NOATIME); });
  if (fd < 0) return -ESTALE;
  const SourceVersion found = VersionBehind(d.facts, fd);
  if (found == SourceVersion::kOpened || (found == SourceVersion::kLater && version == Version::kAny)) return fd;
  CloseOwnFile(fd);
  return -ESTALE;
}

// All of it to `fd`, which is empty. A file of one chunk goes there from its frame.
bool WriteBytes(Description& d, int fd) {
  if (d.whole) {
    if (d.size() == 0) return true;
    if (client::WriteWithinLimit(fd, d.piece.data, d.size()) != static_cast<ssize_t>(d.size()))
      return false;
    CountPieceRead(d, d.size());
    return true;
  }
  constexpr std::size_t kPiece = 64 << 10;
  client::AddedBytes added;
  if (!client::TakeAdded(*process.client, client::Added::kBuffers, kPiece,
                         client::AddedUse::kNeeded, added))
    return false;
  const long buffer = raw::Call(SYS_mmap, 0, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool mapped = buffer > 0 || buffer < -4095;
  bool good = mapped;
  for (std::uint64_t at = 0; good && at < d.size();) {
    const ssize_t got = ReadCached(d, reinterpret_cast<void*>(buffer), kPiece, at);
    good = got > 0 && client::WriteWithinLimit(fd, reinterpret_cast<void*>(buffer),
                                               static_cast<std::size_t>(got)) == got;
    at += good ? static_cast<std::uint64_t>(got) : 0;
  }
  if (mapped) raw::Call(SYS_munmap, buffer, kPiece);
  client::GiveAdded(*process.client, added);
  return good;
}

// The leased bytes in a file of memory, read-only and sealed; not past a limit of file sizes.
// `added` is its part of the budget.
int CopyWithin(Description& d, CopyUse use, client::AddedBytes& added) {
  const int writable = WithReserve([] {
    return static_cast<int>(
        raw::Call(SYS_memfd_create, raw::Address("tierd-copy"), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  });
  if (writable < 0) return writable;
  int fd = -EIO;
  if (WriteBytes(d, writable)) {
    raw::Call(SYS_fchmod, writable, 0400);
    raw::Call(SYS_fcntl, writable, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    char path[32];
    ::snprintf(path, sizeof path, "/proc/self/fd/%d", writable);
    fd = WithReserve([&] { return raw::Open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC); });
    const int kept = d.flags & (O_NOATIME | O_NONBLOCK);
    if (fd >= 0 && kept != 0) raw::Call(SYS_fcntl, fd, F_SETFL, kept);
  }
  raw::Close(writable);
  if (fd < 0) return fd;
  if (!NoteMemoryCopy(fd, d, use, added)) {
    raw::Close(fd);
    return -EMFILE;
  }
  Count(counters.memory_copies);
  return fd;
}

int CopyToMemory(Description& d, CopyUse use) {
  const auto need =
      use == CopyUse::kShared ? client::AddedUse::kOptional : client::AddedUse::kNeeded;
  client::AddedBytes added;
  if (!client::TakeAdded(*process.client, client::Added::kSealedCopies, d.size(), need, added))
    return -ENOMEM;
  const int fd = CopyWithin(d, use, added);
  if (fd < 0) client::CountAddedFailure();
  if (fd < 0) client::GiveAdded(*process.client, added);
  return fd;
}

// A descriptor of what `d` is, whatever it takes; `opened` is the source as it was found, or -errno. The caller owns the word.
int RealDescriptor(Description& d, int opened, CopyUse use) {
  // Locks that were taken through the source's descriptor go on with it; a file that is not held whole has kept one of its version.
  int kept = d.source.load(std::memory_order_acquire);
  if (kept < 0 && !d.whole && opened < 0) kept = d.file().descriptor();
  if (kept >= 0) {
    raw::Call(SYS_fcntl, kept, F_SETFL, d.flags & (O_NOATIME | O_NONBLOCK));
    if (opened >= 0) CloseOwnFile(opened);
    return kept;
  }
  return opened >= 0 ? opened : CopyToMemory(d, use);
}

// A fork asks nothing of a source, which may hang: what a child inherits and no program started by it can, as its bytes are leased, is a copy of them. Not of a file that was
// written to of late: whoever follows it (tail -f) wants to see it grow.
bool IsCopiedAtFork(Description& d) {
  constexpr std::int64_t kOfLateNs = 3'600'000'000'000;
  timespec now{};
  if (!d.whole || ::clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) return false;
  if (d.facts.mtime_ns > abi::TimeNs(now) - kOfLateNs) return false;
  bool all_end_with_exec = true;
  TakeNumbers(d, [&](int, bool close_on_exec) {
    all_end_with_exec = all_end_with_exec && close_on_exec;
    return false;
  });
  return all_end_with_exec;
}

bool Convert(Description& d, const char* path, Conversion why, Version version = Version::kOpened, bool may_copy = true) {
  KeepReserve();
  if (version == Version::kOpened && MayHaveChanged(d) && HasChanged(d) &&
      Convert(d, path, why, Version::kAny))
    return true;
  // The source may take its time: until it has answered the file is read from the cache, and signals come through.
  const bool own = (!d.whole && d.file().descriptor() >= 0) || d.source.load(std::memory_order_acquire) >= 0;
  const bool copies = !own && may_copy && why == Conversion::kFork && IsCopiedAtFork(d);
  const int opened = own || copies ? -ESTALE : OpenSource(d, path, version);
  if (version == Version::kAny && !own && opened < 0) return false;
  const raw::NoSignals no_signals;
  const std::uint64_t word = Own(d, State::kMaterialising);
  if (word == 0) {
    if (opened >= 0) CloseOwnFile(opened);
    return true;
  }
  const int fd = RealDescriptor(d, opened, copies ? CopyUse::kShared : CopyUse::kAlone);
  if (fd < 0) {
    GiveWordBack(d, word);
    if (copies) return Convert(d, path, why, version, false);  // no memory for it, or a limit of file sizes: the source, then
    Count(Conversion::kFailed);
    return false;
  }
  if (OffsetOf(word) != 0) raw::Call(SYS_lseek, fd, static_cast<long>(OffsetOf(word)), SEEK_SET);
  // A number that cannot be replaced (the limit is lower by now) stays ours.
  const bool locked = IsLocked(fd);
  const std::uint32_t taken = TakeNumbers(d, [&](int number, bool close_on_exec) {
    if (raw::Dup3(fd, number, close_on_exec ? O_CLOEXEC : 0) < 0) return false;
    if (locked) raw::Note(number);
    NameCopy(number);
    if (own || opened >= 0) MarkSourceFile(number);  // else a copy in memory, whose bytes were counted when they were copied
    return true;
  });
  // What the description keeps goes with it.
  if (fd != d.source.load(std::memory_order_acquire) && (d.whole || fd != d.file().descriptor())) {
    ForgetCopy(fd);
    CloseOwnFile(fd);
  }
  FillReserve();
  const std::uint32_t left = NumbersOf(word) - taken;
  d.word.store(left == 0 ? MakeWord(State::kReal, 0, 0) : MakeWord(State::kCached, left, OffsetOf(word)), std::memory_order_release);
  for (std::uint32_t i = 0; i < taken; ++i) Using::Leave(d);
  if (taken != 0) Count(why);
  if (left != 0) Count(Conversion::kFailed);
  return left == 0;
}

}  // namespace

bool SpendReserve() {
  for (auto& slot : reserve) {
    const int fd = TakeOwn(slot);
    if (fd < 0) continue;
    raw::Close(fd);
    return true;
  }
  return GivePlaceholderBack();
}

void RefillReserve() {
  if (reserve_made.load(std::memory_order_relaxed)) FillReserve();
}

bool GiveNumbersBack() {
  if (StopKeepingIdle()) return true;
  const client::KeepErrno keep;
  // A cached file needs the reserve, a real one does not.
  if (OpenDescriptions() != 0) MaterialiseAll(Conversion::kDup);
  if (OpenDescriptions() != 0) return false;
  reserve_made.store(false, std::memory_order_relaxed);  // the next file of ours needs one
  return SpendReserve();
}

void KeepReserve() {
  if (reserve_made.load(std::memory_order_relaxed) || reserve_made.exchange(true, std::memory_order_relaxed)) return;
  FillReserve();
}

bool Materialise(int fd, Conversion why) {
  const Using use(fd);
  return !use || Convert(*use, use->path, why);
}

bool MaterialiseAsIs(int fd, Conversion why) {
  const Using use(fd);
  return !use || Convert(*use, use->path, why, Version::kAny);
}

void MaterialiseFile(std::uint64_t inode, int at) {
  MakeCopiesFile(inode, at);
  ReplaceFramesOf(inode, at);
  char path[32];
  for (int fd = 0; fd < kTable && OpenDescriptions() != 0; ++fd) {
    if (!IsOurs(fd)) continue;
    const Using use(fd);
    if (!use || use->facts.ino != inode || Convert(*use, use->path, Conversion::kChanged, Version::kAny) || at < 0) continue;
    ::snprintf(path, sizeof path, "/proc/self/fd/%d", at);
    (void)Convert(*use, path, Conversion::kChanged, Version::kAny);
  }
}

void MaterialiseBelow(const char* directory) {
  const std::size_t bytes = std::strlen(directory);
  for (int fd = 0; fd < kTable && OpenDescriptions() != 0; ++fd) {
    if (!IsOurs(fd)) continue;
    const Using use(fd);
    if (use && std::strncmp(use->path, directory, bytes) == 0 && use->path[bytes] == '/') (void)Convert(*use, use->path, Conversion::kChanged, Version::kAny);
  }
}

void MaterialiseInherited(Conversion why) {
  for (int fd = 0; fd < kTable && OpenDescriptions() != 0; ++fd) {
    if (IsOurs(fd) && !CloseOnExec(fd)) (void)Materialise(fd, why);
  }
}

void MaterialiseAll(Conversion why) {
  if (why == Conversion::kChanged) OpenDirectoriesBelow("");
  if (OpenDescriptions() == 0) return;
  for (int fd = 0; fd < kTable; ++fd) {
    if (IsOurs(fd)) (void)Materialise(fd, why);
  }
}

}  // namespace tierd::preload
