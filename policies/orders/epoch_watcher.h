// Notices the epochs of a consumer that announced nothing: a sample is read once per epoch, so samples that come again mean that a new
// one has begun. Also notices the order that never changes (set_epoch was forgotten), and keeps each epoch's first accesses, from which
// a seed is recovered.
//
// The first epoch's end is noticed after its first few repeats (3k accesses later for one of k ranks that see a new part each epoch);
// repeats that come at a steady rate (a sampler with replacement, samples read twice) are no epoch. Later epochs end where the length of
// the earlier ones says, if repeats confirm it. Where none is noticed for long, the watcher begins anew at another place.
//
// Owner: whoever follows a consumer. One thread at a time. Memory: 1 bit per sample, and 8 bytes for each access kept.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "policies/orders/observation.h"

namespace tierd::orders {

// How the seeds of successive epochs follow from one another.
enum class SeedRule : std::uint8_t {
  kUnknown,   // fewer than two epochs
  kPerEpoch,  // seed + epoch: DistributedSampler with set_epoch
  kSame,      // the same each epoch: set_epoch is never called
  kFresh,     // drawn anew: RandomSampler
};
SeedRule RuleOf(std::span<const std::uint32_t> seeds);

class EpochWatcher {
 public:
  explicit EpochWatcher(std::uint32_t samples);

  // True: a new epoch has begun, with this access or a few before it; observation() holds what has been seen of it.
  bool Observe(SampleAccess access);

  std::uint32_t epoch() const { return epoch_; }
  // Accesses of the last epoch that has ended, 0 in the first.
  std::uint64_t length() const { return length_; }
  // The first accesses of the present epoch, at most kKept.
  const Observation& observation() const { return first_; }
  // How many epochs in a row have begun like the one before although the order is shuffled. From 1 on worth a word to the user.
  std::uint32_t same_orders() const { return same_; }

  static constexpr std::size_t kKept = 4096;

 private:
  struct Repeat {
    std::uint64_t at = 0;  // accesses of this epoch before it
  };
  bool IsBoundary();
  void Begin(std::uint64_t at);
  void Forget();
  void Keep(SampleAccess access);
  void CompareOrders();

  const std::uint32_t samples_;
  std::vector<bool> read_;
  std::deque<Repeat> repeats_;        // the latest
  std::deque<SampleAccess> latest_;   // accesses, as many as a boundary may lie back
  std::uint64_t accesses_ = 0;        // of this epoch
  std::uint64_t repeats_before_ = 0;  // of this epoch, those dropped from repeats_
  std::uint32_t epoch_ = 0;
  std::uint64_t length_ = 0;
  Observation first_;
  std::vector<std::uint32_t> previous_;  // first samples of the last epoch
  bool compared_ = false;
  std::uint32_t same_ = 0;
};

}  // namespace tierd::orders
