#include "tierd/engine/engine.h"

#include <malloc.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

#include "tierd/base/check.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kCompletionsPerTurn = 256;
constexpr std::size_t kCompletionsAtOnce = 16;
constexpr std::int64_t kTurnNs = 2'000'000;
constexpr std::size_t kWalkBatchesPerTurn = 4;
constexpr std::uint32_t kGrowSlotsPerTurn = 8192;   // ~0.5 ms
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kBusyTick = 5 * kMs;
constexpr std::int64_t kIdleTick = 245 * kMs;       // the heartbeat's period (LAYOUT: at most 250 ms)

}  // namespace

struct Engine::Watched {
  Watched(boost::asio::io_context& loop, int fd) : descriptor(loop, fd) {}
  boost::asio::posix::stream_descriptor descriptor;
  HandlerMemory memory;
};

Engine::Engine(boost::asio::io_context& loop, const Clock& clock, const policies::Registry& policies, EngineOptions options)
    : loop_(loop), clock_(clock), policies_(policies), options_(std::move(options)), workers_(loop, 3), timer_(loop) {}

// Jobs refer to the parts that are destroyed before the workers: a segment may be in the making.
Engine::~Engine() { workers_.Stop(); }

// ---- clients ---------------------------------------------------------------------------------------------------------------

SourceUnit* Engine::FindSource(std::uint32_t wire_id) {
  for (const auto& unit : sources_)
    if (unit->wire_id == wire_id) return unit.get();
  return nullptr;
}

SourceUnit* Engine::Locate(std::string_view absolute, std::string* relative) {
  SourceUnit* best = nullptr;
  for (const auto& unit : sources_) {
    std::string_view rest;
    if (!source::RelativeTo(unit->source->root(), absolute, &rest)) continue;
    if (best != nullptr && best->source->root().size() >= unit->source->root().size()) continue;
    best = unit.get();
    *relative = std::string(rest);
  }
  return best;
}

void Engine::Advise(SourceUnit& unit, abi::AdviseOp op, std::string_view path, bool recursive, AdviceDone done) {
  if (op == abi::AdviseOp::kPrefetch || op == abi::AdviseOp::kPin) {
    const bool pin = op == abi::AdviseOp::kPin;
    return done(0, jobs_->Prefetch({{&unit, std::string(path)}}, {.ssd_only = false, .pin = pin, .evict = true}) != 0 ? 1 : 0);
  }
  if (op == abi::AdviseOp::kInvalidate) {
    fetcher_->NoteInvalidation(unit, path, recursive);
    // The directory's listing says what was: it goes with the file.
    const std::size_t slash = path.rfind('/');
    const std::string_view parent = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
    unit.listings.Forget(parent);
    fetcher_->SpoilListings(path);
    if (const FileId dir = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, parent)); dir != kNoFile) fetcher_->Invalidate(unit, dir, EvictCause::kChanged);
  }
  if (!recursive) {
    const FileId file = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, path));
    if (file != kNoFile) Apply(unit, op, file);
    return done(0, file != kNoFile ? 1 : 0);
  }
  Sweep({.unit = &unit,
         .path = std::string(path),
         .visit = [this, &unit, op](FileId file) { return Apply(unit, op, file); },
         .done = [done = std::move(done)](bool complete, std::uint64_t files) { done(complete ? 0 : EAGAIN, files); }});
}

bool Engine::Apply(SourceUnit& unit, abi::AdviseOp op, FileId file) {
  switch (op) {
    case abi::AdviseOp::kUnpin: placement_->SetPinned(file, false); break;
    case abi::AdviseOp::kEvict: fetcher_->Invalidate(unit, file, EvictCause::kRequest); break;
    default:
      ++counters_.invalidated_request;
      fetcher_->Invalidate(unit, file, EvictCause::kChanged);
      break;
  }
  return true;
}

void Engine::Sweep(Sweeps::Request request) {
  sweeps_->Start(std::move(request));
  ScheduleTurn();
}

void Engine::OnAccess(SessionId session, std::uint64_t entry) {
  const auto ordinal = static_cast<std::uint32_t>(entry);
  const auto generation = static_cast<std::uint8_t>(entry >> 32);
  const auto tier = static_cast<std::uint8_t>((entry >> 52) & 3);
  ++counters_.ring_entries;
  const ObjectId object = catalogue_->ObjectAt(generation, ordinal);
  if (object == kNoObject) {
    ++counters_.ring_stale;
    return;
  }
  const ObjectRecord& record = catalogue_->object(object);
  if ((record.flags & kObjectListing) != 0) return;
  SourceUnit& unit = *sources_[catalogue_->file(record.file).source];
  placement_->NoteRead(object);
  refresher_->OnRead(unit);
  const ObjectId first = catalogue_->ObjectOf(record.file, 0);
  if (first != kNoObject) unit.epochs.OnRead(catalogue_->object(first).epoch_mark, tier);
  unit.policy->Accessed({Raw(object), static_cast<std::uint32_t>(session), clock_.MonotonicNs(), tier});
}

void Engine::OnSessionEnd(SessionId session) {
  for (const auto& unit : sources_) unit->read_ahead.ForgetSession(static_cast<std::uint64_t>(session));
}

void Engine::EndTurn() {
  for (const auto& unit : sources_) unit->reader->Flush();
  if (ssd_) ssd_->Flush();
  busy_until_ns_ = clock_.PreciseNs() + 100 * kMs;
}

// ---- the turn --------------------------------------------------------------------------------------------------------------

void Engine::Watch(int fd) {
  watched_.push_back(std::make_unique<Watched>(loop_, ::dup(fd)));
  Arm(*watched_.back());
}

void Engine::Arm(Watched& watched) {
  const auto on_event = [this, &watched](const boost::system::error_code& error) {
    if (error || stopping_) return;
    Turn();
    Arm(watched);
  };
  watched.descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(watched.memory.allocator(), on_event));
}

void Engine::CancelWatches() {
  for (const auto& watched : watched_) watched->descriptor.cancel();
}

void Engine::ScheduleTurn() {
  if (turn_scheduled_ || stopping_) return;
  turn_scheduled_ = true;
  boost::asio::post(loop_, boost::asio::bind_allocator(turn_memory_.allocator(), [this] {
    turn_scheduled_ = false;
    if (!stopping_) Turn();
  }));
}

void Engine::NoteLost() {
  fetcher_->NoteLost();
  (void)Survives([&] {
    const std::int64_t now_ns = clock_.MonotonicNs();
    if (lost_logged_ns_ != 0 && now_ns - lost_logged_ns_ < 10'000 * kMs) return;
    lost_logged_ns_ = now_ns;
    Log("out of memory: requests are dropped, their clients read the source");
  });
}

bool Engine::DrainSources(std::int64_t begin_ns) {
  bool more = false;
  // A completion may mean copying and summing a whole chunk: the clock is looked at in between (HAZARDS 5).
  const auto drain = [&](source::SourceReader& reader) {
    std::size_t taken = 0, part = 0;
    do {
      part = reader.Poll(kCompletionsAtOnce);
      taken += part;
    } while (part == kCompletionsAtOnce && taken < kCompletionsPerTurn && clock_.PreciseNs() - begin_ns < kTurnNs);
    return part == kCompletionsAtOnce;
  };
  for (const auto& unit : sources_) {
    more |= drain(*unit->reader);
    more |= unit->walker->Poll(kWalkBatchesPerTurn) == kWalkBatchesPerTurn;
    if (!jobs_->walks_paused()) more |= unit->job_walker->Poll(kWalkBatchesPerTurn) == kWalkBatchesPerTurn;
    unit->resolver->Poll(kCompletionsPerTurn);
  }
  return more;
}

bool Engine::StepIndex() {
  if (!index_->growing()) {
    if (index_->WantsGrowth()) GrowIndexInBackground();
    return false;
  }
  if (!index_->GrowStep(kGrowSlotsPerTurn)) {
    if (!index_->growing()) index_growth_under_way_ = false;  // given up: the next turn may begin anew
    return true;
  }
  EndIndexGrowth();
  return false;
}

void Engine::Turn() {
  const std::int64_t begin = clock_.PreciseNs();
  bool more = false;
  more |= Fails([&] { more |= DrainSources(begin); });
  if (ssd_) {
    more |= Fails([&] {
      more |= ssd_->Poll(kCompletionsPerTurn) == kCompletionsPerTurn;
      more |= ssd_->more_work();
      fetcher_->ResumeWrites();
    });
  }
  if (Fails([&] { more |= jobs_->Pump(); })) jobs_->Abandon();
  more |= Fails([&] { more |= sweeps_->Step(); });
  more |= Fails([&] { more |= placement_->Turn(); });
  more |= Fails([&] { more |= refresher_->Step(); });
  more |= Fails([&] { more |= StepIndex(); });
  if (on_turn) more |= Fails(on_turn);
  more |= Fails([&] { EndTurn(); });
  NoteLag(begin);
  if (more) ScheduleTurn();
}

void Engine::NoteLag(std::int64_t begin_ns) {
  const auto took = static_cast<std::uint64_t>(clock_.PreciseNs() - begin_ns);
  std::size_t bucket = 0;
  while (bucket + 1 < LoopLag::kBuckets && took >= (std::uint64_t{16'000} << bucket)) ++bucket;
  ++lag_.buckets[bucket];
  ++lag_.count;
  lag_.sum_ns += took;
  lag_.max_ns = std::max(lag_.max_ns, took);
}

void Engine::EndIndexGrowth() {
  index_growth_under_way_ = false;
  if (on_index_grown) on_index_grown();
  workers_.Run([old = std::shared_ptr<ram::IndexTable>(index_->TakeRetired())]() mutable { old.reset(); return true; }, [](bool) {});
}

void Engine::GrowIndexInBackground(std::uint64_t expected_files) {
  if (index_growth_under_way_) return;
  index_growth_under_way_ = true;
  workers_.Run([options = index_->NextTable(expected_files)] { return ram::SharedIndex::CreateTable(options); },
               [this](Result<std::unique_ptr<ram::IndexTable>> table) {
                 if (!table.ok() || !index_->AdoptTable(std::move(table).value()).ok()) {
                   index_growth_under_way_ = false;
                   return;
                 }
                 ScheduleTurn();
               });
}

void Engine::ArmTimer() {
  const bool busy = clock_.PreciseNs() < busy_until_ns_ || !fetcher_->idle() || !jobs_->idle() || recovering_;
  const auto on_time = [this](const boost::system::error_code& error) {
    if (error || stopping_) return;
    (void)Fails([&] { OnTimer(); });
    ArmTimer();
  };
  const auto arm = [&] {
    timer_.expires_after(std::chrono::nanoseconds(busy ? kBusyTick : kIdleTick));
    timer_.async_wait(boost::asio::bind_allocator(timer_memory_.allocator(), on_time));
  };
  // Where even the queue of timers cannot grow: the heart must go on beating.
  if (!Survives(arm)) boost::asio::post(loop_, boost::asio::bind_allocator(timer_memory_.allocator(), [this] { ArmTimer(); }));
}

void Engine::OnTimer() {
  const std::int64_t now = clock_.MonotonicNs();
  index_->Heartbeat(now);
  for (const auto& unit : sources_) {
    if (unit->reader->next_tick_ns() <= now) unit->reader->Tick(now);
    if (unit->resolver->next_tick_ns() <= now) unit->resolver->Tick(now);
  }
  if (!fetcher_->idle()) fetcher_->Tick();
  if (refresher_->Step()) ScheduleTurn();
  if (on_timer) on_timer();
  const std::int64_t precise = clock_.PreciseNs();
  if (precise - last_tenth_ns_ >= 100 * kMs) {
    last_tenth_ns_ = precise;
    if (ssd_) ssd_->Tick();
    if (placement_->memory_is_tight()) placement_->Tick();  // a trainer may take gigabytes a second
  }
  if (precise - last_second_ns_ >= 1000 * kMs) {
    last_second_ns_ = precise;
    if (!KeepMemoryReserve()) Log("out of memory: the reserve was used");
    placement_->Tick();
    TrimAfterWork();
    for (const auto& unit : sources_) {
      if (unit->walker->active() != 0) unit->walker->Tick(now);
      if (unit->job_walker->active() != 0) unit->job_walker->Tick(now);
    }
  }
  const bool work = placement_->backfilling() || !fetcher_->idle() || !jobs_->idle() || index_->growing() || index_->WantsGrowth() || ram_->shrinking() || ram_->WantsCompaction();
  if (work) Turn();
  else EndTurnQuietly();
}

// A job over a million files leaves free memory in pieces between what is kept: nobody would give it back.
void Engine::TrimAfterWork() {
  const bool working = recovering_ || !jobs_->idle();
  if (std::exchange(worked_, working) && !working) workers_.Run([] { return ::malloc_trim(0); }, [](int) {});
}

void Engine::EndTurnQuietly() {
  for (const auto& unit : sources_) unit->reader->Flush();
  if (ssd_) ssd_->Flush();
}

bool Engine::Leased(FileId file) {
  const ram::LeaseSet& leased = ram_->leases().Scan();
  const std::uint32_t chunks = leased.empty() ? 0 : catalogue_->ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_->ObjectOf(file, chunk);
    const ObjectRecord& record = catalogue_->object(object);
    if (record.frame == ram::kNoFrame) continue;
    const std::uint16_t fill = abi::DecodeLocation(ram_->LocationWord(record.frame)).fill;
    if (leased.Covers(abi::EncodeLease(abi::LeaseKeyOf(catalogue_->KeyOf(object)), fill))) return true;
  }
  return false;
}

void Engine::VoidRecords(SourceUnit& unit, std::function<void(bool durable)> done) {
  if (!ssd_) return done(true);
  ssd_->InvalidateDataset(unit.dataset_id, [this, done = std::move(done)](const Status& status) {
    if (!status.ok()) Log("invalidate error=\"" + status.message() + "\"");
    done(status.ok());
  });
  VoidDataset(unit);
}

// From now on no record written before is read (Placement::OnSsd looks); that they are gone is noted by and by.
void Engine::VoidDataset(SourceUnit& unit) {
  if (!ssd_) return;
  // While records are still coming in, whatever has come is void, and what comes later too.
  unit.void_before = recovering_ ? std::numeric_limits<std::uint64_t>::max() : ssd_->NextFillSequence();
  if (std::exchange(unit.voiding, true)) return;  // the sweep under way is followed by another
  const std::uint64_t before = unit.void_before;
  Sweep({.unit = &unit,
         .path = "",
         .visit = [this, &unit](FileId file) {
           const std::uint32_t chunks = catalogue_->ChunkCount(file);
           for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
             const ObjectId object = catalogue_->ObjectOf(file, chunk);
             if (!placement_->OnSsd(object)) placement_->EvictSsd(object, EvictCause::kChanged);
           }
           return true;
         },
         .done = [this, &unit, before](bool complete, std::uint64_t) {
           unit.voiding = false;
           if (!complete || unit.void_before != before || before == std::numeric_limits<std::uint64_t>::max()) VoidDataset(unit);
         },
         .always = true});
}

}  // namespace tierd::engine
