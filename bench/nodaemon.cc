// A11: without a daemon libtier is plain POSIX: what tier_open + tier_file_pread + tier_close add to open + fstat + pread + close, in time and in
// system calls (counted by tracing a child).
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tier/tier.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>

#include "bench/harness.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::size_t kFiles = 1000;
constexpr std::size_t kOpensPerTurn = 25;
constexpr int kTurns = 1600;  // of each side in a process

bool PosixOnce(const char* path, char* buffer) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat st {};
  const bool good = fd >= 0 && ::fstat(fd, &st) == 0 && ::pread(fd, buffer, 4096, 0) > 0;
  ::close(fd);
  return good;
}

// What a pointer to what was opened costs if memory is asked for it.
bool HandleOnce(const char* path, char* buffer) {
  struct Handle {
    int fd;
    struct stat st;
  };
  auto* const handle = static_cast<Handle*>(std::malloc(sizeof(Handle)));
  handle->fd = ::open(path, O_RDONLY | O_CLOEXEC);
  const bool good = handle->fd >= 0 && ::fstat(handle->fd, &handle->st) == 0 && ::pread(handle->fd, buffer, 4096, 0) > 0;
  ::close(handle->fd);
  std::free(handle);
  return good;
}

bool TierOnce(const char* path, char* buffer) {
  tier_file* file = nullptr;
  if (tier_open(nullptr, path, &file, 0) != 0) return false;
  const bool good = tier_file_pread(file, buffer, 4096, 0) > 0;
  tier_close(file);
  return good;
}

using Once = bool (*)(const char*, char*);

struct Added {
  double posix_ns;
  double handle_ns;  // above posix
  double ours_ns;    // above posix
};

// In this process: the sides take turns of some 50 us, and what counts is the median difference between neighbours. Nothing if a file could not be read.
std::optional<Added> TakeTurns(const std::vector<std::string>& paths) {
  constexpr Once kSides[] = {PosixOnce, HandleOnce, TierOnce};
  char buffer[4096];
  std::vector<double> took[std::size(kSides)];
  for (const Once once : kSides) {
    if (!once(paths[0].c_str(), buffer)) return std::nullopt;
  }
  std::size_t at = 0;
  for (std::size_t turn = 0; turn < kTurns; ++turn, at += kOpensPerTurn) {
    for (std::size_t i = 0; i < std::size(kSides); ++i) {
      const std::size_t side = (i + turn) % std::size(kSides);
      const double from = Now();
      for (std::size_t file = at; file < at + kOpensPerTurn; ++file) {
        if (!kSides[side](paths[file % paths.size()].c_str(), buffer)) return std::nullopt;
      }
      took[side].push_back((Now() - from) * 1e9 / kOpensPerTurn);
    }
  }
  const auto above = [&](std::size_t side) {
    Samples difference;
    for (std::size_t turn = 0; turn < kTurns; ++turn) difference.values.push_back(took[side][turn] - took[0][turn]);
    return difference.median();
  };
  return Added{Samples{took[0]}.median(), above(1), above(2)};
}

// The same in a process that was started for it: where code and memory lie in it, which costs or spares tens of ns, is drawn anew.
std::optional<Added> TakeTurnsElsewhere(const std::string& root) {
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) return std::nullopt;
  FILE* const answer = ::popen((std::string("exec '") + self + "' --turns '" + root + "'").c_str(), "r");
  if (answer == nullptr) return std::nullopt;
  Added added{};
  const bool told = std::fscanf(answer, "%lf %lf %lf", &added.posix_ns, &added.handle_ns, &added.ours_ns) == 3;
  return ::pclose(answer) == 0 && told ? std::optional<Added>(added) : std::nullopt;
}

// System calls of `files` rounds, less those of none.
long SystemCalls(Once once, const std::vector<std::string>& paths) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    char buffer[4096];
    once(paths[0].c_str(), buffer);  // the first call looks for the daemon
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    for (const std::string& path : paths) once(path.c_str(), buffer);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  long stops = 0;
  for (;;) {
    ::ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
    if (::waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP) break;
    ++stops;
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return stops / 2;  // a stop on the way in, one on the way out
}

// Some of the files are shorter than the buffer they are read into.
pfs_sim::TreeOptions Tree() { return {.files = kFiles, .size = {.mean = 3000, .sigma = 0.5}, .seed = 14}; }

void Measure(Bench& bench) {
  const std::string root = MakeTreeIn(bench, "plain", Tree());
  if (root.empty()) return bench.Fail("A11: no tree");
  const std::vector<std::string> paths = TreePaths(root, Tree());
  ::setenv("TIERD_SOCKET", (bench.directory() + "/nobody.sock").c_str(), 1);
  Samples added, posix, handle;
  for (int round = 0; round < bench.rounds(11); ++round) {
    const std::optional<Added> turns = TakeTurnsElsewhere(root);
    if (!turns) return bench.Fail("A11: a file could not be read");
    added.values.push_back(turns->ours_ns);
    posix.values.push_back(turns->posix_ns);
    handle.values.push_back(turns->handle_ns);
  }
  char note[128];
  std::snprintf(note, sizeof note, "open + fstat + pread + close %.0f ns; memory for a handle alone adds %.0f", posix.median(), handle.median());
  bench.Emit(ValueRow({"A11.time", "no daemon: time added per open", "ns", note}, added, Bar::kAtMost, 60));
  const long ours = SystemCalls(TierOnce, paths);
  const long baseline = SystemCalls(PosixOnce, paths);
  std::snprintf(note, sizeof note, "%ld against %ld in %zu opens", ours, baseline, kFiles);
  const Samples calls{{static_cast<double>(ours - baseline) / static_cast<double>(kFiles)}};
  bench.Emit(ValueRow({"A11.syscalls", "no daemon: system calls added per open", "calls", note}, calls, Bar::kAtMost, 0));
}

// One of those processes.
int OneProcess(const std::string& root) {
  const std::optional<Added> added = TakeTurns(TreePaths(root, Tree()));
  if (!added) return 1;
  std::printf("%f %f %f\n", added->posix_ns, added->handle_ns, added->ours_ns);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--turns") return OneProcess(argv[2]);
  Bench bench(argc, argv);
  if (bench.Wants("A11")) InChild(bench, [&] { Measure(bench); });
  return bench.Finish();
}
