#include "client_lib/src/session.h"

#include <unistd.h>

#include <cstdlib>

#include "client_lib/src/clock.h"
#include "client_lib/src/shared_mapping.h"

namespace tierd::client {
namespace {

struct Question {
  abi::MessageHeader header;
  abi::IdEntry entry;
};
static_assert(sizeof(Question) == 32);

abi::Fallback AskById(Session& session, abi::MessageType question, Waiter& waiter, std::uint64_t id, std::int64_t deadline_ns) {
  Group group;
  session.channel.Register(group, &waiter, 1);
  Question datagram{};
  datagram.header = {abi::kMessageMagic, static_cast<std::uint16_t>(question), session.channel.version(), sizeof datagram, 1};
  datagram.entry = {waiter.id, id};
  const bool sent = session.channel.Send(&datagram, sizeof datagram, deadline_ns) == SendOutcome::kSent;
  const WaitOutcome outcome = session.channel.Wait(group, &waiter, 1, sent ? deadline_ns : 0);
  if (outcome == WaitOutcome::kAll) return abi::Fallback::kNone;
  return outcome == WaitOutcome::kDead ? abi::Fallback::kNoDaemon : abi::Fallback::kTimeout;
}

}  // namespace

bool Session::Hung(std::int64_t now_ns) const {
  const IndexView* const view = index.load(std::memory_order_acquire);
  if (view->Retired()) return false;  // the heart beats in its successor: asking for that one tells
  const std::uint32_t beat = view->header->heartbeat_ticks.load(std::memory_order_relaxed);
  const std::uint32_t now = abi::TicksOf(foreign_clock ? now_ns + clock_offset_ns : now_ns);
  return now > beat && now - beat > abi::kHeartbeatStaleTicks;
}

abi::Fallback RefreshIndex(Session& session, std::int64_t deadline_ns) {
  const IndexView* const old = session.index.load(std::memory_order_acquire);
  Waiter waiter;
  waiter.answer = abi::MessageType::kIndex;
  const abi::Fallback asked = AskById(session, abi::MessageType::kGetIndex, waiter, old->generation, deadline_ns);
  if (asked != abi::Fallback::kNone) return asked;
  IndexView* const view =
      MapIndex(waiter.fd, waiter.index.bytes, session.arena->instance(), (session.settings->flags & TIER_POPULATE) != 0);
  ::close(waiter.fd);
  if (view == nullptr) return abi::Fallback::kNoFrame;
  if (view->generation == old->generation) {  // the daemon is going away, there is no newer one
    view->next = session.index_views;
    session.index_views = view;
    RetireIndex(*view);
    return abi::Fallback::kNoFrame;
  }
  view->next = session.index_views;
  session.index_views = view;
  session.index.store(view, std::memory_order_release);
  RetireIndex(*view->next);
  return abi::Fallback::kNone;
}

abi::Fallback MapSegment(Session& session, std::uint32_t serial, std::int64_t deadline_ns) {
  Waiter waiter;
  waiter.answer = abi::MessageType::kSegment;
  const abi::Fallback asked = AskById(session, abi::MessageType::kGetSegment, waiter, serial, deadline_ns);
  if (asked != abi::Fallback::kNone) return asked;
  if (waiter.fd < 0) return abi::Fallback::kNoFrame;
  const abi::SegmentEntry& entry = waiter.segment;
  const bool hugetlb = static_cast<abi::PageKind>(entry.page_kind) == abi::PageKind::kHugetlb;
  void* data = nullptr;
  if (entry.serial == serial && entry.bytes <= abi::kMaxSegmentBytes) data = MapShared(waiter.fd, entry.bytes, false, !hugetlb);
  ::close(waiter.fd);
  if (data == nullptr) return abi::Fallback::kNoFrame;
  if ((session.settings->flags & TIER_POPULATE) != 0) PopulateForReading(data, entry.bytes);
  if (session.arena->Add(serial, {static_cast<const std::byte*>(data), entry.bytes, hugetlb})) return abi::Fallback::kNone;
  UnmapShared(data, entry.bytes);  // nobody points into it yet
  return abi::Fallback::kNoFrame;
}

void FreeSession(Session* session) {
  UnmapShared(session->page, sizeof *session->page);
  for (IndexView* view = session->index_views; view != nullptr;) {
    IndexView* const next = view->next;
    UnmapShared(view->header, view->bytes);
    std::free(view);
    view = next;
  }
  for (SourceTable* table = session->source_tables; table != nullptr;) {
    SourceTable* const next = table->next;
    std::free(table);
    table = next;
  }
  std::free(session);
}

std::uint64_t CountLeases(const Session& session) {
  std::uint64_t held = 0;
  std::uint32_t high = session.page->lease_high.load(std::memory_order_seq_cst);
  if (high > abi::kLeaseSlots) high = abi::kLeaseSlots;
  for (std::uint32_t i = 0; i < high; ++i) held += session.page->leases[i].load(std::memory_order_seq_cst) != 0 ? 1 : 0;
  return held;
}

}  // namespace tierd::client
