#include "tierd/ram/tmpfs_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

namespace tierd::ram {
namespace {

constexpr int kTimeoutMs = 10'000;  // a mount is done in a millisecond; a hung one must not keep the worker

// What the child reports: the step that failed, or 0 and two descriptors.
struct Report {
  int step = 0;
  int error = 0;
};
constexpr const char* kSteps[] = {"done", "unshare", "uid map", "mount propagation", "mount tmpfs huge=always", "create file", "bind mount", "open read-only"};

// Everything the child needs, made before the fork: behind it only async-signal-safe calls are allowed.
struct Plan {
  char uid_map[64];
  char gid_map[64];
  char mount_options[96];
  char path[64];  // of the file, writable
  char view[64];  // the same behind the read-only mount
  std::uint64_t bytes = 0;
  int socket = -1;
};

bool WriteFile(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(std::strlen(text));
  const bool ok = ::write(fd, text, static_cast<std::size_t>(size)) == size;
  ::close(fd);
  return ok;
}

void Send(int socket, Report report, const int* fds, std::size_t count) {
  iovec part{&report, sizeof report};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  (void)!::sendmsg(socket, &message, MSG_NOSIGNAL);
}

// In the child. Mounts on directories that exist everywhere; only this namespace sees it.
Report Prepare(const Plan& plan, int fds[2]) {
  ::prctl(PR_SET_DUMPABLE, 1);  // the daemon is not; then /proc/self/uid_map belongs to root
  const bool user = ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
  if (!user && ::unshare(CLONE_NEWNS) != 0) return {1, errno};
  if (user) {
    WriteFile("/proc/self/setgroups", "deny");  // absent on old kernels, needed on new ones
    if (!WriteFile("/proc/self/uid_map", plan.uid_map) || !WriteFile("/proc/self/gid_map", plan.gid_map)) return {2, errno};
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return {3, errno};
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount("tierd", "/tmp", "tmpfs", kFlags, plan.mount_options) != 0) return {4, errno};
  fds[0] = ::open(plan.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
  if (fds[0] < 0 || ::ftruncate(fds[0], static_cast<off_t>(plan.bytes)) != 0) return {5, errno};
  if (::mkdir("/tmp/view", 0700) != 0 || ::mount("/tmp", "/tmp/view", nullptr, MS_BIND, nullptr) != 0) return {6, errno};
  if (::mount(nullptr, "/tmp/view", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | kFlags, nullptr) != 0) return {6, errno};
  fds[1] = ::open(plan.view, O_RDONLY | O_CLOEXEC);
  if (fds[1] < 0) return {7, errno};
  return {};
}

Result<TmpfsFile> Receive(int socket) {
  pollfd wait{socket, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, kTimeoutMs);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return Status(Code::kUnsupported, "tmpfs helper gave no answer");
  Report report;
  iovec part{&report, sizeof report};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got != static_cast<ssize_t>(sizeof report)) return Status(Code::kUnsupported, "tmpfs helper ended without an answer");
  if (report.step != 0) return Status(Code::kUnsupported, std::string(kSteps[report.step & 7]) + ": " + std::strerror(report.error), report.error);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(2 * sizeof(int))) return Status(Code::kUnsupported, "tmpfs helper sent no descriptors");
  int fds[2];
  std::memcpy(fds, CMSG_DATA(header), sizeof fds);
  TmpfsFile file;
  file.writable = UniqueFd(fds[0]);
  file.read_only = UniqueFd(fds[1]);
  return file;
}

}  // namespace

Result<TmpfsFile> MakeTmpfsFile(const char* name, std::uint64_t bytes) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Status::FromErrno(errno, "socketpair for the tmpfs helper");
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  Plan plan;
  std::snprintf(plan.uid_map, sizeof plan.uid_map, "%u %u 1", ::geteuid(), ::geteuid());
  std::snprintf(plan.gid_map, sizeof plan.gid_map, "%u %u 1", ::getegid(), ::getegid());
  // Two pages more than the file: directories and the like take some.
  std::snprintf(plan.mount_options, sizeof plan.mount_options, "huge=always,mode=0700,size=%llu",
                static_cast<unsigned long long>(bytes + (std::uint64_t{4} << 20)));
  std::snprintf(plan.path, sizeof plan.path, "/tmp/tierd-%s", name);
  std::snprintf(plan.view, sizeof plan.view, "/tmp/view/tierd-%s", name);
  plan.bytes = bytes;
  plan.socket = theirs.get();
  const pid_t child = ::_Fork();  // the child is no continuation of this process: nobody's atfork handlers have to do with it
  if (child < 0) return Status::FromErrno(errno, "fork the tmpfs helper");
  if (child == 0) {
    int fds[2] = {-1, -1};
    const Report report = Prepare(plan, fds);
    Send(plan.socket, report, fds, report.step == 0 ? 2 : 0);
    ::_exit(0);
  }
  theirs.Reset();
  Result<TmpfsFile> file = Receive(ours.get());
  if (!file.ok()) ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return file;
}

}  // namespace tierd::ram
