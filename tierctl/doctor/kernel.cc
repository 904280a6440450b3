// Kernel version, io_uring, namespaces.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tierctl/doctor/check.h"
#include "tierd/base/unique_fd.h"

namespace tierctl::doctor {
namespace {

// Operations that the io_uring engine uses beyond plain reads and writes.
struct NeededOperation {
  unsigned char op;
  const char* name;
};
constexpr std::array<NeededOperation, 5> kNeeded = {
    {{IORING_OP_OPENAT, "openat"}, {IORING_OP_STATX, "statx"}, {IORING_OP_READ, "read"}, {IORING_OP_CLOSE, "close"}, {IORING_OP_FADVISE, "fadvise"}}};

std::string MissingOperations(int ring) {
  // The kernel's struct ends in an array without length: room for 256 entries behind it.
  alignas(io_uring_probe) std::array<unsigned char, sizeof(io_uring_probe) + 256 * sizeof(io_uring_probe_op)> room{};
  const auto* probe = reinterpret_cast<const io_uring_probe*>(room.data());
  const auto* operations = reinterpret_cast<const io_uring_probe_op*>(room.data() + sizeof(io_uring_probe));
  if (::syscall(SYS_io_uring_register, ring, IORING_REGISTER_PROBE, room.data(), 256) != 0) return "no probe";
  std::string missing;
  for (const NeededOperation& needed : kNeeded) {
    const bool there = needed.op <= probe->last_op && (operations[needed.op].flags & IO_URING_OP_SUPPORTED) != 0;
    if (!there) missing += (missing.empty() ? "" : ", ") + std::string(needed.name);
  }
  return missing;
}

Check IoUringRefused(int error) {
  Check check{"io_uring", Verdict::kWarn, "", ""};
  const std::string disabled = FirstLine("/proc/sys/kernel/io_uring_disabled");
  check.detail = std::string("not allowed (") + std::strerror(error) + "): the thread pool is used instead, which is slower on local disks";
  if (disabled == "1" || disabled == "2") {
    check.remedy = "sysctl -w kernel.io_uring_disabled=0";
  } else if (error == ENOSYS) {
    check.remedy = "a kernel of 5.15 or later, built with CONFIG_IO_URING";
  } else {
    check.remedy = "a seccomp filter forbids it (containers do by default): allow io_uring_setup, io_uring_enter and io_uring_register";
  }
  return check;
}

}  // namespace

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Check KernelVersion(const std::string& release) {
  Check check{"kernel", Verdict::kOk, "Linux " + release, ""};
  int major = 0;
  int minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) {
    check.verdict = Verdict::kWarn;
    check.detail += ": not understood";
    check.remedy = "tierd is made for Linux 5.15 and later";
  } else if (major < 5 || (major == 5 && minor < 15)) {
    check.verdict = Verdict::kWarn;
    check.detail += ": older than 5.15";
    check.remedy = "upgrade the kernel, for linked io_uring opens and a sound huge-page tmpfs";
  } else if (major < 6 || (major == 6 && minor < 5)) {
    check.detail += " (before 6.5: clients are told apart by pid, which is opened while they are connected)";
  }
  return check;
}

Check IoUring() {
  io_uring_params params{};
  const tierd::UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 8, &params)));
  if (!ring.valid()) return IoUringRefused(errno);
  Check check{"io_uring", Verdict::kOk, "allowed", ""};
  if (const std::string missing = MissingOperations(ring.get()); !missing.empty()) {
    check.verdict = Verdict::kWarn;
    check.detail = "allowed, but without: " + missing + "; the thread pool is used instead";
    check.remedy = "a kernel of 5.15 or later";
    return check;
  }
  if ((params.features & IORING_FEAT_NODROP) == 0) check.detail += ", old: completions may be dropped";
  if ((params.features & IORING_FEAT_LINKED_FILE) != 0) check.detail += ", linked files";
  return check;
}

Check UserNamespaces() {
  Check check{"namespaces.user", Verdict::kOk, "a user and mount namespace can be made", ""};
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 ? 0 : errno);
  int status = 0;
  if (child > 0) ::waitpid(child, &status, 0);
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return check;
  check.verdict = Verdict::kWarn;
  const int error = child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
  check.detail = std::string("not allowed (") + std::strerror(error) + "): huge pages then need hugetlb or shmem_enabled";
  check.remedy = FirstLine("/proc/sys/kernel/unprivileged_userns_clone") == "0" ? "sysctl -w kernel.unprivileged_userns_clone=1"
                                                                                 : "sysctl -w user.max_user_namespaces=15000 (in a container: its seccomp profile)";
  return check;
}

Check TimeNamespace(const std::string& offsets_path) {
  Check check{"clock", Verdict::kOk, "no time namespace", ""};
  std::ifstream file(offsets_path);
  std::string clock;
  long long seconds = 0;
  long long nanoseconds = 0;
  while (file >> clock >> seconds >> nanoseconds) {
    if (clock != "monotonic" || (seconds == 0 && nanoseconds == 0)) continue;
    check.verdict = Verdict::kWarn;
    check.detail = "in a time namespace, " + std::to_string(seconds) + " s off: clients outside it (and tierd outside yours) ask the source at each open";
    check.remedy = "run tierd and its clients in the same time namespace";
  }
  return check;
}

}  // namespace tierctl::doctor
