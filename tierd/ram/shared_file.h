// memfds for memory shared with clients: creation, sealing, and the read-only open file that clients get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ram {

inline constexpr std::uint64_t kHugePage = 2 << 20;  // bytes

// A sealable memfd of `bytes`, close-on-exec, not executable where the kernel knows that. `huge`: of the hugetlb pool (2 MiB pages).
Result<UniqueFd> MakeMemfd(const char* name, std::uint64_t bytes, bool huge = false);
// fallocate of the whole file; repeats EINTR (seen from io_uring's task work: HAZARDS W3).
Status AllocateFile(int fd, std::uint64_t bytes);
// Maps `bytes` read-write at an address that is a multiple of 2 MiB, so that huge pages can be used.
Result<std::byte*> MapShared(int fd, std::uint64_t bytes);
// Makes a hole in the file, both in whole pages of its; repeats EINTR. The memory comes back although the file is mapped. kPermission under FUTURE_WRITE.
Status PunchFile(int fd, std::uint64_t offset, std::uint64_t bytes);
// Writes to every page of fresh zero memory, so that each exists; kNoSpace instead of a SIGBUS where the kernel offers it.
Status TouchPages(std::byte* data, std::uint64_t bytes);
// Inode mode 0400 and the seals SHRINK|GROW|SEAL, plus FUTURE_WRITE if asked (after the last writable mapping was made).
Status SealFile(int fd, bool future_write);
// Another open file of the same inode, O_RDONLY: the one that leaves the process.
Result<UniqueFd> OpenReadOnly(int fd);
// The knob that lets memfds have huge pages.
inline constexpr const char* kShmemEnabledPath = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
// The word in brackets of a knob such as "always within_size [advise] never"; "" when it cannot be read.
std::string ChosenWord(const std::string& path);
// Whether a memfd that asks for huge pages (MADV_HUGEPAGE) gets them under that setting.
bool GivesHugePages(const std::string& shmem_enabled);
// Bytes of [data, data + bytes) that are mapped by 2 MiB entries, from /proc/self/smaps; 0 when it cannot be read.
std::uint64_t HugeMappedBytes(const std::byte* data, std::uint64_t bytes);

}  // namespace tierd::ram
