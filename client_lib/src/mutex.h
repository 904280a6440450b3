// Locks and once-only calls made of one futex word. They need nothing of libpthread, which is a
// library of its own before glibc 2.34 and is not loaded into every program there.
//
// Any thread. A child of fork initialises each lock again: the thread that held it is not in the
// child.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tierd::client {

class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Free, whoever held it. For a child of fork, and for an object that is used again.
  void Reset() { word_.store(kFree, std::memory_order_relaxed); }

  bool TryLock() {
    std::uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire);
  }
  void Lock() {
    if (TryLock()) return;
    while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) Futex(FUTEX_WAIT_PRIVATE, kAwaited);
  }
  void Unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) Futex(FUTEX_WAKE_PRIVATE, 1);
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1, kAwaited = 2;
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "the kernel reads the word");

  // An early return is no error: the caller looks at the word again.
  void Futex(int operation, std::uint32_t value) {
    const int saved = errno;
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word_), operation, value, nullptr, nullptr, 0);
    errno = saved;
  }

  std::atomic<std::uint32_t> word_{kFree};
};

// The lock, for the life of this object.
class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// `made` is 0 before, -1 after, and in between the process that makes the call. Others wait for it.
// A child of fork whose parent was in the middle makes the call itself.
inline void CallOnce(std::atomic<int>& made, void (*call)()) {
  constexpr int kDone = -1;
  for (;;) {
    int seen = made.load(std::memory_order_acquire);
    if (seen == kDone) return;
    const int self = static_cast<int>(::syscall(SYS_getpid));
    if (seen != self && made.compare_exchange_strong(seen, self, std::memory_order_acq_rel)) {
      call();
      made.store(kDone, std::memory_order_release);
      return;
    }
    ::syscall(SYS_sched_yield);
  }
}

}  // namespace tierd::client
