// What each thread keeps: hints and a flag. Plain data, initial-exec: no allocation, no destructor, also after dlopen.
#pragma once

#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tierd::client {

struct ThreadState {
  std::uint32_t lease_hint;  // slot to try first + 1; 0: the thread has not leased yet
  std::uint16_t samples;     // calls since the last timed hit
  std::uint8_t in_slow_path; // a signal handler that comes in between must not wait for our locks
  int* errno_place;          // null: not asked for yet
};

extern __thread ThreadState thread_state __attribute__((tls_model("initial-exec")));

// errno of this thread. libc is asked where it is once: to guess where such a call leads is what a processor forgets at system calls, and every entry point looks at errno.
inline int& Errno() {
  if (thread_state.errno_place == nullptr) [[unlikely]] thread_state.errno_place = &errno;
  return *thread_state.errno_place;
}

// Set before a thread is made that libc knows nothing of (clone by hand), and for good.
extern std::atomic<bool> foreign_threads;

// libc's word that says whether the process has one thread, which glibc has since 2.32; else one that never says so. Looked for once, before the first session.
extern std::atomic<const char*> single_threaded;
void FindSingleThreaded();

// No other thread runs on our memory: all that can come in between is a signal handler.
inline bool OnlyThread() { return *single_threaded.load(std::memory_order_relaxed) != 0 && !foreign_threads.load(std::memory_order_relaxed); }

// Counters that only this process writes: without other threads a plain add is exact, and spares the bus lock.
inline void AddOwn(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
  if (OnlyThread()) counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  else counter.fetch_add(n, std::memory_order_relaxed);
}
// Two of them, with one look at who else runs.
inline void AddOwn(std::atomic<std::uint64_t>& one, std::uint64_t n, std::atomic<std::uint64_t>& other, std::uint64_t m) {
  if (OnlyThread()) {
    one.store(one.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    other.store(other.load(std::memory_order_relaxed) + m, std::memory_order_relaxed);
  } else {
    one.fetch_add(n, std::memory_order_relaxed);
    other.fetch_add(m, std::memory_order_relaxed);
  }
}

// Marks the calling thread as being in the slow path: it may hold locks, so it must not be cancelled, and a signal handler on top of it goes
// straight to the source. `entered()` is false for that handler.
class SlowPath {
 public:
  SlowPath() : entered_(thread_state.in_slow_path == 0) {
    if (!entered_) return;
    thread_state.in_slow_path = 1;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  }
  ~SlowPath() {
    if (!entered_) return;
    ::pthread_setcancelstate(cancel_state_, nullptr);
    thread_state.in_slow_path = 0;
  }
  SlowPath(const SlowPath&) = delete;
  SlowPath& operator=(const SlowPath&) = delete;
  bool entered() const { return entered_; }

 private:
  const bool entered_;
  int cancel_state_ = 0;
};

}  // namespace tierd::client
