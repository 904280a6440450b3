#include "client_lib/preload/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/zero_table.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/views.h"

namespace tierd::preload {

namespace descriptors_detail {
constinit std::atomic<std::uint32_t> table[kTable] = {};
}

using namespace descriptors_detail;

namespace {

constexpr std::uint32_t kCleaning = 0x80000000u;  // in refs: its leases are being given back

alignas(4096) constinit ZeroTable<Description, kDescriptions> pool;
constinit std::atomic<std::uint32_t> open_count{0};
constinit std::atomic<std::uint32_t> touched{0};  // of the pool, from its begin: behind that no page was ever written
constinit std::atomic<int> placeholder{-1};
constinit std::atomic<std::uint64_t> placeholder_inode{0};
constinit std::atomic<bool> placeholder_was_given_back{false};
constinit int base = 0;      // of our numbers
constinit int own_base = 0;  // of the core's

// Numbers that were closed stay placeholders and are the next files': opening one and closing it then costs no system call. To the application they are as closed as
// any number of our own. One in a cache line: threads that open and close at the same time keep to their own.
struct alignas(64) IdleNumber {
  std::atomic<int> number{-1};
};
constexpr unsigned kIdle = 8;
constexpr rlim_t kRoomForIdle = 256;  // of the limit: a process with fewer numbers than that needs them itself
constinit IdleNumber idle[kIdle];
constinit std::atomic<bool> keeps_idle{false};

unsigned FirstIdle() { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(&vfork_depth) * 0x9e3779b97f4a7c15u >> 61); }

int TakeIdle() {
  for (unsigned i = 0, first = FirstIdle(); i < kIdle; ++i) {
    std::atomic<int>& slot = idle[(first + i) % kIdle].number;
    const int fd = slot.load(std::memory_order_relaxed) < 0 ? -1 : TakeOwn(slot);
    if (fd >= 0 && fd < kTable) return fd;
    if (fd >= 0) raw::Close(fd);  // the application has put a file onto the number that it was, and it had to move
  }
  return -1;
}

// For a number that is in no table any more.
void KeepIdleOrClose(int fd) {
  for (unsigned i = 0, first = FirstIdle(); keeps_idle.load(std::memory_order_relaxed) && i < kIdle; ++i) {
    std::atomic<int>& slot = idle[(first + i) % kIdle].number;
    if (slot.load(std::memory_order_relaxed) < 0 && HoldOwn(fd, slot)) return;
  }
  raw::Close(fd);
}

// O_PATH of a socket, which nobody can open anew, with whatever rights; closed, it is a name of nothing.
bool MakeFirstPlaceholder() {
  const int socket = static_cast<int>(raw::Call(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket < 0) return false;
  char path[32];
  ::snprintf(path, sizeof path, "/proc/self/fd/%d", socket);
  const int low = raw::Open(AT_FDCWD, path, O_PATH | O_CLOEXEC);
  raw::Close(socket);
  if (low < 0) return false;
  struct stat st{};
  if (raw::Stat(low, st) == 0) placeholder_inode.store(st.st_ino, std::memory_order_relaxed);
  const int high = raw::DupFrom(low, own_base);
  raw::Close(low);
  if (high < 0) return false;
  if (!HoldOwn(high, placeholder)) raw::Close(high);  // another thread was first
  return true;
}

Description* DescriptionOf(std::uint32_t entry) { return &pool[(entry & 0x1ff) - 1]; }

void Clean(Description& d) {
  if (d.whole) {
    if (d.piece.held()) client::GiveLeaseBack(*d.piece.session, d.piece.lease, d.piece.epoch, d.piece.bytes);
    d.piece = {};
  } else {
    d.file().Close();
  }
  if (d.source.load(std::memory_order_relaxed) >= 0) {
    if (const int source = TakeOwn(d.source); source >= 0) CloseOwnFile(source);
  }
  AddToOwn(open_count, ~std::uint32_t{0});
}

bool EnterDescription(Description& d) {
  std::uint32_t refs = d.refs.load(std::memory_order_relaxed);
  do {
    if (refs == 0 || (refs & kCleaning) != 0) return false;
  } while (!ExchangeOwn(d.refs, refs, refs + 1));
  return true;
}

}  // namespace

// ---- looking a number up ---------------------------------------------------------------------------------------------------

Using::Using(int fd) {
  for (;;) {
    const std::uint32_t entry = table[fd].load(std::memory_order_acquire);
    if (entry == 0) return;
    Description* const d = DescriptionOf(entry);
    if (!EnterDescription(*d)) continue;  // the entry is about to change
    // The entry changes its close-on-exec bit only, or becomes 0, before its description can be another file.
    if (((table[fd].load(std::memory_order_acquire) ^ entry) & ~kCloseOnExec) == 0) {
      description_ = d;
      return;
    }
    Leave(*d);
  }
}

void Using::Leave(Description& d) {
  std::uint32_t refs = d.refs.load(std::memory_order_relaxed);
  for (;;) {
    if (refs == 0 || (refs & kCleaning) != 0) return;  // a child of fork goes on in a call that ForgetThreads has forgotten
    const bool last = refs == 1;
    if (!ExchangeOwn(d.refs, refs, last ? kCleaning : refs - 1)) continue;
    if (last) {
      Clean(d);
      d.refs.store(0, std::memory_order_release);
    }
    return;
  }
}

std::uint32_t EntryOf(const Description& d) {
  return static_cast<std::uint32_t>(&d - pool.begin() + 1) | (d.generation.load(std::memory_order_relaxed) << 10);
}

// ---- making one ------------------------------------------------------------------------------------------------------------

bool MakePlaceholder() {
  rlimit limit{};
  if (raw::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, raw::Address(&limit)) != 0 || limit.rlim_cur < 64) return false;
  const rlim_t wanted = limit.rlim_cur / 4 * 3;
  base = wanted < kTable / 4 * 3 ? static_cast<int>(wanted) : kTable / 4 * 3;
  own_base = limit.rlim_cur >= 4 * kTable ? kTable : base;
  keeps_idle.store(limit.rlim_cur >= kRoomForIdle, std::memory_order_relaxed);
  // Where there are few a real number from here on says that they are running out (ForgetAll).
  for (int fd = own_base; fd < kTable; ++fd) raw::Note(fd);
  return MakeFirstPlaceholder();
}

bool StopKeepingIdle() {
  keeps_idle.store(false, std::memory_order_relaxed);
  bool any = false;
  for (IdleNumber& one : idle) {
    const int fd = TakeOwn(one.number);
    if (fd < 0) continue;
    raw::Close(fd);
    any = true;
  }
  return any;
}

bool ShowsPlaceholder(int fd) {
  struct stat st;
  return raw::Stat(fd, st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == placeholder_inode.load(std::memory_order_relaxed);
}

int PlaceholderFrom(int lowest) {
  int from = placeholder.load(std::memory_order_acquire);
  if (from < 0) {
    if (!MakeFirstPlaceholder()) return -EMFILE;
    from = placeholder.load(std::memory_order_acquire);
  }
  const int fd = raw::DupFrom(from, lowest);
  // It may have been given back, and its number be the application's, just before.
  if (fd >= 0 && placeholder_was_given_back.load(std::memory_order_acquire) && !ShowsPlaceholder(fd)) {
    CloseOwnFile(fd);
    return -EMFILE;
  }
  return fd;
}

bool GivePlaceholderBack() {
  placeholder_was_given_back.store(true, std::memory_order_release);
  const int fd = TakeOwn(placeholder);
  if (fd >= 0) raw::Close(fd);
  return fd >= 0;
}

int OwnBase() { return own_base; }

Description* NewDescription(int* fd) {
  int number = TakeIdle();
  if (number < 0) {
    number = PlaceholderFrom(base);
    if (number < 0) return nullptr;
    if (IsOurs(number)) [[unlikely]] ForgetNumber(number);  // closed behind our back
  }
  const auto first = static_cast<std::uint32_t>(number - base);
  for (std::uint32_t i = 0; number < kTable && i < kDescriptions; ++i) {
    const std::uint32_t at = (first + i) % kDescriptions;
    Description& d = pool[at];
    std::uint32_t before = touched.load(std::memory_order_relaxed);
    while (before <= at && !touched.compare_exchange_weak(before, at + 1, std::memory_order_relaxed)) {
    }
    std::uint32_t none = 0;
    if (d.refs.load(std::memory_order_relaxed) != 0 || !ExchangeOwn(d.refs, none, std::uint32_t{1})) continue;
    d.generation.store((d.generation.load(std::memory_order_relaxed) + 1) & 0x3fffff, std::memory_order_relaxed);
    d.piece = {};
    d.source.store(-1, std::memory_order_relaxed);
    d.noted.store(0, std::memory_order_relaxed);
    d.advised.store(false, std::memory_order_relaxed);
    d.looked_ns.store(client::CoarseNs(), std::memory_order_relaxed);
    AddToOwn(open_count, std::uint32_t{1});
    *fd = number;
    return &d;
  }
  raw::Close(number);
  return nullptr;
}

void Publish(Description& d, int fd, bool close_on_exec) {
  d.word.store(MakeWord(State::kCached, 1, 0), std::memory_order_relaxed);
  table[fd].store(EntryOf(d) | (close_on_exec ? kCloseOnExec : 0), std::memory_order_release);
}

void Discard(Description& d, int fd) {
  raw::Close(fd);
  d.whole = true;
  d.piece = {};
  Using::Leave(d);  // a thread with an old entry may be inside
}

// ---- changing what a number is ---------------------------------------------------------------------------------------------

std::uint64_t Own(Description& d, State to) {
  for (;;) {
    std::uint64_t word = d.word.load(std::memory_order_acquire);
    switch (StateOf(word)) {
      case State::kCached:
        if (d.word.compare_exchange_weak(word, MakeWord(to, NumbersOf(word), OffsetOf(word)), std::memory_order_acq_rel)) return word;
        break;
      case State::kBusy:
      case State::kMaterialising: raw::Yield(); break;
      default: return 0;
    }
  }
}

bool AwaitUsable(Description& d, std::uint64_t word) {
  if (StateOf(word) == State::kClosed) return false;
  while (StateOf(word) == State::kBusy || StateOf(word) == State::kMaterialising) {
    raw::Yield();
    word = d.word.load(std::memory_order_acquire);
  }
  return true;
}

__attribute__((noinline)) void GiveUpLocks(const Description& d) {
  if (!EndLocks(d.dev, d.facts.ino)) return;
  if (const int source = d.source.load(std::memory_order_acquire); source >= 0) {
    struct flock all {};
    all.l_type = F_UNLCK;
    raw::Call(SYS_fcntl, source, F_SETLK, raw::Address(&all));
    return;
  }
  // There is no descriptor of the file to close: one is opened for that.
  const int source = WithReserve([&] { return OpenSourceFile(d.path); });
  if (source < 0) return;
  if (VersionBehind(d.facts, source) == SourceVersion::kOtherFile) CloseOwnFile(source);
  else raw::Close(source);
}

int CloseNumber(int fd) {
  for (;;) {
    const Using use(fd);
    if (!use) return static_cast<int>(raw::Close(fd));
    Description& d = *use;
    if (AnyLocks()) [[unlikely]] GiveUpLocks(d);
    std::uint64_t word = d.word.load(std::memory_order_acquire);
    if (StateOf(word) == State::kCached && NumbersOf(word) == 1) {
      // The usual case, without holding signals off: one step decides, and a handler that comes after it sees a closed file.
      if (!ExchangeOwn(d.word, word, MakeWord(State::kClosed, 1, 0))) continue;
      table[fd].store(0, std::memory_order_release);
      KeepIdleOrClose(fd);
      Using::Leave(d);  // of the number
      return 0;
    }
    if (!AwaitUsable(d, word)) return -EBADF;
    if (StateOf(word) != State::kCached) continue;
    const raw::NoSignals no_signals;
    word = Own(d, State::kBusy);
    if (word == 0) continue;
    if (!Names(fd, d)) {
      GiveWordBack(d, word);
      continue;
    }
    raw::Close(fd);
    TakeNumber(d, fd, word);
    return 0;
  }
}

bool Names(int fd, const Description& d) { return (table[fd].load(std::memory_order_acquire) & ~kCloseOnExec) == EntryOf(d); }

void TakeNumber(Description& d, int fd, std::uint64_t word) {
  const std::uint32_t left = NumbersOf(word) - 1;
  table[fd].store(0, std::memory_order_release);
  d.word.store(MakeWord(left == 0 ? State::kClosed : State::kCached, left, OffsetOf(word)), std::memory_order_release);
  Using::Leave(d);
}

void ForgetNumber(int fd) {
  ReplaceNumber(fd, [] { return 0; });
}

int DuplicateNumber(int fd, int lowest, bool close_on_exec) {
  const Using use(fd);
  if (!use) return -EAGAIN;
  Description& d = *use;
  const int number = PlaceholderFrom(lowest > base ? lowest : base);
  if (number < 0) return number;
  if (number >= kTable) {
    raw::Close(number);
    return -EMFILE;
  }
  if (IsOurs(number)) [[unlikely]] ForgetNumber(number);
  const raw::NoSignals no_signals;
  const std::uint64_t word = Own(d, State::kBusy);
  if (word == 0) {
    raw::Close(number);
    return -EAGAIN;  // it has become real meanwhile: the caller asks the kernel
  }
  d.refs.fetch_add(1, std::memory_order_acq_rel);
  table[number].store(EntryOf(d) | (close_on_exec ? kCloseOnExec : 0), std::memory_order_release);
  d.word.store(MakeWord(State::kCached, NumbersOf(word) + 1, OffsetOf(word)), std::memory_order_release);
  return number;
}

bool CloseOnExec(int fd) { return (table[fd].load(std::memory_order_acquire) & kCloseOnExec) != 0; }

void SetCloseOnExec(int fd, bool on) {
  std::uint32_t entry = table[fd].load(std::memory_order_acquire);
  while (entry != 0 && !table[fd].compare_exchange_weak(entry, on ? entry | kCloseOnExec : entry & ~kCloseOnExec, std::memory_order_acq_rel)) {
  }
  if (entry == 0) raw::Call(SYS_fcntl, fd, F_SETFD, on ? FD_CLOEXEC : 0);  // it has become real meanwhile
}

std::uint32_t OpenDescriptions() { return open_count.load(std::memory_order_relaxed); }

void ForgetThreads() {
  std::uint32_t open = 0;
  for (std::uint32_t i = 0; i < touched.load(std::memory_order_relaxed); ++i) {
    Description& d = pool[i];
    if (d.refs.load(std::memory_order_relaxed) == 0) continue;
    const std::uint64_t word = d.word.load(std::memory_order_relaxed);
    std::uint32_t numbers = 0;
    for (auto& entry : table) {
      if ((entry.load(std::memory_order_relaxed) & ~kCloseOnExec) != EntryOf(d)) continue;
      if (StateOf(word) == State::kClosed) entry.store(0, std::memory_order_relaxed);  // by a thread that was about to
      else ++numbers;
    }
    // Nobody here owns the word.
    if (numbers != 0) d.word.store(MakeWord(State::kCached, numbers, OffsetOf(word)), std::memory_order_relaxed);
    d.refs.store(numbers, std::memory_order_relaxed);
    open += numbers != 0 ? 1 : 0;
  }
  open_count.store(open, std::memory_order_relaxed);
}

}  // namespace tierd::preload
