// Finds out the order of reads that nobody told: once a source has been read for an epoch, lists the dataset, watches for the beginnings of epochs, has the seed of
// each looked for, and when two in a row follow one another makes plans of them (Foresight goes on from there, as with told ones).
//
//   first epoch over ──► list (names only) ──► SampleMap ──► EpochWatcher ──► SeedHunt per epoch ──► two seeds ──► a plan for each rank seen here
//
// The index of a file is taken to be its place in the order of ImageFolder, or where the files are not laid out like that, in the order of their paths.
// It also notices a program that reads the same shuffled order each epoch: set_epoch is not called.
//
// Owner: Engine, one per source. Loop thread only; lists are sorted by workers, seeds looked for by a thread of its own. Does nothing with mode `blind`, and
// while plans are told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/orders/epoch_watcher.h"
#include "tierd/base/clock.h"
#include "tierd/engine/catalogue.h"
#include "tierd/engine/foresight.h"
#include "tierd/engine/sample_map.h"
#include "tierd/engine/seed_hunt.h"
#include "tierd/engine/source_unit.h"
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

  void OnAccess(SessionId session, FileId file);
  // Once a second.
  void Tick();

  // In words, for people: what is known, or looked for. Empty: nothing.
  std::string Report() const;
  // Epochs in a row that began like the one before although the order is shuffled.
  std::uint32_t same_orders() const { return watcher_ ? watcher_->same_orders() : 0; }

  static constexpr double kShareOfCore = 0.1;
  static constexpr std::uint32_t kLeastSamples = 256;   // smaller sets are not worth it
  static constexpr std::uint32_t kMostSamples = 1 << 22;
  static constexpr std::size_t kEnough = 256;           // accesses of an epoch, to look for its seed

 private:
  enum class Stage : std::uint8_t { kWaiting, kListing, kWatching, kFound };
  void ListFiles();
  void Watch(Result<SampleMap::List> list);
  void Hunt();
  void OnSeed(const orders::RecoveredOrder& found);
  void MakePlans(const orders::RecoveredOrder& found, bool same_each_epoch);
  void Restart();

  const Parts parts_;
  Stage stage_ = Stage::kWaiting;
  std::vector<std::string> paths_;             // while listing: relative to the source
  SampleMap::List list_;                       // as the map has it, for the plans
  std::unique_ptr<SampleMap> map_;             // of what is read alone: nothing is looked for at the source
  std::optional<orders::EpochWatcher> watcher_;
  std::unique_ptr<SeedHunt> hunt_;
  std::uint32_t hunted_epoch_ = 0;             // of the watcher
  std::optional<orders::RecoveredOrder> last_; // of the epoch before
  std::uint32_t last_epoch_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with what is under way
};

}  // namespace tierd::engine
