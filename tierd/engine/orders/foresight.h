// What is known of the order in which the readers of one source read: plans that were told, followed access by access, and declared to the policy as one merged
// future as long as they turn out right.
//
//   told plan + list ──► SampleMap (index → file) ─┐
//                 └────► PlanFollower (epochs) ────┴─► MergedFuture (worker) ──► slices ──► the policy's plan()
//
// An access is a reader's, so it is a consumer's: the one whose plan expects it, and expected most of what that reader has read so far (others expect a part of it by
// chance: a plan that nobody reads by yet, or not any more). A reader (session) stays with the consumer that it was found to belong to, and
// then every access of it counts; the accesses of readers that belong to nobody count only for consumers that have no reader yet. A consumer whose plan turns
// out wrong is left out: the policy starts anew without it (PolicySeat, in slices), and with it again once it is right. So is a future of several consumers
// whose paces have changed.
//
// Owner: Engine, one per source. Loop thread only; epochs are computed and merged by workers. Nothing here is asked on the way of a read.
// With mode `blind` it holds nothing and does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "policies/merged_future.h"
#include "policies/orders/plan_follower.h"
#include "tierd/base/clock.h"
#include "tierd/base/unique_fd.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/fetch/requests.h"
#include "tierd/engine/orders/sample_map.h"
#include "tierd/engine/sources/source_unit.h"
#include "tierd/engine/workers.h"

namespace tierd::engine {

enum class PlanState : std::uint8_t {
  kMapping,   // its files are being looked for
  kWaiting,   // nobody has read by it yet
  kFollowed,  // what is read is what was foretold
  kDoubted,   // it is not: the policy does without it
};
inline constexpr const char* kPlanStateNames[] = {"mapping", "waiting", "followed", "doubted"};

struct PlanStatus {
  std::uint64_t id = 0;
  PlanState state = PlanState::kMapping;
  bool told = true;                // else recovered from what was read
  std::string document;            // as told (PLAN.md)
  std::uint32_t samples = 0, known = 0;
  std::uint64_t epoch = 0;         // number of the one being read
  std::uint64_t position = 0;      // samples of it that were read or passed by
  std::uint64_t epoch_samples = 0; // that this consumer reads in it
  std::uint64_t epochs_begun = 0;
  std::uint32_t readers = 0;
  orders::OrderFollower::Counts counts;
  double pace = 0;                 // samples per second, of late
};

class Foresight {
 public:
  static constexpr std::size_t kMostPlans = 64;

  struct Parts {
    SourceUnit& unit;
    Catalogue& catalogue;
    Fetcher& fetcher;
    Workers& workers;
    const Clock& clock;
    // Another instance of the source's policy, without a plan, takes over by and by (Engine::RenewPolicy). False: it could not be made.
    std::function<bool()> renew_policy;
    std::function<void()> wake;  // a worker is done: a turn is due
  };
  explicit Foresight(const Parts& parts);
  ~Foresight();

  struct Consumer {
    std::uint64_t id = 0;
    orders::Plan plan;
    std::string document;
    SampleMap::SharedList list;
    bool told = true;
    std::vector<orders::SampleAccess> read;  // of its first epoch, before it is told; by sessions
    bool keep = false;        // also when its readers are long gone
    UniqueFd process;         // a pidfd: the plan ends with that process; none: by kIdleNs without a reader
  };
  // kInvalid: the list has another number of samples than the plan; kNoSpace: kMostPlans are there.
  Status Add(Consumer consumer);
  // False: there is none with that id.
  bool Remove(std::uint64_t id);
  std::vector<PlanStatus> List() const;
  bool empty() const { return consumers_.empty(); }
  // Somebody reads by a plan: where it is matters every few milliseconds.
  bool active() const { return last_expected_ns_ != 0 && clock_.MonotonicNs() - last_expected_ns_ < 1'000'000'000; }

  void OnAccess(SessionId session, FileId file);
  // Accesses of these files follow: no change of state, only cache lines.
  void Soon(std::span<const FileId> files) const;
  // Whether it is a sample of a plan: its id must remain its own.
  bool Names(FileId file) const;
  void OnSessionEnd(SessionId session);
  // Every turn: hands work to workers, tells the policy a slice. True: there is more to do at once.
  bool Step();
  // Once a second: plans whose process has ended, paces.
  void Tick();

  // What is read next by a plan that the policy has not been told of yet, in the order of use, each once an epoch: its path, and its file if that is known.
  // False: nothing, or not yet.
  bool TakeUndeclared(std::string* path, FileId* file);
  // The policy has been told something that still holds; and whether one of those plans was told to us.
  bool declared() const { return declared_ != 0; }
  bool told() const;
  // By one plan at least the latest accesses are as foretold; also while nobody has read by it.
  bool trusted() const;
  // The plan that the policy has been told reaches so many accesses ahead.
  std::uint64_t declared_ahead() const { return declared_ - std::min(declared_, consumed_); }
  static constexpr std::int64_t kIdleNs = 600'000'000'000;

 private:
  struct Followed;
  struct Reader {
    Followed* consumer = nullptr;      // not known
    std::vector<std::uint32_t> votes;  // of each of consumers_: accesses that it explains, less those that it does not, since its own consumer did
    std::uint32_t wrong = 0;           // accesses that its consumer did not expect, less those that it did
  };
  static constexpr std::uint32_t kNever = 0xffffffffu;
  Followed* Find(std::uint64_t id) const;
  // Of those that expect it the one that explains most of what the reader has read. Notes whom the access speaks for. consumers_.size(): none.
  std::size_t WhoExpects(Reader& reader, FileId file, std::uint8_t tag) const;
  orders::PlanFollower::Verdict Observe(Followed& consumer, std::uint32_t sample, orders::ReaderTag who, const Reader* reader = nullptr);
  void CountExpected(Followed& consumer, std::uint64_t accesses);
  void ObserveOwn(Reader& reader, std::uint32_t sample, std::uint8_t tag);
  void ObserveStranger(FileId file, std::uint8_t tag);
  // The reader is that consumer's from now on, or nobody's.
  void Assign(Reader& reader, Followed* consumer);
  void Prepare(Followed& consumer);
  bool Doubted() const;
  bool IsStale() const;
  bool Replace();
  void Begin();
  void Compute();
  void Declare();
  std::uint64_t Horizon() const;

  SourceUnit& unit_;
  Catalogue& catalogue_;
  Fetcher& fetcher_;
  Workers& workers_;
  const Clock& clock_;
  const std::function<bool()> renew_policy_;
  const std::function<void()> wake_;

  std::vector<std::unique_ptr<Followed>> consumers_;
  std::unordered_map<std::uint32_t, Reader> readers_;  // by session; ended ones leave
  // The future as the policy of incarnation `told_to_` knows it.
  std::size_t members_ = 0;       // consumers in it
  bool computing_ = false;
  bool exhausted_ = false;        // plans say no more
  bool outpaced_ = false;         // consumers are not where they were expected: paces, or a jump
  std::int64_t begun_ns_ = 0;
  std::uint32_t told_to_ = 0;
  std::uint32_t renewed_ = kNever;  // the incarnation that was asked to be replaced
  std::uint64_t future_number_ = 0;
  std::shared_ptr<policies::MergedFuture> future_;  // shared with the worker that computes a slice, while `computing_`
  policies::MergedFuture::Slice slice_;
  std::size_t slice_at_ = 0;
  std::uint32_t slice_told_ = 0;  // objects of this epoch
  std::uint64_t declared_ = 0;
  std::uint64_t consumed_ = 0;
  std::size_t taken_turn_ = 0;
  std::int64_t last_expected_ns_ = 0;
  std::vector<std::uint32_t> objects_;  // scratch
};

}  // namespace tierd::engine
