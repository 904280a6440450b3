#include "client_lib/preload/mailbox.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "client_lib/preload/raw.h"

namespace tierd::preload {
namespace {

// One descriptor beside one byte.
class Letter {
 public:
  Letter() {
    head_.msg_iov = &part_;
    head_.msg_iovlen = 1;
    head_.msg_control = control_;
    head_.msg_controllen = sizeof control_;
  }
  Letter(const Letter&) = delete;
  Letter& operator=(const Letter&) = delete;

  long Send(int socket, int fd) {
    cmsghdr* const part = CMSG_FIRSTHDR(&head_);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
    return raw::Call(SYS_sendmsg, socket, raw::Address(&head_), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  int Look(int socket) {
    const long got = raw::Call(SYS_recvmsg, socket, raw::Address(&head_), MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return static_cast<int>(got);
    const cmsghdr* const part = CMSG_FIRSTHDR(&head_);
    if (part == nullptr || part->cmsg_type != SCM_RIGHTS) return -EMFILE;  // no number was free for it
    int fd;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    return fd;
  }

 private:
  char byte_ = 0;
  iovec part_{&byte_, 1};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr head_{};
};

}  // namespace

int MakeMailbox() {
  const int mailbox = static_cast<int>(raw::Call(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (mailbox < 0) return mailbox;
  sockaddr_un self{};
  self.sun_family = AF_UNIX;
  socklen_t bytes = sizeof self;
  long done = raw::Call(SYS_bind, mailbox, raw::Address(&self), sizeof self.sun_family);  // to a name that the kernel makes up
  if (done == 0) done = raw::Call(SYS_getsockname, mailbox, raw::Address(&self), raw::Address(&bytes));
  if (done == 0) done = raw::Call(SYS_connect, mailbox, raw::Address(&self), bytes);
  // From now on it takes nothing from anybody else. What came before goes.
  char byte;
  while (done == 0 && raw::Call(SYS_recvfrom, mailbox, raw::Address(&byte), 1, MSG_DONTWAIT) >= 0) {
  }
  if (done == 0) return mailbox;
  raw::Close(mailbox);
  return static_cast<int>(done);
}

int TakeFromMailbox(int mailbox) {
  Letter letter;
  return letter.Look(mailbox);
}

int LeaveAndTake(int mailbox, int fd) {
  Letter letter;
  if (const long sent = letter.Send(mailbox, fd); sent < 0) return static_cast<int>(sent);
  return TakeFromMailbox(mailbox);
}

}  // namespace tierd::preload
