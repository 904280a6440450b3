#include "client_lib/src/shared_mapping.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "client_lib/abi/map_aligned.h"

namespace tierd::client {
namespace {

constexpr rlim_t kOurShare = 8;  // one part in so many of a limited address space

constinit std::atomic<std::uint64_t> mapped_bytes{0};

// RLIM_INFINITY: it is not limited.
rlim_t SpaceLimit() {
  rlimit space;
  return ::getrlimit(RLIMIT_AS, &space) == 0 ? space.rlim_cur : RLIM_INFINITY;
}

bool TakeRoom(std::uint64_t bytes) {
  const rlim_t limit = SpaceLimit();
  const std::uint64_t taken = mapped_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (limit == RLIM_INFINITY || taken <= limit / kOurShare) return true;
  mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void* Map(int fd, std::uint64_t bytes, int protection, bool huge) {
  return huge ? abi::MapAligned(fd, bytes, protection) : ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
}

}  // namespace

bool SpaceIsLimited() { return SpaceLimit() != RLIM_INFINITY; }

void* MapShared(int fd, std::uint64_t bytes, bool writable, bool huge) {
  struct stat st;
  if (bytes == 0 || ::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) < bytes) return nullptr;
  if (!TakeRoom(bytes)) return nullptr;
  void* const data = Map(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, huge);
  if (data == MAP_FAILED) {
    mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  if (huge) (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void UnmapShared(const void* data, std::uint64_t bytes) {
  if (::munmap(const_cast<void*>(data), bytes) == 0) mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

// In two steps. An mremap to a fixed place unmaps what is there and may fail afterwards; all that is likely to refuse one (limits of address space, of locked
// memory, of mappings) refuses the first step, which touches nothing.
Again MapAgain(const void* data, std::uint64_t bytes, void* place) {
  void* const anywhere = ::mremap(const_cast<void*>(data), 0, bytes, MREMAP_MAYMOVE);
  if (anywhere == MAP_FAILED) return Again::kRefused;
  if (::mremap(anywhere, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED) return Again::kMapped;
  ::munmap(anywhere, bytes);
  return Again::kLost;
}

std::uint64_t SharedBytes() { return mapped_bytes.load(std::memory_order_relaxed); }

void PopulateForReading(void* data, std::uint64_t bytes) {
#ifdef MADV_POPULATE_READ
  (void)::madvise(data, bytes, MADV_POPULATE_READ);
#else
  (void)data, (void)bytes;
#endif
}

void OverlayWithZeros(const void* data, std::uint64_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  // Not by mmap: to a race detector that would be a write to what readers on their way still look at, and zeros are what they are meant to find.
  (void)::syscall(SYS_mmap, data, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

}  // namespace tierd::client
