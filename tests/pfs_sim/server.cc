#include "tests/pfs_sim/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/pfs_sim/control.h"
#include "tests/pfs_sim/mount.h"

namespace pfs_sim {
namespace {

constexpr int kExitError = 1;

// Tells whoever waits how the start went; the words before the colon are part of the interface.
int Report(const ServerOptions& options, int exit_code, const std::string& text) {
  const std::string kind = exit_code == 0 ? "ok" : exit_code == kExitError ? "error" : "unavailable";
  const std::string line = kind + (text.empty() ? "" : ": " + text) + "\n";
  const int fd = options.ready_fd >= 0 ? options.ready_fd : exit_code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = write(fd, line.data() + done, line.size() - done);
    if (wrote < 0 && errno != EINTR) break;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  if (options.ready_fd >= 0) close(options.ready_fd);
  return exit_code;
}

// The parent's side of --background: waits for the child's report and passes it on.
int WaitForReport(int fd) {
  std::string text;
  char part[512];
  for (;;) {
    const ssize_t got = read(fd, part, sizeof(part));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  const bool ok = text.starts_with("ok");
  fputs(text.empty() ? "error: the server died while starting\n" : text.c_str(), ok ? stdout : stderr);
  return ok ? 0 : text.starts_with("unavailable") ? kExitUnavailable : kExitError;
}

// In the background process: nothing of the caller's terminal or pipes stays open.
void Detach() {
  setsid();
  const int null_fd = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null_fd, fd);
  if (null_fd > STDERR_FILENO) close(null_fd);
}

size_t RaiseDescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

bool ResolveDirectory(std::string* path, std::string* why) {
  char* real = realpath(path->c_str(), nullptr);
  struct stat st {};
  if (real == nullptr || stat(real, &st) != 0) {
    *why = *path + ": " + strerror(errno);
  } else if (!S_ISDIR(st.st_mode)) {
    *why = *path + " is not a directory";
  } else {
    *path = real;
    free(real);
    return true;
  }
  free(real);
  return false;
}

void ReceiveLoop(FileSystem& fs, int dev_fd) {
  // The kernel wants room for its largest write; words, so that the structs in it are aligned.
  std::vector<uint64_t> buffer(((1 << 20) + 8192) / sizeof(uint64_t));
  for (;;) {
    const ssize_t size = read(dev_fd, buffer.data(), buffer.size() * sizeof(uint64_t));
    if (size > 0) {
      fs.Receive(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(size));
    } else if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) {
      continue;  // ENOENT: the request was given up before we had it
    } else {
      break;  // ENODEV: unmounted
    }
  }
  kill(getpid(), SIGTERM);
}

void WritePid(const std::string& path) {
  if (path.empty()) return;
  FILE* file = fopen(path.c_str(), "we");
  if (file == nullptr) return;
  fprintf(file, "%d\n", getpid());
  fclose(file);
}

bool WaitUntilInitialised(const FileSystem& fs) {
  for (int i = 0; i < 50000 && !fs.initialised(); ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return fs.initialised();
}

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Everything after the mount stands.
int ServeMounted(const ServerOptions& options, int root_fd, int dev_fd, const sigset_t& signals) {
  MountGuard guard(options.mount);
  FileSystem fs(root_fd, dev_fd, options.fs);
  fs.SetLatencyAll(options.latency_us);
  fs.scheduler().SetBandwidth(options.bandwidth);
  fs.scheduler().SetConcurrency(options.concurrency);
  std::thread receiver([&] { ReceiveLoop(fs, dev_fd); });
  receiver.detach();  // blocked in read(2) until the process ends
  ControlServer control(fs, [] { kill(getpid(), SIGTERM); });
  std::string why;
  bool ok = WaitUntilInitialised(fs);
  if (!ok) why = "the kernel did not start the connection";
  if (ok && !options.control.empty()) ok = control.Start(options.control, &why);
  if (ok) {
    const bool ahead = SetReadAhead(options.mount, options.read_ahead_kib);
    WritePid(options.pid_file);
    Report(options, 0,
           "pfs_sim serves " + options.backing + " on " + options.mount + ", entry and attribute timeout " +
               std::to_string(options.fs.timeout_ms) + " ms, read-ahead " +
               (ahead ? std::to_string(options.read_ahead_kib) + " KiB" : "as the kernel set it") +
               ", pid " + std::to_string(getpid()));
    int number = 0;
    sigwait(&signals, &number);
  } else {
    Report(options, kExitError, why);
  }
  // The mount goes last: when it is gone, nothing of ours is left.
  if (ok && !options.control.empty()) unlink(options.control.c_str());
  if (ok && !options.pid_file.empty()) unlink(options.pid_file.c_str());
  UnmountLazily(options.mount);
  guard.Dismiss();
  // Ends without destructors: the receiving thread may sit in a read that only our end aborts, and so
  // may clients whose requests hang.
  fflush(nullptr);
  _exit(ok ? 0 : kExitError);
}

}  // namespace

int Serve(ServerOptions options) {
  close_range(static_cast<unsigned>(std::max(options.ready_fd, STDERR_FILENO)) + 1, ~0U, 0);
  if (options.background) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Report(options, kExitError, "pipe failed");
    const pid_t child = fork();
    if (child < 0) return Report(options, kExitError, "fork failed");
    if (child > 0) {
      close(ends[1]);
      return WaitForReport(ends[0]);
    }
    close(ends[0]);
    options.ready_fd = ends[1];
    Detach();
  }
  if (options.die_with_parent != 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != options.die_with_parent) return kExitError;
  }
  std::string why;
  if (!ResolveDirectory(&options.backing, &why) || !ResolveDirectory(&options.mount, &why)) {
    return Report(options, kExitError, why);
  }
  options.fs.dir_fd_limit = std::clamp<size_t>(RaiseDescriptorLimit() / 4, 8, 65536);
  umask(0);
  const int root_fd = open(options.backing.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root_fd < 0) return Report(options, kExitError, options.backing + ": " + strerror(errno));
  const sigset_t signals = BlockStopSignals();
  const auto dev_fd = MountFuse(options.mount, &why);
  if (!dev_fd) return Report(options, kExitUnavailable, why);
  return ServeMounted(options, root_fd, *dev_fd, signals);
}

}  // namespace pfs_sim
