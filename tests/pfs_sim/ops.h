// The operations that the rig delays, breaks and counts, with the names its control commands use.
//
// Thread rule: constants and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pfs_sim {

enum class Op : uint8_t {
  kLookup,
  kGetattr,
  kOpen,
  kRead,
  kReaddir,
  kReadlink,
  kSetattr,
  kCreate,
  kWrite,
  kFsync,
  kFallocate,
  kUnlink,
  kRmdir,
  kMkdir,  // mkdir and mknod
  kRename,
  kLink,
  kSymlink,
  // Free unless they are named: no remote round trip stands behind them on most file systems.
  kOpendir,
  kStatfs,
  kLseek,
  kRelease,  // release and releasedir
  kOther,    // answered ENOSYS (flush, access, xattr, ioctl ...)
  kCount,
};

inline constexpr size_t kOpCount = static_cast<size_t>(Op::kCount);

constexpr size_t Index(Op op) { return static_cast<size_t>(op); }

// True for the operations that `latency all N` and the concurrency limit apply to.
constexpr bool IsCosted(Op op) { return op < Op::kOpendir; }

std::string_view OpName(Op op);
std::optional<Op> OpFromName(std::string_view name);

}  // namespace pfs_sim
