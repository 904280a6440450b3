// What is learned from the reads of a source beside what its policy learns: a trace of them, what other policies would have hit (ghosts), what was read
// from the source needlessly (regret). Nothing of it decides anything, and no read waits for it.
//
// Owner: SourceUnit. Loop thread only; files are written by workers. Bounded: ghosts and hindsight are told of at most kSampleObjects objects (policies/sim/ghost.h),
// at most kMostGhosts policies are tried at a time, a trace waits with at most 4 MiB for its disk.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/abi/layout.h"
#include "policies/sim/ghost.h"
#include "policies/sim/trace_recorder.h"
#include "tierd/base/directory_identity.h"
#include "tierd/base/clock.h"
#include "tierd/engine/sources/epoch_counter.h"
#include "tierd/engine/workers.h"

namespace tierd::engine {

// Bytes read from the source above what any policy has to read: in the first epoch what is not there yet, later what does not fit (ORDER.md 2, Theorem 1). Of
// epochs that have ended. The bytes are all that the daemon read for the set and all that clients read around it. What was brought ahead of use belongs to the
// epoch that used it, or in which it left unused.
struct Regret {
  std::uint64_t source_bytes = 0;
  std::uint64_t least_bytes = 0;
  std::uint64_t bytes() const { return source_bytes - std::min(source_bytes, least_bytes); }
};
// `capacity_bytes`: of both tiers; in the first epoch what they held when it began. `brought_bytes`: by the daemon.
Regret RegretOf(const EpochCounter::Epoch& epoch, std::uint64_t capacity_bytes, std::uint64_t brought_bytes);

// Of the reads that there were; 1 where there were none.
inline double SeenShare(std::uint64_t seen, std::uint64_t lost) { return seen + lost == 0 ? 1 : static_cast<double>(seen) / static_cast<double>(seen + lost); }

class AccessWatch {
 public:
  static constexpr std::uint32_t kSampleObjects = 1u << 14;
  static constexpr std::size_t kMostGhosts = 4;
  static constexpr std::size_t kEpochsKept = 128;

  struct Tiers {
    std::uint64_t capacity_bytes[2] = {0, 0};
    std::uint64_t resident_bytes = 0;  // in both
    std::uint64_t capacity() const { return capacity_bytes[0] + capacity_bytes[1]; }
  };
  struct SourceBytes {
    std::uint64_t read = 0;    // by the daemon since its start
    std::uint64_t unread = 0;  // of these: brought ahead of use, still there, and not read by anybody yet
  };
  AccessWatch(Workers& workers, const Tiers& tiers, std::function<SourceBytes()> source_bytes);

  struct Read {
    abi::FileKey key;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
    std::uint32_t consumer = 0;
    std::int64_t time_ns = 0;
    std::uint8_t tier = 0;  // as in a ring: 2 is the source
  };
  // Reading begins: what the tiers held before. The first call counts; one for a reader that waits comes before what it waits for is brought.
  void Begin(std::uint64_t resident_bytes) {
    if (std::exchange(begun_, true)) return;
    resident_at_start_ = resident_bytes;
    brought_before_ = brought_ = source_bytes_().read;
  }
  // `epochs` has heard of the read already.
  void OnRead(const Read& read, const EpochCounter& epochs);
  // Reads that nobody could note: overwritten in a ring, or around the cache without a question.
  void NoteLost(std::uint64_t accesses) {
    lost_ += accesses;
    if (trace_) trace_->recorder.NoteLost(accesses);
  }
  // Memory ran out in one of the above: what costs memory is given up.
  void GiveUp();
  // Once a second. Tiers of another size: ghosts begin anew.
  void Tick(const Tiers& tiers);

  // ---- ghosts. From nothing, as after a start with empty tiers. Told of reads, and of what the daemon's own policy is told of the plan from then on.
  struct Tried {
    std::string policy, parameters;
    bool takes_plans = false;
    bool planned = false;          // it was told of some of what is read
    double share = 1;              // of the objects that it is told of
    double seen = 1;               // of the reads since it began
    std::uint64_t dropped = 0;     // answers of the policy that were wrong
    sim::CacheCounts counts, last_epoch;
    std::uint64_t missed = 0, last_epoch_missed = 0;  // by the daemon, of the same reads
  };
  // kInvalid: the policy's own sentence; kNoSpace: kMostGhosts are tried. One that is tried begins anew.
  Status Try(const tierd_policy_ops& policy, const std::string& parameters);
  bool StopTrying(const std::string& policy);
  struct Planned {
    abi::FileKey key;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
  };
  bool wants_plan() const { return !ghosts_.empty(); }
  // What is going to be read, in this order, after what was told before. Nothing: what was told no longer holds.
  void OnPlan(std::uint32_t epoch, std::span<const Planned> reads);
  std::vector<Tried> tried() const;

  // ---- regret
  struct PastEpoch {
    std::uint64_t number = 0;
    Regret regret;
    std::uint64_t source_reads = 0;
  };
  const std::deque<PastEpoch>& past() const { return past_; }  // the latest kEpochsKept
  const Regret& regret() const { return regret_; }             // of all epochs that have ended
  // Misses of the sample above those of Belady's algorithm, told the order afterwards; judged one to two epochs later.
  sim::Hindsight::Epoch judged() const;
  const sim::Hindsight* hindsight() const { return hindsight_ ? &*hindsight_ : nullptr; }
  double share() const { return sample_.share(); }

  // ---- trace
  struct TraceState {
    std::string path;  // "": none since the start
    bool running = false;
    std::string error;  // why it ended by itself
    sim::TraceProgress progress;
    double seen() const { return SeenShare(progress.accesses, progress.lost); }
  };
  struct TraceRoot {
    std::string path;
    DirectoryIdentity identity;
  };
  struct TraceOrder {
    std::string path;  // absolute
    std::uint64_t most_bytes = 0;
    std::vector<TraceRoot> roots;  // of the sources, below which nothing is written, whatever its name
  };
  // `done` runs once. kBusy: one runs; kInvalid: below a source; kExists, or what the system says.
  void StartTrace(TraceOrder order, std::function<void(Status)> done);
  // `done` runs once the file is closed. kNotFound: none runs.
  void StopTrace(std::function<void(Status)> done);
  TraceState trace() const;

 private:
  struct GhostSeat {
    const tierd_policy_ops* policy;
    std::string parameters;
    sim::Ghost ghost;
    std::uint64_t reads_before = 0, lost_before = 0;  // when it began
  };
  struct Tracing {
    explicit Tracing(std::uint64_t most_bytes) : recorder(most_bytes) {}
    sim::TraceRecorder recorder;
    std::shared_ptr<sim::TraceFile> file;  // shared with the worker that writes
    bool writing = false;
    std::function<void(Status)> stopped;   // set while it is being stopped
  };
  void Compare(const Read& read, std::uint32_t epoch);
  void NoteEpoch(const EpochCounter& epochs);
  void Restart();
  Result<sim::Ghost> MakeGhost(const tierd_policy_ops& policy, const std::string& parameters) const;
  void Pump(bool all);
  void EndTrace(const Status& why);

  Workers& workers_;
  Tiers tiers_;
  const std::function<SourceBytes()> source_bytes_;
  // Read by the daemon, and used or gone: when the present epoch began, and at its last new file. (That an epoch has ended is noticed late.)
  std::uint64_t brought_before_ = 0, brought_ = 0;
  bool begun_ = false;
  std::uint64_t resident_at_start_ = 0;
  sim::Sample sample_{kSampleObjects};
  std::uint64_t reads_ = 0, lost_ = 0;
  std::vector<GhostSeat> ghosts_;
  std::uint32_t planned_epoch_ = 0;   // that the latest piece of plan was of
  std::uint32_t planned_reads_ = 0;   // of the sample, that earlier pieces of that epoch had
  std::optional<sim::Hindsight> hindsight_;  // from the first miss of an epoch that is not the first
  std::uint64_t ended_ = 0;                  // epochs
  Regret regret_;
  std::deque<PastEpoch> past_;
  std::unique_ptr<Tracing> trace_;
  bool opening_ = false;
  TraceState ended_trace_;
};

}  // namespace tierd::engine
