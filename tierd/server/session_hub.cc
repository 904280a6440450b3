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
  return static_cast<rlim_t>(newest) + std::min(kReservedDescriptors, limit.rlim_cur / 6) >= limit.rlim_cur;
}

}  // namespace

SessionHub::SessionHub(boost::asio::io_context& loop, engine::Engine& engine, const Clock& clock, SessionOptions options)
    : loop_(loop), engine_(engine), clock_(clock), options_(std::move(options)), namespaces_(loop), buffer_(abi::kMaxMessageBytes + 1) {
  namespaces_.on_change = [this](std::uint32_t space) {
    const auto handler = engine_.CountHandler("mounts");
    DoubtMounts(space);
  };
}

SessionHub::~SessionHub() {
  const auto handler = engine_.CountHandler("end");
  Close();
  for (auto& [id, session] : sessions_) {
    if (!session->ended) engine_.ram().leases().Remove(session->page.page());
  }
}

void SessionHub::Drop(UniqueFd socket) {
  if (sent_descriptors_ == SentDescriptors::kRefusedByKernel) socket.Reset();
  else closer_.Close(std::move(socket));
}

void SessionHub::CloseSocket(Session& session) {
  if (!session.socket.is_open()) return;
  boost::system::error_code ignored;
  if (session.drained) session.socket.close(ignored);
  else Drop(UniqueFd(session.socket.release()));
}

Status SessionHub::Listen() {
  auto fd = ListenSeqpacket(options_.socket_path, kBacklog);
  if (!fd.ok()) return fd.status();
  if (RefuseDescriptors(fd->get())) sent_descriptors_ = SentDescriptors::kRefusedByKernel;
  spare_fd_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  listener_ = std::make_unique<boost::asio::posix::stream_descriptor>(loop_, fd->Release());
  Accept();
  return Status::Ok();
}

void SessionHub::Close() {
  if (listener_ == nullptr) return;
  Drop(UniqueFd(listener_->release()));  // with those that were not accepted yet
  listener_.reset();
  ::unlink(options_.socket_path.c_str());
  for (auto& [id, session] : sessions_) {
    LeaveBehind(*session);
    CloseSocket(*session);
  }
}

// ---- connections -----------------------------------------------------------------------------------------------------------

void SessionHub::Accept() {
  const auto on_client = [this](const boost::system::error_code& error) {
    if (error) return;
    const auto handler = engine_.CountHandler("accept");
    if (!Survives([&] { AcceptSome(); })) {
      ++refused_;
      Count(TurnedAway::kMemory);
    }
    accept_rests_ = closer_.waiting() >= DescriptorCloser::kMostWaiting;
    if (!accept_rests_) Accept();
  };
  listener_->async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(accept_memory_.allocator(), on_client));
}

void SessionHub::AcceptLater() {
  if (!accept_rests_ || listener_ == nullptr) return;
  accept_rests_ = closer_.waiting() >= DescriptorCloser::kMostWaiting;
  if (!accept_rests_) Accept();
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
      if (refused.valid()) TurnAway(std::move(refused), TurnedAway::kMemory);
      spare_fd_.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return;
  }
}

// Closing says it: the client goes on with the source.
void SessionHub::TurnAway(UniqueFd fd, TurnedAway why) {
  ++refused_;
  Count(why);
  Drop(std::move(fd));
}

bool SessionHub::MakeRoomFor(std::uint32_t pid) {
  const auto process = processes_.find(pid);
  const Process its = process == processes_.end() ? Process() : process->second;
  if (its.left_behind >= kMostLeftBehind) return false;
  if (left_behind_ >= options_.max_sessions + kMostLeftBehind && its.left_behind != 0) return false;
  if (its.sessions - its.left_behind >= kMostOfProcess && !EvictSilent(pid)) return false;
  return connected_ < options_.max_sessions || EvictSilent(0);
}

bool SessionHub::EvictSilent(std::uint32_t pid) {
  for (const Silent& silent : silent_) {
    const auto it = sessions_.find(silent.session);
    if (it == sessions_.end() || it->second->welcomed || it->second->closed) continue;
    if (pid != 0 && it->second->pid != pid) continue;
    ++refused_;
    Count(TurnedAway::kSilent);
    HangUp(*it->second);
    return true;
  }
  return false;
}

void SessionHub::EndSilent() {
  const std::int64_t before_ns = clock_.MonotonicNs() - options_.hello_ns;
  while (!silent_.empty()) {
    const auto it = sessions_.find(silent_.front().session);
    const bool silent = it != sessions_.end() && !it->second->welcomed && !it->second->closed;
    if (silent && silent_.front().since_ns > before_ns) return;
    silent_.pop_front();
    if (!silent) continue;
    ++refused_;
    Count(TurnedAway::kSilent);
    HangUp(*it->second);
  }
}

void SessionHub::LeaveBehind(Session& session) {
  if (std::exchange(session.closed, true)) return;
  ++processes_.find(session.pid)->second.left_behind;
  ++left_behind_;
  --connected_;
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
  if (!peer.ok() || peer->uid != ::geteuid()) return TurnAway(std::move(fd), TurnedAway::kUser);
  if (!MakeRoomFor(peer->pid)) return TurnAway(std::move(fd), TurnedAway::kLimit);
  if (DescriptorsRunShort(fd.get())) return TurnAway(std::move(fd), TurnedAway::kMemory);
  const std::uint32_t id = next_id_++;
  ram::SessionPageOptions page_options;
  page_options.session_id = id;
  std::memcpy(page_options.instance, engine_.instance().data(), sizeof page_options.instance);
  page_options.pin_cap_bytes = engine_.pin_cap_bytes();
  auto page = ram::SessionPage::Create(page_options);
  if (!page.ok()) return TurnAway(std::move(fd), TurnedAway::kMemory);
  auto made = std::make_unique<Session>(loop_, std::move(fd), std::move(peer).value(), std::move(page).value(), id);
  Session& session = *sessions_.emplace(id, std::move(made)).first->second;
  session.begun_ns = session.counted_ns = clock_.MonotonicNs();
  const bool heard = Survives([&] { AddRing(session); });
  const auto count = [&] {
    processes_.try_emplace(session.pid);
    silent_.push_back({id, session.begun_ns});
    engine_.ram().leases().Add(session.page.page());
    ++processes_.find(session.pid)->second.sessions;
    ++connected_;
  };
  if (!heard || !Survives(count)) {
    if (heard) RemoveRing(session);
    ++refused_;
    Count(TurnedAway::kMemory);
    CloseSocket(session);
    sessions_.erase(id);
    return;
  }
  DivideAddedMemory();
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
    if (!current.hung_up && !current.unreadable) WatchSocket(current);
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
  DropQueue(session);
  if (session.welcomed) ::shutdown(session.socket.native_handle(), SHUT_WR);
  else HangUp(session);  // it never got a page
}

void SessionHub::HangUp(Session& session) {
  if (session.hung_up) return;
  session.hung_up = true;
  CutOff(session);
  CloseSocket(session);
  MaybeEnd(session);
}

void SessionHub::StopReading(Session& session) {
  if (!session.closed) ++protocol_errors_;
  unreadable_.push_back(session.id);
  session.unreadable = true;
  CutOff(session);
}

// The socket says no end of file behind a datagram that is not read.
void SessionHub::LookAtUnreadable() {
  std::erase_if(unreadable_, [this](std::uint32_t id) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end() || it->second->hung_up) return true;
    if (!PeerHasClosed(it->second->socket.native_handle())) return false;
    HangUp(*it->second);
    return true;
  });
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
  namespaces_.Remove(session.mounts);
  (void)Survives([&] { DrainBefore(session); });
  RemoveRing(session);
  AddCounters(session, ended_);
  LookForUntold(session);
  asked_bytes_ -= std::exchange(session.asked_bytes, 0);
  engine_.ram().leases().Remove(session.page.page());
  const std::uint32_t id = session.id;
  engine_.OnSessionEnd(static_cast<engine::SessionId>(id));
  // The caller may still be inside it.
  boost::asio::post(loop_, boost::asio::bind_allocator(session.end_memory.allocator(), [this, id] { sessions_.erase(id); }));
}

}  // namespace tierd::server
