// What clients write into their pages: accesses, counters, leases. Words are read once and bounded; what they say harms nobody but who wrote it.
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "tierd/server/session_impl.h"

namespace tierd::server {

using engine::Survives;

namespace {

constexpr std::int64_t kDrainedAMomentAgoNs = 1'000'000;
constexpr std::int64_t kDrainPerSessionNs = 10'000;         // a hundredth of the time goes into looking at their rings, at most
constexpr std::size_t kEntriesPerTurn = 8192;               // ~1 ms
// What a process can do: far more than any does, and far less than would make a total wrap.
constexpr std::uint64_t kReadsPerNs = 1;
constexpr std::uint64_t kBytesPerNs = 1000;
constexpr std::uint64_t kLookSlackNs = 1'000'000'000;
constexpr std::uint64_t kReadsAtOnce = 4096;                  // threads of a process that read
constexpr std::uint64_t kMostTotal = std::uint64_t{1} << 62;
constexpr std::size_t kLooksAhead = 16;                     // each ring is a cache line that the client wrote last: they come side by side, not one after the other
constexpr std::int64_t kDoubtMountsNs = 1'000'000'000;     // where nobody tells that mounts have changed

}  // namespace

void SessionHub::AddRing(Session& session) {
  session.ring = rings_.size();
  rings_.push_back({session.id, session.page.page(), 0});
}

void SessionHub::RemoveRing(Session& session) {
  rings_[session.ring] = rings_.back();
  sessions_.at(rings_[session.ring].session)->ring = session.ring;
  rings_.pop_back();
}

bool SessionHub::ReadRings(std::size_t most) {
  std::array<engine::Engine::RingAccess, engine::Engine::kAccessesAtOnce> accesses;
  std::size_t count = 0;
  const auto hand_over = [&] { engine_.OnAccesses({accesses.data(), std::exchange(count, 0)}); };
  const auto result = drain_.Run(clock_.MonotonicNs(), most, [&](std::uint32_t session, std::uint64_t entry) {
    accesses[count++] = {static_cast<engine::SessionId>(session), entry};
    if (count == accesses.size()) hand_over();
  });
  hand_over();
  if (result.lost != 0) engine_.CountRingLost(result.lost);
  return result.more;
}

void SessionHub::DrainRing(Session& session) {
  drain_.Forget();  // of a drain that memory did not suffice for
  Ring& ring = rings_[session.ring];
  drain_.Add(ring.session, *ring.page, ring.tail);
  (void)ReadRings(SIZE_MAX);
}

bool SessionHub::DrainSome(std::size_t most) {
  drained_ns_ = clock_.MonotonicNs();
  bool any = false;  // an idle daemon, to which all code is cold, looks no farther
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    if (i + kLooksAhead < rings_.size()) __builtin_prefetch(&rings_[i + kLooksAhead].page->ring_head);
    if (rings_[i].page->ring_head.load(std::memory_order_relaxed) == rings_[i].tail) continue;
    if (!std::exchange(any, true)) drain_.Forget();
    drain_.Add(rings_[i].session, *rings_[i].page, rings_[i].tail);
  }
  return any && ReadRings(most);
}

void SessionHub::DrainRings() {
  (void)DrainSome(SIZE_MAX);
  NoteAround(Totals());
}

// An open for want of room is among the fallbacks already; other opens of the source's own file have no reason there.
void SessionHub::NoteAround(const engine::ReadTotals& totals) {
  std::uint64_t around = 0;
  for (std::uint32_t i = 1; i < abi::kFallbacks; ++i) around += totals.fallback[i];
  for (std::uint32_t i = 0; i < abi::kRealOpens; ++i) around += i == static_cast<std::uint32_t>(abi::RealOpen::kNotCached) ? 0 : totals.real_opens[i];
  engine_.NoteAround(around);
}

// The policy hears of hits before it is asked because of a miss, or told that a reader has left; and of those of other sessions, which came before as well,
// unless that was a moment ago: with thousands of sessions it costs too much to look at all of them for each miss. What is read in that moment may be heard in
// another order: it has to be short against the windows of plans (PlanFollower), which are small where an epoch takes some milliseconds. Nor does somebody who waits for
// bytes wait for all that others have left: its own ring is read to the end, of theirs as much as a turn has time for, and the rest in turns to come.
void SessionHub::DrainBefore(Session& session) {
  const std::int64_t moment = kDrainedAMomentAgoNs + kDrainPerSessionNs * static_cast<std::int64_t>(sessions_.size());
  if (clock_.MonotonicNs() - drained_ns_ > moment) DrainInTurns();
  DrainRing(session);
}

void SessionHub::OnTimer() {
  DrainInTurns();
  SendGathered(kept_, &Session::keeps);
  FlushReplies();
  EndSilent();
  EndUnread();
  LookAtUnreadable();
  AcceptLater();
  TellFallbacks();
  constexpr std::int64_t kDivideNs = 1'000'000'000;  // a look at each page
  if (clock_.MonotonicNs() - divided_ns_ >= kDivideNs) DivideAddedMemory();
  if (const std::int64_t now_ns = clock_.MonotonicNs(); now_ns - doubted_ns_ >= kDoubtMountsNs) {
    doubted_ns_ = now_ns;
    for (const auto& [id, session] : sessions_) LookForUntold(*session);
    DoubtMounts(0);
  }
}

namespace {
// A client may say anything.
std::uint64_t AddedBytesOf(const abi::SessionPage& page) {
  return std::min<std::uint64_t>(page.added_bytes.load(std::memory_order_relaxed),
                                 std::uint64_t{1} << 50);
}
}  // namespace

std::uint64_t SessionHub::AddedBudget() const {
  constexpr std::uint64_t kLeast = 64 << 20;
  return std::max<std::uint64_t>(engine_.ram_capacity() / 16, kLeast);
}

void SessionHub::LookForUntold(Session& session) {
  const std::uint32_t untold = session.page.page()->untold.load(std::memory_order_acquire);
  if (std::exchange(session.untold_seen, untold) != untold) engine_.NoteUntold();
}

void SessionHub::DivideAddedMemory() {
  divided_ns_ = clock_.MonotonicNs();
  const std::uint64_t budget = AddedBudget();
  std::uint64_t added = 0, open = 0;
  for (const auto& [id, session] : sessions_) {
    added += AddedBytesOf(*session->page.page());
    open += session->closed ? 0 : 1;
  }
  const std::uint64_t share = open == 0 || added >= budget ? 0 : (budget - added) / open;
  for (const auto& [id, session] : sessions_) {
    abi::SessionPage& page = *session->page.page();
    // 1 is "nothing"; 0 would be a daemon that does not say.
    const std::uint64_t limit =
        std::max<std::uint64_t>(std::min(AddedBytesOf(page) + share, budget / 4), 1);
    if (page.added_limit_bytes.load(std::memory_order_relaxed) != limit)
      page.added_limit_bytes.store(limit, std::memory_order_relaxed);
  }
}

void SessionHub::DoubtMounts(std::uint32_t space) {
  for (const auto& [id, session] : sessions_) {
    if (session->mounts == space && session->welcomed && !session->closed) session->page.NoteMountsChanged();
  }
}

void SessionHub::TellFallbacks() {
  constexpr std::int64_t kPauseNs = 4'000'000'000;  // each look costs an idle daemon some lines of every session's page
  const std::int64_t now_ns = clock_.MonotonicNs();
  if (now_ns - told_ns_ < kPauseNs) return;
  told_ns_ = now_ns;
  const engine::ReadTotals totals = Totals();
  NoteAround(totals);
  const auto& fallback = totals.fallback;
  for (std::uint32_t i = 1; i < abi::kFallbacks; ++i) {
    if (fallback[i] == 0 || told_.test(i)) continue;
    told_.set(i);
    Log(std::string("bypass reason=") + abi::FallbackName(static_cast<abi::Fallback>(i)) + " reads=" + std::to_string(fallback[i]) + " note=\"the first; tierd_fallback_total counts them\"");
  }
}

// Of the loop: thousands of readers leave more behind in a tick than a turn has time for.
void SessionHub::DrainInTurns() {
  if (!DrainSome(kEntriesPerTurn) || drain_posted_) return;
  boost::asio::post(loop_, boost::asio::bind_allocator(drain_memory_.allocator(), [this] {
    const auto handler = engine_.CountHandler("rings");
    drain_posted_ = false;
    if (!Survives([this] { DrainInTurns(); })) engine_.NoteLost();
  }));
  drain_posted_ = true;
}

// Takes over what a page says beyond what was taken before. A client that lowers its counters adds
// nothing; one that raises them adds no more than a process can do in the time. A total never wraps.
void SessionHub::AddCounters(Session& session, engine::ReadTotals& totals) {
  const std::int64_t now_ns = clock_.MonotonicNs();
  const auto since_look_ns = static_cast<std::uint64_t>(now_ns - session.counted_ns);
  const auto age_ns = static_cast<std::uint64_t>(now_ns - session.begun_ns);
  session.counted_ns = now_ns;
  const std::uint64_t most_reads = kReadsPerNs * (since_look_ns + kLookSlackNs);
  const std::uint64_t most_bytes = kBytesPerNs * (since_look_ns + kLookSlackNs);
  const abi::SessionCounters& counters = session.page.page()->counters;
  const auto take = [](const std::atomic<std::uint64_t>& word, std::uint64_t& seen, std::uint64_t& total, std::uint64_t most) {
    const std::uint64_t now = word.load(std::memory_order_relaxed);
    const std::uint64_t added = now > seen ? std::min(now - seen, most) : 0;
    total += std::min(added, kMostTotal - std::min(total, kMostTotal));
    seen = std::max(seen, now);
    return added;
  };
  for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) {
    const std::uint64_t reads = take(counters.reads[tier], session.seen.reads[tier], totals.reads[tier], most_reads);
    take(counters.bytes[tier], session.seen.bytes[tier], totals.bytes[tier], most_bytes);
    // No read took longer than there has been a session. Some of the reads may be counted already.
    const std::uint64_t waited_most = std::min(reads + kReadsAtOnce, kMostTotal / (age_ns + kLookSlackNs));
    take(counters.latency_sum_ns[tier], session.seen.latency_sum_ns[tier], totals.latency_sum_ns[tier], waited_most * (age_ns + kLookSlackNs));
    for (std::uint32_t b = 0; b < abi::kLatencyBuckets; ++b) take(counters.latency[tier][b], session.seen.latency[tier][b], totals.latency[tier][b], most_reads);
  }
  for (std::uint32_t i = 0; i < abi::kFallbacks; ++i) take(counters.fallback[i], session.seen.fallback[i], totals.fallback[i], most_reads);
  const abi::RealCounters& real = session.page.page()->real;
  for (std::uint32_t i = 0; i < abi::kRealOpens; ++i) take(real.opens[i], session.seen.real_opens[i], totals.real_opens[i], most_reads);
  take(real.reads, session.seen.real_reads, totals.real_reads, most_reads);
  take(real.bytes, session.seen.real_bytes, totals.real_bytes, most_bytes);
  take(real.mappings, session.seen.source_mappings, totals.source_mappings, most_reads);
}

engine::ReadTotals SessionHub::Totals() {
  for (auto& [id, session] : sessions_) AddCounters(*session, ended_);
  return ended_;
}

SessionTotals SessionHub::Sessions() const {
  SessionTotals totals;
  totals.refused = refused_;
  totals.turned_away = turned_away_;
  totals.protocol_errors = protocol_errors_;
  const std::uint64_t most_leased = engine_.ram_capacity();
  totals.added_budget = AddedBudget();
  for (const auto& [id, session] : sessions_) {
    if (session->closed) ++totals.lingering;
    else ++totals.sessions;
    const abi::SessionPage* page = session->page.page();
    const std::uint32_t high = std::min(page->lease_high.load(std::memory_order_relaxed), abi::kLeaseSlots);
    for (std::uint32_t i = 0; i < high; ++i) totals.leases += page->leases[i].load(std::memory_order_relaxed) != 0 ? 1 : 0;
    totals.frozen_leases += std::min(page->frozen_leases.load(std::memory_order_relaxed), abi::kLeaseSlots);
    totals.added_bytes += AddedBytesOf(*page);
    totals.pinned_bytes += std::min(page->leased_bytes.load(std::memory_order_relaxed), most_leased);
  }
  return totals;
}

}  // namespace tierd::server
