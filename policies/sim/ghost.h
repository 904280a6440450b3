// What another policy would have hit on a stream that is being read: its object, through the C ABI, and a cache without bytes (cache.h) that
// follows the reads. And hindsight: what Belady's algorithm would have hit on the same reads, told once their order is known.
//
// Owner: whoever watches a stream (the engine, one per source). One thread. Both are told of a sample of the objects, and have as much smaller
// tiers: memory and time stay bounded, and shares hold for the whole (the choice by a hash of the file is fair to every file alike).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "policies/sim/cache.h"

namespace tierd::sim {

// Gives objects of a sample dense ids. Half as many are taken each time it is full, so that it never holds more than `most`.
class Sample {
 public:
  static constexpr std::uint32_t kNotTaken = UINT32_MAX;
  explicit Sample(std::uint32_t most = 1u << 14) : most_(most) {}

  // `hash`: of the file, the same each time, evenly spread.
  bool Takes(std::uint64_t hash) const { return hash >> 32 <= limit_; }
  // The id of an object that Takes() its hash; `key`: of the object, not two alike. New ones get the next number. kNotTaken: it was full, the share is half of
  // what it was, all ids are void.
  std::uint32_t IdOf(std::uint64_t key);
  std::uint32_t size() const { return used_; }
  double share() const { return (static_cast<double>(limit_) + 1) / 4294967296.0; }

 private:
  void Begin();

  const std::uint32_t most_;
  std::uint32_t limit_ = UINT32_MAX;
  std::uint32_t used_ = 0;
  // Open addressing, at most half full; an id that is kNotTaken is an empty place.
  struct Place {
    std::uint64_t key = 0;
    std::uint32_t id = kNotTaken;
  };
  std::vector<Place> places_;
};

struct StreamRead {
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  std::uint32_t consumer = 0;
  bool missed = false;        // the daemon had to read the source
  std::uint32_t epoch = 0;    // as far as it is noticed
};

class Ghost {
 public:
  // kInvalid: the policy's own sentence. Capacities: of the tiers, before the sample's share.
  static Result<Ghost> Create(const tierd_policy_ops& policy, const CacheOptions& options, double share);

  void Read(const StreamRead& read);
  // What will be read, in this order, as tierd_plan says it; of the objects of the sample. Nothing: what was told no longer holds.
  void Plan(std::uint32_t epoch, std::uint32_t first, std::span<const StreamRead> reads);
  bool takes_plans() const { return cache_.policy().takes_plans(); }
  // It was told of some of what is read.
  bool planned() const { return planned_; }
  // Wrong answers of the policy: with any, the counts are those of the host, not of the policy.
  std::uint64_t dropped() const { return cache_.policy().counters().dropped(); }
  // Since it began, and in the epoch before the present one (nothing until one has ended).
  const CacheCounts& counts() const { return cache_.counts(); }
  const CacheCounts& last_epoch() const { return last_epoch_; }
  std::uint64_t missed() const { return missed_; }  // by the daemon, of the same reads
  std::uint64_t last_epoch_missed() const { return last_epoch_missed_; }

 private:
  explicit Ghost(Cache cache) : cache_(std::move(cache)) {}

  Cache cache_;
  std::vector<std::uint64_t> bytes_;
  std::uint32_t epoch_ = 0;
  bool planned_ = false;
  std::uint64_t missed_ = 0, missed_before_ = 0, last_epoch_missed_ = 0;
  CacheCounts before_, last_epoch_;
};

// Reads are judged once twice as many further ones are known as there are objects: two epochs of one reader. Judged as if both tiers were one.
class Hindsight {
 public:
  static constexpr std::size_t kEpochs = 128;  // later ones are added to the last
  struct Epoch {
    std::uint64_t reads = 0;
    std::uint64_t missed = 0;  // by the daemon
    std::uint64_t least = 0;   // by Belady's algorithm
  };
  Hindsight(std::uint64_t capacity_bytes, double share);

  void Read(const StreamRead& read);
  // Judged so far; those of which nothing is are all zero.
  const std::array<Epoch, kEpochs>& epochs() const { return epochs_; }

 private:
  struct Pending {
    std::uint32_t id : 31;
    std::uint32_t missed : 1;
    std::uint32_t epoch;
  };
  Cache cache_;
  std::vector<std::uint64_t> bytes_;
  std::vector<bool> seen_;   // ids that were read; others are of objects that a plan names
  std::size_t seen_count_ = 0;
  std::deque<Pending> pending_;
  std::array<Epoch, kEpochs> epochs_{};
};

}  // namespace tierd::sim
