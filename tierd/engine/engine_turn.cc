// The turn of the loop and the timer: what is done when, how long it may take, and what becomes of it when memory runs out.
#include <malloc.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

#include "tierd/engine/engine.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kCompletionsPerTurn = 256;
constexpr std::size_t kCompletionsAtOnce = 16;
constexpr std::int64_t kTurnNs = 1'000'000;
constexpr std::size_t kWalkBatchesPerTurn = 4;
constexpr std::uint32_t kGrowSlotsPerTurn = 8192;   // ~0.5 ms
constexpr std::int64_t kGrowPauseNs = 2'000'000'000;  // after an index could not be made
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kBusyTick = 5 * kMs;
constexpr std::int64_t kHitsTick = 245 * kMs;       // readers hit: their rings are drained before they run over
// So many entries in a tick say that a ring may run over in such a tick (4,096; several readers are taken for one): the next ones are short.
constexpr std::uint64_t kManyPerHitsTick = 2048;
constexpr std::uint64_t kManyPerBusyTick = kManyPerHitsTick * kBusyTick / kHitsTick;
constexpr std::int64_t kBeat = (abi::kHeartbeatPeriodMs - 15) * kMs;  // timers come late
// What memory there is is looked at that often by a daemon that has nothing to do (ram::LooksToSkipNs), more often where it may run short (ram::HalfTakenNs).
constexpr std::int64_t kIdleTick = 2 * kBeat;
constexpr std::int64_t kIdleTickWithPlenty = 3 * kBeat;

}  // namespace

struct Engine::Watched {
  Watched(boost::asio::io_context& loop, int fd) : descriptor(loop, fd) {}
  boost::asio::posix::stream_descriptor descriptor;
  HandlerMemory memory;
  bool rests = false;  // until the next tick
};

Engine::Engine(boost::asio::io_context& loop, const Clock& clock, const policies::Registry& policies, EngineOptions options)
    : loop_(loop), clock_(clock), policies_(policies), options_(std::move(options)), lag_(clock), workers_(loop, 3, &lag_), timer_(loop), heart_(std::chrono::nanoseconds(kBeat), [this] { BeatForLoop(); }) {
  lag_.heart = &heart_;
}

// Jobs refer to the parts that are destroyed before the workers: a segment may be in the making.
Engine::~Engine() {
  pending_->ended = true;
  workers_.Stop();
}

void Engine::Watch(int fd) {
  watched_.push_back(std::make_unique<Watched>(loop_, ::dup(fd)));
  Arm(*watched_.back());
}

void Engine::Arm(Watched& watched) {
  const auto on_event = [this, &watched, pending = pending_](const boost::system::error_code& error) {
    if (error || pending->ended) return;
    Turn();
    if (failed_) watched.rests = true;
    else Arm(watched);
  };
  watched.descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read, boost::asio::bind_allocator(watched.memory.allocator(), on_event));
}

void Engine::CancelWatches() {
  for (const auto& watched : watched_) watched->descriptor.cancel();
}

void Engine::EndTurn() {
  for (const auto& unit : sources_) unit->reader->Flush();
  if (ssd_) ssd_->Flush();
  Hurry();
}

bool Engine::Working() const { return !fetcher_->idle() || !jobs_->idle() || !sweeps_->idle(); }

// Where work is left the next tick comes soon, also when the timer had been set for an idle daemon.
void Engine::Hurry() {
  busy_until_ns_ = clock_.PreciseNs() + 100 * kMs;
  if (!armed_idle_ || stopping_) return;
  // What is due already has the timer set to the next moment: set anew by each handler it would never come.
  if (Working() || std::max(SourcesDueNs(), clock_.MonotonicNs() + kBusyTick) < armed_until_ns_) ArmTimer();
}

// A look may find much less memory than the one that the timer was set by.
void Engine::HeedMemory() {
  if (ram_->shrinking()) ScheduleTurn();
  if (armed_idle_ && !stopping_ && clock_.MonotonicNs() + placement_->memory_half_taken_ns() < armed_until_ns_) ArmTimer();
}

// When something is over, or may go out, that a source is asked for whatever the engine does besides (what `explain` asks, where a link leads).
std::int64_t Engine::SourcesDueNs() const {
  std::int64_t due_ns = std::numeric_limits<std::int64_t>::max();
  for (const auto& unit : sources_) due_ns = std::min({due_ns, unit->reader->next_tick_ns(), unit->resolver->next_tick_ns()});
  return due_ns;
}

void Engine::ScheduleTurn() {
  if (turn_scheduled_ || stopping_) return;
  turn_scheduled_ = true;
  boost::asio::post(loop_, boost::asio::bind_allocator(turn_memory_.allocator(), [this, pending = pending_] {
    if (pending->ended) return;
    turn_scheduled_ = false;
    Turn();
  }));
}

void Engine::NoteLost() {
  fetcher_->NoteLost();
  Hurry();
  (void)Survives([&] {
    const std::int64_t now_ns = clock_.MonotonicNs();
    if (lost_logged_ns_ != 0 && now_ns - lost_logged_ns_ < 10'000 * kMs) return;
    lost_logged_ns_ = now_ns;
    Log("out of memory: requests are dropped, their clients read the source");
  });
}

void Engine::NoteUntold() {
  untold_ = true;
  Hurry();
}

bool Engine::DrainSources() {
  const std::int64_t begin_ns = clock_.PreciseNs();
  bool more = false;
  fetcher_->HandleLanded();
  // Completions cost little each, whatever they bring (HandleLanded): the clock is looked at in between (HAZARDS 5).
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
    more |= unit->job_walker->Poll(kWalkBatchesPerTurn) == kWalkBatchesPerTurn;
    unit->resolver->Poll(kCompletionsPerTurn);
  }
  return more | fetcher_->has_landed();
}

bool Engine::StepIndex() {
  if (!index_->growing()) {
    if (index_->WantsGrowth()) GrowIndexInBackground();
    return false;
  }
  if (!index_->GrowStep(kGrowSlotsPerTurn)) return true;
  EndIndexGrowth();
  return false;
}

// Each step keeps to about a millisecond. When they have taken as much together, the others come first in the next turn: somebody may have asked for something
// meanwhile (HAZARDS 5).
void Engine::Turn() {
  struct Step {
    bool (Engine::*run)();
    const char* name;
  };
  static constexpr Step kSteps[] = {{&Engine::DrainSources, "turn.sources"},     {&Engine::StepSsd, "turn.ssd"},
                                    {&Engine::StepFetcher, "turn.fetcher"},      {&Engine::StepJobs, "turn.jobs"},
                                    {&Engine::StepSweeps, "turn.sweeps"},        {&Engine::StepPlacement, "turn.placement"},
                                    {&Engine::StepRefresher, "turn.refresher"},  {&Engine::StepIndex, "turn.index"},
                                    {&Engine::StepPolicies, "turn.policies"},    {&Engine::StepForesight, "turn.foresight"},
                                    {&Engine::StepForerunners, "turn.forerunners"}};
  LoopLag::Handler handler(lag_, "turn");
  const std::int64_t begin = handler.begin_ns();
  bool more = false;
  failed_ = false;
  std::size_t taken = 0;
  std::int64_t now = begin;
  do {
    const Step& step = kSteps[next_step_];
    next_step_ = (next_step_ + 1) % std::size(kSteps);
    failed_ |= Fails([&] { more |= (this->*step.run)(); });
    const std::int64_t before = std::exchange(now, clock_.PreciseNs());
    if (static_cast<std::uint64_t>(now - before) >= LoopLag::kLateNs) handler.Blame(step.name);
  } while (++taken < std::size(kSteps) && now - begin < kTurnNs);
  if (taken < std::size(kSteps)) more = true;
  else next_step_ = 0;
  if (on_turn) failed_ |= Fails(on_turn);
  failed_ |= Fails([&] { EndTurn(); });
  if (more && !failed_) ScheduleTurn();  // without memory the next tick is soon enough: trying at once would keep a processor busy
}

bool Engine::StepSsd() {
  if (!ssd_) return false;
  const std::size_t ran = ssd_->Poll(kCompletionsPerTurn);
  if (ran != 0 && on_turn) on_turn();  // who waits for a device that answers in microseconds need not wait for the rest of the turn
  const bool many = ran == kCompletionsPerTurn;
  const bool more = ssd_->more_work();
  return fetcher_->ResumeWrites() || many || more;
}

bool Engine::StepJobs() {
  bool more = false;
  if (Fails([&] { more = jobs_->Pump(); })) {
    failed_ = true;
    jobs_->Abandon();
  }
  return more;
}

bool Engine::StepPolicies() {
  bool more = false;
  for (const auto& unit : sources_) more |= TellPolicy(*unit);
  return more;
}

bool Engine::StepForesight() {
  bool more = false;
  for (const auto& foresight : foresights_) more |= foresight->Step();
  return more;
}

bool Engine::StepForerunners() {
  for (const auto& forerunner : forerunners_) forerunner->Step();
  return false;
}

void Engine::EndIndexGrowth() {
  if (on_index_grown) on_index_grown();
  // Without memory to have a worker free it, it is freed here.
  (void)workers_.Run([old = std::shared_ptr<ram::IndexTable>(index_->TakeRetired())]() mutable { old.reset(); return true; }, [](bool) {});
}

void Engine::GrowIndexInBackground(std::uint64_t expected_files) {
  if (making_index_table_ || index_->growing() || clock_.MonotonicNs() < grow_index_again_ns_) return;
  making_index_table_ = workers_.Run([options = index_->NextTable(expected_files)] { return ram::SharedIndex::CreateTable(options); },
                                     [this](Result<std::unique_ptr<ram::IndexTable>> table) {
                                       making_index_table_ = false;
                                       if (!table.ok()) return PauseIndexGrowth();
                                       if (!index_->AdoptTable(std::move(table).value()).ok()) return;
                                       catalogue_->set_growth_failed(false);
                                       ScheduleTurn();
                                     });
  if (!making_index_table_) PauseIndexGrowth();
}

// No memory for a larger index: nobody waits for one, and it is tried again in a while.
void Engine::PauseIndexGrowth() {
  catalogue_->set_growth_failed(true);
  grow_index_again_ns_ = clock_.MonotonicNs() + kGrowPauseNs;
}

void Engine::ArmTimer() {
  const bool followed = std::any_of(foresights_.begin(), foresights_.end(), [](const auto& foresight) { return foresight->active(); });
  const std::uint64_t hits = counters_.ring_entries - std::exchange(ring_entries_seen_, counters_.ring_entries);
  const std::int64_t now_ns = clock_.PreciseNs();
  if (hits > (now_ns < busy_until_ns_ ? kManyPerBusyTick : kManyPerHitsTick)) busy_until_ns_ = now_ns + 1000 * kMs;
  const bool busy = now_ns < busy_until_ns_ || Working() || recovering_ || followed || untold_;
  auto on_time = [this, pending = pending_](const boost::system::error_code& error) {
    --pending->timers;
    if (pending->ended) return;
    if (error) {  // another one took its place, or should have: there was no memory for it
      if (pending->timers == 0) ArmTimer();
      return;
    }
    armed_idle_ = false;
    OnTick();
    ArmTimer();
  };
  armed_idle_ = !busy;
  const std::int64_t usual_tick = failed_ ? kBeat : placement_->memory_is_plenty() ? kIdleTickWithPlenty : kIdleTick;
  const std::int64_t idle_tick = std::min({usual_tick, placement_->memory_half_taken_ns(), hits > 0 ? kHitsTick : usual_tick});
  const std::int64_t monotonic_ns = clock_.MonotonicNs();
  const std::int64_t tick = busy ? kBusyTick : std::clamp(SourcesDueNs() - monotonic_ns, kBusyTick, idle_tick);
  armed_until_ns_ = monotonic_ns + tick;
  const auto arm = [&] {
    timer_.expires_after(std::chrono::nanoseconds(tick));
    if (!busy && hits == 0) Beat();
    if (tick > kBeat) heart_.Lend(timer_.expiry(), lag_.running == nullptr);
    else heart_.TakeBack();
    timer_.async_wait(boost::asio::bind_allocator(timer_memory_.allocator(), std::move(on_time)));
    ++pending_->timers;
  };
  if (Survives(arm)) return;
  // Where even the queue of timers cannot grow: the heart must go on beating.
  Heartbeat(0);
  (void)Survives([&] {
    boost::asio::post(loop_, boost::asio::bind_allocator(timer_memory_.allocator(), [this, pending = pending_] {
      if (!pending->ended && pending->timers == 0) ArmTimer();
    }));
  });
}

void Engine::OnTick() {
  const LoopLag::Handler handler(lag_, "tick");
  (void)Fails([&] { OnTimer(); });
}

void Engine::Heartbeat(std::uint32_t ahead_ticks) {
  constexpr std::chrono::nanoseconds kStale{std::int64_t{abi::kHeartbeatStaleTicks} << abi::kTickShift};
  const std::chrono::nanoseconds ahead{std::int64_t{ahead_ticks} << abi::kTickShift};
  const auto now = std::chrono::steady_clock::now();
  if (beaten_until_ && now > *beaten_until_ + kStale) stood_ = true;
  beaten_until_ = now + ahead;
  index_->Heartbeat(clock_.MonotonicNs() + ahead.count());
}

// Of a daemon that has nothing to do: ahead.
void Engine::Beat() { Heartbeat(abi::kHeartbeatAheadTicks); }

// On the heart's thread, while the loop rests. Rings run over in less than the tick of an idle loop: who has begun to read makes it come.
void Engine::BeatForLoop() {
  Beat();
  const std::uint64_t told = ram_->leases().accesses_told();
  if (told == accesses_seen_ && !stood_) return;
  const bool called = Survives([&] {
    boost::asio::post(loop_, [this, pending = pending_] {
      if (pending->ended) return;
      armed_idle_ = false;
      OnTick();
      ArmTimer();
    });
  });
  if (called) accesses_seen_ = told;
}

void Engine::OnTimer() {
  const std::int64_t now = clock_.MonotonicNs();
  Heartbeat(0);
  if (std::exchange(stood_, false)) {
    Log("stood: clients read the source meanwhile");
    untold_ |= silent_clients_;
  }
  const bool untold = untold_ && now - doubted_ns_ >= 1000 * kMs;  // many may say it at once
  if (const std::int64_t asleep = clock_.AsleepNs(); untold || asleep - asleep_ns_ >= 1000 * kMs) DoubtAll(asleep);
  for (const auto& watched : watched_) {
    if (!watched->rests) continue;
    Arm(*watched);
    watched->rests = false;
  }
  for (const auto& unit : sources_) {
    if (unit->reader->next_tick_ns() <= now) unit->reader->Tick(now);
    if (unit->resolver->next_tick_ns() <= now) unit->resolver->Tick(now);
  }
  if (!fetcher_->idle() && fetcher_->Tick()) ScheduleTurn();
  if (refresher_->Step()) ScheduleTurn();
  if (on_timer) on_timer();
  const std::int64_t precise = clock_.PreciseNs();
  if (precise - last_tenth_ns_ >= 100 * kMs) {
    last_tenth_ns_ = precise;
    if (ssd_) ssd_->Tick();
    if (placement_->memory_half_taken_ns() < 2000 * kMs) placement_->Tick();  // a trainer may take gigabytes a second
  }
  if (precise - last_second_ns_ >= 1000 * kMs) {
    last_second_ns_ = precise;
    if (!KeepMemoryReserve()) Log("out of memory: the reserve was used");
    placement_->Tick();
    for (const auto& foresight : foresights_) foresight->Tick();
    for (const auto& forerunner : forerunners_) forerunner->Tick();
    for (const auto& unit : sources_) observers_[unit->index]->Tick(placement_->brought(*unit));
    ForgetGone(now);
    ForgetExpiredAliases(now);
    TrimAfterWork();
    TellStates(now);
    for (const auto& unit : sources_) {
      unit->watch->Tick(TiersForWatch());
      if (unit->walker->active() != 0) unit->walker->Tick(now);
      if (unit->job_walker->active() != 0) unit->job_walker->Tick(now);
    }
  }
  const bool foreseen = std::any_of(foresights_.begin(), foresights_.end(), [](const auto& foresight) { return !foresight->empty(); });
  const bool work = failed_ || foreseen || Working() || placement_->backfilling() || placement_->reclaiming() || index_->growing() || index_->WantsGrowth() || ram_->shrinking() || ram_->WantsCompaction();
  if (work) Turn();
  else EndTurnQuietly();
}

// Each file is asked about anew, and what was asked before proves nothing (HAZARDS 2.11): deadlines do not count the time for which the machine was suspended, and others may
// have written meanwhile, to a source that may change. Where a client could not tell of a change, it may be any source.
void Engine::DoubtAll(std::int64_t asleep_ns) {
  const bool untold = std::exchange(untold_, false);
  const std::int64_t before = std::exchange(asleep_ns_, asleep_ns);
  doubted_ns_ = clock_.MonotonicNs();
  const auto again = [this, untold, before] {
    untold_ |= untold;
    asleep_ns_ = before;
  };
  const auto doubt = [&](SourceUnit& unit) {
    if (unit.options.staleness == abi::Staleness::kImmutable && !untold) return;
    Doubt(unit, "", {.done = [again](int error, std::uint64_t) { if (error != 0) again(); }, .always = true, .access = true});
  };
  const bool all = Survives([&] {
    Log((untold ? "untold: all files are asked about anew suspended_s=" : "woke suspended_s=") + std::to_string((asleep_ns - before) / 1'000'000'000));
    for (const auto& unit : sources_) doubt(*unit);
  });
  if (!all) again();  // for want of memory: the next tick does it
}

const char* Engine::ram_state() const { return placement_->segment_failure().empty() ? "ok" : "degraded"; }

const char* Engine::ssd_state() const {
  if (ssd_ == nullptr) return "off";
  const ssd::SsdStatus status = ssd_->status();
  if (recovering_) return "recovering";
  if (status.health == ssd::SsdHealth::kOut) return "out";
  return status.health != ssd::SsdHealth::kHealthy || !status.writable ? "degraded" : "ok";
}

// What is degraded, and what keeps the loop, is said where nobody asks for it (C4, HAZARDS 5).
void Engine::TellStates(std::int64_t now_ns) {
  const auto tell = [&](const std::string& subject, std::string_view state, std::string_view sound) {
    if (std::string line = state_log_.Look(subject, state, sound, now_ns); !line.empty()) Log(std::move(line));
  };
  tell("ram", ram_state(), "ok");
  if (ssd_ != nullptr && !recovering_) tell("ssd", ssd_state(), "ok");
  for (const auto& unit : sources_) tell("source name=" + unit->options.name, source::SourceStateName(unit->reader->counters().state), "up");
  for (const auto& unit : sources_) {
    const Forerunner& forerunner = *forerunners_[unit->index];
    if (const std::string line = state_log_.Look("look_ahead source=" + unit->options.name, forerunner.resting() ? "resting" : "on", "on", now_ns); !line.empty())
      Log(line + " policy=" + unit->options.policy + " used_share=" + std::to_string(forerunner.used_share()) + " unused_bytes=" + std::to_string(unit->look_ahead.unused));
    const std::uint64_t dropped = unit->policy.dropped();
    if (const std::string line = state_log_.Look("policy source=" + unit->options.name, dropped == 0 ? "sound" : "wrong", "sound", now_ns); !line.empty())
      Log(line + " policy=" + unit->options.policy + " dropped_answers=" + std::to_string(dropped));
  }
  // What the first look finds, at the start, is taken for granted.
  const auto tell_engine = [&](const std::string& subject, std::string_view engine, const auto& why) {
    if (const std::string line = state_log_.Look(subject, engine, engine, now_ns); !line.empty()) Log(line + " reason=\"" + why() + "\"");
  };
  if (ssd_ != nullptr) tell_engine("ssd engine", ssd_io_->name(), [] { return io::kNoWorkers; });
  for (const auto& unit : sources_) tell_engine("source engine name=" + unit->options.name, unit->reader->counters().engine, [&] { return unit->reader->Report(); });
  if (lag_.late.times == 0 || (late_logged_ns_ != 0 && now_ns - late_logged_ns_ < StateLog::kAgainNs)) return;
  late_logged_ns_ = now_ns;
  const LoopLag::Late late = std::exchange(lag_.late, LoopLag::Late());
  Log(std::string("loop late handler=") + late.name + " took_ms=" + std::to_string(late.took_ns / 1'000'000) + " times=" + std::to_string(late.times));
}

// A job over a million files leaves free memory in pieces between what is kept: nobody would give it back.
void Engine::TrimAfterWork() {
  const bool working = recovering_ || !jobs_->idle();
  if (std::exchange(worked_, working) && !working) (void)workers_.Run([] { return ::malloc_trim(0); }, [](int) {});
}

void Engine::EndTurnQuietly() {
  for (const auto& unit : sources_) unit->reader->Flush();
  if (ssd_) ssd_->Flush();
}

}  // namespace tierd::engine
