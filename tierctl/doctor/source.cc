// A source: what file system it is, and whether it tells versions apart (HAZARDS 2.12, W8). Reads names and stats a few files, no contents.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "tierctl/doctor/check.h"
#include "tierd/base/unique_fd.h"
#include "tierd/source/fs_type.h"

namespace tierctl::doctor {
namespace {

constexpr std::size_t kSampleFiles = 16;
constexpr std::size_t kEntriesPerDirectory = 1024;
constexpr std::chrono::seconds kLooksFor{2};  // a source may take a second for a few names
constexpr int kDepth = 3;

struct Sample {
  std::string path;
  struct stat first {};
};

// Some regular files near the top of the tree: as many as are found in time.
class Search {
 public:
  std::vector<Sample> Below(const std::string& path) {
    Collect(path, kDepth);
    return std::move(samples_);
  }

 private:
  bool over() const { return samples_.size() >= kSampleFiles || std::chrono::steady_clock::now() >= until_; }
  void Collect(const std::string& path, int depth);

  const std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + kLooksFor;
  std::vector<Sample> samples_;
};

void Search::Collect(const std::string& path, int depth) {
  const int links = depth == kDepth ? 0 : O_NOFOLLOW;  // the path itself may be a link to the data
  tierd::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | links));
  if (!fd.valid()) return;
  const int at = fd.get();
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::fdopendir(at), ::closedir);
  if (handle == nullptr) return;
  (void)fd.Release();
  std::vector<std::string> directories;
  const dirent* entry = nullptr;
  for (std::size_t i = 0; i < kEntriesPerDirectory && !over() && (entry = ::readdir(handle.get())) != nullptr; ++i) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    Sample sample;
    if (entry->d_type == DT_DIR) sample.first.st_mode = S_IFDIR;
    else if ((entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN) || ::fstatat(at, name.c_str(), &sample.first, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(sample.first.st_mode)) directories.push_back(name);
    if (!S_ISREG(sample.first.st_mode)) continue;
    sample.path = path + "/" + name;
    samples_.push_back(std::move(sample));
  }
  for (const std::string& name : directories) {
    if (depth > 1 && !over()) Collect(path + "/" + name, depth - 1);
  }
}

bool SameStamp(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

Check Stability(const std::string& path) {
  Check check{"source.versions", Verdict::kOk, "", ""};
  const std::vector<Sample> samples = Search().Below(path);
  if (samples.empty()) {
    check.verdict = Verdict::kWarn;
    check.detail = "not examined: no regular file was found near the top of the tree";
    check.remedy = "tierctl doctor --source of a directory with files";
    return check;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::size_t inode_moved = 0, ctime_moved = 0, ctime_is_mtime = 0, whole_seconds = 0;
  for (const Sample& sample : samples) {
    struct stat now {};
    // Through a descriptor: what was invented for a name is invented anew.
    const tierd::UniqueFd fd(::open(sample.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid() || ::fstat(fd.get(), &now) != 0) continue;
    const bool changed = now.st_size != sample.first.st_size || !SameStamp(now.st_mtim, sample.first.st_mtim);
    if (changed) continue;
    inode_moved += now.st_ino != sample.first.st_ino ? 1 : 0;
    ctime_moved += SameStamp(now.st_ctim, sample.first.st_ctim) ? 0 : 1;
    ctime_is_mtime += SameStamp(now.st_ctim, now.st_mtim) ? 1 : 0;
    whole_seconds += now.st_mtim.tv_nsec == 0 && now.st_ctim.tv_nsec == 0 ? 1 : 0;
  }
  const std::string of = " of " + std::to_string(samples.size()) + " files";
  if (inode_moved != 0 || ctime_moved != 0) {
    check.verdict = Verdict::kWarn;
    check.detail = "inode or ctime change by themselves on " + std::to_string(std::max(inode_moved, ctime_moved)) + of + ": only size and mtime tell versions apart";
    check.remedy = "do not rewrite files in place keeping size and mtime; else staleness = \"open\" does not help either: use evict --invalidate";
  } else if (whole_seconds == samples.size()) {
    check.verdict = Verdict::kWarn;
    check.detail = "stamps have whole seconds only" + std::string(ctime_is_mtime == samples.size() ? " and ctime repeats mtime" : "") + ": two writes within a second look alike";
    check.remedy = "keep source.racy_window at 10s or more";
  } else {
    check.detail = "inode and ctime hold still on " + std::to_string(samples.size()) + " files";
  }
  return check;
}

// Of a source that cannot be opened.
std::string RemedyFor(int error) {
  switch (error) {
    case EACCES: return "tierd has to read it as the user it runs as: chmod, or another user";
    case ENOENT:
    case ENOTDIR: return "mount it, or correct the path";
    case EPERM:
    case ENOSYS: return "a filter of system calls (seccomp) or a security module refuses it: see the container's or the job's settings";
    default: return "is the file system mounted, and its server alive? (mount, dmesg)";
  }
}

}  // namespace

std::vector<Check> Source(const std::string& path) {
  const auto type = [&path]() -> std::vector<Check> {
    Check kind{"source.type", Verdict::kOk, "", ""};
    const tierd::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) {
      const int error = errno;
      kind.verdict = Verdict::kFail;
      kind.detail = path + ": " + std::strerror(error);
      kind.remedy = RemedyFor(error);
      return {kind};
    }
    const tierd::Result<tierd::source::FsKind> fs = tierd::source::FsKindOf(fd.get());
    kind.detail = path + ": " + (fs.ok() ? fs->name + (fs->is_network ? ", a network file system" : ", a local file system: a cache gains little") : fs.status().message());
    return {kind};
  };
  const auto hung = [&path](const char* check) { return Check{check, Verdict::kFail, path + ": does not answer within 5 s", "is the file system server alive? (mount, dmesg)"}; };
  std::vector<Check> checks = Isolated(type, 5000, hung("source.type"));
  if (checks.front().verdict != Verdict::kOk) return checks;
  const auto versions = [&path]() -> std::vector<Check> { return {Stability(path)}; };
  for (Check& check : Isolated(versions, 5000, hung("source.versions"))) checks.push_back(std::move(check));
  return checks;
}

}  // namespace tierctl::doctor
