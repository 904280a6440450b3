#include "tierd/ram/private_tmpfs.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace tierd::ram {
namespace {

// A mount takes a millisecond. A child that hangs must not keep the start.
constexpr int kTimeoutMs = 10'000;
constexpr int kMostFds = 2;

// What a child reports: the step that failed, or kDone and its descriptors.
enum class Step : int {
  kDone,
  kUserNamespace,
  kMaps,
  kJoin,
  kMountNamespace,
  kMount,
  kReadOnlyView,
  kListed
};
const char* StepName(Step step) {
  switch (step) {
    case Step::kDone: return "done";
    case Step::kUserNamespace: return "make a user namespace";
    case Step::kMaps: return "write the maps of the user namespace";
    case Step::kJoin: return "join the user namespace";
    case Step::kMountNamespace: return "make a mount namespace";
    case Step::kMount: return "mount a tmpfs";
    case Step::kReadOnlyView: return "mount it once more, read-only";
    case Step::kListed:
      return "mount a tmpfs that other processes of the user cannot enter (Linux 6.12 to 6.14 "
             "cannot)";
  }
  return "unknown step";
}

struct Report {
  Step step = Step::kDone;
  int error = 0;
};

// System calls that the libc of older systems lacks: numbers and structures of linux/mount.h and
// linux/nsfs.h. The numbers are the same on every architecture that tierd is built for.

constexpr long kOpenTree = 428, kFsopen = 430, kFsconfig = 431, kFsmount = 432, kMountSetattr = 442;
constexpr unsigned kFsopenCloexec = 1, kFsmountCloexec = 1, kOpenTreeClone = 1;
constexpr unsigned kSetString = 1, kCmdCreate = 6;
constexpr std::uint64_t kReadOnly = 1, kNoSuid = 2, kNoDev = 4, kNoExec = 8;
struct MountAttributes {
  std::uint64_t set, clear, propagation, user_namespace;
};
struct MountNamespaceInfo {
  std::uint32_t size, mounts;
  std::uint64_t id;
};
constexpr unsigned long kNextMountNamespace = _IOR(0xb7, 11, MountNamespaceInfo);

bool SetOption(int context, const char* key, const char* value) {
  return ::syscall(kFsconfig, context, kSetString, key, value, 0) == 0;
}

// ---- a child that answers with descriptors ------------------------------------------------------

void Send(int socket, Report report, const int* fds, std::size_t count) {
  iovec part{&report, sizeof report};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
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

Status Receive(int socket, UniqueFd* fds, std::size_t count) {
  pollfd wait{socket, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, kTimeoutMs);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0)
    return Status(Code::kUnsupported, "the child that mounts a tmpfs does not answer");
  Report report;
  iovec part{&report, sizeof report};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  std::size_t received = 0;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    for (; header->cmsg_len >= CMSG_LEN((received + 1) * sizeof(int)); ++received) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + received * sizeof(int), sizeof fd);
      UniqueFd owned(fd);
      if (received < count) fds[received] = std::move(owned);
    }
  }
  if (got != static_cast<ssize_t>(sizeof report))
    return Status(Code::kUnsupported, "the child that mounts a tmpfs ended without an answer");
  if (report.step != Step::kDone)
    return Status(Code::kUnsupported,
                  std::string(StepName(report.step)) + ": " + std::strerror(report.error),
                  report.error);
  return received == count
             ? Status::Ok()
             : Status(Code::kUnsupported, "the child that mounts a tmpfs sent no descriptors");
}

// Runs `body(fds)` in a child and receives the descriptors that it made. Only async-signal-safe
// calls are allowed in it: this process may have threads.
template <typename Body>
Status InChild(UniqueFd* fds, std::size_t count, const Body& body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::FromErrno(errno, "socketpair for a child");
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = ::_Fork();  // no atfork handler has to do with this child
  if (child < 0) return Status::FromErrno(errno, "fork a child that mounts a tmpfs");
  if (child == 0) {
    int made[kMostFds] = {-1, -1};
    const Report report = body(made);
    Send(ends[1], report, made, report.step == Step::kDone ? count : 0);
    ::_exit(0);
  }
  theirs.Reset();
  Status status = Receive(ours.get(), fds, count);
  if (!status.ok()) ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// ---- the two views ------------------------------------------------------------------------------

int OpenDirectory(int at, const char* path) {
  return ::openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// From Linux 6.15 on both mounts can be made without being in any mount namespace at all. A step
// that needs a newer kernel fails with ENOSYS or EINVAL.
Report MountDetached(int views[2]) {
  const int context = static_cast<int>(::syscall(kFsopen, "tmpfs", kFsopenCloexec));
  if (context < 0) return {Step::kMount, errno};
  (void)SetOption(context, "huge", "advise");  // unknown to kernels without huge pages
  if (!SetOption(context, "mode", "0700") || !SetOption(context, "size", "0"))
    return {Step::kMount, errno};
  if (::syscall(kFsconfig, context, kCmdCreate, nullptr, nullptr, 0) != 0)
    return {Step::kMount, errno};
  const int writable =
      static_cast<int>(::syscall(kFsmount, context, kFsmountCloexec, kNoSuid | kNoDev | kNoExec));
  if (writable < 0) return {Step::kMount, errno};
  const int view = static_cast<int>(
      ::syscall(kOpenTree, writable, "", AT_EMPTY_PATH | kOpenTreeClone | O_CLOEXEC));
  if (view < 0) return {Step::kReadOnlyView, errno};
  MountAttributes attributes{};
  attributes.set = kReadOnly;
  if (::syscall(kMountSetattr, view, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return {Step::kReadOnlyView, errno};
  views[0] = OpenDirectory(writable, ".");
  views[1] = OpenDirectory(view, ".");
  if (views[0] < 0 || views[1] < 0) return {Step::kReadOnlyView, errno};
  // The kernel unmounts both here. A mount that is in no namespace, not even in an anonymous one,
  // cannot be cloned or changed by anybody.
  ::close(view);
  ::close(writable);
  ::close(context);
  return {};
}

// Older kernels: mounted on directories that exist everywhere, in our mount namespace only, and
// unmounted before the first file exists.
Report MountInNamespace(int views[2]) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return {Step::kMountNamespace, errno};
  constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (::mount("tierd", "/tmp", "tmpfs", kFlags, "huge=advise,mode=0700,size=0") != 0 &&
      ::mount("tierd", "/tmp", "tmpfs", kFlags, "mode=0700,size=0") != 0) {
    return {Step::kMount, errno};
  }
  views[0] = OpenDirectory(AT_FDCWD, "/tmp");
  if (::mkdir("/tmp/view", 0700) != 0 ||
      ::mount("/tmp", "/tmp/view", nullptr, MS_BIND, nullptr) != 0)
    return {Step::kReadOnlyView, errno};
  if (::mount(nullptr, "/tmp/view", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | kFlags, nullptr) !=
      0)
    return {Step::kReadOnlyView, errno};
  views[1] = OpenDirectory(AT_FDCWD, "/tmp/view");
  if (views[0] < 0 || views[1] < 0) return {Step::kReadOnlyView, errno};
  if (::umount2("/tmp/view", MNT_DETACH) != 0 || ::umount2("/tmp", MNT_DETACH) != 0)
    return {Step::kReadOnlyView, errno};
  (void)::unlinkat(views[0], "view", AT_REMOVEDIR);
  return {};
}

// Whether the kernel hands out mount namespaces to the owner of their user namespace (Linux 6.12
// and later, until that was restricted). Every process of our user owns the one that we join, so
// each could enter ours while the tmpfs is mounted there. Older kernels do not know the question
// (ENOTTY).
bool NamespacesAreListed() {
  if (::geteuid() == 0) return false;  // what root may do is not ours to refuse
  const int self = ::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (self < 0) return true;
  MountNamespaceInfo info{};
  info.size = sizeof info;
  const int next = ::ioctl(self, kNextMountNamespace, &info);
  const int error = errno;
  if (next >= 0) ::close(next);
  ::close(self);
  return next >= 0 || (error != ENOTTY && error != EPERM);
}

Report MakeViews(int user_namespace, int views[2]) {
  ::prctl(PR_SET_DUMPABLE, 0);  // inherited from tierd; set here for a process that is not tierd
  const bool listed = NamespacesAreListed();
  if (user_namespace >= 0 && ::setns(user_namespace, CLONE_NEWUSER) != 0)
    return {Step::kJoin, errno};
  if (::unshare(CLONE_NEWNS) != 0) return {Step::kMountNamespace, errno};
  const Report detached = MountDetached(views);
  if (detached.step == Step::kDone) return detached;
  if (detached.error == ENOMEM) return detached;
  if (listed) return {Step::kListed, detached.error};
  return MountInNamespace(views);
}

bool WriteFile(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(std::strlen(text));
  const bool ok = ::write(fd, text, static_cast<std::size_t>(size)) == size;
  ::close(fd);
  return ok;
}

}  // namespace

Result<UniqueFd> MakeUserNamespace() {
  char uid_map[64];
  char gid_map[64];
  std::snprintf(uid_map, sizeof uid_map, "%u %u 1", ::geteuid(), ::geteuid());
  std::snprintf(gid_map, sizeof gid_map, "%u %u 1", ::getegid(), ::getegid());
  UniqueFd made;
  const Status status = InChild(&made, 1, [&](int* fds) -> Report {
    if (::unshare(CLONE_NEWUSER) != 0) return {Step::kUserNamespace, errno};
    (void)WriteFile("/proc/self/setgroups",
                    "deny");  // needed before gid_map; kernels before 3.19 have no such file
    if (!WriteFile("/proc/self/uid_map", uid_map) || !WriteFile("/proc/self/gid_map", gid_map))
      return {Step::kMaps, errno};
    fds[0] = ::open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    return fds[0] < 0 ? Report{Step::kUserNamespace, errno} : Report{};
  });
  if (!status.ok()) return status;
  return made;
}

Result<PrivateTmpfs> PrivateTmpfs::Create(int user_namespace) {
  UniqueFd views[2];
  if (Status status =
          InChild(views, 2, [user_namespace](int* fds) { return MakeViews(user_namespace, fds); });
      !status.ok())
    return status;
  return PrivateTmpfs(std::move(views[0]), std::move(views[1]));
}

Result<PrivateTmpfs> PrivateTmpfs::Adopt(const std::string& directories) {
  const std::size_t colon = directories.find(':');
  if (directories.empty() || directories[0] != '/' || colon == std::string::npos ||
      directories[colon + 1] != '/') {
    return Status(Code::kInvalid,
                  "\"" + directories + "\" is not two absolute paths, WRITABLE:READ_ONLY");
  }
  UniqueFd views[2];
  struct stat facts[2]{};
  struct statvfs mounts[2]{};
  for (int i = 0; i < 2; ++i) {
    const std::string path = i == 0 ? directories.substr(0, colon) : directories.substr(colon + 1);
    views[i] = UniqueFd(OpenDirectory(AT_FDCWD, path.c_str()));
    if (!views[i].valid()) return Status::FromErrno(errno, "open " + path);
    struct statfs kind{};
    if (::fstat(views[i].get(), &facts[i]) != 0 || ::fstatfs(views[i].get(), &kind) != 0 ||
        ::fstatvfs(views[i].get(), &mounts[i]) != 0) {
      return Status::FromErrno(errno, "stat " + path);
    }
    if (kind.f_type != TMPFS_MAGIC) return Status(Code::kInvalid, path + " is not on a tmpfs");
  }
  if (facts[0].st_dev != facts[1].st_dev || facts[0].st_ino != facts[1].st_ino)
    return Status(Code::kInvalid, directories + " are not two mounts of one directory");
  if ((mounts[0].f_flag & ST_RDONLY) != 0 || (mounts[1].f_flag & ST_RDONLY) == 0) {
    return Status(Code::kInvalid,
                  directories + ": the first must be writable, the second read-only");
  }
  return PrivateTmpfs(std::move(views[0]), std::move(views[1]));
}

// The name lasts from one call to the next. Random, because several threads may make files at a
// time.
Result<PrivateTmpfs::File> PrivateTmpfs::MakeFile(const char* name, std::uint64_t bytes) const {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return Status::FromErrno(errno, "getrandom");
  char path[64];
  std::snprintf(path, sizeof path, "%s-%016" PRIx64, name, random);
  File file;
  file.writable =
      UniqueFd(::openat(writable_.get(), path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400));
  if (!file.writable.valid())
    return Status::FromErrno(errno, std::string("create ") + name + " in the private tmpfs");
  file.read_only = UniqueFd(::openat(read_only_.get(), path, O_RDONLY | O_CLOEXEC));
  const int error = errno;
  (void)::unlinkat(writable_.get(), path, 0);
  if (!file.read_only.valid())
    return Status::FromErrno(error, std::string("open ") + name + " read-only");
  if (::ftruncate(file.writable.get(), static_cast<off_t>(bytes)) != 0)
    return Status::FromErrno(errno, std::string("ftruncate ") + name);
  return file;
}

}  // namespace tierd::ram
