#include "tierctl/run/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;
using tierd::Code;
using tierd::Result;
using tierd::Status;
using tierd::UniqueFd;

constexpr char kLock[] = "/lock";
constexpr std::size_t kLongestSocket = sizeof(sockaddr_un::sun_path) - 1;

std::string Prefix(std::uint32_t uid) { return "tierd-run-" + std::to_string(uid) + "-"; }

bool IsOurs(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

// The lock, or nothing if somebody else has it.
UniqueFd TryLock(const std::string& directory, int flags) {
  UniqueFd fd(::open((directory + kLock).c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd = UniqueFd();
  return fd;
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::vector<std::string> Bases(const tierd::config::GetEnvironment& environment) {
  std::vector<std::string> bases;
  for (const char* name : {"SLURM_TMPDIR", "TMPDIR"}) {
    if (const auto value = environment(name); value && value->starts_with('/')) bases.push_back(*value);
  }
  bases.insert(bases.end(), {"/var/tmp", "/tmp"});
  return bases;
}

}  // namespace

void RemoveLeftOvers(const std::string& base, std::uint32_t uid) {
  std::error_code error;
  for (fs::directory_iterator at(base, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    const std::string name = at->path().filename().string();
    if (!name.starts_with(Prefix(uid)) || name == Prefix(uid) + "keep" || !IsOurs(path)) continue;
    // One without a lock file is being made this moment, or its maker died in that moment: only an old one is left over.
    struct stat info {};
    const bool old = ::stat(path.c_str(), &info) == 0 && ::time(nullptr) - info.st_mtime > 60;
    const UniqueFd lock = TryLock(path, 0);
    if (lock.valid() || (errno == ENOENT && old)) RemoveTree(path);
  }
}

std::optional<Scratch> Scratch::Take(std::string path, bool kept) {
  UniqueFd lock = TryLock(path, O_CREAT);
  if (!lock.valid()) return std::nullopt;
  Scratch scratch;
  scratch.path_ = std::move(path);
  scratch.lock_ = std::move(lock);
  scratch.kept_ = kept;
  scratch.socket_ = scratch.path_ + "/run/tierd.sock";
  if (scratch.socket_.size() > kLongestSocket) {
    std::string pattern = "/tmp/" + Prefix(::geteuid()) + "XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) return std::nullopt;
    // The lock of this one, too, is held as long as its run: a second name of the same file would do, but not across file systems.
    std::error_code ignored;
    fs::create_symlink(scratch.path_, pattern + "/of", ignored);
    scratch.short_directory_ = pattern;
    scratch.socket_ = pattern + "/run/tierd.sock";
  }
  return scratch;
}

Result<Scratch> Scratch::Make(const tierd::config::GetEnvironment& environment, std::uint32_t uid, bool keep) {
  std::string failure;
  for (const std::string& base : Bases(environment)) {
    RemoveLeftOvers(base, uid);
    if (keep) {
      const std::string path = base + "/" + Prefix(uid) + "keep";
      if ((::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) && IsOurs(path)) {
        if (auto scratch = Take(path, true)) return std::move(*scratch);
      }
    }
    std::string pattern = base + "/" + Prefix(uid) + "XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      failure += (failure.empty() ? "" : "; ") + base + ": " + std::strerror(errno);
      continue;
    }
    if (auto scratch = Take(pattern, false)) return std::move(*scratch);
    RemoveTree(pattern);
  }
  return Status(Code::kIo, "no directory for the job's cache: " + failure);
}

void Scratch::Remove() {
  if (path_.empty()) return;
  // The lock file stays locked by the daemon as long as it lives: it has a descriptor of the same open file, so ours says nothing. Ask by a new one.
  lock_ = UniqueFd();
  const UniqueFd alone = TryLock(path_, 0);
  if (!alone.valid()) return;
  if (kept_) {
    RemoveTree(path_ + "/run");
  } else {
    RemoveTree(path_);
  }
  if (!short_directory_.empty()) RemoveTree(short_directory_);
}

}  // namespace tierctl::run
