#include "tierd/config/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "tierd/base/directory_identity.h"
#include "tierd/config/path_text.h"
#include "tierd/ram/memory_pressure.h"
#include "tierd/source/fs_type.h"

namespace tierd::config {
namespace {

std::string NearestExisting(std::string path) {
  struct stat info {};
  while (path != "/" && ::stat(path.c_str(), &info) != 0 && errno == ENOENT) path = ParentOf(path);
  return path;
}

// Disk space of the files right below (region files; the LevelDB folder is small beside them).
std::uint64_t HeldBytes(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(directory.c_str()), ::closedir);
  if (handle == nullptr) return 0;
  std::uint64_t blocks = 0;
  while (const dirent* entry = ::readdir(handle.get())) {
    struct stat info {};
    if (::fstatat(::dirfd(handle.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) {
      blocks += static_cast<std::uint64_t>(info.st_blocks);
    }
  }
  return blocks * 512;
}

std::string TextOr(const std::optional<std::string>& text, const std::string& otherwise) { return text ? *text : otherwise; }

std::vector<std::string> CandidateDirectories(const GetEnvironment& environment, std::uint32_t uid) {
  std::vector<std::string> paths;
  if (const auto given = environment("CACHE_DIRECTORY"); given && given->starts_with('/')) paths.push_back(given->substr(0, given->find(':')));
  if (const auto cache_home = environment("XDG_CACHE_HOME"); cache_home && cache_home->starts_with('/')) {
    paths.push_back(*cache_home + "/tierd");
  } else if (const auto home = environment("HOME"); home && home->starts_with('/')) {
    paths.push_back(*home + "/.cache/tierd");
  }
  paths.push_back("/var/tmp/tierd-" + std::to_string(uid));
  return paths;
}

bool IsDirectoryOf(const std::string& path, std::uint32_t uid) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == uid;
}

// The source that `path` lies in, by whatever name; "": none.
std::string SourceAround(const std::string& path, const Config& config) {
  std::vector<DirectoryIdentity> roots;
  std::vector<std::string> names;
  for (const auto& source : config.settings().sources) {
    if (const auto identity = IdentityOf(source.path)) roots.push_back(*identity), names.push_back(source.path);
  }
  const auto root = RootOf(path, roots);
  return root.ok() && root->has_value() ? names[**root] : "";
}

}  // namespace

CacheDirectory ExamineCacheDirectory(const std::string& path) {
  CacheDirectory facts;
  facts.path = path;
  struct stat link {};
  if (::lstat(path.c_str(), &link) == 0) {
    if (S_ISLNK(link.st_mode)) {
      facts.usable = Status(Code::kInvalid, path + " is a symbolic link: name the directory itself");
    } else if (!S_ISDIR(link.st_mode)) {
      facts.usable = Status(Code::kInvalid, path + " is no directory");
    } else if (link.st_uid != ::geteuid()) {
      facts.usable = Status(Code::kPermission, path + " belongs to uid " + std::to_string(link.st_uid) + ": it must be ours alone; name a new directory inside it");
    }
  }
  const std::string existing = NearestExisting(path);
  if (facts.usable.ok()) facts.usable = source::CheckLocalCacheDirectory(existing);
  struct statvfs space {};
  if (::statvfs(existing.c_str(), &space) == 0) {
    facts.total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
    facts.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  } else if (facts.usable.ok()) {
    facts.usable = Status::FromErrno(errno, existing);
  }
  if (existing == path) facts.held_bytes = HeldBytes(path);
  return facts;
}

HostFacts CollectHost(const Config& config, const GetEnvironment& environment) {
  HostFacts facts;
  facts.uid = ::geteuid();
  facts.home = TextOr(environment("HOME"), "");
  facts.xdg_config_home = TextOr(environment("XDG_CONFIG_HOME"), "");
  facts.xdg_runtime_dir = TextOr(environment("XDG_RUNTIME_DIR"), "");
  if (!facts.xdg_runtime_dir.starts_with('/') || !IsDirectoryOf(facts.xdg_runtime_dir, facts.uid)) facts.xdg_runtime_dir.clear();

  const ram::MemoryRoom room = ram::ReadMemoryRoom({});
  facts.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (room.cgroup_limit_bytes != 0) facts.memory_bytes = std::min(facts.memory_bytes, room.cgroup_limit_bytes);
  facts.memory_room_bytes = room.room_bytes;
  facts.memory_bound_by = room.bound_by;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY) facts.open_files = files.rlim_max;

  const std::string& directory = config.settings().ssd.directory;
  if (directory == "auto") {
    for (const std::string& path : CandidateDirectories(environment, facts.uid)) facts.cache_directories.push_back(ExamineCacheDirectory(path));
  } else if (directory != "off") {
    facts.cache_directories.push_back(ExamineCacheDirectory(directory));
  }
  for (CacheDirectory& candidate : facts.cache_directories) {
    if (const std::string source = SourceAround(candidate.path, config); candidate.usable.ok() && !source.empty())
      candidate.usable = Status(Code::kInvalid, candidate.path + " lies inside the source " + source);
  }
  return facts;
}

std::vector<std::string> NetworkMountPoints() {
  std::vector<std::string> points;
  const Result<std::vector<source::Mount>> mounts = source::ListNetworkMounts();
  if (!mounts.ok()) return points;
  for (const source::Mount& mount : *mounts) points.push_back(mount.mount_point);
  return points;
}

}  // namespace tierd::config
