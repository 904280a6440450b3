#include "tierd/server/seqpacket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tierd/base/read_capability.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

namespace tierd::server {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Status(Code::kInvalid, "socket path " + path + " is longer than 107 bytes; set daemon.runtime_dir to a shorter one");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool SomebodyListens(const sockaddr_un& address) {
  UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return false;
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  return errno == EAGAIN || errno == EPROTOTYPE;  // full backlog, or another kind of server
}

constexpr char kLacksAGroup[] = "this process lacks a group of tierd's: what it may read is for the source to decide";
constexpr char kLacksCapabilities[] = "tierd reads what modes forbid (CAP_DAC_OVERRIDE); this process may not";
constexpr char kOtherNamespace[] = "tierd is in a user namespace that this process is not in, where ids that are not mapped look alike";

// "0 0 4294967295": ids are what they are. A kernel without user namespaces has no such file.
bool AllMapped(const char* map) {
  std::FILE* const file = std::fopen(map, "re");
  if (file == nullptr) return errno == ENOENT;
  unsigned long inside = 1, outside = 1, count = 0;
  const int read = std::fscanf(file, "%lu %lu %lu", &inside, &outside, &count);
  std::fclose(file);
  return read == 3 && inside == 0 && outside == 0 && count == 4294967295UL;
}

// What stands for each group that is not mapped.
gid_t OverflowGroup() {
  gid_t group = 65534;
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/overflowgid", "re"); file != nullptr) {
    if (std::fscanf(file, "%u", &group) != 1) group = 65534;
    std::fclose(file);
  }
  return group;
}

bool IsInOurUserNamespace(pid_t pid) {
  struct stat theirs {}, ours {};
  return ::stat(("/proc/" + std::to_string(pid) + "/ns/user").c_str(), &theirs) == 0 && ::stat("/proc/self/ns/user", &ours) == 0 && theirs.st_dev == ours.st_dev &&
         theirs.st_ino == ours.st_ino;
}

// Whether the peer, by its own opens, could read all that our groups let us read (HAZARDS 2.14). Without SO_PEERGROUPS (kernels before 4.13) the uid is all
// there is to go by. Groups that a user namespace does not map all have one number: they are counted. Within a namespace a process can only give up all of them.
bool HasOurGroups(int fd, gid_t peer_gid, bool all_mapped) {
  std::vector<gid_t> theirs(64);
  socklen_t bytes = static_cast<socklen_t>(theirs.size() * sizeof(gid_t));
  int error = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, theirs.data(), &bytes) == 0 ? 0 : errno;
  if (error == ERANGE) {  // `bytes` says how many there are
    theirs.resize(bytes / sizeof(gid_t));
    error = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, theirs.data(), &bytes) == 0 ? 0 : errno;
  }
  if (error != 0) return error == ENOPROTOOPT;
  theirs.resize(bytes / sizeof(gid_t));
  theirs.push_back(peer_gid);
  const int count = ::getgroups(0, nullptr);
  if (count < 0) return false;
  std::vector<gid_t> ours(static_cast<std::size_t>(count));
  if (::getgroups(count, ours.data()) != count) return false;
  ours.push_back(::getegid());
  const gid_t overflow = OverflowGroup();
  return std::all_of(ours.begin(), ours.end(), [&](gid_t gid) {
    const auto enough = !all_mapped && gid == overflow ? std::count(ours.begin(), ours.end(), gid) : 1;
    return std::count(theirs.begin(), theirs.end(), gid) >= enough;
  });
}

// Where not every id is mapped, files' owners and groups, too, are what only a process of this namespace sees.
Stranger WhyAStranger(int fd, const ucred& peer) {
  const bool all_mapped = AllMapped("/proc/self/uid_map") && AllMapped("/proc/self/gid_map");
  if (!all_mapped && !IsInOurUserNamespace(peer.pid))
    return {kOtherNamespace, TurnedAway::kNamespace};
  if (!HasOurGroups(fd, peer.gid, all_mapped)) return {kLacksAGroup, TurnedAway::kGroups};
  // Capabilities of another user namespace count for the files of that namespace alone.
  const bool lacks = ReadsDespiteModes(0) && !(ReadsDespiteModes(peer.pid) && IsInOurUserNamespace(peer.pid));
  if (lacks) return {kLacksCapabilities, TurnedAway::kCapabilities};
  return {};
}

// Closed to others, a directory that is not (/tmp, /run) breaks what they do there.
bool IsOursAlone(const std::string& directory, const struct stat& st) {
  std::error_code error;
  const auto entries = std::filesystem::directory_iterator(directory, error);
  return (st.st_mode & S_ISVTX) == 0 && !error && std::all_of(begin(entries), end(entries), [](const auto& entry) {
    std::error_code ignored;
    return entry.is_socket(ignored);
  });
}

}  // namespace

namespace {

// Somebody has planted it, perhaps: what helps is another one.
Status NotOurs(const std::string& path, const std::string& why) {
  return Status(Code::kPermission, "runtime directory " + path + " " + why + "; name another: --socket PATH (and TIERD_SOCKET for programs)");
}

}  // namespace

Status CheckRuntimeDirectory(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    const std::string parent = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
    if (errno == ENOENT && ::access(parent.c_str(), W_OK | X_OK) == 0) return Status::Ok();
    return Status::FromErrno(errno, "create runtime directory " + path);
  }
  if (!S_ISDIR(st.st_mode)) return NotOurs(path, "is not a directory (a symlink is not followed)");
  if (st.st_uid != ::geteuid()) return NotOurs(path, "belongs to uid " + std::to_string(st.st_uid) + ", not to us");
  if ((st.st_mode & 0077) == 0) return Status::Ok();
  return Status(Code::kPermission, "runtime directory " + path + " is open to others; " +
                                       (IsOursAlone(path, st) ? "chmod 0700 it" : "name a directory of its own, e.g. " + (path == "/" ? "" : path) + "/tierd"));
}

Status PrepareRuntimeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Status::FromErrno(errno, "create runtime directory " + path);
  return CheckRuntimeDirectory(path);
}

Result<UniqueFd> ListenSeqpacket(const std::string& path, int backlog) {
  auto address = AddressOf(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "socket");
  const auto* raw = reinterpret_cast<const sockaddr*>(&*address);
  if (::bind(fd.get(), raw, sizeof *address) != 0) {
    if (errno != EADDRINUSE) return Status::FromErrno(errno, "bind " + path);
    if (SomebodyListens(*address)) return Status(Code::kBusy, "another tierd listens on " + path);
    if (::unlink(path.c_str()) != 0 || ::bind(fd.get(), raw, sizeof *address) != 0) return Status::FromErrno(errno, "bind " + path);
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), backlog) != 0) return Status::FromErrno(errno, "listen on " + path);
  return fd;
}

bool RefuseDescriptors(int fd) {
  const int pass = 0;
  return ::setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof pass) == 0;
}

bool PeerHasClosed(int fd) {
  pollfd state{fd, 0, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

namespace {

// There is no room for control messages: the kernel says MSG_CTRUNC where there would be some.
ssize_t Receive(int fd, std::span<std::byte> buffer, int flags, msghdr* message) {
  iovec iov{buffer.data(), buffer.size()};
  *message = {};
  message->msg_iov = &iov;
  message->msg_iovlen = 1;
  ssize_t n;
  do {
    n = ::recvmsg(fd, message, MSG_DONTWAIT | flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

Result<Datagram> ReceiveDatagram(int fd, std::span<std::byte> buffer, SentDescriptors sent) {
  Datagram datagram;
  msghdr message;
  if (sent == SentDescriptors::kPossible) {
    std::byte none[1];
    const ssize_t n = Receive(fd, none, MSG_PEEK, &message);
    if (n < 0) return Status::FromErrno(errno, "receive from a client");
    datagram.carries_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
    if (datagram.carries_descriptors) return datagram;
  }
  const ssize_t n = Receive(fd, buffer, 0, &message);
  if (n < 0) return Status::FromErrno(errno, "receive from a client");
  datagram.bytes = static_cast<std::size_t>(n);
  datagram.truncated = (message.msg_flags & MSG_TRUNC) != 0;
  return datagram;
}

Status SendDatagram(int fd, std::span<const std::byte> datagram, std::span<const int> fds) {
  iovec iov{const_cast<std::byte*>(datagram.data()), datagram.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Status::FromErrno(errno, "send to a client");
  return Status::Ok();
}

Result<Peer> PeerOf(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return Status::FromErrno(errno, "SO_PEERCRED");
  Peer peer;
  peer.pid = static_cast<std::uint32_t>(credentials.pid);
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  peer.stranger = WhyAStranger(fd, credentials);
  int pidfd = -1;
  length = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    peer.pidfd.Reset(pidfd);
  } else if (credentials.pid > 0) {
    // Older kernels: while the socket is up the pid is most likely still the peer's.
    peer.pidfd.Reset(static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0)));
  }
  return peer;
}

}  // namespace tierd::server
