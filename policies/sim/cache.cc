#include "policies/sim/cache.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "policies/prefetch.h"

namespace tierd::sim {
namespace {

constexpr std::uint32_t kRam = TIERD_TIER_RAM;
constexpr std::uint32_t kSsd = TIERD_TIER_SSD;
constexpr std::size_t kVictims = 16;      // named at a time, as in the daemon
// Reads are announced ahead, to hide memory latency, and few at a time: a processor waits for some ten lines at once.
constexpr std::size_t kSoon = 8;
constexpr std::size_t kAhead = 24;
constexpr std::size_t kCandidates = 256;

}  // namespace

CacheCounts operator-(const CacheCounts& a, const CacheCounts& b) {
  CacheCounts difference = a;
  for (std::size_t i = 0; i < 3; ++i) difference.reads[i] -= b.reads[i], difference.bytes[i] -= b.bytes[i];
  for (std::size_t i = 0; i < TIERD_POLICY_TIERS; ++i) difference.evictions[i] -= b.evictions[i];
  difference.ahead -= b.ahead;
  difference.ahead_bytes -= b.ahead_bytes;
  return difference;
}

Result<Cache> Cache::Create(const tierd_policy_ops& policy, std::span<const std::uint64_t> sizes, const CacheOptions& options) {
  policies::PolicyInstance::Options instance_options;
  instance_options.seed = options.seed;
  std::copy_n(options.capacity_bytes, TIERD_POLICY_TIERS, instance_options.capacity_bytes);
  instance_options.parameters = options.parameters;
  Result<policies::PolicyInstance> instance = policies::PolicyInstance::Create(policy, instance_options);
  if (!instance.ok()) return instance.status();
  return Cache(std::move(instance).value(), sizes, options);
}

Cache::Cache(policies::PolicyInstance policy, std::span<const std::uint64_t> sizes, const CacheOptions& options)
    : policy_(std::move(policy)), sizes_(sizes.begin(), sizes.end()), known_bytes_(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0})) {
  std::copy_n(options.capacity_bytes, TIERD_POLICY_TIERS, capacity_);
  std::copy_n(options.capacity_bytes, TIERD_POLICY_TIERS, free_);
  const bool alike = std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
  if (alike && !sizes.empty()) all_alike_ = sizes[0];
  for (std::uint32_t id = 0; id < sizes.size(); ++id) policy_.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = sizes[id]});
}

void Cache::Know(std::uint32_t id, std::uint64_t bytes) {
  if (id > sizes_.size()) return;
  if (id == sizes_.size()) {
    sizes_.push_back(bytes);
    if (id == 0) all_alike_ = bytes;
  } else {
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      if (!policy_.IsIn(tier, id)) continue;
      policy_.Removed(tier, id);
      free_[tier] += SizeOf(id);
    }
    known_bytes_ -= sizes_[id];
    sizes_[id] = bytes;
  }
  if (bytes != all_alike_) all_alike_ = 0;
  known_bytes_ += bytes;
  policy_.ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = bytes});
}

void Cache::Read(std::span<const std::uint32_t> ids, std::uint32_t consumer, std::int64_t step_ns) {
  const auto announce = [&](std::size_t from) {
    const auto soon = ids.subspan(std::min(from, ids.size()), std::min(kSoon, ids.size() - std::min(from, ids.size())));
    policy_.Soon(soon);
    if (all_alike_ != 0) return;
    for (const std::uint32_t id : soon) PrefetchLine(&sizes_[id]);
  };
  for (std::size_t from = 0; from < kAhead; from += kSoon) announce(from);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i % kSoon == 0) announce(i + kAhead);
    now_ns_ += step_ns;
    ReadOne(ids[i], consumer);
  }
}

template <std::uint32_t kTier>
void Cache::Evict(std::uint32_t id) {
  ++counts_.evictions[kTier];
  policy_.Removed(kTier, id);
  free_[kTier] += SizeOf(id);
  if (kTier == kRam && capacity_[kSsd] > 0) OfferToSsd(id, TIERD_DEMOTION);
}

template <std::uint32_t kTier>
bool Cache::EvictFor(std::uint64_t bytes) {
  std::uint32_t victims[kVictims];
  do {
    const std::size_t count = policy_.Victims(kTier, bytes - free_[kTier], victims);
    if (count == 0) return false;
    for (std::size_t i = 0; i < count && free_[kTier] < bytes; ++i) Evict<kTier>(victims[i]);
  } while (free_[kTier] < bytes);
  return true;
}

void Cache::ReadOne(std::uint32_t id, std::uint32_t consumer) {
  const std::uint8_t from = policy_.WhereIs(id);
  const std::uint64_t bytes = SizeOf(id);
  ++counts_.reads[from];
  counts_.bytes[from] += bytes;
  if (from != kRam) {
    const bool entered = EnterRam(id, TIERD_FOR_READER);
    if (from > kSsd && capacity_[kSsd] > 0) OfferToSsd(id, entered ? TIERD_COPY : TIERD_FOR_READER);
  }
  policy_.Accessed({.id = id, .consumer = consumer, .time_ns = now_ns_, .tier = from});
}

bool Cache::EnterRam(std::uint32_t id, std::uint32_t why) {
  const std::uint64_t bytes = SizeOf(id);
  if (!policy_.Admit(kRam, id, free_[kRam], why) || !MakeRoom<kRam>(bytes)) return false;
  free_[kRam] -= bytes;
  policy_.Inserted(kRam, id);
  // Where the SSD tier is too small for all, a copy of what is in RAM is the first to make room.
  if (capacity_[kSsd] > 0 && known_bytes_ > capacity_[kSsd] && policy_.IsIn(kSsd, id)) {
    policy_.Removed(kSsd, id);
    free_[kSsd] += SizeOf(id);
  }
  return true;
}

void Cache::OfferToSsd(std::uint32_t id, std::uint32_t why) {
  if (policy_.IsIn(kSsd, id) || !policy_.Admit(kSsd, id, free_[kSsd], why) || !MakeRoom<kSsd>(SizeOf(id))) return;
  free_[kSsd] -= SizeOf(id);
  policy_.Inserted(kSsd, id);
}

void Cache::Bring(std::uint64_t most) {
  std::vector<tierd_candidate> candidates(kCandidates);
  for (std::uint64_t brought = 0; brought < most;) {
    const std::size_t count = policy_.Next(kRam, now_ns_, candidates);
    std::uint64_t entered = 0;
    for (std::size_t i = 0; i < count && brought + entered < most; ++i) {
      if (!EnterRam(candidates[i].id, TIERD_AHEAD)) continue;
      ++entered;
      ++counts_.ahead;
      counts_.ahead_bytes += SizeOf(candidates[i].id);
    }
    if (entered == 0) return;
    brought += entered;
  }
}

}  // namespace tierd::sim
