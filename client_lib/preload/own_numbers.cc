#include "client_lib/preload/own_numbers.h"

#include <sys/stat.h>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/raw.h"

namespace tierd::preload {

namespace own_numbers_detail {
constinit std::atomic<std::uint32_t> locked_count{0};
}

using own_numbers_detail::locked_count;

namespace {

constinit std::atomic<std::atomic<int>*> holders[raw::kWatched] = {};

// Files on which locks were taken, and how many they are. More than that, and every file is one from then on.
constexpr std::uint32_t kLocked = 1024;
constexpr std::uint32_t kAllLocked = 0x80000000u;
constinit std::atomic<std::uint64_t> locked[kLocked] = {};
constinit std::atomic<std::uint64_t> parked[raw::kWatched / 64] = {};  // numbers that are left open for the sake of locks

bool IsWatched(int fd) { return static_cast<unsigned>(fd) < raw::kWatched; }

std::uint64_t NameOf(std::uint64_t device, std::uint64_t inode) { return (device * 0x9e3779b97f4a7c15ull) ^ inode; }

// One that is on the list; null. Most lists are short, and full at their begin.
std::atomic<std::uint64_t>* FindLocked(std::uint64_t name) {
  std::uint32_t left = locked_count.load(std::memory_order_acquire) & ~kAllLocked;
  for (std::uint32_t i = 0; left != 0 && i < kLocked; ++i) {
    const std::uint64_t here = locked[i].load(std::memory_order_relaxed);
    if (here == name) return &locked[i];
    if (here != 0) --left;
  }
  return nullptr;
}

bool TakeParked(int fd) {
  if (!IsWatched(fd)) return false;
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  return (parked[fd / 64].load(std::memory_order_relaxed) & bit) != 0 && (parked[fd / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
}

// Nobody needs them any more: with the first one the locks are gone.
void CloseParked(std::uint64_t name) {
  for (int word = 0; word < static_cast<int>(raw::kWatched) / 64; ++word) {
    for (std::uint64_t bits = parked[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      const int fd = word * 64 + __builtin_ctzll(bits);
      struct stat st;
      if (raw::Stat(fd, st) != 0 || NameOf(st.st_dev, st.st_ino) != name || !TakeParked(fd)) continue;
      raw::MarkOwn(fd, false);
      raw::Close(fd);
    }
  }
}

}  // namespace

bool HoldOwn(int fd, std::atomic<int>& holder) {
  raw::MarkOwn(fd, true);
  if (IsWatched(fd)) holders[fd].store(&holder, std::memory_order_release);
  int none = -1;
  if (ExchangeOwn(holder, none, fd)) return true;
  if (IsWatched(fd)) holders[fd].store(nullptr, std::memory_order_relaxed);
  raw::MarkOwn(fd, false);
  return false;
}

int TakeOwn(std::atomic<int>& holder) {
  int fd = holder.load(std::memory_order_acquire);
  while (fd >= 0 && !ExchangeOwn(holder, fd, -1)) {
  }
  if (IsWatched(fd)) holders[fd].store(nullptr, std::memory_order_relaxed);
  if (fd >= 0) raw::MarkOwn(fd, false);
  return fd;
}

void MoveOwnAway(int fd) {
  std::atomic<int>* const holder = IsWatched(fd) ? holders[fd].exchange(nullptr, std::memory_order_acq_rel) : nullptr;
  TakeParked(fd);
  raw::MarkOwn(fd, false);
  if (holder == nullptr) return;
  const int moved = raw::DupFrom(fd, OwnBase());
  int here = fd;
  if (!holder->compare_exchange_strong(here, -1, std::memory_order_acq_rel)) {  // taken meanwhile
    if (moved >= 0) raw::Close(moved);
  } else if (moved >= 0 && !HoldOwn(moved, *holder)) {
    raw::Close(moved);
  }
}

void ForgetOwn(int fd) {
  std::atomic<int>* const holder = IsWatched(fd) ? holders[fd].exchange(nullptr, std::memory_order_acq_rel) : nullptr;
  TakeParked(fd);
  raw::MarkOwn(fd, false);
  int here = fd;
  if (holder != nullptr) holder->compare_exchange_strong(here, -1, std::memory_order_acq_rel);
}

void NoteLock(int fd) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return;
  raw::Note(fd);  // its close is looked at
  const std::uint64_t name = NameOf(st.st_dev, st.st_ino);
  if (FindLocked(name) != nullptr) return;
  for (auto& file : locked) {
    std::uint64_t none = 0;
    if (!file.compare_exchange_strong(none, name, std::memory_order_acq_rel)) continue;
    locked_count.fetch_add(1, std::memory_order_release);
    return;
  }
  locked_count.fetch_or(kAllLocked, std::memory_order_release);
}

bool IsLocked(int fd) {
  struct stat st;
  if (!AnyLocks() || raw::Stat(fd, st) != 0) return false;
  return (locked_count.load(std::memory_order_relaxed) & kAllLocked) != 0 || FindLocked(NameOf(st.st_dev, st.st_ino)) != nullptr;
}

void CloseOwnFile(int fd) {
  if (!IsLocked(fd)) {
    raw::Close(fd);
    return;
  }
  raw::MarkOwn(fd, true);
  if (IsWatched(fd)) parked[fd / 64].fetch_or(std::uint64_t{1} << (fd % 64), std::memory_order_release);
}

bool EndLocks(std::uint64_t device, std::uint64_t inode) {
  const std::uint64_t name = NameOf(device, inode);
  bool found = (locked_count.load(std::memory_order_acquire) & kAllLocked) != 0;
  while (std::atomic<std::uint64_t>* const file = FindLocked(name)) {
    std::uint64_t here = name;
    if (file->compare_exchange_strong(here, 0, std::memory_order_acq_rel)) locked_count.fetch_sub(1, std::memory_order_release);
    found = true;
  }
  if (found) CloseParked(name);
  return found;
}

void EndLocksBehind(int fd) {
  struct stat st;
  if (raw::Stat(fd, st) == 0) (void)EndLocks(st.st_dev, st.st_ino);
}

}  // namespace tierd::preload
