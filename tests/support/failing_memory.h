// Memory that runs out on the threads a test names: the n-th allocation that they make fails, once. Defines the global operator new: for one source file of an
// executable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tierd::test {

inline std::atomic<bool> counting_allocations = false;
inline std::atomic<long> allocations = 0;
inline std::atomic<long> failing_allocation = 0;  // 0: none
// Whether the calling thread's allocations count. May not allocate.
inline bool (*allocations_count_here)() = nullptr;
// The new-handler is asked first, as the library's operator new does: what it gives back may be enough.
inline std::atomic<bool> handler_is_asked = false;

// Until it ends the n-th allocation fails.
class FailingMemory {
 public:
  explicit FailingMemory(long nth) {
    allocations = 0;
    failing_allocation = nth;
    counting_allocations = true;
  }
  ~FailingMemory() { counting_allocations = false; }
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;
};

inline void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (counting_allocations.load(std::memory_order_relaxed)) {
    if (allocations_count_here() && ++allocations == failing_allocation) {
      if (!handler_is_asked) throw std::bad_alloc();
      std::get_new_handler()();
    }
  }
  void* const memory = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment) : std::malloc(bytes + (bytes == 0));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void* AllocateOrNull(std::size_t bytes) noexcept {
  try {
    return Allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace tierd::test

void* operator new(std::size_t bytes) { return tierd::test::Allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return tierd::test::Allocate(bytes, 0); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return tierd::test::AllocateOrNull(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return tierd::test::AllocateOrNull(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return tierd::test::Allocate(bytes, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return tierd::test::Allocate(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
