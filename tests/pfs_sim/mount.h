// Mounting and unmounting a raw /dev/fuse connection: mount(2) as root, else fusermount3.
//
// Thread rule: plain functions, no state. Failures are one sentence in *why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pfs_sim {

// Mounts at `dir` and returns the /dev/fuse descriptor, or nothing. As root other users may enter the
// mount and the kernel checks the modes (allow_other, default_permissions).
std::optional<int> MountFuse(const std::string& dir, std::string* why);

// Detaches the mount at once, whoever still uses it.
void UnmountLazily(const std::string& dir);

// True if /proc/self/mountinfo names `dir` (an absolute path without symlinks) as a mount point.
bool IsMounted(const std::string& dir);

// Raises the read-ahead of the mount at `dir` so that large buffered reads come as requests of 1 MiB;
// false where that is not allowed (then the kernel's 128 KiB stay).
bool SetReadAhead(const std::string& dir, uint32_t kib);

// A process that unmounts `dir` when this process ends without having said that it did so itself (kill
// -9, crash). Started right after the mount and before any thread. A mount made on `dir` by someone else
// in the milliseconds after a crash would be taken for ours.
class MountGuard {
 public:
  explicit MountGuard(const std::string& dir);
  void Dismiss();  // the mount is gone: nothing is left to do

 private:
  int pipe_ = -1;  // the guard sees its end when this process dies
  int pid_ = -1;
};

}  // namespace pfs_sim
