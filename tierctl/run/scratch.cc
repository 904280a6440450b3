#include "tierctl/run/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "tierd/base/directory_identity.h"
#include "tierd/base/trusted_path.h"
#include "tierd/source/fs_type.h"

namespace tierctl::run {
namespace {

using tierd::Code;
using tierd::Result;
using tierd::Status;
using tierd::UniqueFd;

constexpr char kLock[] = "lock";
constexpr char kMagic[] = "tierd run 1\n";
constexpr std::size_t kRandomLetters = 6;       // of mkdtemp
constexpr std::int64_t kBeingMadeSeconds = 60;  // a directory without a lock's text is being made this moment, or its maker died in that moment
constexpr int kAttempts = 3;
constexpr std::size_t kLongestSocket = sizeof(sockaddr_un::sun_path) - 1;

constexpr const char* kOwnBases[] = {"SLURM_TMPDIR", "TMPDIR"};

std::string Prefix(std::uint32_t uid) { return "tierd-run-" + std::to_string(uid) + "-"; }

bool IsNameOfARun(const std::string& name, std::uint32_t uid) {
  const std::string prefix = Prefix(uid);
  return name.size() == prefix.size() + kRandomLetters && name.starts_with(prefix) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

// The directory, if it is one of ours alone.
UniqueFd OpenOwn(int base, const char* name) {
  UniqueFd fd(::openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) return UniqueFd();
  return fd;
}

// The lock, or nothing if somebody else has it. What was locked is what lies there now: a start beside us may have removed it in between.
UniqueFd TryLock(int directory, int flags) {
  UniqueFd fd(::openat(directory, kLock, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat held {}, there {};
  if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(fd.get(), &held) != 0 || !S_ISREG(held.st_mode)) return UniqueFd();
  if (::fstatat(directory, kLock, &there, AT_SYMLINK_NOFOLLOW) != 0 || there.st_dev != held.st_dev || there.st_ino != held.st_ino) return UniqueFd();
  return fd;
}

std::string ContentOf(int fd) {
  char text[512];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  return n <= 0 ? "" : std::string(text, static_cast<std::size_t>(n));
}

// The disk space of what was removed.
std::uint64_t RemoveContent(int directory) {
  std::uint64_t bytes = 0;
  DIR* const listing = ::fdopendir(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (listing == nullptr) return bytes;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info {};
    const bool known = ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (::unlinkat(directory, name.c_str(), 0) == 0) {
      bytes += known ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
      continue;
    }
    const UniqueFd inner(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inner.valid()) continue;
    bytes += RemoveContent(inner.get());
    ::unlinkat(directory, name.c_str(), AT_REMOVEDIR);
  }
  ::closedir(listing);
  return bytes;
}

void RemoveTree(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory.valid()) (void)RemoveContent(directory.get());
  ::rmdir(path.c_str());
}

// What a daemon takes as a name in its options, where a control character is a slip of the pen, and what a line of the log or of a message can hold.
bool IsPlain(const std::string& path) {
  return std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::vector<std::string> Bases(const tierd::config::GetEnvironment& environment) {
  std::vector<std::string> bases;
  const auto add = [&bases](std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    if (path.starts_with('/') && IsPlain(path) && std::find(bases.begin(), bases.end(), path) == bases.end()) bases.push_back(std::move(path));
  };
  for (const char* name : kOwnBases) add(environment(name).value_or(""));
  add("/var/tmp");
  add("/tmp");
  return bases;
}

// By what is there, not by name: links and further mounts give a directory several names.
bool IsInOneOf(const std::string& base, const std::vector<std::string>& sources) {
  std::vector<tierd::DirectoryIdentity> roots;
  for (const std::string& source : sources) {
    if (const auto identity = tierd::IdentityOf(source)) roots.push_back(*identity);
  }
  const auto root = tierd::RootOf(base, roots);
  return root.ok() && root->has_value();
}

// Where others may rename what we make: they could put another directory in its place, with another
// library to preload in it.
bool IsOpenToOthers(const std::string& base) {
  struct stat info {};
  return ::stat(base.c_str(), &info) == 0 && !tierd::IsSafeToMakeIn(info);
}

bool IsLocal(const std::string& base) {
  const UniqueFd fd(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return false;
  const auto kind = tierd::source::FsKindOf(fd.get());
  return kind.ok() && !kind->is_network;
}

// What the lock file of this very directory says; a copy of it has another inode.
std::string LockText(int directory, const std::string& host) {
  struct stat info {};
  ::fstat(directory, &info);
  return kMagic + host + "\n" + std::to_string(info.st_ino) + "\n";
}

std::optional<LockedDirectory> Lock(std::string path, const std::string& host) {
  const UniqueFd directory = OpenOwn(AT_FDCWD, path.c_str());
  if (!directory.valid()) return std::nullopt;
  UniqueFd lock = TryLock(directory.get(), O_CREAT);
  if (!lock.valid()) return std::nullopt;
  const std::string text = LockText(directory.get(), host);
  if (ContentOf(lock.get()) != text && (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())))
    return std::nullopt;
  return LockedDirectory{std::move(path), std::move(lock)};
}

// A new one. None: `failure` says why.
std::optional<LockedDirectory> MakeIn(const std::string& base, std::uint32_t uid, const std::string& host, std::string& failure) {
  for (int i = 0; i < kAttempts; ++i) {
    std::string path = base + "/" + Prefix(uid) + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      failure = std::strerror(errno);
      return std::nullopt;
    }
    errno = 0;
    if (auto locked = Lock(path, host)) return locked;
    failure = errno != 0 ? std::string("no lock: ") + std::strerror(errno) : "no lock in " + path;
    RemoveTree(path);
  }
  return std::nullopt;
}

// Whether nobody holds it any more. The lock that shows it is to be kept until the directory is gone.
bool IsLeftOver(int directory, const std::string& host, UniqueFd& lock) {
  struct stat info {};
  if (::fstat(directory, &info) != 0) return false;
  const bool old = ::time(nullptr) - info.st_mtime > kBeingMadeSeconds;
  lock = TryLock(directory, 0);
  if (lock.valid()) {
    const std::string text = ContentOf(lock.get());
    return text == LockText(directory, host) || (text.empty() && old);
  }
  return false;
}

}  // namespace

std::string HostName() {
  utsname names{};
  ::uname(&names);
  std::string machine;
  std::ifstream("/etc/machine-id") >> machine;
  return std::string(names.nodename) + " " + machine;
}

LeftOvers RemoveLeftOvers(const std::string& base, std::uint32_t uid, const std::string& host) {
  LeftOvers removed;
  const UniqueFd base_fd(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const listing = base_fd.valid() ? ::fdopendir(::openat(base_fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : nullptr;
  if (listing == nullptr) return removed;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (!IsNameOfARun(name, uid)) continue;
    const UniqueFd directory = OpenOwn(base_fd.get(), name.c_str());
    if (!directory.valid()) continue;
    UniqueFd lock;
    if (IsLeftOver(directory.get(), host, lock)) {
      ++removed.directories;
      removed.bytes += RemoveContent(directory.get());
    }
    // An empty one is nobody's, or in the making: then its maker makes another.
    if (lock.valid() || ::faccessat(directory.get(), kLock, F_OK, AT_SYMLINK_NOFOLLOW) != 0) ::unlinkat(base_fd.get(), name.c_str(), AT_REMOVEDIR);
  }
  ::closedir(listing);
  return removed;
}

void RemoveLeftOver(const std::string& path) {
  const UniqueFd directory = OpenOwn(AT_FDCWD, path.c_str());
  if (!directory.valid()) return;
  const UniqueFd alone = TryLock(directory.get(), 0);
  if (alone.valid()) RemoveTree(path);
}

LeftOvers RemoveAllLeftOvers(const tierd::config::GetEnvironment& environment, std::uint32_t uid) {
  LeftOvers all;
  const std::string host = HostName();
  for (const std::string& base : Bases(environment)) {
    const LeftOvers here = RemoveLeftOvers(base, uid, host);
    all.directories += here.directories;
    all.bytes += here.bytes;
  }
  return all;
}

std::string PassedOver(const tierd::config::GetEnvironment& environment) {
  std::string names;
  for (const char* name : kOwnBases) {
    if (!IsPlain(environment(name).value_or(""))) names += (names.empty() ? "$" : " and $") + std::string(name);
  }
  return names;
}

std::string OpenToOthers(const tierd::config::GetEnvironment& environment) {
  for (const char* name : kOwnBases) {
    const std::string base = environment(name).value_or("");
    if (!base.empty() && IsOpenToOthers(base)) return "$" + std::string(name) + " (" + base + ")";
  }
  return "";
}

std::vector<int> Scratch::lock_fds() const {
  std::vector<int> fds{main_.lock.get()};
  if (short_.lock.valid()) fds.push_back(short_.lock.get());
  return fds;
}

std::optional<Scratch> Scratch::Take(LockedDirectory directory, bool kept) {
  Scratch scratch;
  scratch.main_ = std::move(directory);
  scratch.kept_ = kept;
  scratch.socket_ = scratch.path() + "/run/tierd.sock";
  if (scratch.socket_.size() > kLongestSocket) {
    std::string failure;
    auto shorter = MakeIn("/tmp", ::geteuid(), HostName(), failure);
    if (!shorter) return std::nullopt;
    scratch.short_ = std::move(*shorter);
    scratch.socket_ = scratch.short_.path + "/run/tierd.sock";
  }
  return scratch;
}

Result<Scratch> Scratch::Make(const tierd::config::GetEnvironment& environment, std::uint32_t uid, bool keep, const std::vector<std::string>& sources) {
  const std::string host = HostName();
  std::vector<std::string> bases = Bases(environment);
  for (const std::string& base : bases) RemoveLeftOvers(base, uid, host);
  std::erase_if(bases, [&](const std::string& base) { return IsInOneOf(base, sources); });
  if (bases.empty()) return Status(Code::kInvalid, "no directory for the job's cache: all of $SLURM_TMPDIR, $TMPDIR, /var/tmp and /tmp are in a source; set TMPDIR");
  std::string open;
  std::erase_if(bases, [&](const std::string& base) {
    if (!IsOpenToOthers(base)) return false;
    open += (open.empty() ? "" : "; ") + base + " can be written by others, who may rename what is in it: chmod +t " + base;
    return true;
  });
  if (bases.empty()) return Status(Code::kPermission, "no directory for the job's cache: " + open);
  std::stable_partition(bases.begin(), bases.end(), IsLocal);
  std::string all;
  for (const std::string& base : bases) {
    if (keep) {
      const std::string path = base + "/" + Prefix(uid) + "keep";
      ::mkdir(path.c_str(), 0700);
      if (auto kept = Lock(path, host)) {
        if (auto scratch = Take(std::move(*kept), true)) return std::move(*scratch);
      }
    }
    std::string failure;
    if (auto made = MakeIn(base, uid, host, failure)) {
      if (auto scratch = Take(std::move(*made), false)) return std::move(*scratch);
      failure = "too long a path for a socket, and no directory for one in /tmp";
    }
    all += (all.empty() ? "" : "; ") + base + ": " + failure;
  }
  return Status(Code::kIo, "no directory for the job's cache: " + all);
}

void Scratch::Remove() {
  for (LockedDirectory* held : {&main_, &short_}) {
    if (held->path.empty()) continue;
    // The lock stays the daemon's as long as it lives: it has a descriptor of the same open file, so ours says nothing. Ask by a new one.
    held->lock = UniqueFd();
    const UniqueFd directory = OpenOwn(AT_FDCWD, held->path.c_str());
    if (!directory.valid()) continue;
    const UniqueFd alone = TryLock(directory.get(), 0);
    if (!alone.valid()) continue;
    if (kept_ && held == &main_) {
      RemoveTree(held->path + "/run");
      ::unlink(reads().c_str());
    } else {
      RemoveTree(held->path);
    }
  }
}

}  // namespace tierctl::run
