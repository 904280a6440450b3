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

#include "tierd/server/seqpacket.h"

namespace tierd::server {

using engine::Survives;

namespace {

constexpr int kBacklog = 1024;
constexpr int kDatagramsPerTurn = 32;
constexpr std::size_t kMaxQueuedDatagrams = 4096;  // a client that does not read its replies is cut off
constexpr std::size_t kMaxQueuedDescriptors = 16;  // on their way to one client
constexpr std::int64_t kMaxClockDifference = 100'000'000;
constexpr rlim_t kReservedDescriptors = 128;  // for the control plane, the source and the SSD tier, however many clients come (F15)

// The kernel gives the lowest free number: a high one says that few are left.
bool DescriptorsRunShort(int newest) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<rlim_t>(newest) + std::min(kReservedDescriptors, limit.rlim_cur / 4) >= limit.rlim_cur;
}

}  // namespace

struct SessionHub::Session {
  Session(boost::asio::io_context& loop, UniqueFd fd, Peer who, ram::SessionPage the_page, std::uint32_t the_id)
      : id(the_id), has_our_groups(who.has_our_groups), page(std::move(the_page)), socket(loop), process(loop) {
    socket.assign(fd.get());  // throws when the kernel has no memory to watch it: the descriptor is still the caller's then
    (void)fd.Release();
    if (!who.pidfd.valid()) return;
    process.assign(who.pidfd.get());
    (void)who.pidfd.Release();
  }

  struct Queued {
    std::vector<std::byte> datagram;
    std::vector<UniqueFd> fds;
  };

  std::uint32_t id;
  bool has_our_groups;
  ram::SessionPage page;
  boost::asio::posix::stream_descriptor socket;
  boost::asio::posix::stream_descriptor process;  // a pidfd, readable when the process has ended; not open: the kernel gave none
  bool welcomed = false;
  bool closed = false;   // no conversation any more
  bool hung_up = false;  // the socket is closed at both ends
  bool ended = false;
  bool process_gone = false;
  bool waiting_to_send = false;
  std::uint64_t ring_tail = 0;
  engine::ReadTotals seen;  // what was taken over from the page so far
  bool dirty = false;  // has gathered replies
  MessageWriter replies{abi::MessageType::kFetchReply};
  MessageWriter advice_replies{abi::MessageType::kAdviseReply};
  std::deque<Queued> queue;  // the peer's queue was full
  std::size_t queued_fds = 0;
  // Of the waits for the socket (to read, to write), for the process, and of the end.
  engine::HandlerMemory read_memory, write_memory, process_memory, end_memory;
};

SessionHub::SessionHub(boost::asio::io_context& loop, engine::Engine& engine, const Clock& clock, SessionOptions options)
    : loop_(loop), engine_(engine), clock_(clock), options_(std::move(options)), buffer_(abi::kMaxMessageBytes + 1) {}

SessionHub::~SessionHub() {
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
    session->closed = true;
    session->socket.close(ignored);
  }
}

// ---- connections -----------------------------------------------------------------------------------------------------------

void SessionHub::Accept() {
  const auto on_client = [this](const boost::system::error_code& error) {
    if (error) return;
    if (!Survives([&] { AcceptSome(); })) ++refused_;
    Accept();
  };
  listener_->async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(accept_memory_.allocator(), on_client));
}

void SessionHub::AcceptSome() {
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
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

void SessionHub::Welcome(UniqueFd fd) {
  auto peer = PeerOf(fd.get());
  if (!peer.ok() || peer->uid != ::geteuid() || sessions_.size() >= options_.max_sessions || DescriptorsRunShort(fd.get())) {
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
  if (!Survives([&] { engine_.ram().leases().Add(session.page.page()); })) {
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
    it->second->process_gone = true;
    MaybeEnd(*it->second);
  };
  session.process.async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(session.process_memory.allocator(), on_end));
}

void SessionHub::CutOff(Session& session) {
  if (session.closed) return;
  session.closed = true;
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
  (void)Survives([&] { DrainRing(session); });
  AddCounters(session, ended_);
  engine_.ram().leases().Remove(session.page.page());
  const std::uint32_t id = session.id;
  engine_.OnSessionEnd(static_cast<engine::SessionId>(id));
  // The caller may still be inside it.
  boost::asio::post(loop_, boost::asio::bind_allocator(session.end_memory.allocator(), [this, id] { sessions_.erase(id); }));
}

// ---- messages --------------------------------------------------------------------------------------------------------------

void SessionHub::Receive(Session& session) {
  DrainRing(session);  // the policy hears of hits before it is asked because of a miss
  for (int i = 0; i < kDatagramsPerTurn && !session.closed; ++i) {
    const auto datagram = ReceiveDatagram(session.socket.native_handle(), buffer_);
    if (!datagram.ok() && datagram.status().code() == Code::kBusy) return;
    if (!datagram.ok() || datagram->bytes == 0) return HangUp(session);
    if (datagram->truncated || datagram->surplus_fds != 0 || !Handle(session, std::span(buffer_).first(datagram->bytes))) {
      if (!session.closed) ++protocol_errors_;
      CutOff(session);
    }
  }
}

void SessionHub::Discard(Session& session) {
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
    const auto datagram = ReceiveDatagram(session.socket.native_handle(), buffer_);
    if (!datagram.ok() && datagram.status().code() == Code::kBusy) return;
    if (!datagram.ok() || datagram->bytes == 0) return HangUp(session);
  }
}

bool SessionHub::Handle(Session& session, std::span<const std::byte> datagram) {
  const auto header = ReadHeader(datagram);
  if (!header.ok()) return false;
  const auto type = static_cast<abi::MessageType>(header->type);
  if (type == abi::MessageType::kHello) return OnHello(session, *header, datagram);
  if (!session.welcomed || header->version != abi::kProtocolVersion) return false;
  switch (type) {
    case abi::MessageType::kFetch: return OnFetch(session, *header, datagram);
    case abi::MessageType::kAdvise: return OnAdvise(session, *header, datagram);
    case abi::MessageType::kGetSegment: return OnGetSegment(session, datagram);
    case abi::MessageType::kGetIndex: return OnGetIndex(session, datagram);
    default: return false;
  }
}

bool SessionHub::Refuse(Session& session, std::uint32_t reason, const char* text) {
  abi::Refuse refuse{};
  refuse.reason = reason;
  std::strncpy(refuse.text, text, sizeof refuse.text - 1);
  MessageWriter writer(abi::MessageType::kRefuse);
  writer.Add(refuse);
  Send(session, writer.Finish());
  CutOff(session);
  ++refused_;
  return false;
}

bool SessionHub::OnHello(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  (void)header;
  const auto hello = ReadHello(datagram);
  if (!hello.ok() || session.welcomed) return false;
  if (hello->version_min > abi::kProtocolVersion || hello->version_max < abi::kProtocolVersionMin || hello->layout_version != abi::kLayoutVersion)
    return Refuse(session, EPROTO, "this tierd speaks another protocol version; use the libtier that came with it");
  if (!session.process.is_open())
    return Refuse(session, EACCES, "no pidfd for this process (foreign pid namespace, or a kernel before 5.3): its leases could not be watched");
  if (!session.has_our_groups)
    return Refuse(session, EACCES, "this process lacks a group of tierd's: what it may read is for the source to decide");
  const std::int64_t now = clock_.MonotonicNs();
  abi::Welcome welcome{};
  welcome.version = abi::kProtocolVersion;
  const std::int64_t difference = now - hello->monotonic_coarse_ns;
  if (difference > kMaxClockDifference || difference < -kMaxClockDifference) welcome.flags |= abi::kWelcomeForeignClock;
  welcome.session_id = session.id;
  std::memcpy(welcome.instance, engine_.instance().data(), sizeof welcome.instance);
  welcome.monotonic_coarse_ns = now;
  welcome.index_bytes = engine_.index().shared_bytes();
  welcome.session_bytes = ram::SessionPage::kBytes;
  welcome.source_count = static_cast<std::uint32_t>(engine_.sources().size());
  welcome.page_kind = static_cast<std::uint32_t>(engine_.placement().page_kind());
  MessageWriter writer(abi::MessageType::kWelcome);
  writer.Add(welcome);
  const int fds[2] = {engine_.index().client_fd(), session.page.client_fd()};
  if (!Send(session, writer.Finish(), fds)) return false;
  session.page.CloseFile();
  session.welcomed = true;
  return SendSources(session);
}

bool SessionHub::SendSources(Session& session) {
  if (engine_.sources().empty()) return true;
  MessageWriter writer(abi::MessageType::kSources);
  for (const auto& unit : engine_.sources()) {
    abi::SourceEntry entry{};
    const std::string& root = unit->source->root();
    entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + root.size()));
    entry.source_id = unit->wire_id;
    entry.root_dev = unit->source->root_stat().dev;
    entry.root_ino = unit->source->root_stat().ino;
    entry.chunk_bytes = unit->options.chunk_bytes;
    entry.staleness = static_cast<std::uint8_t>(unit->options.staleness);
    entry.path_bytes = static_cast<std::uint16_t>(root.size());
    entry.ttl_ms = unit->options.ttl_ms;
    writer.Add(entry, root);
  }
  return Send(session, writer.Finish());
}

bool SessionHub::OnFetch(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  const auto entries = ReadFetch(datagram, header.count);
  if (!entries.ok()) return false;
  for (const FetchView& view : *entries) {
    const auto op = static_cast<abi::FetchOp>(view.entry.op);
    const bool known_op = op == abi::FetchOp::kChunk || op == abi::FetchOp::kStat || op == abi::FetchOp::kList;
    engine::SourceUnit* unit = engine_.FindSource(view.entry.source_id);
    if (!known_op || unit == nullptr || !IsCanonicalRelative(view.path)) {
      abi::FetchReply reply{};
      reply.request_id = view.entry.request_id;
      reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kBypass);
      reply.reason = static_cast<std::uint8_t>(known_op ? abi::Fallback::kPath : abi::Fallback::kProtocol);
      reply.ordinal = 0xffffffffu;
      OnFetchReply(static_cast<engine::SessionId>(session.id), reply);
      continue;
    }
    engine_.Fetch(*unit, {static_cast<engine::SessionId>(session.id), view.entry, std::string(view.path)});
  }
  return true;
}

bool SessionHub::OnAdvise(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  const auto entries = ReadAdvise(datagram, header.count);
  if (!entries.ok()) return false;
  for (const AdviseView& view : *entries) {
    abi::AdviseReply reply{};
    reply.request_id = view.entry.request_id;
    const auto op = static_cast<abi::AdviseOp>(view.entry.op);
    const bool known_op = view.entry.op >= static_cast<std::uint8_t>(abi::AdviseOp::kPrefetch) && op <= abi::AdviseOp::kInvalidate;
    engine::SourceUnit* unit = engine_.FindSource(view.entry.source_id);
    if (!known_op || unit == nullptr || !IsCanonicalRelative(view.path)) {
      reply.error = known_op ? ENOENT : EINVAL;
      AddReply(session.id, &Session::advice_replies, reply);
      continue;
    }
    engine_.Advise(*unit, op, view.path, (view.entry.flags & abi::kAdviseRecursive) != 0, [this, id = session.id, reply](int error, std::uint64_t files) mutable {
      reply.error = error;
      reply.affected = files;
      AddReply(id, &Session::advice_replies, reply);
    });
  }
  return true;
}

bool SessionHub::OnGetSegment(Session& session, std::span<const std::byte> datagram) {
  const auto request = ReadId(datagram);
  if (!request.ok()) return false;
  const ram::Segment* segment = request->id <= 0xffffffffu ? engine_.ram().FindSegment(static_cast<std::uint32_t>(request->id)) : nullptr;
  abi::SegmentEntry entry{};
  entry.request_id = request->request_id;
  entry.serial = static_cast<std::uint32_t>(request->id);
  MessageWriter writer(abi::MessageType::kSegment);
  if (segment == nullptr) {
    writer.Add(entry);
    return Send(session, writer.Finish());
  }
  entry.bytes = segment->bytes();
  entry.page_kind = static_cast<std::uint32_t>(segment->page_kind());
  writer.Add(entry);
  const int fds[1] = {segment->client_fd()};
  return Send(session, writer.Finish(), fds);
}

bool SessionHub::OnGetIndex(Session& session, std::span<const std::byte> datagram) {
  const auto request = ReadId(datagram);
  if (!request.ok()) return false;
  abi::IndexEntry entry{};
  entry.request_id = request->request_id;
  entry.bytes = engine_.index().shared_bytes();
  entry.generation = engine_.index().generation();
  MessageWriter writer(abi::MessageType::kIndex);
  writer.Add(entry);
  const int fds[1] = {engine_.index().client_fd()};
  return Send(session, writer.Finish(), fds);
}

// ---- replies ---------------------------------------------------------------------------------------------------------------

void SessionHub::OnFetchReply(engine::SessionId session_id, const abi::FetchReply& reply) {
  AddReply(static_cast<std::uint32_t>(session_id), &Session::replies, reply);
}

template <typename Reply>
void SessionHub::AddReply(std::uint32_t session_id, MessageWriter Session::* gathered, const Reply& reply) {
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end() || it->second->closed) return;
  Session& session = *it->second;
  const bool survived = Survives([&] {
    if (!session.dirty) dirty_.push_back(session.id);
    session.dirty = true;
    (session.*gathered).Add(reply);
    if ((session.*gathered).count() == abi::kMaxBatch) SendReplies(session, gathered);
  });
  if (!survived) CutOff(session);  // it sees the end of the conversation sooner than the end of its patience
}

void SessionHub::SendReplies(Session& session, MessageWriter Session::* gathered) {
  if ((session.*gathered).count() == 0) return;
  const auto type = gathered == &Session::replies ? abi::MessageType::kFetchReply : abi::MessageType::kAdviseReply;
  MessageWriter ready = std::exchange(session.*gathered, MessageWriter(type));
  Send(session, ready.Finish());
}

void SessionHub::FlushReplies() {
  for (const std::uint32_t id : dirty_) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) continue;
    Session& session = *it->second;
    session.dirty = false;
    const bool survived = Survives([&] {
      SendReplies(session, &Session::replies);
      SendReplies(session, &Session::advice_replies);
    });
    if (!survived) CutOff(session);
  }
  dirty_.clear();
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

// ---- rings and counters ----------------------------------------------------------------------------------------------------

void SessionHub::DrainRing(Session& session) {
  abi::SessionPage* page = session.page.page();
  const std::uint64_t head = page->ring_head.load(std::memory_order_acquire);
  std::uint64_t& tail = session.ring_tail;
  if (head - tail > abi::kRingEntries) {
    // Overrun, or a hostile head: what was overwritten is lost and counted.
    const std::uint64_t lost = head - tail - abi::kRingEntries;
    engine_.CountRingLost(std::min<std::uint64_t>(lost, std::uint64_t{1} << 40));
    tail = head - abi::kRingEntries;
  }
  while (tail != head) {
    const std::uint64_t entry = page->ring[tail % abi::kRingEntries].load(std::memory_order_acquire);
    const auto lap = static_cast<std::uint8_t>(tail / abi::kRingEntries + 1);
    if (static_cast<std::uint8_t>(entry >> 56) != lap) {
      // Reserved, not written yet: looked at again next time; a writer that died in between is overrun in the end.
      if (head - tail < abi::kRingEntries / 2) break;
      engine_.CountRingLost(1);
    } else {
      engine_.OnAccess(static_cast<engine::SessionId>(session.id), entry);
    }
    ++tail;
  }
}

void SessionHub::DrainRings() {
  for (auto& [id, session] : sessions_) DrainRing(*session);
}

void SessionHub::OnTimer() {
  DrainRings();
  FlushReplies();
}

// Takes over what a page says beyond what was taken before; a client that lowers its counters adds nothing.
void SessionHub::AddCounters(Session& session, engine::ReadTotals& totals) {
  const abi::SessionCounters& counters = session.page.page()->counters;
  const auto take = [](const std::atomic<std::uint64_t>& word, std::uint64_t& seen, std::uint64_t& total) {
    const std::uint64_t now = word.load(std::memory_order_relaxed);
    if (now > seen) total += now - seen;
    seen = std::max(seen, now);
  };
  for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) {
    take(counters.reads[tier], session.seen.reads[tier], totals.reads[tier]);
    take(counters.bytes[tier], session.seen.bytes[tier], totals.bytes[tier]);
    take(counters.latency_sum_ns[tier], session.seen.latency_sum_ns[tier], totals.latency_sum_ns[tier]);
    for (std::uint32_t b = 0; b < abi::kLatencyBuckets; ++b) take(counters.latency[tier][b], session.seen.latency[tier][b], totals.latency[tier][b]);
  }
  for (std::uint32_t i = 0; i < abi::kFallbacks; ++i) take(counters.fallback[i], session.seen.fallback[i], totals.fallback[i]);
}

engine::ReadTotals SessionHub::Totals() {
  for (auto& [id, session] : sessions_) AddCounters(*session, ended_);
  return ended_;
}

SessionTotals SessionHub::Sessions() const {
  SessionTotals totals;
  totals.refused = refused_;
  totals.protocol_errors = protocol_errors_;
  for (const auto& [id, session] : sessions_) {
    if (session->closed) ++totals.lingering;
    else ++totals.sessions;
    const abi::SessionPage* page = session->page.page();
    const std::uint32_t high = std::min(page->lease_high.load(std::memory_order_relaxed), abi::kLeaseSlots);
    for (std::uint32_t i = 0; i < high; ++i) totals.leases += page->leases[i].load(std::memory_order_relaxed) != 0 ? 1 : 0;
    totals.frozen_leases += std::min(page->frozen_leases.load(std::memory_order_relaxed), abi::kLeaseSlots);
    totals.pinned_bytes += std::min<std::uint64_t>(page->leased_bytes.load(std::memory_order_relaxed), std::uint64_t{1} << 50);
  }
  return totals;
}

}  // namespace tierd::server
