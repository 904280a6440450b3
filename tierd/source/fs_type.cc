#include "tierd/source/fs_type.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "tierd/base/unique_fd.h"

namespace tierd::source {
namespace {

struct KnownMagic {
  std::uint64_t magic;
  const char* name;
};

// linux/magic.h and, for file systems outside the kernel tree, their own sources and statfs(2).
constexpr std::array kMagics = std::to_array<KnownMagic>({
    {0xEF53, "ext4"},          {0x58465342, "xfs"},       {0x9123683E, "btrfs"},      {0xF2F52010, "f2fs"},
    {0x2FC12FC1, "zfs"},       {0xCA451A4E, "bcachefs"},  {0x4D44, "vfat"},           {0x2011BAB0, "exfat"},
    {0x5346544E, "ntfs"},      {0x73717368, "squashfs"},  {0x9660, "iso9660"},        {0xE0F5E1E2, "erofs"},
    {0x794C7630, "overlay"},   {0x01021994, "tmpfs"},     {0x858458F6, "ramfs"},      {0x958458F6, "hugetlbfs"},
    {0x9FA0, "proc"},          {0x62656572, "sysfs"},     {0x64626720, "debugfs"},    {0x74726163, "tracefs"},
    {0x0027E0EB, "cgroup"},    {0x63677270, "cgroup2"},   {0x1CD1, "devpts"},         {0x73636673, "securityfs"},
    {0x6969, "nfs"},           {0xFF534D42, "cifs"},      {0xFE534D42, "smb3"},       {0x517B, "smbfs"},
    {0x0BD00BD0, "lustre"},    {0x47504653, "gpfs"},      {0x19830326, "beegfs"},     {0x00C36400, "ceph"},
    {0x65735546, "fuse"},      {0x01021997, "9p"},        {0x5346414F, "afs"},        {0x6B414653, "afs"},
    {0x73757245, "coda"},      {0x7461636F, "ocfs2"},     {0x01161970, "gfs2"},       {0xAAD7AAEA, "panfs"},
    {0x20030528, "orangefs"},  {0x786F4256, "vboxsf"},    {0xCAFE4A11, "bpf"},        {0x6E736673, "nsfs"},
});

constexpr std::array kNetwork = std::to_array<std::string_view>(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "afs", "coda", "ocfs2",
     "gfs2", "panfs", "orangefs", "pvfs2", "glusterfs", "virtiofs", "wekafs", "vboxsf", "prl_fs", "davfs", "ncpfs"});

// FUSE file systems that desktops and containers mount for themselves; nobody trains from them.
constexpr std::array kNoDataset = std::to_array<std::string_view>(
    {"fuse.gvfsd-fuse", "fuse.portal", "fuse.lxcfs", "fuse.snapfuse", "fuse.overlayfs", "fuse.fuse-overlayfs"});

constexpr std::array kSystemTrees = std::to_array<std::string_view>({"/proc", "/sys", "/dev", "/run"});

bool IsBelow(std::string_view path, std::string_view root) {
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

// mountinfo writes space, tab, newline and backslash as \ and three octal digits.
std::string Unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ptr == text.data() + i + 4) {
      out.push_back(static_cast<char>(value));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t space = std::min(line.find(' '), line.size());
    if (space > 0) words.push_back(line.substr(0, space));
    line.remove_prefix(std::min(space + 1, line.size()));
  }
  return words;
}

// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": any number of tags before the "-".
bool ParseMountLine(std::string_view line, Mount* mount) {
  const std::vector<std::string_view> words = Words(line);
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (dash - words.begin() < 6 || words.end() - dash < 3) return false;
  unsigned major = 0;
  unsigned minor = 0;
  const std::string_view dev = words[2];
  const char* end = dev.data() + dev.size();
  const auto head = std::from_chars(dev.data(), end, major);
  if (head.ec != std::errc() || head.ptr == end || *head.ptr != ':') return false;
  if (std::from_chars(head.ptr + 1, end, minor).ptr != end) return false;
  mount->dev = makedev(major, minor);
  mount->mount_point = Unescape(words[4]);
  mount->fs_name = std::string(dash[1]);
  mount->device = Unescape(dash[2]);
  return true;
}

Result<std::string> ReadMountinfo() {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status(Code::kIo, "read /proc/self/mountinfo failed");
  return text.str();
}

}  // namespace

std::string FsTypeName(std::uint64_t magic) {
  const auto known = std::find_if(kMagics.begin(), kMagics.end(), [&](const KnownMagic& k) { return k.magic == magic; });
  if (known != kMagics.end()) return known->name;
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(magic));
  return text;
}

bool IsNetworkFs(std::string_view fs_name) {
  return fs_name.starts_with("fuse.") || std::find(kNetwork.begin(), kNetwork.end(), fs_name) != kNetwork.end();
}

bool IsMemoryFs(std::string_view fs_name) {
  return fs_name == "tmpfs" || fs_name == "ramfs" || fs_name == "hugetlbfs" || fs_name == "devtmpfs";
}

std::vector<Mount> ParseMountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Mount mount;
    if (ParseMountLine(text.substr(0, end), &mount)) mounts.push_back(std::move(mount));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return mounts;
}

std::vector<Mount> NetworkMountsOf(std::vector<Mount> mounts) {
  std::vector<Mount> found;
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const Mount& mount = mounts[i];
    const bool hidden = std::any_of(mounts.begin() + static_cast<std::ptrdiff_t>(i) + 1, mounts.end(),
                                    [&](const Mount& later) { return later.mount_point == mount.mount_point; });
    const bool system = std::any_of(kSystemTrees.begin(), kSystemTrees.end(),
                                    [&](std::string_view tree) { return IsBelow(mount.mount_point, tree); });
    const bool no_dataset = std::find(kNoDataset.begin(), kNoDataset.end(), mount.fs_name) != kNoDataset.end();
    if (!hidden && !system && !no_dataset && IsNetworkFs(mount.fs_name)) found.push_back(mount);
  }
  return found;
}

Result<std::vector<Mount>> ListNetworkMounts() {
  Result<std::string> text = ReadMountinfo();
  if (!text.ok()) return text.status();
  return NetworkMountsOf(ParseMountinfo(*text));
}

Result<FsKind> FsKindOf(int fd) {
  struct statfs fs {};
  struct stat st {};
  if (::fstatfs(fd, &fs) != 0) return Status::FromErrno(errno, "statfs");
  if (::fstat(fd, &st) != 0) return Status::FromErrno(errno, "fstat");
  FsKind kind;
  // f_type is signed on some machines: CIFS' 0xFF534D42 must not be sign-extended.
  kind.magic = static_cast<std::uint64_t>(fs.f_type) & 0xFFFFFFFFU;
  kind.name = FsTypeName(kind.magic);
  std::uint32_t id[2];
  static_assert(sizeof id == sizeof fs.f_fsid);
  std::memcpy(id, &fs.f_fsid, sizeof id);
  kind.fsid = std::uint64_t{id[1]} << 32 | id[0];
  // "fuse" says little; mountinfo knows "fuse.sshfs", "nfs4" and kernel modules whose magic is not listed.
  if (Result<std::string> text = ReadMountinfo(); text.ok()) {
    for (const Mount& mount : ParseMountinfo(*text)) {
      if (mount.dev == st.st_dev) kind.name = mount.fs_name;
    }
  }
  kind.is_network = IsNetworkFs(kind.name);
  kind.is_memory = IsMemoryFs(kind.name);
  return kind;
}

Status CheckLocalCacheDirectory(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOTDIR) return Status(Code::kInvalid, "cache directory " + directory + " is not a directory", ENOTDIR);
    return Status::FromErrno(errno, "cache directory " + directory);
  }
  const Result<FsKind> kind = FsKindOf(fd.get());
  if (!kind.ok()) return kind.status();
  if (kind.value().is_network) {
    return Status(Code::kInvalid, "cache directory " + directory + " is on a network file system (" + kind.value().name + ")");
  }
  if (kind.value().is_memory) {
    return Status(Code::kInvalid, "cache directory " + directory + " is in memory (" + kind.value().name + "), not on a disk");
  }
  struct statvfs vfs {};
  if (::fstatvfs(fd.get(), &vfs) == 0 && (vfs.f_flag & ST_RDONLY) != 0) {
    return Status(Code::kInvalid, "cache directory " + directory + " is on a read-only file system", EROFS);
  }
  // The flag takes faccessat2, which old filters of system calls refuse. It changes nothing for a process that has one identity.
  const bool one_identity = ::getuid() == ::geteuid() && ::getgid() == ::getegid();
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, one_identity ? 0 : AT_EACCESS) != 0) {
    const bool denied = errno == EACCES || errno == EROFS;
    return Status::FromErrno(errno, (denied ? "" : "cannot ask whether ") + ("cache directory " + directory) + (denied ? " is not writable" : " is writable"));
  }
  return Status::Ok();
}

}  // namespace tierd::source
