// A lock for a few instructions, taken with signals held off: nobody who waits for it can be what keeps it. Any thread, signal handlers too.
//
// The word names the process that holds it. In a child of fork the memory may show a lock that another thread of the parent held: it is taken over, and `inherited()` tells
// the owner of the data that it may have been left in the middle of a change.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_lib/preload/raw.h"

namespace tierd::preload {

class SpinLock {
 public:
  explicit SpinLock(std::atomic<std::uint32_t>& word) : word_(word) {
    const auto self = static_cast<std::uint32_t>(raw::Call(SYS_getpid));
    for (std::uint32_t holder = 0; !word_.compare_exchange_weak(holder, self, std::memory_order_acq_rel); holder = inherited_ ? holder : 0) {
      inherited_ = holder != 0 && holder != self;
      if (!inherited_) raw::Yield();
    }
  }
  ~SpinLock() { word_.store(0, std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;
  bool inherited() const { return inherited_; }

 private:
  const raw::NoSignals no_signals_;
  std::atomic<std::uint32_t>& word_;
  bool inherited_ = false;
};

}  // namespace tierd::preload
