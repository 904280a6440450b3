// What kind of file system a path is on: its name, whether it is served over a network (or by a user process, which behaves
// alike), and whether a directory may hold the SSD tier. Functions without state; those that ask the kernel about a path
// block and belong on a worker thread or at start-up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"

namespace tierd::source {

// Name of a statfs(2) f_type as mount(8) spells it ("ext4", "nfs", "lustre", "fuse"); "0x1234abcd" for one not listed.
std::string FsTypeName(std::uint64_t magic);

// True for the names of network and parallel file systems as they stand in /proc/self/mountinfo or as FsTypeName gives
// them: lustre, gpfs, beegfs, nfs, nfs4, cifs, smb3, ceph, 9p, afs, fuse, fuse.*, ... (not fuseblk: a local disk).
bool IsNetworkFs(std::string_view fs_name);

// True for file systems whose content is memory: tmpfs, ramfs, hugetlbfs.
bool IsMemoryFs(std::string_view fs_name);

struct Mount {
  std::uint64_t dev = 0;    // st_dev of what is mounted
  std::string mount_point;  // absolute, escapes (\040 ...) decoded
  std::string fs_name;      // "fuse.glusterfs", "nfs4", ...
  std::string device;       // "server:/export", "/dev/vda1", ...
};

// Decodes the text of /proc/self/mountinfo; lines that do not parse are left out.
std::vector<Mount> ParseMountinfo(std::string_view text);

// Those of `mounts` (in the order of mountinfo) that ListNetworkMounts would give.
std::vector<Mount> NetworkMountsOf(std::vector<Mount> mounts);

// Network file systems mounted in this namespace that a user may read as a dataset: the sources of a daemon without
// configuration. Mounts below /proc, /sys, /dev and /run are left out, and so are those that another mount at the same
// place hides. Reads /proc only: never touches the mounts themselves (a hung one costs nothing).
Result<std::vector<Mount>> ListNetworkMounts();

// What is mounted at `path`. `fs_name` is taken from mountinfo (by st_dev) where it is more exact than statfs.
struct FsKind {
  std::uint64_t magic = 0;
  std::string name;
  bool is_network = false;
  bool is_memory = false;
  std::uint64_t fsid = 0;  // f_fsid as one word; 0 where the file system has none
};
// Blocking. Errors: errno of statfs or fstat.
Result<FsKind> FsKindOf(int fd);

// OK if `directory` may hold the SSD tier: a directory we can write to on a local, non-memory file system. Otherwise one
// sentence that names the reason (kInvalid: network, memory or read-only file system, no directory; kPermission).
// Blocking. Does not measure the device.
Status CheckLocalCacheDirectory(const std::string& directory);

}  // namespace tierd::source
