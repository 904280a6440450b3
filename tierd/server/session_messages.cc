// What clients say: hello, requests for bytes and names, advice, descriptors they ask for (client_lib/abi/PROTOCOL.md). All of it is hostile.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tierd/server/session_impl.h"

namespace tierd::server {
namespace {

constexpr int kDatagramsPerTurn = 32;
constexpr std::int64_t kReceiveNs = 1'000'000;  // in a turn, of one client
constexpr std::int64_t kMaxClockDifference = 100'000'000;

}  // namespace

void SessionHub::Receive(Session& session) {
  DrainBefore(session);
  const std::int64_t begin_ns = clock_.PreciseNs();
  for (int i = 0; i < kDatagramsPerTurn && !session.closed; ++i) {
    if (i != 0 && clock_.PreciseNs() - begin_ns > kReceiveNs) return;
    const auto datagram = ReceiveDatagram(session.socket.native_handle(), buffer_, sent_descriptors_);
    if (!datagram.ok() && datagram.status().code() == Code::kBusy) return;
    if (datagram.ok() && datagram->carries_descriptors) return StopReading(session);
    if (!datagram.ok() || datagram->bytes == 0) return HangUpAfter(session, datagram.ok());
    if (datagram->truncated || !Handle(session, std::span(buffer_).first(datagram->bytes))) {
      if (!session.closed) ++protocol_errors_;
      CutOff(session);
    }
    if (i == 0) engine_.EndTurn();  // most readers ask for one thing at a time: the device has it before we look for more
  }
}

void SessionHub::Discard(Session& session) {
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
    const auto datagram = ReceiveDatagram(session.socket.native_handle(), buffer_, sent_descriptors_);
    if (!datagram.ok() && datagram.status().code() == Code::kBusy) return;
    if (datagram.ok() && datagram->carries_descriptors) return StopReading(session);
    if (!datagram.ok() || datagram->bytes == 0) return HangUpAfter(session, datagram.ok());
  }
}

// A datagram of no bytes looks like the end of file, and others may follow it.
void SessionHub::HangUpAfter(Session& session, bool end_of_file) {
  session.drained = end_of_file && PeerHasClosed(session.socket.native_handle());
  HangUp(session);
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

bool SessionHub::Refuse(Session& session, TurnedAway why, std::uint32_t reason, const char* text) {
  abi::Refuse refuse{};
  refuse.reason = reason;
  std::strncpy(refuse.text, text, sizeof refuse.text - 1);
  MessageWriter writer(abi::MessageType::kRefuse);
  writer.Add(refuse);
  Send(session, writer.Finish());
  CutOff(session);
  ++refused_;
  Count(why);
  return false;
}

bool SessionHub::OnHello(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  (void)header;
  const auto hello = ReadHello(datagram);
  if (!hello.ok() || session.welcomed) return false;
  if ((hello->flags & abi::kHelloUntold) != 0) {
    engine_.NoteUntold();
    CutOff(session);
    return false;
  }
  if ((hello->flags & abi::kHelloMarks) == 0) engine_.NoteSilentClient();
  if (hello->version_min > abi::kProtocolVersion || hello->version_max < abi::kProtocolVersionMin || hello->layout_version != abi::kLayoutVersion)
    return Refuse(session, TurnedAway::kVersion, EPROTO, "this tierd speaks another protocol version; use the libtier that came with it");
  if (!session.process.is_open())
    return Refuse(session, TurnedAway::kNamespace, EACCES, "no pidfd for this process (foreign pid namespace, or a kernel before 5.3): its leases could not be watched");
  if (session.stranger.why != nullptr)
    return Refuse(session, session.stranger.counts_as, EACCES, session.stranger.why);
  const std::int64_t now = clock_.MonotonicNs();
  abi::Welcome welcome{};
  welcome.version = abi::kProtocolVersion;
  const std::int64_t difference = now - hello->monotonic_coarse_ns;
  session.foreign_clock = difference > kMaxClockDifference || difference < -kMaxClockDifference;
  welcome.flags = abi::kWelcomeParts;
  if (session.foreign_clock) welcome.flags |= abi::kWelcomeForeignClock;
  welcome.session_id = session.id;
  std::memcpy(welcome.instance, engine_.instance().data(), sizeof welcome.instance);
  welcome.monotonic_coarse_ns = now;
  welcome.index_bytes = engine_.index().shared_bytes();
  welcome.session_bytes = ram::SessionPage::kBytes;
  session.mounts = namespaces_.Add(session.pid);
  MessageWriter sources(abi::MessageType::kSources);
  const std::span<const std::byte> said = WriteSources(session, sources);
  welcome.source_count = sources.count();
  welcome.page_kind = static_cast<std::uint32_t>(engine_.placement().page_kind());
  MessageWriter writer(abi::MessageType::kWelcome);
  writer.Add(welcome);
  const int fds[2] = {engine_.index().client_fd(), session.page.client_fd()};
  if (!Send(session, writer.Finish(), fds)) return false;
  session.page.CloseFile();
  session.welcomed = true;
  return sources.count() == 0 || Send(session, said);
}

// Each source by the name it was given and, as long as there is room, by that behind links: a working directory has that one.
std::span<const std::byte> SessionHub::WriteSources(const Session& session, MessageWriter& writer) {
  const bool all_tell_mounts = std::all_of(engine_.sources().begin(), engine_.sources().end(), [](const auto& unit) { return unit->source->root_mount() != 0; });
  const bool shares_mounts = all_tell_mounts || IsInOurMountNamespace(session.pid);
  const auto add = [&writer, shares_mounts](const engine::SourceUnit& unit, const std::string& root) {
    abi::SourceEntry entry{};
    entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + root.size()));
    entry.source_id = unit.wire_id;
    entry.root_dev = unit.source->root_stat().dev;
    entry.root_ino = unit.source->root_mount() != 0 || shares_mounts ? unit.source->root_stat().ino : 0;
    entry.chunk_bytes = unit.options.chunk_bytes;
    entry.staleness = static_cast<std::uint8_t>(unit.options.staleness);
    entry.path_bytes = static_cast<std::uint16_t>(root.size());
    entry.ttl_ms = unit.options.ttl_ms;
    writer.Add(entry, root);
  };
  for (const auto& unit : engine_.sources()) add(*unit, unit->source->root());
  for (const auto& unit : engine_.sources()) {
    const std::string other = engine_.OtherName(*unit);
    if (!other.empty() && writer.bytes() + sizeof(abi::SourceEntry) + abi::PadTo8(other.size()) <= abi::kMaxMessageBytes) add(*unit, other);
  }
  return writer.Finish();
}

bool SessionHub::OnFetch(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  const auto entries = ReadFetch(datagram, header.count);
  if (!entries.ok()) return false;
  const std::uint64_t first_id = entries->front().entry.request_id;
  const auto follows = [first_id, i = std::uint64_t{0}](const FetchView& view) mutable { return view.entry.request_id == first_id + i++; };
  if (std::all_of(entries->begin(), entries->end(), follows)) session.together.Asked(first_id, header.count);
  for (const FetchView& view : *entries) {
    const auto op = static_cast<abi::FetchOp>(view.entry.op);
    const bool known_op = op == abi::FetchOp::kChunk || op == abi::FetchOp::kStat || op == abi::FetchOp::kList;
    engine::SourceUnit* unit = engine_.FindSource(view.entry.source_id);
    abi::Fallback reason = abi::Fallback::kNone;
    if (!known_op) reason = abi::Fallback::kProtocol;
    else if (unit == nullptr || !IsCanonicalRelative(view.path)) reason = abi::Fallback::kPath;
    else if (!MayAsk(session, view.path.size())) reason = abi::Fallback::kOverload;
    if (reason != abi::Fallback::kNone) {
      abi::FetchReply reply{};
      reply.request_id = view.entry.request_id;
      reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kBypass);
      reply.reason = static_cast<std::uint8_t>(reason);
      reply.ordinal = 0xffffffffu;
      AddReply(session.id, &Session::replies, reply);
      continue;
    }
    engine_.Fetch(*unit, {static_cast<engine::SessionId>(session.id), view.entry, std::string(view.path), view.part});
  }
  return true;
}

bool SessionHub::OnAdvise(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram) {
  const auto entries = ReadAdvise(datagram, header.count);
  if (!entries.ok()) return false;
  struct {
    std::vector<engine::Jobs::Item> items;
    std::vector<std::uint64_t> request_ids;
  } bring[2][2];  // [to pin][with what is below directories]
  for (const AdviseView& view : *entries) {
    abi::AdviseReply reply{};
    reply.request_id = view.entry.request_id;
    const auto op = static_cast<abi::AdviseOp>(view.entry.op);
    const bool known_op = view.entry.op >= static_cast<std::uint8_t>(abi::AdviseOp::kPrefetch) && op <= abi::AdviseOp::kDoubt;
    engine::SourceUnit* unit = engine_.FindSource(view.entry.source_id);
    if (!known_op || unit == nullptr || !IsCanonicalRelative(view.path)) {
      reply.error = known_op ? ENOENT : EINVAL;
      AddReply(session.id, &Session::advice_replies, reply);
      continue;
    }
    const bool recursive = (view.entry.flags & abi::kAdviseRecursive) != 0;
    if (op == abi::AdviseOp::kPrefetch || op == abi::AdviseOp::kPin) {
      auto& asked = bring[op == abi::AdviseOp::kPin][recursive];
      asked.items.push_back({unit, std::string(view.path)});
      asked.request_ids.push_back(reply.request_id);
      continue;
    }
    // A client whose clock is another one says nothing that could be compared with ours.
    const std::int64_t said_ns = session.foreign_clock ? 0 : std::int64_t{view.entry.said_ticks} << abi::kTickShift;
    engine_.Advise(*unit, op, view.path, {recursive, said_ns}, [this, id = session.id, reply](int error, std::uint64_t files) mutable {
      reply.error = error;
      reply.affected = files;
      AddReply(id, &Session::advice_replies, reply);
    });
  }
  for (const bool pin : {false, true}) {
    for (const bool recursive : {false, true}) {
      auto& asked = bring[pin][recursive];
      Bring(session, std::move(asked.items), asked.request_ids, {.pin = pin, .recursive = recursive, .owner = engine::JobOwner::kProgram, .pid = session.pid});
    }
  }
  return true;
}

// What one datagram asks for in one way is one job, and one answer for all of it.
void SessionHub::Bring(Session& session, std::vector<engine::Jobs::Item> items, const std::vector<std::uint64_t>& request_ids, engine::Jobs::PrefetchOptions options) {
  if (items.empty()) return;
  abi::AdviseReply reply{};
  reply.affected = engine_.Prefetch(std::move(items), options) ? 1 : 0;  // 0, too many jobs run: it is for the client to ask again
  for (const std::uint64_t id : request_ids) {
    reply.request_id = id;
    AddReply(session.id, &Session::advice_replies, reply);
  }
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

}  // namespace tierd::server
