// What clients are told: replies gathered in a turn, and what did not fit into a socket at once.
#include <fcntl.h>

#include <boost/asio/bind_allocator.hpp>

#include <utility>

#include "tierd/server/session_impl.h"

namespace tierd::server {

using engine::Survives;

namespace {

constexpr std::size_t kMaxQueuedDatagrams = 4096;  // a client that does not read its replies is cut off
constexpr std::size_t kMaxQueuedDescriptors = 16;  // on their way to one client

}  // namespace

void SessionHub::OnFetchReply(engine::SessionId session_id, const abi::FetchReply& reply) {
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

bool SessionHub::Enqueue(Session& session, std::span<const std::byte> datagram, std::span<const int> fds) {
  Session::Queued queued;
  for (const int fd : fds) {
    // A copy: what it stands for may be closed here before the client has read so far.
    queued.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!queued.fds.back().valid()) break;
  }
  const bool copied = queued.fds.empty() || queued.fds.back().valid();
  if (!copied || session.queue.size() >= kMaxQueuedDatagrams || session.queued_fds + fds.size() > kMaxQueuedDescriptors) {
    CutOff(session);
    return false;
  }
  queued.datagram.assign(datagram.begin(), datagram.end());
  session.queued_fds += fds.size();
  session.queue.push_back(std::move(queued));
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
    session.queued_fds -= fds.size();
    session.queue.pop_front();
  }
}

}  // namespace tierd::server
