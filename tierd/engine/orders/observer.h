// Finds out the order of reads that nobody told: once a source has been read for an epoch, lists the dataset, watches for the beginnings of epochs, has the seed of
// each looked for, and makes plans of what it finds (Foresight goes on from there, as with told ones).
//
//   first epoch over ──► list (names only) ──► SampleMap ──► EpochWatcher ──► SeedHunt per epoch ──► a seed ──► guesses of the next epochs ──┐
//   first accesses ────────────────────────────────┴──► SeedHunt, small seeds ──► guesses of a generator's epochs ───────────────────────────┴──► a guess is right
//   a guess is right ──► in which of its epochs the readers are (orders::Locate) ──► a plan for each rank seen here ──► nobody reads by it: taken back
//
// A seed says nothing of the next epoch; what a later epoch begins with says whether seeds follow one another (DistributedSampler), or the epoch is what a generator of
// that seed draws next (RandomSampler). A generator's seed shows in the first epoch that is drawn from it alone: the first accesses of a job are kept until it is known
// what they mean.
//
// The index of a file is taken to be its place in the order of ImageFolder, or where the files are not laid out like that, in the order of their paths.
// It also notices a program that reads the same shuffled order each epoch: set_epoch is not called.
//
// While an epoch after the other is read from RAM alone, an order is good for nothing: no hunt begins, and one that runs ends. As soon as something is read from elsewhere,
// of this epoch or the one before, it goes on as if nothing had been.
//
// Owner: Engine, one per source. Loop thread only; lists are sorted and epochs computed by workers, seeds looked for by a thread of its own. Does nothing with mode
// `blind`, and while plans are told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/orders/epoch_watcher.h"
#include "policies/orders/plan_location.h"
#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/sources/epoch_counter.h"
#include "tierd/engine/orders/foresight.h"
#include "tierd/engine/orders/sample_map.h"
#include "tierd/engine/orders/seed_hunt.h"
#include "tierd/engine/sources/source_unit.h"
#include "tierd/engine/workers.h"

namespace tierd::engine {

class Observer {
 public:
  struct Parts {
    SourceUnit& unit;
    Foresight& foresight;
    Catalogue& catalogue;
    Fetcher& fetcher;
    Workers& workers;
    const Clock& clock;
    std::uint64_t& last_plan;  // number of the last one
  };
  explicit Observer(const Parts& parts) : parts_(parts) {}
  ~Observer() { *alive_ = false; }

  // A hint: these will be read about now.
  void Soon(std::span<const FileId> files) const {
    if (stage_ != Stage::kWatching) return;
    for (const FileId file : files) map_->Soon(file);
  }
  // A reader has begun to read a file.
  void OnAccess(SessionId session, FileId file);
  // A reader had to have something from elsewhere: from the SSD, the source, or past the cache.
  void OnMiss() { missed_ = true; }
  // Whether it is one of the samples whose order is looked for: its id must remain its own.
  bool Names(FileId file) const { return map_ != nullptr && map_->KnownSampleOf(file) != SampleMap::kNone; }
  // Once a second. How often something of the source was brought into RAM so far (Placement): what only passes through it may leave no other trace.
  void Tick(std::uint64_t brought);

  // In words, for people: what is known, or looked for. Empty: nothing.
  std::string Report() const;
  // Epochs in a row that began like the one before although the order is shuffled.
  std::uint32_t same_orders() const { return watcher_ ? watcher_->same_orders() : same_orders_; }

  static constexpr double kShareOfCore = 0.1;
  // Of smaller sets epochs cannot be told apart; of less than half as many an order says too little of its seed (orders::LeastSamples).
  static constexpr std::uint32_t kLeastSamples = EpochCounter::kLeastFiles;
  static constexpr std::uint32_t kMostSamples = 1 << 22;
  // An epoch is looked at twice: with a quarter of its accesses, 16 to 64, which are enough where few workers read (policies/orders/evidence.h); and if they were not,
  // with three quarters, at most kEnough. All seeds are gone through for the latter alone, and nothing for what cannot be told by it.
  static constexpr std::size_t kLeastEarly = 16, kMostEarly = 64;
  static constexpr std::size_t kEnough = 256;
  static constexpr std::int64_t kQuietNs = 10'000'000'000;  // without a read, before a job begins; an idle daemon sees it two seconds late
  static constexpr std::uint32_t kDoubtedTicks = 10;    // seconds with reads, all plans doubted, until they are taken back

 private:
  enum class Stage : std::uint8_t { kWaiting, kListing, kWatching, kFound };
  enum class Look : std::uint8_t { kNone, kEarly, kFull };
  // The first accesses behind a time without any: of a job's first epoch, maybe.
  struct Beginning {
    std::uint64_t since = 0;  // epochs that had ended by then
    std::vector<std::pair<SessionId, FileId>> accesses = {};
  };
  struct Generator {
    orders::Plan plan;        // from its first epoch on
    std::uint64_t since = 0;
  };
  // A plan that is right for the epoch that was hunted.
  struct Right {
    orders::PlanSearch search;
    std::uint32_t epoch = 0;  // of the watcher, where the plan begins
    std::uint32_t attempts = 0;
  };

  void NoteQuiet(bool read);
  void NoteMisses(std::uint64_t brought);
  bool all_in_ram() const { return !missed_ && !missed_before_; }
  void Rest();
  bool ReadForAnEpoch() const;
  void ListFiles();
  void Watch(Result<SampleMap::List> list);
  // What the accesses of the present epoch are enough for.
  Look WorthALook() const;
  void Hunt(Look look);
  bool HuntBeginning();
  void TakeHunted();
  void EndHunt();
  void OnSeed(const orders::RecoveredOrder& found);
  void OnFirstSeed(const orders::RecoveredOrder& found);
  // Epochs that may have begun since so many had ended.
  std::uint64_t EpochsSince(std::uint64_t ended) const;
  orders::Plan GeneratorOf(const orders::RecoveredOrder& found) const;
  orders::Plan DistributedOf(std::uint32_t seed) const;
  void FindPlace();
  // Of a plan that the present epoch begins.
  void MakePlans(const orders::Plan& plan, const orders::OrderFit& like);
  void CheckPlans(bool read);
  void Restart();

  const Parts parts_;
  Stage stage_ = Stage::kWaiting;
  std::uint32_t rest_ticks_ = 0;               // until it looks again
  std::uint32_t taken_back_ = 0;               // times that plans were
  std::vector<std::string> paths_;             // while listing: relative to the source
  SampleMap::SharedList list_;                 // the map's, for the plans
  std::unique_ptr<SampleMap> map_;             // of what is read alone: nothing is looked for at the source
  std::optional<orders::EpochWatcher> watcher_;
  std::unique_ptr<SeedHunt> hunt_;
  std::vector<std::unique_ptr<SeedHunt>> stopped_;  // until their threads have ended
  bool hunting_beginning_ = false;             // hunt_ is about one, this:
  Beginning hunted_beginning_;
  std::uint64_t hunted_since_ = 0;             // what is hunted began when so many epochs had ended
  std::uint32_t hunted_epoch_ = 0;             // of the watcher
  Look hunted_ = Look::kNone;                  // of that epoch: the last look; kFull also if it was found
  std::optional<orders::RecoveredOrder> last_; // of the last epoch whose seed was found
  std::uint64_t last_since_ = 0;
  std::vector<Beginning> beginnings_ = std::vector<Beginning>(1);  // not looked at yet; at most kMostKept
  bool recording_ = true;                      // the last of these
  bool read_ = false;                          // since the last tick
  bool missed_ = false;                        // in the present epoch, and in the last one
  bool missed_before_ = true;
  std::uint64_t epochs_ended_ = 0, brought_ = 0;  // at the last tick
  std::int64_t read_ns_ = 0;                   // the last tick that found reads
  bool quiet_ = false;
  std::uint64_t reads_ = 0;                    // of files, since the start
  std::vector<Generator> generators_;          // at most kMostKept
  std::optional<Right> right_;
  bool placing_ = false;                       // a worker looks for its readers
  std::vector<std::uint64_t> plans_;           // that were made
  std::uint32_t doubted_ticks_ = 0;
  std::uint32_t same_orders_ = 0;              // before they were made
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with what is under way
};

}  // namespace tierd::engine
