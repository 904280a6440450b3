// What clients are told: replies gathered in a turn, and what did not fit into a socket at once.
#include <fcntl.h>

#include <boost/asio/bind_allocator.hpp>

#include <utility>

#include "tierd/server/session_impl.h"

namespace tierd::server {

using engine::Survives;

namespace {

constexpr std::size_t kMaxQueuedDatagrams = 4096;  // a client that does not read its replies is cut off
constexpr std::size_t kQueuedBytes = 256;          // of memory, for a datagram beside its bytes
constexpr std::size_t kRequestBytes = 1024;        // of memory, for a request beside its path
constexpr std::size_t kPathCopies = 3;
constexpr std::size_t kMaxQueuedDescriptors = 16;  // on their way to one client

}  // namespace

bool SessionHub::MayAsk(Session& session, std::size_t path_bytes) {
  const std::size_t bytes = kRequestBytes + kPathCopies * path_bytes;
  if (session.asked_bytes + bytes > kMostAskedBytes) return false;
  if (asked_bytes_ + bytes > kMostAskedBytesInAll) return false;
  ++session.asked;
  session.asked_bytes += bytes;
  asked_bytes_ += bytes;
  return true;
}

// Which request it was is not kept: each stands for the mean of those that wait.
void SessionHub::NoteAnswered(Session& session) {
  if (session.asked == 0) return;
  const std::size_t bytes = session.asked_bytes / session.asked;
  --session.asked;
  session.asked_bytes -= bytes;
  asked_bytes_ -= bytes;
}

void SessionHub::OnFetchReply(engine::SessionId session_id, const abi::FetchReply& reply) {
  if (const auto it = sessions_.find(static_cast<std::uint32_t>(session_id)); it != sessions_.end())
    NoteAnswered(*it->second);
  AddReply(static_cast<std::uint32_t>(session_id), &Session::replies, reply);
}

template <typename Reply>
void SessionHub::AddReply(std::uint32_t session_id, MessageWriter Session::* gathered, const Reply& reply) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end() || it->second->closed) return;
  Session& session = *it->second;
  const bool survived = Survives([&] {
    const bool awaited = gathered != &Session::replies || session.together.IsAwaited(reply.request_id);
    bool Session::* const listed = awaited ? &Session::dirty : &Session::keeps;
    if (!(session.*listed)) (awaited ? dirty_ : kept_).push_back(session.id);
    session.*listed = true;
    (session.*gathered).Add(reply);
    if ((session.*gathered).count() == abi::kMaxBatch) SendReplies(session, gathered);
  });
  if (!survived) CutOff(session);  // it sees the end of the conversation sooner than the end of its patience
}

template void SessionHub::AddReply(std::uint32_t session_id, MessageWriter Session::* gathered, const abi::AdviseReply& reply);
template void SessionHub::AddReply(std::uint32_t session_id, MessageWriter Session::* gathered, const abi::FetchReply& reply);

void SessionHub::SendReplies(Session& session, MessageWriter Session::* gathered) {
  if ((session.*gathered).count() == 0) return;
  const auto type = gathered == &Session::replies ? abi::MessageType::kFetchReply : abi::MessageType::kAdviseReply;
  MessageWriter ready = std::exchange(session.*gathered, MessageWriter(type));
  Send(session, ready.Finish());
}

void SessionHub::FlushReplies() { SendGathered(dirty_, &Session::dirty); }

void SessionHub::SendGathered(std::vector<std::uint32_t>& sessions, bool Session::* listed) {
  for (const std::uint32_t id : sessions) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) continue;
    Session& session = *it->second;
    session.*listed = false;
    const bool survived = Survives([&] {
      SendReplies(session, &Session::replies);
      SendReplies(session, &Session::advice_replies);
    });
    if (!survived) CutOff(session);
  }
  sessions.clear();
}

// False when the session has been cut off.
bool SessionHub::Send(Session& session, std::span<const std::byte> datagram, std::span<const int> fds) {
  if (session.closed) return false;
  if (session.queue.empty()) {
    const Status status = SendDatagram(session.socket.native_handle(), datagram, fds);
    if (status.ok()) return true;
    if (status.code() != Code::kBusy) {
      CutOff(session);
      return false;
    }
  }
  return Enqueue(session, datagram, fds);
}

void SessionHub::MakeRoomForReply(Session& session, std::size_t bytes) {
  const auto end = [this](Session& slow) {
    Count(TurnedAway::kUnread);
    CutOff(slow);
  };
  if (session.unread_bytes + bytes > kMostUnreadBytes) end(session);
  while (!session.closed && unread_bytes_ + bytes > kMostUnreadBytesInAll) {
    Session* slowest = &session;
    for (const std::uint32_t id : behind_) {
      const auto it = sessions_.find(id);
      if (it != sessions_.end() && it->second->unread_bytes > slowest->unread_bytes) slowest = it->second.get();
    }
    end(*slowest);
  }
}

// A client that has stopped for good, in a debugger say, holds its replies no longer than this.
void SessionHub::EndUnread() {
  const std::int64_t before_ns = clock_.MonotonicNs() - options_.unread_ns;
  std::erase_if(behind_, [&](std::uint32_t id) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return true;
    Session& session = *it->second;
    if (!session.queue.empty() && session.unread_since_ns <= before_ns) {
      Count(TurnedAway::kUnread);
      CutOff(session);
    }
    session.is_behind = !session.queue.empty();
    return !session.is_behind;
  });
}

void SessionHub::DropQueue(Session& session) {
  session.queue.clear();
  session.queued_fds = 0;
  unread_bytes_ -= std::exchange(session.unread_bytes, 0);
}

bool SessionHub::Enqueue(Session& session, std::span<const std::byte> datagram, std::span<const int> fds) {
  const std::size_t bytes = datagram.size() + kQueuedBytes;
  MakeRoomForReply(session, bytes);
  if (session.closed) return false;
  Session::Queued queued;
  for (const int fd : fds) {
    // A copy: what it stands for may be closed here before the client has read so far.
    queued.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!queued.fds.back().valid()) break;
  }
  const bool copied = queued.fds.empty() || queued.fds.back().valid();
  if (!copied || session.queue.size() >= kMaxQueuedDatagrams || session.queued_fds + fds.size() > kMaxQueuedDescriptors) {
    Count(TurnedAway::kUnread);
    CutOff(session);
    return false;
  }
  queued.datagram.assign(datagram.begin(), datagram.end());
  if (!session.is_behind) behind_.push_back(session.id);
  session.is_behind = true;
  if (session.queue.empty()) session.unread_since_ns = clock_.MonotonicNs();
  session.queued_fds += fds.size();
  session.queue.push_back(std::move(queued));
  session.unread_bytes += bytes;
  unread_bytes_ += bytes;
  if (!session.waiting_to_send) WatchForRoom(session);
  return true;
}

void SessionHub::WatchForRoom(Session& session) {
  session.waiting_to_send = true;
  const auto on_room = [this, id = session.id](const boost::system::error_code& error) {
    const auto it = sessions_.find(id);
    if (error || it == sessions_.end() || it->second->closed) return;
    const auto handler = engine_.CountHandler("replies");
    it->second->waiting_to_send = false;
    if (!Survives([&] { SendQueued(*it->second); })) CutOff(*it->second);
  };
  session.socket.async_wait(boost::asio::posix::stream_descriptor::wait_write, boost::asio::bind_allocator(session.write_memory.allocator(), on_room));
}

void SessionHub::SendQueued(Session& session) {
  while (!session.queue.empty()) {
    const Session::Queued& next = session.queue.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : next.fds) fds.push_back(fd.get());
    const Status status = SendDatagram(session.socket.native_handle(), next.datagram, fds);
    if (!status.ok()) {
      if (status.code() == Code::kBusy) WatchForRoom(session);
      else CutOff(session);
      return;
    }
    const std::size_t bytes = next.datagram.size() + kQueuedBytes;
    session.queued_fds -= fds.size();
    session.unread_bytes -= bytes;
    unread_bytes_ -= bytes;
    session.unread_since_ns = clock_.MonotonicNs();
    session.queue.pop_front();
  }
}

}  // namespace tierd::server
