#include "tests/pfs_sim/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace pfs_sim {
namespace {

std::optional<int> MountAsRoot(const std::string& dir, std::string* why) {
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    *why = std::string("open /dev/fuse: ") + strerror(errno);
    return std::nullopt;
  }
  const std::string options = "fd=" + std::to_string(fd) +
                              ",rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions";
  if (mount("pfs_sim", dir.c_str(), "fuse.pfs_sim", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    *why = "mount on " + dir + ": " + strerror(errno);
    close(fd);
    return std::nullopt;
  }
  return fd;
}

// The descriptor that fusermount3 sends over its socket; -1 when it sent none.
int ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

std::optional<int> MountAsUser(const std::string& dir, std::string* why) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
    *why = std::string("socketpair: ") + strerror(errno);
    return std::nullopt;
  }
  const pid_t child = fork();
  if (child == 0) {
    close(pair[1]);
    setenv("_FUSE_COMMFD", std::to_string(pair[0]).c_str(), 1);
    execlp("fusermount3", "fusermount3", "-o", "fsname=pfs_sim,subtype=pfs_sim,default_permissions",
           "--", dir.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(pair[0]);
  fcntl(pair[1], F_SETFD, FD_CLOEXEC);
  const int fd = child < 0 ? -1 : ReceiveDescriptor(pair[1]);
  // fusermount3 unmounts when its socket closes only in auto_unmount mode: it can go.
  close(pair[1]);
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  if (fd >= 0) return fd;
  *why = WIFEXITED(status) && WEXITSTATUS(status) == 127
             ? "not root, and fusermount3 is not installed"
             : "fusermount3 refused to mount on " + dir + " (is /dev/fuse there and writable?)";
  return std::nullopt;
}

// Descriptors that the guard must not keep: pipes of whoever started us would never see their end.
void CloseAllBut(int keep) {
  if (keep > 0) close_range(0, static_cast<unsigned>(keep - 1), 0);
  close_range(static_cast<unsigned>(keep + 1), ~0U, 0);
}

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "major:minor" of the topmost mount at `dir`; empty when nothing is mounted there.
std::string DeviceOf(const std::string& dir) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string device;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, numbers, root, point;
    words >> id >> parent >> numbers >> root >> point;
    if (Unescape(point) == dir) device = numbers;
  }
  return device;
}

}  // namespace

std::optional<int> MountFuse(const std::string& dir, std::string* why) {
  if (geteuid() != 0) return MountAsUser(dir, why);
  return MountAsRoot(dir, why);
}

void UnmountLazily(const std::string& dir) {
  if (geteuid() == 0) {
    umount2(dir.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    execlp("fusermount3", "fusermount3", "-u", "-q", "-z", "--", dir.c_str(),
           static_cast<char*>(nullptr));
    _exit(127);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

bool IsMounted(const std::string& dir) { return !DeviceOf(dir).empty(); }

bool SetReadAhead(const std::string& dir, uint32_t kib) {
  const std::string device = DeviceOf(dir);
  if (device.empty()) return false;
  std::ofstream knob("/sys/class/bdi/" + device + "/read_ahead_kb");
  knob << kib << std::flush;
  return knob.good();
}

MountGuard::MountGuard(const std::string& dir) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const pid_t child = fork();
  if (child != 0) {
    close(ends[0]);
    pipe_ = ends[1];
    pid_ = child;
    return;
  }
  setsid();
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) signal(signal_number, SIG_IGN);
  CloseAllBut(ends[0]);
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(ends[0], &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 0 && IsMounted(dir)) UnmountLazily(dir);
  _exit(0);
}

void MountGuard::Dismiss() {
  const char byte = 1;
  if (pid_ <= 0 || write(pipe_, &byte, 1) != 1) return;
  close(pipe_);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace pfs_sim
