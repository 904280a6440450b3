// What is sent to others: descriptors of ours become real before, and memory that the kernel goes on reading after the call shows no frames of the cache any more (HAZARDS 2.9):
// those may hold other bytes once the mapping, and its lease, are gone.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/mapped_frames.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/src/process.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(ssize_t, vmsplice, SYS_vmsplice, int, const iovec*, size_t, unsigned)
TIERD_NEXT(ssize_t, send, int, const void*, size_t, int)
TIERD_NEXT_CALL(ssize_t, sendto, SYS_sendto, int, const void*, size_t, int, const sockaddr*, socklen_t)
TIERD_NEXT_CALL(ssize_t, sendmsg, SYS_sendmsg, int, const msghdr*, int)
TIERD_NEXT_CALL(int, sendmmsg, SYS_sendmmsg, int, mmsghdr*, unsigned, int)

namespace {

// In a vfork child the table is the parent's.
__attribute__((noinline)) void BeforeKeeping(const iovec* parts, size_t count) {
  if (parts == nullptr || vfork_depth != 0) return;
  const tierd::client::KeepErrno keep;
  for (size_t i = 0; i < count; ++i) ReplaceFrames(RangeOf(parts[i].iov_base, parts[i].iov_len), FileCopies::kNot);
}

inline bool IsKept(int flags) { return (flags & MSG_ZEROCOPY) != 0 && AnyMappings(); }

inline void BeforeSending(const void* bytes, size_t count, int flags) {
  const iovec part{const_cast<void*>(bytes), count};
  if (IsKept(flags)) [[unlikely]] BeforeKeeping(&part, 1);
}

// A copy in memory, of a file that cannot be had any more, is sent as it is: the receiver finds the bytes.
void MaterialiseSent(const msghdr& message) {
  if (message.msg_control == nullptr || (OpenDescriptions() == 0 && !AnyCopies())) return;
  auto* const head = const_cast<msghdr*>(&message);
  for (cmsghdr* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (Emulate(fd)) (void)Materialise(fd, Conversion::kScmRights);
      (void)MakeFile(fd);
    }
  }
}

void BeforeSending(const msghdr* message, int flags) {
  if (message == nullptr) return;
  MaterialiseSent(*message);
  if (IsKept(flags)) [[unlikely]] BeforeKeeping(message->msg_iov, message->msg_iovlen);
}

}  // namespace

TIERD_EXPORT(ssize_t, vmsplice, int fd, const iovec* parts, size_t count, unsigned flags) {
  if (AnyMappings()) BeforeKeeping(parts, count);
  return Next_vmsplice()(fd, parts, count, flags);
}

TIERD_EXPORT(ssize_t, send, int fd, const void* bytes, size_t count, int flags) {
  BeforeSending(bytes, count, flags);
  return RefuseAsFile(fd, ENOTSOCK, [&] { return Next_send()(fd, bytes, count, flags); });
}

TIERD_EXPORT(ssize_t, sendto, int fd, const void* bytes, size_t count, int flags, const sockaddr* to, socklen_t room) {
  BeforeSending(bytes, count, flags);
  return RefuseAsFile(fd, ENOTSOCK, [&] { return Next_sendto()(fd, bytes, count, flags, to, room); });
}

TIERD_EXPORT(ssize_t, sendmsg, int fd, const msghdr* message, int flags) {
  BeforeSending(message, flags);
  return RefuseAsFile(fd, ENOTSOCK, [&] { return Next_sendmsg()(fd, message, flags); });
}

TIERD_EXPORT(int, sendmmsg, int fd, mmsghdr* messages, unsigned count, int flags) {
  for (unsigned i = 0; i < count; ++i) BeforeSending(&messages[i].msg_hdr, flags);
  return RefuseAsFile(fd, ENOTSOCK, [&] { return Next_sendmmsg()(fd, messages, count, flags); });
}
