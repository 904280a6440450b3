#include "tierd/source/source.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <deque>
#include <utility>

#include "client_lib/abi/time_ns.h"
#include "tierd/io/mount_of.h"
#include "tierd/source/open_beneath.h"

namespace tierd::source {
namespace {

constexpr std::array kNoSources = std::to_array<std::string_view>(
    {"proc", "sysfs", "debugfs", "tracefs", "cgroup", "cgroup2", "devpts", "devtmpfs", "securityfs", "bpf", "nsfs"});

// The search for a file that tells about O_DIRECT looks at no more than this many names.
constexpr int kDirectProbeEntries = 256;
constexpr std::uint32_t kMaxDirectAlignment = 64 * 1024;
// What takes O_DIRECT at all there takes pages.
constexpr std::uint32_t kNetworkDirectAlignment = 4096;

Result<std::string> NameOfFd(int fd) {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  std::array<char, PATH_MAX> name;
  const ssize_t length = ::readlink(link, name.data(), name.size());
  if (length < 0) return Status::FromErrno(errno, std::string("readlink ") + link);
  return std::string(name.data(), static_cast<std::size_t>(length));
}

// Alignment that O_DIRECT needs on this file; 0: it is not possible or the kernel does not say.
std::uint32_t DirectAlignmentOf(int dir_fd, const char* name) {
#ifdef STATX_DIOALIGN
  struct statx st {};
  if (::statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_DIOALIGN, &st) != 0) return 0;
  if ((st.stx_mask & STATX_DIOALIGN) == 0 || st.stx_dio_mem_align == 0) return 0;
  const std::uint32_t alignment = std::max(st.stx_dio_mem_align, st.stx_dio_offset_align);
  return std::has_single_bit(alignment) && alignment <= kMaxDirectAlignment ? alignment : 0;
#else
  (void)dir_fd;
  (void)name;
  return 0;
#endif
}

// The first regular file found breadth first answers for the whole source: alignment belongs to the file system.
std::uint32_t ProbeDirectAlignment(int root_fd) {
  std::deque<std::string> directories{""};
  int seen = 0;
  while (!directories.empty() && seen < kDirectProbeEntries) {
    const std::string directory = directories.front();
    directories.pop_front();
    OpenedFile opened = OpenBeneath(root_fd, directory, O_RDONLY | O_DIRECTORY);
    if (opened.error != 0) continue;
    DIR* stream = ::fdopendir(opened.fd.get());
    if (stream == nullptr) continue;
    const int fd = opened.fd.Release();  // owned by the stream
    std::uint32_t alignment = 0;
    bool found = false;
    while (const dirent* entry = ::readdir(stream)) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++seen > kDirectProbeEntries) break;
      if (entry->d_type == DT_DIR) directories.push_back(directory.empty() ? std::string(name) : directory + "/" + entry->d_name);
      if (entry->d_type != DT_REG) continue;
      alignment = DirectAlignmentOf(fd, entry->d_name);
      found = true;
      break;
    }
    ::closedir(stream);
    if (found) return alignment;
  }
  return 0;
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string IdentityOf(const std::string& root, const FsKind& fs) {
  char id[24] = "";
  if (fs.fsid != 0) std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(fs.fsid));
  return root + "|" + fs.name + "|" + id;
}

// 0 or errno. `mount`: 0 where statx does not tell.
int Statx(int fd, const char* path, bool follow_symlinks, io::FileStat* out, std::uint64_t* mount) {
  struct statx st {};
  const int flags = AT_NO_AUTOMOUNT | (*path == '\0' ? AT_EMPTY_PATH : 0) | (follow_symlinks ? 0 : AT_SYMLINK_NOFOLLOW);
  if (::statx(fd, path, flags, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0) return errno;
  *mount = (st.stx_mask & STATX_MNT_ID) != 0 ? st.stx_mnt_id : 0;
  out->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
  out->ino = st.stx_ino;
  out->size = st.stx_size;
  out->mtime_ns = abi::TimeNs(st.stx_mtime);
  out->ctime_ns = abi::TimeNs(st.stx_ctime);
  out->atime_ns = abi::TimeNs(st.stx_atime);
  out->mode = st.stx_mode;
  out->uid = st.stx_uid;
  out->gid = st.stx_gid;
  out->nlink = st.stx_nlink;
  return 0;
}

}  // namespace

int StatAt(int fd, const char* path, bool follow_symlinks, io::FileStat* out) {
  std::uint64_t mount = 0;
  return Statx(fd, path, follow_symlinks, out, &mount);
}

int StatEntry(int fd, const char* name, io::FileStat* out, std::uint64_t* mount) {
  const int error = Statx(fd, name, false, out, mount);
  if (error != 0 || *mount != 0) return error;
  const UniqueFd place(::openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  *mount = place.valid() ? io::MountByFdinfo(place.get()) : 0;
  return 0;
}

bool RelativeTo(std::string_view root, std::string_view path, std::string_view* relative) {
  while (root.size() > 1 && root.ends_with('/')) root.remove_suffix(1);
  if (!path.starts_with(root)) return false;
  path.remove_prefix(root.size());
  if (root != "/" && !path.empty() && path.front() != '/') return false;
  while (path.starts_with('/')) path.remove_prefix(1);
  *relative = path;
  return true;
}

Result<std::shared_ptr<const Source>> Source::Open(const std::string& root) {
  if (root.empty() || root.front() != '/') {
    return Status(Code::kInvalid, "source \"" + root + "\" is not an absolute path");
  }
  std::shared_ptr<Source> source(new Source);
  source->root_ = WithoutTrailingSlashes(root);
  const std::string what = "source " + source->root_;
  source->fd_.Reset(::open(source->root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!source->fd_.valid()) {
    if (errno == ENOTDIR) return Status(Code::kInvalid, what + " is not a directory", ENOTDIR);
    return Status::FromErrno(errno, what);
  }
  if (const int error = StatAt(source->root_fd(), "", false, &source->stat_); error != 0) {
    return Status::FromErrno(error, what);
  }
  source->mount_ = io::MountOf(source->root_fd());
  Result<FsKind> fs = FsKindOf(source->root_fd());
  if (!fs.ok()) return Status(fs.status().code(), what + ": " + fs.status().message(), fs.status().sys_errno());
  source->fs_ = std::move(fs).value();
  if (std::find(kNoSources.begin(), kNoSources.end(), source->fs_.name) != kNoSources.end()) {
    return Status(Code::kInvalid, what + " is on a " + source->fs_.name + " file system, which holds no data");
  }
  Result<std::string> name = NameOfFd(source->root_fd());
  if (!name.ok()) return name.status();
  source->canonical_root_ = std::move(name).value();
  source->identity_ = IdentityOf(source->root_, source->fs_);
  source->direct_alignment_ = source->fs_.is_network ? kNetworkDirectAlignment : ProbeDirectAlignment(source->root_fd());
  return std::shared_ptr<const Source>(std::move(source));
}

}  // namespace tierd::source
