#include "client_lib/src/shared_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

namespace tierd::client {
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
constexpr std::uint64_t kSmallPage = 4096;

std::uint64_t RoundUp(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

void* MapShared(int fd, std::uint64_t bytes, bool writable, bool huge) {
  struct stat st;
  if (bytes == 0 || ::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) < bytes) return nullptr;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (!huge) {
    void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  // Huge pages need address and offset to agree modulo 2 MiB: reserve more, map inside, give the rest back.
  const std::uint64_t reserved = RoundUp(bytes, kSmallPage) + kHugePage;
  void* const room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(room);
  const std::uintptr_t aligned = RoundUp(begin, kHugePage);
  void* const data = ::mmap(reinterpret_cast<void*>(aligned), bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    ::munmap(room, reserved);
    return nullptr;
  }
  const std::uintptr_t end = aligned + RoundUp(bytes, kSmallPage);
  if (aligned != begin) ::munmap(room, aligned - begin);
  if (begin + reserved != end) ::munmap(reinterpret_cast<void*>(end), begin + reserved - end);
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
  (void)::mmap(const_cast<void*>(data), bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

}  // namespace tierd::client
