// Prefetch jobs and warm-up: walks trees, keeps a bounded number of files on their way into the tiers, counts, and at the end verifies by a
// second walk, and by what was there before (jobs_verify.cc), that what was asked for is really there. A job ends by itself; finished ones are remembered (kRememberedJobs).
// Prefetch follows symbolic links within a source, as `find -L` does (jobs_links.cc); warm-up and walks pass over them.
//
// Owner: Engine. Loop thread only. Which tier takes a file is placement's and the policy's business; `ssd_only` asks for the SSD tier alone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/fetch/fetcher.h"
#include "tierd/engine/residency/placement.h"

namespace tierd::engine {

enum class JobState : std::uint8_t { kRunning, kVerifying, kDone, kPartial, kCancelled };
inline constexpr const char* kJobStateNames[] = {"running", "verifying", "done", "partial", "cancelled"};
enum class JobKind : std::uint8_t { kPrefetch, kWarmup, kWalk, kVerify };
inline constexpr const char* kJobKindNames[] = {"prefetch", "warmup", "walk", "verify"};

// Who asked for a job.
enum class JobOwner : std::uint8_t {
  kUser,     // by the control protocol: tierctl
  kProgram,  // a program that reads, by libtier
  kDaemon,   // the daemon itself
};
inline constexpr const char* kJobOwnerNames[] = {"user", "program", "daemon"};

struct JobStatus {
  std::uint64_t id = 0;
  JobOwner owner = JobOwner::kUser;
  std::uint32_t pid = 0;    // of kProgram; 0: not known
  std::string path;         // absolute: the first that was asked for; "": everything (kVerify)
  std::size_t paths = 0;    // that were asked for
  JobKind kind = JobKind::kPrefetch;
  JobState state = JobState::kRunning;
  bool walking = true;               // files_total and bytes_known still grow
  std::uint64_t files_total = 0;
  std::uint64_t files_done = 0;      // ended well
  std::uint64_t files_failed = 0;    // the source refused
  std::uint64_t files_no_room = 0;   // no tier that was asked for took them
  std::uint64_t bytes_done = 0;      // never falls; of a prefetch or warm-up chunk by chunk, and never more than bytes_known
  // Prefetch, warm-up. Sizes of the files in files_sized, and what had come of those that were not brought.
  std::uint64_t bytes_known = 0;
  std::uint64_t files_sized = 0;     // files_done, and those under way whose size is known
  std::uint64_t verified_files = 0;  // found in a tier that was asked for by the second walk
  std::uint64_t verified_bytes = 0;
  std::uint64_t expected_files = 0;  // by the second walk, and of what was there before
  std::int64_t started_ns = 0;       // MonotonicNs
  std::int64_t ended_ns = 0;         // 0 while it runs
  std::string error;                 // first failure, a sentence

  // Files are brought: they have sizes.
  bool brings() const { return kind == JobKind::kPrefetch || kind == JobKind::kWarmup; }
  // No file is left whose size bytes_known has still to get.
  bool sizes_known() const { return brings() && !walking && files_sized + files_failed + files_no_room >= files_total; }
};

class Jobs {
 public:
  // Finished jobs: of programs, and of everybody else. A loop that looks ahead does not push out what a person waits for.
  static constexpr std::size_t kRememberedJobs = 64;
  static constexpr std::size_t kRunningJobs = 256;

  Jobs(Catalogue& catalogue, Placement& placement, Fetcher& fetcher, SourceTable& sources, const Clock& clock);
  ~Jobs();
  void SetSsd(ssd::SsdTier* ssd) { ssd_ = ssd; }
  // So many names may wait before walks rest, of all jobs together; each may have kNamesOfJob in any case.
  static constexpr std::size_t kNames = 100'000, kNamesOfJob = 4096;
  void set_most_names(std::size_t names) { most_names_ = names; }

  struct Item {
    SourceUnit* unit = nullptr;
    std::string path;  // relative to the source: a file or a directory
  };
  struct PrefetchOptions {
    bool ssd_only = false;
    bool pin = false;
    bool evict = true;   // others may leave for it, if the policy names victims
    bool recursive = true;  // an item that is a directory stands for all below it; else it fails
    JobOwner owner = JobOwner::kUser;
    std::uint32_t pid = 0;  // of kProgram
  };
  // 0: too many jobs run.
  std::uint64_t Prefetch(std::vector<Item> items, PrefetchOptions options);
  // Fills what is free with everything below `directory`; at most one per source at a time (a wider one replaces it).
  void WarmUp(SourceUnit& unit, const std::string& directory);
  // Until then (MonotonicNs) warm-ups read nothing, neither those that run nor those that begin; what is in flight ends. A time that has passed ends the rest.
  void RestWarmUps(std::int64_t until_ns) { warm_ups_rest_until_ns_ = until_ns; }
  // Lists and stats trees, so that the catalogue knows them; reads no file. 0: too many jobs run.
  std::uint64_t Walk(std::vector<Item> items);
  // Reads every SSD record of the files below the items (no items: of everything) and checks it. Files stand for records in its status.
  std::uint64_t VerifyRecords(std::vector<Item> items);
  // False: no such job, or it is over.
  bool Cancel(std::uint64_t id);
  // Memory ran out among them: those that run end as they are.
  void Abandon();
  // Null when unknown (or forgotten).
  const JobStatus* Find(std::uint64_t id) const;
  // The walk under way that comes by all of `path`; 0: there is none.
  std::uint64_t WalkOf(const SourceUnit& unit, std::string_view path) const;
  std::vector<JobStatus> List() const;

  // Starts what limits allow; every turn. True: another turn has work at once.
  bool Pump();
  bool idle() const { return running_ == 0 && !names_left_; }
  // Names of files that are still to be asked for, or, led to by links, to be looked at again. Those of a job that has ended go some at a turn.
  std::size_t names_waiting() const;

 private:
  struct Name;
  struct File;
  struct Seen;
  struct Job;
  using JobPtr = std::shared_ptr<Job>;  // shared with callbacks of walks and fills under way

  JobPtr NewJob(JobKind kind, std::vector<Item> items);
  void ForgetOldest(const Job& newest);
  // Runs a step of a job. Where memory runs out in it, the job ends as it is.
  template <typename Step>
  void Try(const JobPtr& job, Step&& step) {
    if (!Survives(step)) Abandon(job);
  }
  void Abandon(const JobPtr& job);
  // A walk of each item, some in each turn.
  void WalkItems(const JobPtr& job);
  bool SsdStalls();
  void WalkSome(const JobPtr& job);
  void RestWalks(const JobPtr& job, std::size_t most_names);
  void StatTree(const JobPtr& job, const Item& item);
  void StatOne(const JobPtr& job, SourceUnit& unit, const std::string& path);
  void Observe(const JobPtr& job, Seen seen);
  bool Place(const JobPtr& job, const Seen& seen);
  void PumpWalk(const JobPtr& job);
  void FindRecords(const JobPtr& job);
  void PumpRecords(const JobPtr& job);
  bool ReadRecord(const JobPtr& job, ObjectId object);
  bool IsInVain(const Job& job) const;
  void GiveUpRecords(const JobPtr& job);
  void WalkItem(const JobPtr& job, const Item& item);
  void WalkAgain(const JobPtr& job, const Item& item);
  bool IsRestingWarmUp(const Job& job) const;
  void PumpJob(const JobPtr& job);
  void BringFile(const JobPtr& job, Name name);
  static Fetcher::BringRequest RequestFor(const JobPtr& job, const File& file, std::uint32_t chunk);
  void OnFirstChunk(const JobPtr& job, const std::shared_ptr<File>& file, const BringResult& result);
  void TakeTarget(File& file) const;
  bool IsOfJob(const JobPtr& job, const File& file);
  void WalkBehind(const JobPtr& job, const std::shared_ptr<File>& file);
  void OnResolved(const JobPtr& job, const std::shared_ptr<File>& file, const Result<source::ResolvedPath>& resolved);
  void VerifyLinked(const JobPtr& job);
  void MaybeEnd(const JobPtr& job);
  void OnChunk(const JobPtr& job, const std::shared_ptr<File>& file, std::uint32_t chunk, const BringResult& result);
  void BeginCount(const JobPtr& job, const std::shared_ptr<File>& file);
  void CountChunk(const JobPtr& job, const std::shared_ptr<File>& file, std::uint32_t chunk);
  bool IsAsCounted(const File& file) const;
  std::uint64_t EndCount(const JobPtr& job, const std::shared_ptr<File>& file);
  void CountEnded(const JobPtr& job, const std::shared_ptr<File>& file, std::uint64_t bytes);
  static void ShowCount(Job& job);
  void BringMore(const JobPtr& job, const std::shared_ptr<File>& file);
  void EndFile(const JobPtr& job, const std::shared_ptr<File>& file);
  static std::string WhyNot(const File& file);
  void Failed(const JobPtr& job, const File& file);
  void RefuseDirectory(const JobPtr& job, SourceUnit* unit, const std::string& path);
  void NoteRacy(const JobPtr& job, const File& file);
  void MaybeVerify(const JobPtr& job);
  void Verify(const JobPtr& job);
  void VerifyFile(const JobPtr& job, FileId file);
  void End(const JobPtr& job);
  static void CancelWalks(const Job& job);
  bool OutgrowsTiers(const Job& job) const;
  bool DropNames();

  Catalogue& catalogue_;
  Placement& placement_;
  Fetcher& fetcher_;
  SourceTable& sources_;
  const Clock& clock_;
  ssd::SsdTier* ssd_ = nullptr;
  std::map<std::uint64_t, JobPtr> jobs_;
  std::uint64_t next_id_ = 1;
  std::size_t running_ = 0;
  std::size_t most_names_ = kNames;
  std::int64_t ssd_stalls_since_ns_ = 0;  // 0: it does not
  std::int64_t warm_ups_rest_until_ns_ = 0;
  bool names_left_ = false;  // of jobs that are over
};

}  // namespace tierd::engine
