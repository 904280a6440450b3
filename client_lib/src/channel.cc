#include "client_lib/src/channel.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "client_lib/src/clock.h"

namespace tierd::client {
namespace {

constexpr std::uint32_t kWoken = 1;  // all answers are there, or the conversation is over
constexpr std::uint32_t kLead = 2;   // receive for all from now on
constexpr int kSliceUs = 50'000;  // longest sleep at a time: how late the end of the conversation, or that the daemon hangs, may be noticed
constexpr int kMaxFds = 4;

void FutexWait(std::atomic<std::uint32_t>& word, std::int64_t deadline_ns) {
  const timespec until{static_cast<time_t>(deadline_ns / 1'000'000'000), static_cast<long>(deadline_ns % 1'000'000'000)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET_PRIVATE, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWake(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  word.fetch_or(value, std::memory_order_acq_rel);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void CloseAll(int* fds, int count) {
  for (int i = 0; i < count; ++i) {
    if (fds[i] >= 0) ::close(fds[i]);
    fds[i] = -1;
  }
}

}  // namespace

// ---- life ------------------------------------------------------------------------------------------------------------------

bool Channel::Open(int fd, std::uint16_t version, Listener listener) {
  struct stat st;
  buffer_ = static_cast<std::byte*>(std::malloc(abi::kMaxMessageBytes));
  if (buffer_ == nullptr || ::fstat(fd, &st) != 0) {
    std::free(buffer_);
    ::close(fd);
    return false;
  }
  const timeval slice{0, kSliceUs};
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
  mutex_.Reset();
  fd_ = fd;
  socket_dev_ = st.st_dev;
  socket_ino_ = st.st_ino;
  version_ = version;
  listener_ = listener;
  receiving_ = false;
  inside_ = 0;
  next_id_ = 1;
  std::memset(buckets_, 0, sizeof buckets_);
  waiting_ = nullptr;
  dead_.store(false, std::memory_order_relaxed);
  protocol_error_.store(false, std::memory_order_relaxed);
  return true;
}

bool Channel::PeerGone() {
  {
    const MutexLock lock(mutex_);
    if (dead()) return true;
    ++inside_;  // the descriptor stays meanwhile
  }
  pollfd state{fd_, POLLIN, 0};
  bool gone = !StillOurs();
  if (!gone && ::poll(&state, 1, 0) == 1) {
    std::byte first;
    gone = (state.revents & (POLLHUP | POLLERR)) != 0 || ::recv(fd_, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  if (gone) Die(false);
  const MutexLock lock(mutex_);
  --inside_;
  return gone;
}

bool Channel::TryClose() {
  {
    const MutexLock lock(mutex_);
    if (inside_ != 0) return false;
  }
  if (StillOurs()) ::close(fd_);
  fd_ = -1;
  std::free(buffer_);
  buffer_ = nullptr;
  return true;
}

void Channel::Abandon(bool close_socket) {
  if (close_socket && fd_ >= 0 && StillOurs()) ::close(fd_);
  fd_ = -1;
  dead_.store(true, std::memory_order_relaxed);
}

bool Channel::StillOurs() const {
  struct stat st;
  return ::fstat(fd_, &st) == 0 && st.st_dev == socket_dev_ && st.st_ino == socket_ino_;
}

void Channel::Die(bool protocol_error) {
  if (protocol_error) protocol_error_.store(true, std::memory_order_relaxed);
  dead_.store(true, std::memory_order_release);
}

// ---- asking ----------------------------------------------------------------------------------------------------------------

void Channel::Register(Group& group, Waiter* waiters, std::size_t count) {
  const MutexLock lock(mutex_);
  ++inside_;
  for (std::size_t i = 0; i < count; ++i) {
    Waiter& waiter = waiters[i];
    waiter.id = next_id_++;
    waiter.group = &group;
    Waiter*& head = buckets_[waiter.id % kBuckets];
    waiter.next = head;
    head = &waiter;
    ++group.pending;
  }
}

SendOutcome Channel::Send(const void* datagram, std::size_t bytes, std::int64_t deadline_ns) {
  if (dead()) return SendOutcome::kDead;
  if (!StillOurs()) {
    Die(false);
    return SendOutcome::kDead;
  }
  for (;;) {
    if (::send(fd_, datagram, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return SendOutcome::kSent;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
      Die(false);
      return SendOutcome::kDead;
    }
    const std::int64_t left = deadline_ns - PreciseNs();
    if (left <= 0 || Hangs()) return SendOutcome::kBusy;
    pollfd ready{fd_, POLLOUT, 0};
    (void)::poll(&ready, 1, left < kSliceUs * std::int64_t{1000} ? static_cast<int>(left / 1'000'000 + 1) : kSliceUs / 1000);
  }
}

WaitOutcome Channel::Wait(Group& group, Waiter* waiters, std::size_t count, std::int64_t deadline_ns) {
  mutex_.Lock();
  while (group.pending != 0 && !dead() && !Hangs() && PreciseNs() < deadline_ns) {
    if (!receiving_) {
      receiving_ = true;
      mutex_.Unlock();
      ReceiveOne(deadline_ns);
      mutex_.Lock();
      receiving_ = false;
      continue;
    }
    group.signal.store(0, std::memory_order_relaxed);
    group.previous = nullptr;
    group.next = waiting_;
    if (waiting_ != nullptr) waiting_->previous = &group;
    waiting_ = &group;
    group.asleep = true;
    mutex_.Unlock();
    while (group.signal.load(std::memory_order_acquire) == 0 && PreciseNs() < deadline_ns) FutexWait(group.signal, deadline_ns);
    mutex_.Lock();
    group.asleep = false;
    if (group.previous != nullptr) group.previous->next = group.next;
    if (waiting_ == &group) waiting_ = group.next;
    if (group.next != nullptr) group.next->previous = group.previous;
  }
  Forget(waiters, count);
  // The last one that leads before it goes must name a successor; after the end of the conversation, everybody is told.
  if (!receiving_) HandOver();
  const bool all = group.pending == 0;
  --inside_;
  mutex_.Unlock();
  if (all) return WaitOutcome::kAll;
  return dead() ? WaitOutcome::kDead : WaitOutcome::kTimeout;
}

// Under the mutex.
void Channel::HandOver() {
  if (!dead()) {
    if (waiting_ != nullptr) FutexWake(waiting_->signal, kLead);
    return;
  }
  for (Group* group = waiting_; group != nullptr; group = group->next) FutexWake(group->signal, kWoken);
}

// Under the mutex.
void Channel::Forget(Waiter* waiters, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (waiters[i].done) continue;
    for (Waiter** link = &buckets_[waiters[i].id % kBuckets]; *link != nullptr; link = &(*link)->next) {
      if (*link != &waiters[i]) continue;
      *link = waiters[i].next;
      break;
    }
  }
}

// ---- receiving -------------------------------------------------------------------------------------------------------------

Channel::Received Channel::ReceiveOne(std::int64_t deadline_ns) {
  // The socket's own time-out is a slice long: a deadline before that is waited for here.
  const std::int64_t left_ns = deadline_ns - PreciseNs();
  const bool short_wait = left_ns < std::int64_t{kSliceUs} * 1000;
  if (short_wait) {
    pollfd readable{fd_, POLLIN, 0};
    const timespec left{0, left_ns > 0 ? static_cast<long>(left_ns) : 0};
    if (::ppoll(&readable, 1, &left, nullptr) <= 0) return Received::kNothing;
  }
  iovec part{buffer_, abi::kMaxMessageBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(fd_, &message, MSG_CMSG_CLOEXEC | (short_wait ? MSG_DONTWAIT : 0));
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Received::kNothing;
    Die(false);
    return Received::kEnd;
  }
  int fds[kMaxFds];
  int fd_count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n && fd_count < kMaxFds; ++i) std::memcpy(&fds[fd_count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
  }
  if (got == 0) {
    CloseAll(fds, fd_count);
    Die(false);
    return Received::kEnd;
  }
  if (Dispatch(static_cast<std::size_t>(got), fds, fd_count, (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)) return Received::kMessage;
  Die(true);
  return Received::kEnd;
}

// False: the message breaks the rules. Every descriptor has found its owner or is closed.
bool Channel::Dispatch(std::size_t bytes, int* fds, int fd_count, bool truncated) {
  abi::MessageHeader header;
  bool good = !truncated && bytes >= sizeof header && fd_count <= 1;
  if (good) {
    std::memcpy(&header, buffer_, sizeof header);
    good = header.magic == abi::kMessageMagic && header.bytes == bytes && header.version == version_ && header.count <= abi::kMaxBatch;
  }
  if (good) {
    switch (static_cast<abi::MessageType>(header.type)) {
      case abi::MessageType::kSources:
        good = fd_count == 0;
        if (good) listener_.on_sources(listener_.context, buffer_ + sizeof header, bytes - sizeof header, header.count);
        break;
      case abi::MessageType::kFetchReply: good = fd_count == 0 && DispatchAnswers(header, &Waiter::fetch, nullptr); break;
      case abi::MessageType::kAdviseReply: good = fd_count == 0 && DispatchAnswers(header, &Waiter::advise, nullptr); break;
      case abi::MessageType::kIndex: good = header.count == 1 && fd_count == 1 && DispatchAnswers(header, &Waiter::index, &fds[0]); break;
      case abi::MessageType::kSegment: good = header.count == 1 && DispatchAnswers(header, &Waiter::segment, fd_count == 1 ? &fds[0] : nullptr); break;
      default: good = false;
    }
  }
  CloseAll(fds, fd_count);
  return good;
}

template <typename Entry>
bool Channel::DispatchAnswers(const abi::MessageHeader& header, Entry Waiter::* field, int* fd) {
  if (header.bytes != sizeof header + header.count * sizeof(Entry)) return false;
  const MutexLock lock(mutex_);
  for (std::uint32_t i = 0; i < header.count; ++i) {
    Entry entry;
    std::memcpy(&entry, buffer_ + sizeof header + i * sizeof entry, sizeof entry);
    Waiter* const waiter = Take(entry.request_id, static_cast<abi::MessageType>(header.type));
    if (waiter == nullptr) continue;  // late: nobody waits any more
    waiter->*field = entry;
    if (fd != nullptr) {
      waiter->fd = *fd;
      *fd = -1;
    }
    waiter->done = true;
    if (--waiter->group->pending == 0 && waiter->group->asleep) FutexWake(waiter->group->signal, kWoken);
  }
  return true;
}

// Under the mutex.
Waiter* Channel::Take(std::uint64_t id, abi::MessageType answer) {
  for (Waiter** link = &buckets_[id % kBuckets]; *link != nullptr; link = &(*link)->next) {
    Waiter* const waiter = *link;
    if (waiter->id != id || waiter->answer != answer) continue;
    *link = waiter->next;
    return waiter;
  }
  return nullptr;
}

}  // namespace tierd::client
