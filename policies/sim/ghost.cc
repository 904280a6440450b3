#include "policies/sim/ghost.h"

#include <algorithm>
#include <bit>

#include "policies/builtin.h"

namespace tierd::sim {
namespace {

// In Pending::epoch: the first read of its object, which nobody can have without the source; it is not judged.
constexpr std::uint32_t kFirst = 1u << 31;

std::uint64_t Part(std::uint64_t bytes, double share) { return static_cast<std::uint64_t>(static_cast<double>(bytes) * share); }

// Tells the cache of an object that is new or has changed.
void KnowOf(Cache& cache, std::vector<std::uint64_t>& bytes, const StreamRead& read) {
  if (read.id >= bytes.size()) bytes.resize(read.id + std::size_t{1});
  // What is not known in between is so when it comes: it was there before this began, or a plan names it.
  while (cache.objects() <= read.id) cache.Know(cache.objects(), cache.objects() == read.id ? read.bytes : bytes[cache.objects()]);
  if (bytes[read.id] != read.bytes) cache.Know(read.id, read.bytes);
  bytes[read.id] = read.bytes;
}

Cache BeladyCache(std::uint64_t capacity_bytes) {
  CacheOptions options;
  options.capacity_bytes[TIERD_TIER_RAM] = capacity_bytes;
  options.parameters = "window=1";  // reads come exactly as they were told
  return std::move(Cache::Create(*policies::BeladyPolicy(), {}, options)).value();
}

}  // namespace

void Sample::Begin() {
  used_ = 0;
  places_.assign(std::bit_ceil(std::size_t{most_} * 2), Place());
}

std::uint32_t Sample::IdOf(std::uint64_t key) {
  if (places_.empty()) Begin();
  const std::size_t mask = places_.size() - 1;
  std::size_t at = (key * 0x9e3779b97f4a7c15ull) >> 20 & mask;
  while (places_[at].id != kNotTaken && places_[at].key != key) at = (at + 1) & mask;
  if (places_[at].id != kNotTaken) return places_[at].id;
  if (used_ == most_) {
    limit_ /= 2;
    Begin();
    return kNotTaken;
  }
  places_[at] = {key, used_};
  return used_++;
}

Result<Ghost> Ghost::Create(const tierd_policy_ops& policy, const CacheOptions& options, double share) {
  CacheOptions part = options;
  for (std::uint64_t& bytes : part.capacity_bytes) bytes = Part(bytes, share);
  Result<Cache> cache = Cache::Create(policy, {}, part);
  if (!cache.ok()) return cache.status();
  return Ghost(std::move(cache).value());
}

void Ghost::Read(const StreamRead& read) {
  KnowOf(cache_, bytes_, read);
  if (read.epoch != epoch_) {
    epoch_ = read.epoch;
    last_epoch_ = cache_.counts() - before_;
    before_ = cache_.counts();
    last_epoch_missed_ = missed_ - missed_before_;
    missed_before_ = missed_;
    cache_.policy().EpochBoundary(TIERD_CONSUMER_ALL, epoch_);
  }
  missed_ += read.missed ? 1 : 0;
  cache_.Read(std::span(&read.id, 1), read.consumer);
}

void Ghost::Plan(std::uint32_t epoch, std::uint32_t first, std::span<const StreamRead> reads) {
  if (!takes_plans()) return;
  if (reads.empty()) {
    planned_ = false;
    return cache_.policy().WithdrawPlan(TIERD_CONSUMER_ALL);
  }
  std::vector<std::uint32_t> ids;
  for (const StreamRead& read : reads) {
    KnowOf(cache_, bytes_, read);
    ids.push_back(read.id);
  }
  cache_.policy().Plan(TIERD_CONSUMER_ALL, epoch, ids, first);
  planned_ = true;
}

Hindsight::Hindsight(std::uint64_t capacity_bytes, double share) : cache_(BeladyCache(Part(capacity_bytes, share))) {}

void Hindsight::Read(const StreamRead& read) {
  if (read.id >= seen_.size()) seen_.resize(read.id + std::size_t{1});
  const bool first = !seen_[read.id];
  seen_count_ += first ? 1 : 0;
  seen_[read.id] = true;
  KnowOf(cache_, bytes_, read);
  cache_.policy().Plan(TIERD_CONSUMER_ALL, 0, std::span(&read.id, 1));
  pending_.push_back({read.id, read.missed ? 1u : 0u, read.epoch | (first ? kFirst : 0)});
  if (pending_.size() <= 2 * seen_count_) return;
  const Pending judged = pending_.front();
  pending_.pop_front();
  const std::uint64_t before = cache_.counts().reads[2];
  const std::uint32_t id = judged.id;
  cache_.Read(std::span(&id, 1));
  if ((judged.epoch & kFirst) != 0) return;
  Epoch& epoch = epochs_[std::min<std::size_t>(judged.epoch, kEpochs - 1)];
  ++epoch.reads;
  epoch.missed += judged.missed;
  epoch.least += cache_.counts().reads[2] - before;
}

}  // namespace tierd::sim
