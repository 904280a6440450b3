#include "tierd/ram/shared_file.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "client_lib/abi/map_aligned.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tierd::ram {
namespace {

constexpr std::uint64_t kSmallPage = 4096;
// Pages are made in pieces: the kernel holds the lock of the whole address space for one, and the loop, which may have to map something, waits.
constexpr std::uint64_t kTouchStep = 2 << 20;

}  // namespace

Result<UniqueFd> MakeMemfd(const char* name, std::uint64_t bytes, bool huge) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0u);
  int fd = ::memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name, flags);  // before 6.3
  if (fd < 0) return Status::FromErrno(errno, std::string("memfd_create ") + name);
  UniqueFd owned(fd);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return Status::FromErrno(errno, std::string("ftruncate ") + name);
  return owned;
}

Status AllocateFile(int fd, std::uint64_t bytes) {
  while (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return Status::FromErrno(errno, "fallocate shared memory of " + std::to_string(bytes) + " bytes");
  }
  return Status::Ok();
}

Status PunchFile(int fd, std::uint64_t offset, std::uint64_t bytes) {
  while (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return Status::FromErrno(errno, "punch shared memory @" + std::to_string(offset) + "+" + std::to_string(bytes));
  }
  return Status::Ok();
}

Result<std::byte*> MapShared(int fd, std::uint64_t bytes) {
  void* const data = abi::MapAligned(fd, bytes, PROT_READ | PROT_WRITE);
  if (data == MAP_FAILED) return Status::FromErrno(errno, "mmap shared memory of " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(data);
}

Status TouchPages(std::byte* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kTouchStep) {
    const std::uint64_t piece = std::min(kTouchStep, bytes - at);
    int outcome = 0;
    do {
      outcome = ::madvise(data + at, piece, MADV_POPULATE_WRITE);
    } while (outcome != 0 && (errno == EINTR || errno == EAGAIN));
    if (outcome == 0) continue;
    if (errno != EINVAL) return Status(Code::kNoSpace, "populate shared memory: " + std::string(std::strerror(errno)), errno);
    // Before 5.14: by hand. The file is allocated, so this cannot fail for want of space in it.
    for (std::uint64_t page = at; page < at + piece; page += kSmallPage) {
      *reinterpret_cast<volatile unsigned char*>(data + page) = 0;
    }
  }
  return Status::Ok();
}

Status SealFile(int fd, bool future_write) {
  if (::fchmod(fd, 0400) != 0) return Status::FromErrno(errno, "fchmod shared memory");
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (future_write ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
  if (::fcntl(fd, F_ADD_SEALS, seals) != 0) return Status::FromErrno(errno, "seal shared memory");
  return Status::Ok();
}

Result<UniqueFd> OpenReadOnly(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) return Status::FromErrno(errno, "open " + path + " read-only");
  return UniqueFd(opened);
}

std::string ChosenWord(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return "";
  char text[256] = {};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  const std::string all(text, size);
  const std::size_t open = all.find('[');
  const std::size_t close = all.find(']');
  return open == std::string::npos || close == std::string::npos || close < open ? "" : all.substr(open + 1, close - open - 1);
}

bool GivesHugePages(const std::string& shmem_enabled) {
  return shmem_enabled == "advise" || shmem_enabled == "always" || shmem_enabled == "within_size" || shmem_enabled == "force";
}

std::uint64_t HugeMappedBytes(const std::byte* data, std::uint64_t bytes) {
  std::FILE* file = std::fopen("/proc/self/smaps", "re");
  if (file == nullptr) return 0;
  const auto from = reinterpret_cast<std::uintptr_t>(data);
  char line[512];
  bool inside = false;
  std::uint64_t sum = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      inside = begin < from + bytes && end > from;
      if (begin >= from + bytes) break;
      continue;
    }
    std::uint64_t kib = 0;
    if (inside && (std::sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 || std::sscanf(line, "FilePmdMapped: %" SCNu64, &kib) == 1)) {
      sum += kib << 10;
    }
  }
  std::fclose(file);
  return sum;
}

}  // namespace tierd::ram
