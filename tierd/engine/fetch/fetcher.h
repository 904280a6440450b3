// The miss path: one read of a chunk however many wait for it, from the cheapest holder, checked, published, answered.
//
//   Serve ── unknown path ──► Discover (stat, or read into a staging buffer: the size is not known) ──► Serve again / answer
//     ├──── deadline over ──► Revalidate (one stat per file) ──► Serve again
//     ├──── in RAM ─────────► answer
//     └──── else ───────────► Fill: SSD, or source ──► publish ──► answer, copy to SSD
//
// Single flight: one Discovery per path, one Revalidation per file, one Fill per object. A client that waited `demand_timeout` is told to bypass;
// the work goes on and may serve the next one. What the daemon waits for itself takes as long as it takes, whoever joins it meanwhile.
//
// Owner: Engine. Loop thread only. It chooses no victims (placement) and no prefetch (jobs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/counters.h"
#include "tierd/engine/fetch/invalidation_log.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/engine/residency/placement.h"
#include "tierd/engine/fetch/requests.h"
#include "tierd/engine/fetch/retry_list.h"
#include "tierd/engine/sources/service_pace.h"
#include "tierd/engine/fetch/staging.h"
#include "tierd/engine/fetch/waiter.h"
#include "tierd/engine/workers.h"

namespace tierd::engine {

class Fetcher {
 public:
  struct Parts {
    Catalogue& catalogue;
    Placement& placement;
    ReplySink& replies;
    Workers& workers;
    const Clock& clock;
    EngineCounters& counters;
  };
  // A million names of 40 bytes. Larger listings are left to the client.
  static constexpr std::uint64_t kLargestListing = std::uint64_t{64} << 20;
  explicit Fetcher(const Parts& parts);
  ~Fetcher();
  void SetSsd(ssd::SsdTier* ssd) { ssd_ = ssd; }
  // The source has just been opened: what was seen of its root then.
  void NoteRoot(const SourceUnit& unit) { NoteDirectory(unit, "", unit.source->root_stat().mode, clock_.PreciseNs()); }
  // Tests lower it.
  void SetLargestListing(std::uint64_t bytes) { largest_listing_ = bytes; }

  // A client's request; exactly one reply comes, in this call or later.
  void Fetch(SourceUnit& unit, const FetchRequest& request);
  // A client has read the object, as its ring tells: of a file that it walks through, what comes next is brought before it has to ask. True: something may have
  // been asked for.
  bool OnRead(SourceUnit& unit, SessionId session, ObjectId object);
  // The daemon's own: brings one chunk of a path. `done` runs exactly once.
  struct BringRequest {
    std::string path;
    std::uint32_t chunk = 0;
    bool ssd_only = false;
    bool evict = false;
    source::Priority priority = source::Priority::kPrefetch;
    BringCallback done;
  };
  void Bring(SourceUnit& unit, BringRequest request);
  // Compares a known file with the source if its deadline is over (restart, ttl), ahead of use. `done` runs exactly once.
  void Refresh(SourceUnit& unit, FileId file, BringCallback done);

  // Asks the source about a known file whose deadline is not over yet, at low priority. `done` runs exactly once.
  void RefreshAhead(SourceUnit& unit, FileId file, BringCallback done);

  // A walk has seen this entry: it becomes known, or its version and deadline follow; where it differs from what was compared with the source before, the source
  // is asked again. kLater: the index has no room for it just now, but is growing. kNoRoom: nor will it soon. What is too large for the catalogue stays unknown (kKnown: nothing
  // more is to be done).
  enum class Observed : std::uint8_t { kKnown, kLater, kNoRoom };
  Observed Observe(SourceUnit& unit, std::string_view path, const io::FileStat& stat, std::int64_t stat_sent_ns);

  // The source changed under our eyes (tier_invalidate, control plane): drops what is cached of the file; returns whether it was known.
  bool Invalidate(SourceUnit& unit, FileId file, EvictCause cause);
  // Answers of the source that were asked for before now prove nothing about `path` (and what is below it).
  void NoteInvalidation(const SourceUnit& unit, std::string_view path, bool recursive);
  // Time has passed that no clock counted: the next confirmation of the file asks whether it may be read.
  void DoubtAccess(FileId file);
  // The same of a file with several names, of which some may be read for the first time just now.
  void NoteInvalidation(std::uint64_t inode);
  // Listings under way that may miss a change of ours at or below `changed`: nobody gets them.
  void SpoilListings(std::string_view changed);
  // The object's SSD record could not be read, or is not what it says: it goes, and is counted. For want of memory or threads nothing goes.
  void DropRecord(ObjectId object, const ssd::ReadResult& result);
  // Forgets a file altogether: policy, slots, record. False, and all is left as it is: it has bytes in a tier, is pinned, or something under way names it.
  bool Forget(SourceUnit& unit, FileId file);

  // A client was told to read something known itself.
  std::function<void(SessionId, ObjectId)> on_bypass;
  // Something a client asked for the first time: the engine feeds warm-up with it.
  std::function<void(SourceUnit&, FileId)> on_first_demand;
  // Two reads of one version of a file gave different bytes: one line for the log.
  std::function<void(const std::string&)> on_mismatch;
  // Every SSD record of the source's dataset has become void.
  std::function<void(SourceUnit&)> on_dataset_void;

  // While the SSD's records are coming in, a path that is not known yet may be one of them: who asks for it waits for its record, at most kRecoveryWaitNs
  // from the begin, instead of reading the source.
  static constexpr std::int64_t kRecoveryWaitNs = 1'000'000'000;
  void BeginRecovery() { recovery_wait_until_ns_ = clock_.MonotonicNs() + kRecoveryWaitNs; }
  void OnRecovered(SourceUnit& unit, FileId file);
  void EndRecovery();

  // It hears no answers any more; the work that it asked for goes on.
  void OnSessionEnd(SessionId session);

  // Deadlines of waiting clients, at some of the calls: 10 to 40 times a second. To be called as often at least while anybody waits. True: there is more to do at once.
  bool Tick();
  // Memory came, or the index has grown: tries what waited for it, each once, some at a time: ResumeRest() goes on. True: there was no time for all of it.
  bool Resume();
  bool ResumeRest();
  // Bytes of the source that came and had to wait: some megabytes of them, or of what comes until the next call. The rest of it waits.
  void HandleLanded();
  bool has_landed() const { return !landed_.empty(); }
  // The SSD tier may have written something: bytes that waited for its buffers are offered again. True: there was no time for all of them.
  bool ResumeWrites();
  // Memory ran out in something that belongs to a request: what nobody works at any more is answered "bypass" at the next tick (F16).
  void NoteLost() { lost_ = true; }
  bool idle() const { return !lost_ && lost_waiters_->empty() && fills_.empty() && discoveries_.empty() && revalidations_.empty() && listings_.empty() && parked_.empty() && doubted_.empty(); }
  std::size_t fills_in_flight() const { return fills_.size() + discoveries_.size(); }
  const StagingPool& staging() const { return *staging_; }
  // Frames that reads without an answer still own, which no reader waits for: the source or the SSD hangs. At an eighth of the RAM tier no new read gets one, from neither of
  // them (HAZARDS 2.7).
  std::size_t hung_frames() const { return hung_frames_; }

 private:
  template <typename Work>
  void Guard(Work&& work) {
    if (!Survives(work)) NoteLost();
  }
  void Reap();

  struct Fill;
  struct SourceRead;
  struct Discovery;
  struct Listing;
  using FillPtr = std::shared_ptr<Fill>;            // shared with the callbacks of its I/O, which may outlive its place in fills_
  using SourceReadPtr = std::shared_ptr<SourceRead>;  // see there
  using DiscoveryPtr = std::shared_ptr<Discovery>;  // likewise
  struct Landed {
    SourceUnit* unit;
    FillPtr fill;
    source::ReadResult result;
  };

  void Serve(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter, source::Priority priority);
  void ServeFile(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority);
  void ServeChunk(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority);
  // That were brought for somebody else, and that whoever asks next is given without a read.
  bool HasBytes(ObjectId object) const;
  void DiscoverAnew(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority);

  // What the client will ask for next.
  source::ChunkRange AheadOf(SourceUnit& unit, FileId file, const Waiter& waiter);
  void ReadAhead(SourceUnit& unit, FileId file, source::ChunkRange range);

  void Discover(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter, source::Priority priority);
  void DiscoverByStat(SourceUnit& unit, const DiscoveryPtr& discovery, source::Priority priority);
  void DiscoverByRead(SourceUnit& unit, const DiscoveryPtr& discovery, source::Priority priority);
  void OnDiscoveredStat(SourceUnit& unit, const DiscoveryPtr& discovery, const source::StatReply& reply);
  void OnDiscoveredRead(SourceUnit& unit, const DiscoveryPtr& discovery, const source::ReadResult& result);
  void Adopt(SourceUnit& unit, const DiscoveryPtr& discovery, const source::ReadResult& result);
  void ResolveAlias(SourceUnit& unit, const DiscoveryPtr& discovery);
  void OnResolved(SourceUnit& unit, const DiscoveryPtr& discovery, const Result<source::ResolvedPath>& resolved);
  bool Doubted(SourceUnit& unit, const DiscoveryPtr& discovery);
  // All who wait for the discovery ask again, at the next tick.
  void AskAgain(SourceUnit& unit, const DiscoveryPtr& discovery);
  void AskAgain(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiters waiters);
  void Unanswered(SourceUnit& unit, const DiscoveryPtr& discovery, source::ReadError error);
  void PlaceDiscovered(SourceUnit& unit, const DiscoveryPtr& discovery);
  void PlaceStaged(SourceUnit& unit, const DiscoveryPtr& discovery);
  void EndDiscovery(const DiscoveryPtr& discovery);
  void EndStaging(const DiscoveryPtr& discovery);
  bool JoinStaged(const DiscoveryPtr& discovery);
  // Waiters go round again after what they waited for has changed.
  void Again(SourceUnit& unit, FileId file, Waiters waiters);

  void Revalidate(SourceUnit& unit, FileId file, Waiter waiter, source::Priority priority);
  // `opening`: it was asked for by an open.
  void OnRevalidated(SourceUnit& unit, FileId file, std::uint64_t tag, const source::StatReply& reply, bool opening);

  // Whether anybody may search the directories from the root to the file's.
  struct Way {
    enum class State : std::uint8_t { kOpen, kClosed, kUnknown };
    State state = State::kUnknown;
    std::int64_t asked_ns = 0;  // of kOpen: the earliest answer that it rests on
    std::string_view unknown;   // the first directory that is to be asked about; points into the catalogue
  };
  Way WayTo(const SourceUnit& unit, FileId file) const;
  void NoteDirectory(const SourceUnit& unit, std::string_view path, std::uint32_t mode, std::int64_t asked_ns);
  // The source has opened the file for a request that was sent then.
  void NoteOpened(FileId file, std::int64_t asked_ns);
  std::uint32_t OpenedUntil(const SourceUnit& unit, FileId file) const;
  std::uint32_t BoundByAccess(const SourceUnit& unit, FileId file, std::uint32_t deadline) const;
  // The next confirmation has to be an open, unless anybody may read the file.
  bool OpenIsDue(const SourceUnit& unit, FileId file) const;
  bool StatWillDo(const SourceUnit& unit, FileId file, const source::StatReply& reply) const;
  // The stat has come and proves no access: asks about the directories again, or opens the file.
  void AskFurther(SourceUnit& unit, FileId file, const source::StatReply& reply);
  // Steps of a revalidation: asks about a directory on the way first where need be, then by a stat or an open.
  void AskSource(SourceUnit& unit, FileId file);
  void SendQuestion(SourceUnit& unit, FileId file, bool open);
  struct DirectoryQuestion;
  using DirectoryQuestionPtr = std::shared_ptr<DirectoryQuestion>;  // owned by its request's callback, and while files join it
  void AskDirectory(SourceUnit& unit, std::string_view path, FileId file);
  void OnDirectory(SourceUnit& unit, const std::string& path, DirectoryQuestion& question, const source::StatReply& reply);
  void Refused(FileId file);
  // A link stands on the way to the file by now: what is there has a name of its own. The waiters look for it anew.
  void Relinked(SourceUnit& unit, FileId file, Waiters waiters);
  void ApplyVersion(SourceUnit& unit, FileId file, const io::FileStat& stat);
  // Tells the policy of the file's objects.
  void Announce(SourceUnit& unit, FileId file);
  void Confirm(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool racy);
  void ConfirmUnasked(FileId file, std::int64_t until_ns);
  // By a stat alone; `young`: the file may still be in the making.
  void ConfirmFacts(SourceUnit& unit, FileId file, std::int64_t stat_sent_ns, bool young);
  // By a read; `awaited`: a reader wanted the bytes as they were then.
  void ConfirmBytes(SourceUnit& unit, FileId file, const source::ReadResult& result, bool awaited);
  void Prove(SourceUnit& unit, FileId file, const source::StatReply& reply);
  std::uint32_t MomentFrom(const SourceUnit& unit, std::int64_t stat_sent_ns) const;

  void StartFill(SourceUnit& unit, ObjectId object, Waiter waiter, source::Priority priority);
  // Of a fill of some parts of what is on the SSD: it gets its frame, for these, or for all of it where RAM takes it. True: another one brings them, and has its waiters.
  bool JoinParts(const FillPtr& fill);
  void OnPartsRead(SourceUnit& unit, const FillPtr& fill, const ssd::ReadResult& result);
  void AddFill(const FillPtr& fill);
  void RemoveFill(const Fill& fill);
  void OrphanFile(FileId file, Waiters* waiters);
  bool IsFilling(FileId file) const;
  void RunFill(SourceUnit& unit, const FillPtr& fill);
  bool FillFromSsd(SourceUnit& unit, const FillPtr& fill);
  static bool SsdIsSlower(SourceUnit& unit, Fill& fill, std::uint32_t bytes);
  bool HungFramesFull() const { return hung_bytes_ > 0 && hung_bytes_ >= placement_.ram_capacity() / 8; }
  void FillFromSource(SourceUnit& unit, const FillPtr& fill);
  bool JoinNeighbour(const FillPtr& fill);
  bool AcquireAll(SourceUnit& unit, SourceRead& read, source::ReadRequest& request);
  void Compose(const SourceUnit& unit, SourceRead& read, source::ReadRequest& request);
  void OnSsdRead(SourceUnit& unit, const FillPtr& fill, const ssd::ReadResult& result);
  // The I/O of a fill goes on without any reader waiting: its frame is lost to the tier until that ends.
  void BeginHung(Fill& fill, source::ReadError error);
  void EndHung(Fill& fill);
  void OnSourceRead(SourceUnit& unit, const SourceReadPtr& read, const source::ReadResult& result);
  void OnLateRead(SourceUnit& unit, const SourceReadPtr& read, const source::ReadResult& result);
  void Handle(const Landed& landed);
  void OnFilled(SourceUnit& unit, const FillPtr& fill, const source::ReadResult& result);
  void Unanswered(SourceUnit& unit, const FillPtr& fill, source::ReadError error);
  bool AcquireFor(const FillPtr& fill, io::AlignedBuffer* filled = nullptr, bool part_will_do = false);
  // The source's bytes are all there; some are looked at twice (SourceOptions::check_reads) before the fill is completed.
  void Keep(SourceUnit& unit, const FillPtr& fill);
  void OnReadTwice(SourceUnit& unit, const FillPtr& fill, const io::AlignedBuffer& again, const source::ReadResult& result);
  void CopyDown(SourceUnit& unit, const FillPtr& fill);
  void CompleteFromSource(SourceUnit& unit, const FillPtr& fill);
  bool MayWaitForSsd(Fill& fill) const;
  bool MayWaitForTransit(Fill& fill);
  void ReleaseMemory(const FillPtr& fill);
  // Publishes what a granted frame or staging buffer holds and answers everybody; the fill is over.
  void Complete(SourceUnit& unit, const FillPtr& fill, abi::Tier tier, bool copy_to_ssd);
  void Fail(const FillPtr& fill, abi::Fallback reason, BringOutcome outcome, int sys_errno = 0);
  void Orphan(const FillPtr& fill, Waiters* waiters);
  // A change of the file was told of since then, or may have gone unnoticed: what was asked for before proves nothing.
  bool IsToldOf(FileId file, std::int64_t since_ns) const;

  void ServeListing(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter);
  void StartListing(SourceUnit& unit, abi::FileKey key, std::string_view path, Waiter waiter);
  void OnListed(SourceUnit& unit, abi::FileKey key, const source::WalkTotals& totals);
  void OnEncoded(SourceUnit& unit, abi::FileKey key, std::vector<std::uint64_t> hashes);
  void PlaceListing(SourceUnit& unit, abi::FileKey key, bool durable);
  void GiveListingUp(SourceUnit& unit, abi::FileKey key);
  // The directory's record, ready to take a listing; nothing when it cannot be.
  std::optional<FileId> ListedDirectory(SourceUnit& unit, abi::FileKey key, const Listing& listing);
  void CopyListing(SourceUnit& unit, abi::FileKey key);
  std::uint32_t DurableUntil(const SourceUnit& unit, const Listing& listing) const;
  void DropUnawaitedWalks();
  void EndListing(abi::FileKey key, const std::function<void(const Waiter&)>& answer);

  template <typename Begin>
  void ForDaemon(BringCallback done, Begin&& begin);
  void AnswerLost();
  // All who wait, for whatever it is, and are such ones: they wait no more.
  template <typename Is>
  Waiters Take(Is&& is);
  void AnswerLate(std::int64_t now_ns);
  // The source has not answered in time. Leaves those who wait on.
  void GiveUp(Waiters& waiters, FileId file, source::ReadError error);
  void Answer(const Waiter& waiter, const abi::FetchReply& reply);
  void Answer(const Waiter& waiter, const BringResult& result);
  void AnswerByLink(const Waiter& waiter, const BringResult& result);
  void ReplyRetry(const Waiter& waiter);
  // `part`: what the frame has of it; 0 bytes: all.
  void ReplyFrame(const Waiter& waiter, ObjectId object, std::uint64_t word, abi::Tier tier, ssd::PayloadRange part = {});
  void ReplyMeta(const Waiter& waiter, FileId file);
  void ReplyBypass(const Waiter& waiter, abi::Fallback reason, FileId file = kNoFile);
  void ReplyError(const Waiter& waiter, int sys_errno);
  void Finish(const Waiter& waiter, BringOutcome outcome, abi::Fallback reason, FileId file, int sys_errno = 0);
  abi::FetchReply ReplyFor(const Waiter& waiter, FileId file) const;
  void NoteDemand(SourceUnit& unit, FileId file, const Waiter& waiter);

  std::uint32_t NowTicks() const { return abi::TicksOf(clock_.MonotonicNs()); }
  std::uint32_t DeadlineFor(const SourceUnit& unit, std::int64_t stat_sent_ns, bool racy) const;
  std::uint64_t GenerationOf(const SourceUnit& unit) const { return ssd_ == nullptr ? 0 : ssd_->DatasetGeneration(unit.dataset_id); }

  struct KeyHash {
    std::size_t operator()(const abi::FileKey& key) const { return static_cast<std::size_t>(key.lo); }
  };

  Catalogue& catalogue_;
  Placement& placement_;
  ReplySink& replies_;
  Workers& workers_;
  const Clock& clock_;
  EngineCounters& counters_;
  ssd::SsdTier* ssd_ = nullptr;
  const std::shared_ptr<StagingPool> staging_ = std::make_shared<StagingPool>();  // owners: see there
  ServicePace ssd_pace_;
  std::int64_t no_transit_until_ns_ = 0;  // a wait for a frame that passes through was in vain
  InvalidationLog invalidations_;
  std::size_t hung_frames_ = 0;
  std::uint64_t hung_bytes_ = 0;
  bool lost_ = false;
  std::int64_t next_look_ns_ = 0;  // at the deadlines of all who wait
  std::unordered_map<SessionId, std::uint32_t> asking_;  // how many answers each session still waits for
  const std::shared_ptr<LostWaiters> lost_waiters_ = std::make_shared<LostWaiters>();  // owners: see there

  // By ObjectId; of fills of a part, that have a frame already, by its begin as well: they are independent of one another.
  std::unordered_map<std::uint64_t, FillPtr> fills_;
  std::size_t parts_under_way_ = 0;  // in fills_
  static std::uint64_t FillKey(ObjectId object, ssd::PayloadRange part) {
    return Raw(object) | (part.bytes == 0 ? 0 : std::uint64_t{part.begin} + 1) << 32;
  }
  std::unordered_map<abi::FileKey, DiscoveryPtr, KeyHash> discoveries_;
  struct Revalidation {
    Waiters waiters;
    std::uint64_t tag = 0;
    source::Priority priority = source::Priority::kPrefetch;  // of its requests
    std::int64_t deadline_ns = 0;                             // of its requests
    source::RequestId request{};        // the file's, or a directory's on the way
    std::shared_ptr<const bool> asked;  // shared with the callback of the request: tells whether it is under way
    bool asked_way_again = false;       // see AskFurther
  };
  std::unordered_map<std::uint32_t, Revalidation> revalidations_;  // by FileId
  struct Directory {
    std::int64_t asked_ns = 0;
    bool open = false;  // anybody may search it
  };
  std::unordered_map<abi::FileKey, Directory, KeyHash> directories_;
  std::unordered_map<abi::FileKey, std::weak_ptr<DirectoryQuestion>, KeyHash> directory_questions_;
  std::unordered_map<abi::FileKey, std::shared_ptr<Listing>, KeyHash> listings_;  // shared with its walk and the worker that sorts it
  // Directories whose listings were too large, and until when (ticks) they are not walked again; at most kTooLargeListings.
  static constexpr std::size_t kTooLargeListings = 4096;
  std::unordered_map<abi::FileKey, std::uint32_t, KeyHash> too_large_listings_;
  std::uint64_t largest_listing_ = kLargestListing;
  struct Parked {  // until recovery has told whether the path is known
    SourceUnit* unit = nullptr;
    std::string path;
    source::Priority priority = source::Priority::kDemand;
    Waiters waiters;
  };
  void ServeParked(Parked parked, abi::FileKey key);
  std::unordered_map<abi::FileKey, Parked, KeyHash> parked_;
  // What was read for these is older than an invalidation, or was not read in the time that a reader had: they are served again at the next tick.
  void ServeDoubted();
  std::unordered_map<abi::FileKey, Parked, KeyHash> doubted_;
  std::int64_t recovery_wait_until_ns_ = 0;
  std::deque<Landed> landed_;  // read, not looked at yet
  std::uint64_t handled_bytes_ = 0;  // since HandleLanded
  RetryList<std::pair<SourceUnit*, FillPtr>> waiting_for_memory_;  // or to ask the source once more
  std::vector<std::pair<SourceUnit*, FillPtr>> waiting_for_ssd_;  // with their bytes staged
  RetryList<std::pair<SourceUnit*, DiscoveryPtr>> staged_;  // bytes are there, a frame is not yet
  RetryList<std::function<void()>> stalled_;  // steps that wait for a frame or for room in the index; what they are about is in the maps above
};

}  // namespace tierd::engine
