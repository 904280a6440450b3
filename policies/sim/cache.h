// The daemon's placement without the bytes: two tiers, one source, and a policy asked and told through its C ABI, by the same PolicyInstance that
// the daemon uses. What is simulated is who is where; how long it takes is epoch_time.h's business.
//
// As tierd/engine/residency/placement.cc: a read that misses RAM asks admission there and evicts until the object fits; what leaves RAM, and what
// came from the source, is offered to the SSD tier. Simpler than there: the SSD tier evicts by object instead of by region, and nothing is
// ever leased, pinned or in flight.
//
// Owner: a simulation. One thread. Deterministic: the same calls give the same result.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/policy_instance.h"

namespace tierd::sim {

struct CacheOptions {
  std::uint64_t capacity_bytes[TIERD_POLICY_TIERS] = {0, 0};  // RAM, SSD
  std::string parameters;                                     // of the policy
  std::uint64_t seed = 1;
};

struct CacheCounts {
  // By where the bytes came from: RAM, SSD, source.
  std::uint64_t reads[3] = {0, 0, 0};
  std::uint64_t bytes[3] = {0, 0, 0};
  std::uint64_t evictions[TIERD_POLICY_TIERS] = {0, 0};
  std::uint64_t ahead = 0;        // brought before anybody asked
  std::uint64_t ahead_bytes = 0;
  std::uint64_t all_reads() const { return reads[0] + reads[1] + reads[2]; }
  // Share of the reads that did not go to the source.
  double hit_rate() const { return all_reads() == 0 ? 0 : 1 - static_cast<double>(reads[2]) / static_cast<double>(all_reads()); }
};
CacheCounts operator-(const CacheCounts& a, const CacheCounts& b);

class Cache {
 public:
  // The objects known from the start; ids are places in `sizes`. kInvalid: the policy's own sentence.
  static Result<Cache> Create(const tierd_policy_ops& policy, std::span<const std::uint64_t> sizes, const CacheOptions& options);

  // A further object, whose id is the number of those known so far, or one that is known and has changed: it leaves both tiers.
  void Know(std::uint32_t id, std::uint64_t bytes);

  // One read of each object, `step_ns` apart.
  void Read(std::span<const std::uint32_t> ids, std::uint32_t consumer = 0, std::int64_t step_ns = 1000);
  // Brings what the policy wants next into RAM until it wants nothing more or `most` were brought.
  void Bring(std::uint64_t most);

  policies::PolicyInstance& policy() { return policy_; }
  const policies::PolicyInstance& policy() const { return policy_; }
  const CacheCounts& counts() const { return counts_; }
  std::uint32_t objects() const { return static_cast<std::uint32_t>(sizes_.size()); }
  std::uint64_t used_bytes(std::uint32_t tier) const { return capacity_[tier] - free_[tier]; }

 private:
  Cache(policies::PolicyInstance policy, std::span<const std::uint64_t> sizes, const CacheOptions& options);

  void ReadOne(std::uint32_t id, std::uint32_t consumer);
  bool EnterRam(std::uint32_t id, std::uint32_t why);
  void OfferToSsd(std::uint32_t id, std::uint32_t why);
  // By tier at compile time: some of what is asked with every read is known then.
  template <std::uint32_t kTier>
  bool MakeRoom(std::uint64_t bytes) {
    return free_[kTier] >= bytes || EvictFor<kTier>(bytes);
  }
  template <std::uint32_t kTier>
  bool EvictFor(std::uint64_t bytes);
  template <std::uint32_t kTier>
  void Evict(std::uint32_t id);

  std::uint64_t SizeOf(std::uint32_t id) const { return all_alike_ != 0 ? all_alike_ : sizes_[id]; }

  policies::PolicyInstance policy_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t all_alike_ = 0;  // the size of every object, if they have one size: spares a line of memory per read
  std::uint64_t capacity_[TIERD_POLICY_TIERS];
  std::uint64_t free_[TIERD_POLICY_TIERS];
  std::uint64_t known_bytes_ = 0;
  std::int64_t now_ns_ = 0;
  CacheCounts counts_;
};

}  // namespace tierd::sim
