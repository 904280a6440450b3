// Memory of the libtier core inside this library (its malloc, calloc, realloc, free, strdup end here, by --wrap): the application may be in the middle of its
// own malloc, in a signal handler, when it calls open. A few blocks in a process's life, so a free list per power of two is enough. Never given back.
#include <pthread.h>
#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include <atomic>

#include "client_lib/preload/raw.h"
#include "client_lib/preload/spin_lock.h"
#include "client_lib/src/added_memory.h"

namespace raw = tierd::preload::raw;

namespace {

constexpr std::size_t kHead = 16;          // in front of each block: its class
constexpr unsigned kSmallest = 6;          // 64 bytes
constexpr unsigned kLargest = 40;
constexpr std::size_t kSlab = 256 << 10;   // small blocks are cut from pieces of that size

struct Free {
  Free* next;
};

constinit std::atomic<std::uint32_t> lock_word{0};
constinit Free* free_lists[kLargest + 1] = {};
constinit char* slab = nullptr;
constinit std::size_t slab_left = 0;

// Of another process: this is a child of fork, and a thread that is not here was in the middle. What the lists named is lost to this process, a few KiB.
class Lock {
 public:
  Lock() {
    if (!lock_.inherited()) return;
    for (Free*& list : free_lists) list = nullptr;
    slab_left = 0;
  }

 private:
  const tierd::preload::SpinLock lock_{lock_word};
};

char* Pages(std::size_t bytes) {
  const long address = raw::Call(SYS_mmap, 0, static_cast<long>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address < 0 && address > -4096) return nullptr;
  tierd::client::CountAdded(tierd::client::Added::kHeap, bytes);
  return reinterpret_cast<char*>(address);
}

char* TakeBlock(unsigned size_class) {
  const std::size_t bytes = std::size_t{1} << size_class;
  if (Free* const free = free_lists[size_class]; free != nullptr) {
    free_lists[size_class] = free->next;
    return reinterpret_cast<char*>(free);
  }
  if (bytes >= kSlab) return Pages(bytes);
  if (slab_left < bytes) {
    slab = Pages(kSlab);
    slab_left = slab != nullptr ? kSlab : 0;
    if (slab == nullptr) return nullptr;
  }
  char* const block = slab;
  slab += bytes;
  slab_left -= bytes;
  return block;
}

std::uint64_t& ClassOf(void* memory) { return *reinterpret_cast<std::uint64_t*>(static_cast<char*>(memory) - kHead); }

}  // namespace

extern "C" {

void* __wrap_malloc(size_t bytes) {
  if (bytes > (std::size_t{1} << (kLargest - 1))) return nullptr;
  unsigned size_class = static_cast<unsigned>(std::bit_width(bytes + kHead - 1));
  if (size_class < kSmallest) size_class = kSmallest;
  char* block;
  {
    const Lock lock;
    block = TakeBlock(size_class);
  }
  if (block == nullptr) return nullptr;
  void* const memory = block + kHead;
  ClassOf(memory) = size_class;
  return memory;
}

void __wrap_free(void* memory) {
  if (memory == nullptr) return;
  const std::uint64_t size_class = ClassOf(memory);
  auto* const block = reinterpret_cast<Free*>(static_cast<char*>(memory) - kHead);
  const Lock lock;
  block->next = free_lists[size_class];
  free_lists[size_class] = block;
}

void* __wrap_calloc(size_t count, size_t bytes) {
  std::size_t all;
  if (__builtin_mul_overflow(count, bytes, &all)) return nullptr;
  void* const memory = __wrap_malloc(all);
  if (memory != nullptr) std::memset(memory, 0, all);
  return memory;
}

void* __wrap_realloc(void* memory, size_t bytes) {
  if (memory == nullptr) return __wrap_malloc(bytes);
  const std::size_t room = (std::size_t{1} << ClassOf(memory)) - kHead;
  if (bytes <= room) return memory;
  void* const larger = __wrap_malloc(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, memory, room);
  __wrap_free(memory);
  return larger;
}

char* __wrap_strdup(const char* text) {
  const std::size_t bytes = std::strlen(text) + 1;
  auto* const copy = static_cast<char*>(__wrap_malloc(bytes));
  if (copy != nullptr) std::memcpy(copy, text, bytes);
  return copy;
}

}  // extern "C"
