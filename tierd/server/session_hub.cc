#include "tierd/server/session_hub.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tierd/server/session_impl.h"

namespace tierd::server {

using engine::Survives;

namespace {

constexpr int kBacklog = 1024;
constexpr int kClientsPerTurn = 32;
constexpr rlim_t kReservedDescriptors = 128;  // for the control plane, the source and the SSD tier, however many clients come (F15)

// The kernel gives the lowest free number: a high one says that few are left.
bool DescriptorsRunShort(int newest) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<rlim_t>(newest) + std::min(kReservedDescriptors, limit.rlim_cur / 4) >= limit.rlim_cur;
}

}  // namespace

SessionHub::SessionHub(boost::asio::io_context& loop, engine::Engine& engine, const Clock& clock, SessionOptions options)
    : loop_(loop), engine_(engine), clock_(clock), options_(std::move(options)), buffer_(abi::kMaxMessageBytes + 1) {}

SessionHub::~SessionHub() {
  const auto handler = engine_.CountHandler("end");
  Close();
  for (auto& [id, session] : sessions_) {
    if (!session->ended) engine_.ram().leases().Remove(session->page.page());
  }
}

Status SessionHub::Listen() {
  auto fd = ListenSeqpacket(options_.socket_path, kBacklog);
  if (!fd.ok()) return fd.status();
  spare_fd_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  listener_ = std::make_unique<boost::asio::posix::stream_descriptor>(loop_, fd->Release());
  Accept();
  return Status::Ok();
}

void SessionHub::Close() {
  if (listener_ == nullptr) return;
  listener_.reset();
  ::unlink(options_.socket_path.c_str());
  for (auto& [id, session] : sessions_) {
    boost::system::error_code ignored;
    LeaveBehind(*session);
    session->socket.close(ignored);
  }
}

// ---- connections -----------------------------------------------------------------------------------------------------------

void SessionHub::Accept() {
  const auto on_client = [this](const boost::system::error_code& error) {
    if (error) return;
    const auto handler = engine_.CountHandler("accept");
    if (!Survives([&] { AcceptSome(); })) ++refused_;
    Accept();
  };
  listener_->async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(accept_memory_.allocator(), on_client));
}

void SessionHub::AcceptSome() {
  for (int i = 0; i < kClientsPerTurn; ++i) {
    UniqueFd fd(::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      Welcome(std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE) {
      // Without this the client would hang in the backlog and the loop would spin.
      spare_fd_.Reset();
      UniqueFd refused(::accept4(listener_->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      refused.Reset();
      spare_fd_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      ++refused_;
    }
    return;
  }
}

bool SessionHub::HasRoomFor(std::uint32_t pid) const {
  if (sessions_.size() - left_behind_ >= options_.max_sessions) return false;
  const auto process = processes_.find(pid);
  return process == processes_.end() || process->second.left_behind < kMostLeftBehind;
}

void SessionHub::LeaveBehind(Session& session) {
  if (std::exchange(session.closed, true)) return;
  ++processes_.find(session.pid)->second.left_behind;
  ++left_behind_;
}

// It has ended.
void SessionHub::Forget(const Session& session) {
  const auto process = processes_.find(session.pid);
  --process->second.left_behind;
  --left_behind_;
  if (--process->second.sessions == 0) processes_.erase(process);
}

void SessionHub::Welcome(UniqueFd fd) {
  auto peer = PeerOf(fd.get());
  if (!peer.ok() || peer->uid != ::geteuid() || !HasRoomFor(peer->pid) || DescriptorsRunShort(fd.get())) {
    ++refused_;
    return;  // closing says it: the client goes on with the source
  }
  const std::uint32_t id = next_id_++;
  ram::SessionPageOptions page_options;
  page_options.session_id = id;
  std::memcpy(page_options.instance, engine_.instance().data(), sizeof page_options.instance);
  page_options.pin_cap_bytes = engine_.pin_cap_bytes();
  auto page = ram::SessionPage::Create(page_options);
  if (!page.ok()) {
    ++refused_;
    return;
  }
  Session& session = *sessions_.emplace(id, std::make_unique<Session>(loop_, std::move(fd), std::move(peer).value(), std::move(page).value(), id)).first->second;
  const bool heard = Survives([&] { AddRing(session); });
  const auto count = [&] {
    processes_.try_emplace(session.pid);
    engine_.ram().leases().Add(session.page.page());
    ++processes_.find(session.pid)->second.sessions;
  };
  if (!heard || !Survives(count)) {
    if (heard) RemoveRing(session);
    ++refused_;
    sessions_.erase(id);
    return;
  }
  WatchSocket(session);
  if (session.process.is_open()) WatchProcess(session);
}

void SessionHub::WatchSocket(Session& session) {
  const auto on_datagram = [this, id = session.id](const boost::system::error_code& error) {
    const auto it = sessions_.find(id);
    if (error || it == sessions_.end() || it->second->hung_up) return;
    const auto handler = engine_.CountHandler("message");
    Session& current = *it->second;
    const bool survived = Survives([&] {
      if (current.closed) Discard(current);
      else Receive(current);
      engine_.EndTurn();
    });
    if (!survived) {  // what it has asked for may be lost: it reads the source and comes again
      engine_.NoteLost();
      CutOff(current);
    }
    FlushReplies();
    if (!current.hung_up) WatchSocket(current);
  };
  session.socket.async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(session.read_memory.allocator(), on_datagram));
}

void SessionHub::WatchProcess(Session& session) {
  const auto on_end = [this, id = session.id](const boost::system::error_code& error) {
    const auto it = sessions_.find(id);
    if (error || it == sessions_.end()) return;
    const auto handler = engine_.CountHandler("process_end");
    it->second->process_gone = true;
    MaybeEnd(*it->second);
  };
  session.process.async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(session.process_memory.allocator(), on_end));
}

void SessionHub::CutOff(Session& session) {
  if (session.closed) return;
  LeaveBehind(session);
  session.page.Revoke();
  session.queue.clear();
  session.queued_fds = 0;
  if (session.welcomed) ::shutdown(session.socket.native_handle(), SHUT_WR);
  else HangUp(session);  // it never got a page
}

void SessionHub::HangUp(Session& session) {
  if (session.hung_up) return;
  session.hung_up = true;
  CutOff(session);
  boost::system::error_code ignored;
  session.socket.close(ignored);
  MaybeEnd(session);
}

bool SessionHub::ProcessGone(Session& session) const {
  if (session.process_gone || !session.process.is_open()) return true;  // without a pidfd no mapping was handed out
  pollfd poll_fd{session.process.native_handle(), POLLIN, 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

// Leases end with the process, not with the socket; and a child that inherited views keeps the socket open (HAZARDS 2.5, 2.6). A client that says that it
// has given up its page is through with it, whatever its process does next.
void SessionHub::MaybeEnd(Session& session) {
  if (session.ended || !session.hung_up) return;
  const bool left = !session.welcomed || session.page.page()->left.load(std::memory_order_acquire) != 0;
  if (!left && !ProcessGone(session)) return;
  session.ended = true;
  Forget(session);
  (void)Survives([&] { DrainBefore(session); });
  RemoveRing(session);
  AddCounters(session, ended_);
  engine_.ram().leases().Remove(session.page.page());
  const std::uint32_t id = session.id;
  engine_.OnSessionEnd(static_cast<engine::SessionId>(id));
  // The caller may still be inside it.
  boost::asio::post(loop_, boost::asio::bind_allocator(session.end_memory.allocator(), [this, id] { sessions_.erase(id); }));
}

}  // namespace tierd::server
