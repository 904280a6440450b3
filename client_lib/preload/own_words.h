// Atomic steps on words that this process alone writes. Where there are no other threads all that can come in between is a signal handler, which comes between two
// instructions: one instruction without the bus lock is atomic enough then, at a third of its price. An open, fstat, read and close of a hit take a dozen such steps.
//
// Any thread, signal handlers too. Not for words that other processes see (session page).
#pragma once

#include <atomic>

#include "client_lib/src/thread_state.h"

namespace tierd::preload {

// compare_exchange_strong: acquire and release.
template <typename T>
inline bool ExchangeOwn(std::atomic<T>& word, T& expected, T desired) {
  static_assert(sizeof(word) == sizeof(T) && (sizeof(T) == 4 || sizeof(T) == 8));
#if defined(__x86_64__)
  if (client::OnlyThread()) {
    bool done;
    __asm__ volatile("cmpxchg %3, %1" : "=@ccz"(done), "+m"(word), "+a"(expected) : "r"(desired) : "memory");
    return done;
  }
#endif
  return word.compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
}

// Relaxed.
template <typename T>
inline void AddToOwn(std::atomic<T>& word, T n) {
#if defined(__x86_64__)
  if (client::OnlyThread()) {
    __asm__ volatile("add %1, %0" : "+m"(word) : "r"(n));
    return;
  }
#endif
  word.fetch_add(n, std::memory_order_relaxed);
}

template <typename T>
inline void SetOwnBits(std::atomic<T>& word, T bits) {
#if defined(__x86_64__)
  if (client::OnlyThread()) {
    __asm__ volatile("or %1, %0" : "+m"(word) : "r"(bits));
    return;
  }
#endif
  word.fetch_or(bits, std::memory_order_relaxed);
}

template <typename T>
inline void ClearOwnBits(std::atomic<T>& word, T bits) {
#if defined(__x86_64__)
  if (client::OnlyThread()) {
    __asm__ volatile("and %1, %0" : "+m"(word) : "r"(~bits));
    return;
  }
#endif
  word.fetch_and(~bits, std::memory_order_relaxed);
}

}  // namespace tierd::preload
