#include "client_lib/src/shared_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client_lib/abi/map_aligned.h"

namespace tierd::client {

void* MapShared(int fd, std::uint64_t bytes, bool writable, bool huge) {
  struct stat st;
  if (bytes == 0 || ::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) < bytes) return nullptr;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (!huge) {
    void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  void* const data = abi::MapAligned(fd, bytes, protection);
  if (data == MAP_FAILED) return nullptr;
  (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

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
