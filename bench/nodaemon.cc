// A11: without a daemon libtier is plain POSIX: what tier_open + tier_file_pread + tier_close add to open + fstat + pread + close, in time and in
// system calls (counted by tracing a child).
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tier/tier.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "bench/harness.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::size_t kFiles = 1000;
constexpr int kPasses = 20;

bool PosixOnce(const char* path, char* buffer) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat st {};
  const bool good = fd >= 0 && ::fstat(fd, &st) == 0 && ::pread(fd, buffer, 4096, 0) > 0;
  ::close(fd);
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

// One pass over the files, each timed; false when one could not be read.
bool Pass(Once once, const std::vector<std::string>& paths, std::vector<std::uint32_t>* times) {
  char buffer[4096];
  for (const std::string& path : paths) {
    const double from = Now();
    if (!once(path.c_str(), buffer)) return false;
    times->push_back(static_cast<std::uint32_t>((Now() - from) * 1e9));
  }
  return true;
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

void Measure(Bench& bench) {
  const pfs_sim::TreeOptions tree{.files = kFiles, .size = {.mean = 4096}, .seed = 14};
  const std::string root = MakeTreeIn(bench, "plain", tree);
  if (root.empty()) return bench.Fail("A11: no tree");
  const std::vector<std::string> paths = TreePaths(root, tree);
  ::setenv("TIERD_SOCKET", (bench.directory() + "/nobody.sock").c_str(), 1);
  std::vector<std::uint32_t> warm;
  Pass(PosixOnce, paths, &warm);
  Pass(TierOnce, paths, &warm);
  Samples added;
  Samples posix;
  for (int round = 0; round < bench.rounds(11); ++round) {
    // The sides take turns every few milliseconds: the difference is a fiftieth of what the machine's pace changes by.
    std::vector<std::uint32_t> ours;
    std::vector<std::uint32_t> baseline;
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!Pass(TierOnce, paths, &ours) || !Pass(PosixOnce, paths, &baseline)) return bench.Fail("A11: a file could not be read");
    }
    posix.values.push_back(Percentile(&baseline, 0.5));
    added.values.push_back(Percentile(&ours, 0.5) - posix.values.back());
  }
  char note[64];
  std::snprintf(note, sizeof note, "open + fstat + pread + close %.0f ns", posix.median());
  bench.Emit(ValueRow({"A11.time", "no daemon: time added per open", "ns", note}, added, Bar::kAtMost, 60));
  const long ours = SystemCalls(TierOnce, paths);
  const long baseline = SystemCalls(PosixOnce, paths);
  std::snprintf(note, sizeof note, "%ld against %ld in %zu opens", ours, baseline, kFiles);
  const Samples calls{{static_cast<double>(ours - baseline) / static_cast<double>(kFiles)}};
  bench.Emit(ValueRow({"A11.syscalls", "no daemon: system calls added per open", "calls", note}, calls, Bar::kAtMost, 0));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A11")) InChild(bench, [&] { Measure(bench); });
  return bench.Finish();
}
