#include "tests/pfs_sim/ops.h"

#include <array>

namespace pfs_sim {
namespace {

constexpr std::array<std::string_view, kOpCount> kNames = {
    "lookup", "getattr", "open",  "read",  "readdir", "readlink", "setattr", "create",
    "write",  "fsync",   "fallocate", "unlink", "rmdir", "mkdir", "rename", "link",
    "symlink", "opendir", "statfs", "lseek", "release", "other"};

}  // namespace

std::string_view OpName(Op op) { return kNames[Index(op)]; }

std::optional<Op> OpFromName(std::string_view name) {
  for (size_t i = 0; i < kOpCount; ++i) {
    if (kNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace pfs_sim
