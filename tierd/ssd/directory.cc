#include "tierd/ssd/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace tierd::ssd {

namespace {

// Files are opened one region file at a time: 16 GiB each at the default region size, so that a terabyte takes 64 descriptors.
constexpr std::uint32_t kRegionsPerFile = 1024;

struct NamedType {
  std::uint32_t magic;
  const char* name;
};
// Where a cache would be as slow, or hang as long, as what it caches. From linux/magic.h and the projects' own sources.
constexpr NamedType kRefusedTypes[] = {
    {0x6969, "nfs"},         {0x517b, "smb"},         {0xfe534d42, "smb2"},   {0xff534d42, "cifs"},  {0x65735546, "fuse"},
    {0x0bd00bd0, "lustre"},  {0x47504653, "gpfs"},    {0x19830326, "beegfs"}, {0x00c36400, "ceph"},  {0x5346414f, "afs"},
    {0x01021997, "9p"},      {0x73757245, "coda"},    {0x7461636f, "ocfs2"},  {0x01161970, "gfs2"},  {0x20030528, "orangefs"},
    {0xaad7aaea, "panfs"},   {0x786f4256, "vboxsf"},  {0x564c, "ncp"},
};

Status Make0700(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);  // the mkdir below tells
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Status::FromErrno(errno, "create SSD directory " + path);
  return Status::Ok();
}

Result<UniqueFd> TakeLock(int dir_fd, const std::string& path) {
  UniqueFd lock(::openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return Status::FromErrno(errno, "open " + path + "/lock");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Status::FromErrno(errno, "lock " + path + "/lock");
    char pid[24] = {};
    const ssize_t n = ::pread(lock.get(), pid, sizeof(pid) - 1, 0);
    const std::string who = n > 0 ? std::string(pid, std::string_view(pid).find_first_of('\n')) : "?";
    return Status(Code::kBusy, "SSD directory " + path + " is in use by another tierd, pid " + who);
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  // Only people and the message above read it: a disk that is full costs the number, not the daemon. A block that is there is written anew before it may go.
  const bool wrote = ::pwrite(lock.get(), pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
  [[maybe_unused]] const int cut = ::ftruncate(lock.get(), wrote ? static_cast<off_t>(pid.size()) : 0);
  return lock;
}

bool IsOurName(std::string_view name) {
  return name == "superblock" || name == "superblock.new" || name == "lock" || name == "index" || name.starts_with("regions-");
}

Result<std::vector<std::string>> NamesIn(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return Status::FromErrno(errno, "list SSD directory " + path);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != "lost+found") names.emplace_back(name);
  }
  return names;
}

struct OwnDirectory {
  UniqueFd fd;
  std::vector<std::string> names;
};

Result<OwnDirectory> OpenOwn(const std::string& path) {
  UniqueFd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!dir.valid()) {
    if (errno == ELOOP || errno == ENOTDIR) {
      struct stat st{};
      if (::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode)) {
        return Status(Code::kInvalid, "SSD directory " + path + " is a symbolic link; name its target");
      }
      return Status(Code::kInvalid, "SSD directory " + path + " is not a directory");
    }
    return Status::FromErrno(errno, "open SSD directory " + path);
  }
  struct stat st{};
  if (::fstat(dir.get(), &st) != 0) return Status::FromErrno(errno, "stat SSD directory " + path);
  if (st.st_uid != ::geteuid()) {
    return Status(Code::kPermission, "SSD directory " + path + " belongs to user " + std::to_string(st.st_uid) + ", not to us");
  }
  auto names = NamesIn(path);
  if (!names.ok()) return names.status();
  const bool foreign = std::any_of(names->begin(), names->end(), [](const std::string& n) { return !IsOurName(n); });
  const bool ours = std::any_of(names->begin(), names->end(), [](const std::string& n) { return n == "superblock" || n == "lock"; });
  const std::string another = "name a directory of its own, e.g. " + (path == "/" ? "" : path) + "/tierd";
  if (foreign && !ours) return Status(Code::kInvalid, "SSD directory " + path + " holds other files; " + another);
  if ((st.st_mode & 077) != 0) {
    // One that others use as well (sticky, as /var/tmp) is not ours to close.
    const bool shared = foreign || (st.st_mode & S_ISVTX) != 0;
    return Status(Code::kPermission, "SSD directory " + path + " is open to other users; " + (shared ? another : "run: chmod 700 " + path));
  }
  return OwnDirectory{std::move(dir), std::move(names).value()};
}

// Removes what we made and nothing else. The lock stays: it is held.
Status Discard(const std::string& path, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!IsOurName(name) || name == "lock") continue;
    std::error_code error;
    std::filesystem::remove_all(std::filesystem::path(path) / name, error);
    if (error) return Status::FromErrno(error.value(), "remove " + path + "/" + name);
  }
  return Status::Ok();
}

std::string MachineIdOf(const SsdOptions& options) {
  if (!options.machine_id.empty()) return options.machine_id;
  char text[64] = {};
  UniqueFd fd(::open("/etc/machine-id", O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd.valid() ? ::read(fd.get(), text, sizeof(text) - 1) : 0;
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "no machine id";
}

Status FillRandom(void* out, std::size_t bytes) {
  if (::getrandom(out, bytes, 0) != static_cast<ssize_t>(bytes)) return Status::FromErrno(errno, "getrandom");
  return Status::Ok();
}

// What O_DIRECT needs in this directory: 0 = not supported. Asked of a file, as directories have no answer.
std::uint32_t DirectAlignment(int dir_fd) {
  constexpr const char* kProbe = "superblock.new";
  UniqueFd fd(::openat(dir_fd, kProbe, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_DIRECT, 0600));
  if (!fd.valid()) return 0;
  struct statx stx {};
  std::uint32_t alignment = 4096;  // kernels before 6.1 do not say: 4096 satisfies every device we know
#ifdef STATX_DIOALIGN
  const bool told = ::syscall(SYS_statx, fd.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN) != 0;
  if (told) alignment = stx.stx_dio_offset_align;
#endif
  ::unlinkat(dir_fd, kProbe, 0);
  if (alignment != 0 && alignment < 512) alignment = 512;
  return alignment <= 4096 ? alignment : 0;
}

Result<Superblock> MakeSuperblock(const SsdOptions& options, std::uint32_t alignment) {
  Superblock s;
  s.machine = MachineDigest(MachineIdOf(options));
  for (const Status& status : {FillRandom(s.salt.uuid.data(), s.salt.uuid.size()), FillRandom(s.salt.secret.data(), sizeof(s.salt.secret)),
                               FillRandom(s.path_hash_key.data(), s.path_hash_key.size())}) {
    if (!status.ok()) return status;
  }
  s.region_bytes = options.region_bytes;
  s.record_alignment = alignment == 512 ? 512 : 4096;
  s.regions_per_file = kRegionsPerFile;
  return s;
}

// Why the content cannot be used; empty if it can.
std::string ReasonToDiscard(SuperblockCheck check, const Superblock& superblock, const SsdOptions& options, bool has_files) {
  switch (check) {
    case SuperblockCheck::kMissing: return has_files ? "its superblock is missing" : "";
    case SuperblockCheck::kDamaged: return "its superblock is damaged";
    case SuperblockCheck::kOlder: return "it has an older format";
    case SuperblockCheck::kNewer: return "it has a newer format";
    case SuperblockCheck::kOk: break;
  }
  if (superblock.machine != MachineDigest(MachineIdOf(options))) return "it was made on another machine";
  const std::string regions = "its regions have " + std::to_string(superblock.region_bytes) + " bytes";
  if (superblock.region_bytes < options.largest_payload_bytes + kRegionOverhead)
    return regions + ", too few for a chunk of " + std::to_string(options.largest_payload_bytes);
  if (options.capacity_bytes / superblock.region_bytes < kSsdLeastRegions) return regions + ", a capacity of " + std::to_string(options.capacity_bytes) + " holds fewer than four";
  return "";
}

}  // namespace

std::string RegionFileName(std::uint32_t file) {
  char name[24];
  std::snprintf(name, sizeof(name), "regions-%04u", file);
  return name;
}

Status CheckDirectoryFileSystem(const std::string& directory) {
  std::filesystem::path path(directory);
  struct statfs fs {};
  while (::statfs(path.c_str(), &fs) != 0) {
    if (errno != ENOENT || !path.has_relative_path()) return Status::FromErrno(errno, "statfs " + path.string());
    path = path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
    if (path.empty()) path = ".";
  }
  for (const NamedType& type : kRefusedTypes) {
    if (static_cast<std::uint32_t>(fs.f_type) == type.magic) {
      return Status(Code::kUnsupported, "SSD directory " + directory + " is on " + type.name + "; it must be on a local disk");
    }
  }
  return Status::Ok();
}

Status CheckCacheDirectory(const std::string& path) {
  std::filesystem::path there(path);
  std::error_code error;
  while (!std::filesystem::exists(there, error) && !error && there.has_relative_path()) there = there.parent_path();
  if (there == path) return OpenOwn(path).status();
  if (!error && ::access(there.c_str(), W_OK | X_OK) == 0) return Status::Ok();
  return Status::FromErrno(error ? error.value() : errno, "create SSD directory " + path);
}

Result<CacheDirectory> OpenCacheDirectory(const SsdOptions& options) {
  CacheDirectory out;
  out.path = options.directory;
  if (Status made = Make0700(out.path); !made.ok()) return made;
  Result<OwnDirectory> own = OpenOwn(out.path);
  if (!own.ok()) return own.status();
  out.dir = std::move(own->fd);
  const std::vector<std::string>& names = own->names;
  Result<UniqueFd> lock = TakeLock(out.dir.get(), out.path);
  if (!lock.ok()) return lock.status();
  out.lock = std::move(*lock);

  Result<SuperblockCheck> check = LoadSuperblock(out.dir.get(), &out.superblock);
  if (!check.ok()) return check.status();
  const bool has_files = std::any_of(names.begin(), names.end(), [](const std::string& n) { return n == "index" || n.starts_with("regions-"); });
  const std::string reason = ReasonToDiscard(*check, out.superblock, options, has_files);
  const std::uint32_t alignment = options.buffered ? 0 : DirectAlignment(out.dir.get());
  if (!reason.empty()) {
    out.note = "discarded the content of " + out.path + ": " + reason;
    if (Status discarded = Discard(out.path, names); !discarded.ok()) return discarded;
  }
  if (!reason.empty() || *check != SuperblockCheck::kOk) {
    Result<Superblock> made = MakeSuperblock(options, alignment);
    if (!made.ok()) return made.status();
    out.superblock = std::move(*made);
  }
  // A directory that moved to a device with larger sectors is still readable, through the page cache.
  out.direct_io = alignment != 0 && alignment <= out.superblock.record_alignment;
  ++out.superblock.lives;
  out.recorded = StoreSuperblock(out.dir.get(), out.superblock);
  if (!out.recorded.ok()) {
    if (*check != SuperblockCheck::kOk || !reason.empty()) return out.recorded;
    out.note = "SSD directory " + out.path + " is served read-only until its superblock can be written: " + out.recorded.message();  // a full disk must not cost the warm set
  }
  if (::mkdirat(out.dir.get(), "index", 0700) != 0 && errno != EEXIST && out.recorded.ok()) {
    return Status::FromErrno(errno, "create " + out.path + "/index");
  }
  return out;
}

}  // namespace tierd::ssd
