#include "client_lib/preload/materialise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/raw.h"

namespace tierd::preload {
namespace {

// Kept open so that a conversion finds a number when the process has used up all of its own: a read must not fail with EMFILE.
constexpr int kReserve = 8;
constinit std::atomic<int> reserve[kReserve] = {-1, -1, -1, -1, -1, -1, -1, -1};
constinit std::atomic<bool> reserve_made{false};

void FillReserve() {
  const int null = raw::Open(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return;
  for (auto& slot : reserve) {
    if (slot.load(std::memory_order_relaxed) >= 0) continue;
    const int fd = raw::DupFrom(null, OwnBase());
    if (fd < 0) break;
    raw::MarkOwn(fd, true);
    int none = -1;
    if (slot.compare_exchange_strong(none, fd, std::memory_order_acq_rel)) continue;
    raw::MarkOwn(fd, false);
    raw::Close(fd);
  }
  raw::Close(null);
}

bool SpendReserve() {
  for (auto& slot : reserve) {
    const int fd = slot.exchange(-1, std::memory_order_acq_rel);
    if (fd < 0) continue;
    raw::MarkOwn(fd, false);
    raw::Close(fd);
    return true;
  }
  return false;
}

template <typename Open>
int WithReserve(Open open) {
  for (;;) {
    const int fd = open();
    if (fd != -EMFILE || !SpendReserve()) return fd;
  }
}

bool SameFile(int fd, const client::FileFacts& facts) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return false;
  const auto ns = [](const timespec& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return st.st_ino == facts.ino && static_cast<std::uint64_t>(st.st_size) == facts.size && ns(st.st_mtim) == facts.mtime_ns && ns(st.st_ctim) == facts.ctime_ns;
}

// The description through which locks were taken: they go on with it.
int KeepSource(Description& d) {
  const int source = d.source.load(std::memory_order_acquire);
  if (source < 0) return -ENOENT;
  raw::Call(SYS_fcntl, source, F_SETFL, d.flags & (O_NOATIME | O_NONBLOCK));
  if (!d.posix_locks.load(std::memory_order_relaxed)) return WithReserve([&] { return raw::DupFrom(source, OwnBase()); });
  // A process's own locks would end with the close of any number of the file: this one stays open.
  d.source.store(-1, std::memory_order_release);
  return source;
}

int OpenSource(Description& d) {
  if (const int kept = KeepSource(d); kept >= 0) return kept;
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (d.flags & (O_NOATIME | O_NONBLOCK));
  int fd = WithReserve([&] { return raw::Open(AT_FDCWD, d.path, flags); });
  if (fd == -EPERM) fd = WithReserve([&] { return raw::Open(AT_FDCWD, d.path, flags & ~O_NOATIME); });
  if (fd >= 0 && SameFile(fd, d.facts)) return fd;
  if (fd >= 0) raw::Close(fd);
  // A file that is not held whole has kept a descriptor of its version.
  if (!d.whole && d.file().descriptor() >= 0) return WithReserve([&] { return raw::DupFrom(d.file().descriptor(), OwnBase()); });
  return -ESTALE;
}

// The leased bytes in a file of memory, read-only and sealed.
int CopyToMemory(Description& d) {
  const int writable = WithReserve([] {
    return static_cast<int>(raw::Call(SYS_memfd_create, raw::Address("tierd-copy"), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  });
  if (writable < 0) return writable;
  constexpr std::size_t kPiece = 64 << 10;
  const long buffer = raw::Call(SYS_mmap, 0, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool good = buffer > 0 || buffer < -4095;
  for (std::uint64_t at = 0; good && at < d.size();) {
    const ssize_t got = ReadCached(d, reinterpret_cast<void*>(buffer), kPiece, at);
    good = got > 0 && raw::Write(writable, reinterpret_cast<void*>(buffer), static_cast<std::size_t>(got)) == got;
    at += good ? static_cast<std::uint64_t>(got) : 0;
  }
  if (buffer > 0 || buffer < -4095) raw::Call(SYS_munmap, buffer, kPiece);
  int fd = -EIO;
  if (good) {
    raw::Call(SYS_fchmod, writable, 0400);
    raw::Call(SYS_fcntl, writable, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    char path[32];
    ::snprintf(path, sizeof path, "/proc/self/fd/%d", writable);
    fd = WithReserve([&] { return raw::Open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC); });
  }
  raw::Close(writable);
  if (fd >= 0) Count(counters.memory_copies);
  return fd;
}

bool Convert(Description& d, Conversion why) {
  KeepReserve();
  const raw::NoSignals no_signals;
  const std::uint64_t word = Own(d, State::kMaterialising);
  if (word == 0) return true;
  int fd = OpenSource(d);
  if (fd == -ESTALE || fd == -ENOENT || fd == -EACCES || fd == -EPERM || fd == -ENOTDIR) fd = CopyToMemory(d);
  if (fd < 0) {
    d.word.store(word, std::memory_order_release);
    return false;
  }
  if (OffsetOf(word) != 0) raw::Call(SYS_lseek, fd, static_cast<long>(OffsetOf(word)), SEEK_SET);
  TakeNumbers(d, [&](int number, bool close_on_exec) { raw::Dup3(fd, number, close_on_exec ? O_CLOEXEC : 0); });
  if (!raw::IsOwn(fd)) raw::Close(fd);  // else kept for its locks
  d.word.store(MakeWord(State::kReal, 0, 0), std::memory_order_release);
  for (std::uint32_t i = 0; i < NumbersOf(word); ++i) Using::Leave(d);
  Count(why);
  return true;
}

}  // namespace

void KeepReserve() {
  if (reserve_made.load(std::memory_order_relaxed) || reserve_made.exchange(true, std::memory_order_relaxed)) return;
  FillReserve();
}

bool Materialise(int fd, Conversion why) {
  const Using use(fd);
  return !use || Convert(*use, why);
}

void MaterialiseAll(Conversion why) {
  if (OpenDescriptions() == 0) return;
  for (int fd = 0; fd < kTable; ++fd) {
    if (IsOurs(fd)) (void)Materialise(fd, why);
  }
}

}  // namespace tierd::preload
