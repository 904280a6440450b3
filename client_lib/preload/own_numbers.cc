#include "client_lib/preload/own_numbers.h"

#include <sys/stat.h>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/raw.h"

namespace tierd::preload {
namespace {

constinit std::atomic<std::atomic<int>*> holders[raw::kWatched] = {};

// Files on which locks were taken. More than that, and every file is one.
constexpr int kLocked = 32;
constinit std::atomic<std::uint64_t> locked[kLocked] = {};
constinit std::atomic<bool> any_locked{false};
constinit std::atomic<bool> all_locked{false};
constexpr int kParked = 64;  // descriptors that are left open for the sake of locks
constinit std::atomic<int> parked{0};

bool IsWatched(int fd) { return static_cast<unsigned>(fd) < raw::kWatched; }

std::uint64_t NameOf(const struct stat& st) { return (st.st_dev * 0x9e3779b97f4a7c15ull) ^ st.st_ino; }

bool IsLocked(int fd) {
  struct stat st;
  if (!any_locked.load(std::memory_order_acquire) || raw::Stat(fd, st) != 0) return false;
  if (all_locked.load(std::memory_order_relaxed)) return true;
  for (const auto& file : locked) {
    if (file.load(std::memory_order_relaxed) == NameOf(st)) return true;
  }
  return false;
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
  raw::MarkOwn(fd, false);
  int here = fd;
  if (holder != nullptr) holder->compare_exchange_strong(here, -1, std::memory_order_acq_rel);
}

void NoteLock(int fd) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return;
  for (auto& file : locked) {
    std::uint64_t none = 0;
    if (file.load(std::memory_order_relaxed) == NameOf(st) || file.compare_exchange_strong(none, NameOf(st), std::memory_order_acq_rel)) {
      any_locked.store(true, std::memory_order_release);
      return;
    }
  }
  all_locked.store(true, std::memory_order_relaxed);
}

void CloseOwnFile(int fd) {
  if (IsLocked(fd) && parked.fetch_add(1, std::memory_order_relaxed) < kParked) raw::MarkOwn(fd, true);
  else raw::Close(fd);
}

}  // namespace tierd::preload
