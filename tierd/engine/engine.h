// The engine: one object that owns all state of the daemon (catalogue, tiers, sources, jobs) and turns with the loop. The server
// hands it requests and gets replies through a ReplySink; the control plane asks and orders.
//
// Owner: main.cc. Thread rule: constructed, started, called and stopped on the loop thread; blocking work goes to its workers.
// It does not: speak to sockets, parse messages, know HTTP or configuration files.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/registry.h"
#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/counters.h"
#include "tierd/engine/fetch/fetcher.h"
#include "tierd/engine/orders/file_visits.h"
#include "tierd/engine/orders/forerunner.h"
#include "tierd/engine/orders/foresight.h"
#include "tierd/engine/movers/jobs.h"
#include "tierd/engine/loop_lag.h"
#include "tierd/engine/orders/observer.h"
#include "tierd/engine/options.h"
#include "tierd/engine/residency/placement.h"
#include "tierd/engine/recovery_doubts.h"
#include "tierd/engine/movers/refresher.h"
#include "tierd/engine/fetch/requests.h"
#include "tierd/engine/sources/source_unit.h"
#include "tierd/engine/state_log.h"
#include "tierd/engine/movers/sweeps.h"
#include "tierd/engine/workers.h"
#include "tierd/ram/ram_tier.h"
#include "tierd/ram/session_page.h"
#include "tierd/ram/shared_index.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::engine {

class Engine {
 public:
  // All references outlive the engine.
  Engine(boost::asio::io_context& loop, const Clock& clock, const policies::Registry& policies, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Opens sources and tiers, starts recovery. Blocks (milliseconds to seconds: first segment). One sentence per error.
  Status Start(ReplySink& replies);
  // Ends jobs, closes the SSD region with its table of contents, retires the index. Blocks at most timeout_ms.
  void Stop(int timeout_ms);

  // ---- clients
  // The source named by a client, or null.
  SourceUnit* FindSource(std::uint32_t wire_id);
  // Exactly one reply comes through the sink, now or later. The path has passed IsCanonicalRelative.
  void Fetch(SourceUnit& unit, const FetchRequest& request) { fetcher_->Fetch(unit, request); }
  // tier_evict, tier_unpin, tier_invalidate of one path (or everything below it). `done` runs once with an errno (EAGAIN: too much waits) and the number of
  // known files affected; of one path inside the call, but for a kInvalidate where files with several names are known. kInvalidate has taken effect then: no hit can return the old bytes.
  struct AdviceReach {
    AdviceReach(bool is_recursive, std::int64_t was_said_ns = 0) : recursive(is_recursive), said_ns(was_said_ns) {}  // NOLINT: mostly that is all there is to say
    bool recursive = false;
    std::int64_t said_ns = 0;  // kInvalidate: when it was said first (Sweeps::Request)
    // By a name that the catalogue does not know, or as a link, the source is asked what it leads to, for a second at most, and what that is goes with it. (A client
    // that tells of its own changes has asked by itself.)
    bool resolve = false;
  };
  using AdviceDone = std::function<void(int error, std::uint64_t files)>;
  // What is known to be reached through a link is concerned as well. kInvalidate of everything below also ends what is known of where links lead: one of them, or what
  // they go through, may be what has changed.
  void Advise(SourceUnit& unit, abi::AdviseOp op, std::string_view path, AdviceReach reach, AdviceDone done);
  // The file that a path through a link leads to, as far as is known; kNoFile where it leads nowhere, or is no such path.
  FileId BehindAlias(FileId file) const;
  // tier_prefetch, tier_pin: one job for all of them. False: too many jobs run.
  bool Prefetch(std::vector<Jobs::Item> items, Jobs::PrefetchOptions options);
  // Entries of sessions' access rings (hostile), in their order; at most kAccessesAtOnce. Together they cost less: what each will look at comes from memory side by
  // side. One that there is no memory for is lost (counted).
  struct RingAccess {
    SessionId session;
    std::uint64_t entry;
  };
  static constexpr std::size_t kAccessesAtOnce = Catalogue::kMostAtOnce;
  void OnAccesses(std::span<const RingAccess> accesses);
  void CountRingLost(std::uint64_t entries);
  // Reads and opens of all sessions so far that went around the cache. Those that the daemon was not asked about have left no trace: what watches the reads hears how many.
  void NoteAround(std::uint64_t total);
  void OnSessionEnd(SessionId session);
  // Memory ran out inside one of the above: what it had begun is looked for and dropped (F16).
  void NoteLost();
  // A client has changed files and could not say which: each file of each source is asked about anew, within a second.
  void NoteUntold();
  // A client of an older libtier is there, which raises no SessionPage::untold. After a stand of the loop such a one may
  // have changed files, too.
  void NoteSilentClient() { silent_clients_ = true; }
  // After a batch of the above: hands requests to the kernel.
  void EndTurn();

  // ---- what sessions are given
  const std::array<std::uint8_t, 16>& instance() const { return instance_; }
  const ram::SharedIndex& index() const { return *index_; }
  ram::RamTier& ram() { return *ram_; }
  std::uint64_t pin_cap_bytes() const { return pin_cap_bytes_; }
  std::uint64_t ram_capacity() const { return placement_->ram_capacity(); }

  // ---- control plane
  SourceTable& sources() { return sources_; }
  Catalogue& catalogue() { return *catalogue_; }
  Placement& placement() { return *placement_; }
  Jobs& jobs() { return *jobs_; }
  Workers& workers() { return workers_; }
  Fetcher& fetcher() { return *fetcher_; }
  ssd::SsdTier* ssd() { return ssd_.get(); }
  const EngineOptions& options() const { return options_; }
  const EngineCounters& counters() const { return counters_; }
  const ssd::RecoveryReport& recovery() const { return recovery_; }
  bool recovering() const { return recovering_; }
  // As `status` and the log name them: "ok", "degraded"; of the SSD also "off", "recovering", "out".
  const char* ram_state() const;
  const char* ssd_state() const;
  const LoopLag& lag() const { return lag_; }
  // A handler of the loop that is none of the engine's runs until this goes.
  LoopLag::Handler CountHandler(const char* name) { return LoopLag::Handler(lag_, name); }
  const std::string& ssd_note() const { return ssd_note_; }
  const std::string& ssd_engine_reason() const { return ssd_engine_reason_; }  // "": it was told
  // The source and relative path of an absolute path, by the roots as they were given, else by their names behind links; null if it is below none. Any thread, behind Start.
  SourceUnit* Locate(std::string_view absolute, std::string* relative);
  // The name behind the links of its root, where it has one of its own, and that is in no other source by its text; else "". Clients find it by both. Any thread, behind Start.
  std::string OtherName(const SourceUnit& unit);
  // Everything known at or below a path, in slices (Sweeps::Start).
  void Sweep(Sweeps::Request request);
  std::uint64_t KnownFiles(const SourceUnit& unit) const { return catalogue_->files_of(unit.index); }
  const char* ssd_engine_name() const { return ssd_io_ ? ssd_io_->name() : ""; }
  // Whether some client leases a chunk of the file now (a scan of all lease tables).
  bool Leased(FileId file);
  // Records of the source's dataset do not come back after a crash (one fsync, on the tier's own thread); what is known of its other files is forgotten by the SSD tier too.
  // `done` says whether that is so.
  void VoidRecords(SourceUnit& unit, std::function<void(bool durable)> done);
  // What is known of the order in which a source is read.
  Foresight& foresight(const SourceUnit& unit) { return *foresights_[unit.index]; }
  const Foresight& foresight(const SourceUnit& unit) const { return *foresights_[unit.index]; }
  const Observer& observer(const SourceUnit& unit) const { return *observers_[unit.index]; }
  const Forerunner& forerunner(const SourceUnit& unit) const { return *forerunners_[unit.index]; }
  // A plan was told. Its list is read by a worker; `done` runs once, with the plan's id. kBusy: the source's mode is not `seeded`.
  struct ToldPlan {
    orders::Plan plan;
    std::string document;
    std::string list_file;  // its list (SampleMap::Make), in a directory of ours: removed once it was read
    bool keep = false;
    UniqueFd process;
  };
  void TellPlan(SourceUnit& unit, ToldPlan told, std::function<void(Result<std::uint64_t>)> done);
  // Work was given by the control plane: a turn comes soon.
  void Kick() { ScheduleTurn(); }
  // Another policy for a source, at run time, in two steps, so that several change together or none: it is made (kNotFound, kInvalid), and then takes
  // over, told all that is known and placed.
  Result<policies::PolicyInstance> PreparePolicy(const std::string& name, const std::string& parameters);
  // What files are worth to the application, for the source's policy; paths relative to the source. How many of them are known: the others are passed over. Nothing is
  // kept: another policy, or another daemon, has to be told anew.
  std::uint64_t Prioritize(SourceUnit& unit, std::span<const std::string_view> paths, std::span<const double> priorities);
  // In slices, during which the old one decides; it is named as the source's from now on.
  void SwitchPolicy(SourceUnit& unit, policies::PolicyInstance policy, const std::string& name, const std::string& parameters);

  // Hooks of the server, set before Start: after each turn and once the SSD has answered in one (replies go out), at each timer tick (rings are drained), and when clients need
  // the new index.
  std::function<void()> on_turn;
  std::function<void()> on_timer;
  std::function<void()> on_index_grown;
  // Lines for the log; set before Start.
  std::function<void(std::string)> log;

 private:
  Status OpenSource(const SourceOptions& options, std::uint16_t index);
  Status OpenSsd();
  Status CreateIndex();
  void Recover();
  void OnRecovered(std::span<const ssd::RecoveredRecord> batch);
  void AdoptRecord(SourceUnit& unit, const ssd::RecoveredRecord& record);
  void GrowIndexNow();
  void GrowIndexInBackground(std::uint64_t expected_files = 0);
  void EndIndexGrowth();
  void PauseIndexGrowth();
  struct Watched;
  void Watch(int fd);
  void Arm(Watched& watched);
  void CancelWatches();
  // Runs a part of a turn. True: it ran out of memory and gave up what it was at.
  template <typename Work>
  bool Fails(Work&& work) {
    if (Survives(work)) return false;
    NoteLost();
    return true;
  }
  // The steps of a turn: true when there is more to do at once.
  bool DrainSources();
  bool StepSsd();
  bool StepFetcher() { return fetcher_->ResumeRest(); }
  bool StepJobs();
  bool StepSweeps() { return sweeps_->Step(); }
  bool StepPlacement() { return placement_->Turn(); }
  bool StepRefresher() { return refresher_->Step(); }
  bool StepIndex();
  bool StepPolicies();
  bool StepForesight();
  bool StepForerunners();
  bool TellPolicy(SourceUnit& unit);
  bool RenewPolicy(SourceUnit& unit);
  void PrefetchFor(std::span<const RingAccess> accesses);
  void OnAccess(const RingAccess& access, std::int64_t now_ns);
  void NoteRead(SessionId session, ObjectId object, std::uint8_t tier, std::int64_t now_ns);
  void NoteAccess(SessionId session, ObjectId object, std::uint8_t tier, std::int64_t now_ns);
  AccessWatch::Tiers TiersForWatch() const;
  void ScheduleTurn();
  void Turn();
  void ArmTimer();
  void Hurry();
  void HeedMemory();
  bool Working() const;
  std::int64_t SourcesDueNs() const;
  void OnTick();
  void OnTimer();
  void Heartbeat(std::uint32_t ahead_ticks);
  void Beat();
  void BeatForLoop();
  void EndTurnQuietly();
  void TellStates(std::int64_t now_ns);
  void DoubtAll(std::int64_t asleep_ns);
  void TrimAfterWork();
  void VoidDataset(SourceUnit& unit);
  AdviceDone ForgetAliases(SourceUnit& unit, AdviceDone done);
  struct Doubts {
    AdviceDone done;
    bool always = false;  // however many sweeps wait
    bool access = false;  // also whether files may still be read
  };
  void Doubt(SourceUnit& unit, std::string_view path, Doubts doubts);
  void AdviseResolved(SourceUnit& unit, abi::AdviseOp op, std::string_view path, AdviceReach reach, AdviceDone done);
  void NoteChange(SourceUnit& unit, std::string_view path, bool recursive);
  void NoteOtherNames(const io::FileStat& stat, FileId told);
  void VoidLinked(std::uint64_t files, AdviceDone done);
  void AskForOtherNames(SourceUnit& unit, std::string_view path, std::uint64_t files, AdviceDone done);
  bool Apply(SourceUnit& unit, abi::AdviseOp op, FileId file);
  void Forget(FileId file);
  void ForgetLater(FileId file);
  void ForgetGone(std::int64_t now_ns);
  void ForgetExpiredAliases(std::int64_t now_ns);
  // What the policy was told of the plan, for those that are tried beside it.
  void TellWatch(SourceUnit& unit, std::uint32_t epoch, std::span<const std::uint32_t> ids);
  void Log(std::string line) const {
    if (log) log(std::move(line));
  }

  // Constant after Start.
  boost::asio::io_context& loop_;
  const Clock& clock_;
  const policies::Registry& policies_;
  EngineOptions options_;
  std::array<std::uint8_t, 16> instance_{};
  std::uint64_t pin_cap_bytes_ = 0;

  // Owned by the loop thread; destroyed in the reverse order.
  LoopLag lag_;
  Workers workers_;
  EngineCounters counters_;
  std::unique_ptr<io::IoEngine> ssd_io_;
  std::unique_ptr<ram::SharedIndex> index_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<ram::SegmentFactory> segments_;
  std::unique_ptr<ram::RamTier> ram_;
  SourceTable sources_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<ssd::SsdTier> ssd_;
  std::unique_ptr<Fetcher> fetcher_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<Refresher> refresher_;
  std::unique_ptr<Sweeps> sweeps_;
  std::vector<std::unique_ptr<Foresight>> foresights_;  // by SourceUnit::index
  std::vector<std::unique_ptr<Forerunner>> forerunners_;
  std::vector<std::unique_ptr<Observer>> observers_;
  FileVisits visits_;
  std::uint64_t last_plan_ = 0;
  std::vector<std::unique_ptr<Watched>> watched_;
  boost::asio::steady_timer timer_;
  HandlerMemory timer_memory_;
  HandlerMemory turn_memory_;
  std::int64_t lost_logged_ns_ = 0;
  StateLog state_log_;
  std::int64_t late_logged_ns_ = 0;
  ssd::RecoveryReport recovery_;
  RecoveryDoubts doubts_;
  // Told of one by one as changed, and due to be forgotten unless they were read again.
  struct PerhapsGone {
    FileId file;
    abi::FileKey key;
    std::int64_t due_ns;
  };
  static constexpr std::int64_t kGoneNs = 30'000'000'000;
  static constexpr std::size_t kMostPerhapsGone = 1 << 18;
  static constexpr int kForgottenAtOnce = 8192;  // a second
  std::deque<PerhapsGone> perhaps_gone_;
  std::string ssd_note_;
  std::string ssd_engine_reason_;
  bool recovering_ = false;
  bool turn_scheduled_ = false;
  struct Pending {
    unsigned timers = 0;  // two for a moment, when the timer is set anew
    bool ended = false;   // Stop was called, and maybe there is no engine any more: a handler looks here before it touches it
  };
  const std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();  // shared with the handlers that lie in the loop
  bool armed_idle_ = false;  // the timer is set for a daemon with nothing to do
  std::int64_t armed_until_ns_ = 0;  // MonotonicNs
  bool failed_ = false;      // memory ran out in the last turn
  std::size_t next_step_ = 0;  // of the next turn, the first
  bool making_index_table_ = false;  // a worker; the growth itself is the index's, which may give it up at any insertion
  std::int64_t grow_index_again_ns_ = 0;
  bool stopping_ = false;
  bool worked_ = true;  // at the last look a job or the recovery was under way
  std::int64_t last_second_ns_ = 0;
  std::int64_t asleep_ns_ = 0;           // Clock::AsleepNs that was heeded
  bool stood_ = false;                   // clients took the daemon for hung
  bool silent_clients_ = false;
  bool untold_ = false;                  // DoubtAll is due
  std::int64_t doubted_ns_ = 0;          // MonotonicNs of the last DoubtAll
  std::optional<std::chrono::steady_clock::time_point> beaten_until_;  // what the heartbeat says
  std::int64_t last_tenth_ns_ = 0;
  std::int64_t busy_until_ns_ = 0;
  std::uint64_t ring_entries_seen_ = 0;  // at the last tick
  std::uint64_t accesses_seen_ = 0;      // the heart's own, while the loop rests
  Heart heart_;                          // last: it looks at the others
};

}  // namespace tierd::engine
