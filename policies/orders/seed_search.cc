#include "policies/orders/seed_search.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "policies/orders/permutations.h"

namespace tierd::orders {
namespace {

constexpr std::uint32_t kLongPrefix = 1024;
constexpr double kWorthALook = 1.5;      // of the short prefix: then the long one is drawn
constexpr std::uint32_t kShortPrefix = SeedSearch::kShortPrefix;
constexpr std::size_t kFewSeen = 32;
constexpr std::size_t kMostSeen = 2048;
constexpr std::uint64_t kAllSeeds = 1ull << 32;
constexpr std::uint64_t kScannedPerUnit = 128;
constexpr double kPrefixEvidence = 14;
constexpr std::uint32_t kSomeHits = 8;    // fewer are no rank of a small dataset
constexpr std::uint32_t kMostWorld = 16;
constexpr double kRankEvidence = kPrefixEvidence + 5;  // 135 ranks are tried
const double kLogSmall = std::log(3.0 * SeedSearch::kSmallSeeds);
const double kLogAll = 32 * std::numbers::ln2;
static_assert(SeedSearch::kMostOutputs + Mt19937::kShift <= Mt19937::kWords);

// Chernoff: -ln of a bound on the chance that `draws` draws without replacement of a share `share` have `hits` hits or more.
double Surprise(double draws, double hits, double share) {
  const double rate = hits / draws;
  if (rate <= share) return 0;
  const double rest = rate >= 1 ? 0 : (1 - rate) * std::log((1 - rate) / (1 - share));
  return draws * (rate * std::log(rate / share) + rest);
}

// In a small dataset the samples of one rank among several are not many more than chance puts into a prefix; but they stand a world apart.
bool RankFits(const std::bitset<kShortPrefix>& seen, std::size_t length, double share) {
  static const std::vector<std::pair<std::uint32_t, std::bitset<kShortPrefix>>> ranks = [] {
    std::vector<std::pair<std::uint32_t, std::bitset<kShortPrefix>>> all;
    for (std::uint32_t world = 2; world <= kMostWorld; ++world) {
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        auto& places = all.emplace_back(world, 0).second;
        for (std::uint32_t i = rank; i < kShortPrefix; i += world) places[i] = true;
      }
    }
    return all;
  }();
  for (const auto& [world, places] : ranks) {
    const auto hits = static_cast<double>((seen & places).count());
    if (Surprise(static_cast<double>(length) / world, std::min(hits, static_cast<double>(length) / world), share) >= kRankEvidence) return true;
  }
  return false;
}

// The first `count` outputs of several seeds, side by side: their words follow from one another only, so one alone would wait for each step.
void OutputsOf(const std::uint32_t (&seeds)[SeedSearch::kBatch], std::size_t count, SeedSearch::Outputs (&outputs)[SeedSearch::kBatch]) {
  std::uint32_t words[SeedSearch::kMostOutputs + Mt19937::kShift][SeedSearch::kBatch];
  std::copy(std::begin(seeds), std::end(seeds), words[0]);
  for (std::uint32_t i = 1; i < count + Mt19937::kShift; ++i) {
    for (std::size_t s = 0; s < SeedSearch::kBatch; ++s) words[i][s] = Mt19937::NextSeedWord(words[i - 1][s], i);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t s = 0; s < SeedSearch::kBatch; ++s) outputs[s][i] = Mt19937::Temper(Mt19937::Twist(words[i][s], words[i + 1][s], words[i + Mt19937::kShift][s]));
  }
}

Mt19937 EngineOf(Recipe recipe, std::uint32_t seed) {
  Mt19937 engine = Mt19937::FromSeed(seed);
  if (recipe == Recipe::kGenerator || recipe == Recipe::kGlobal) engine.Next64();
  if (recipe == Recipe::kGlobal) return Mt19937::FromSeed(static_cast<std::uint32_t>(engine.Next64()));
  return engine;
}

}  // namespace

std::vector<std::uint32_t> PermutationOf(Recipe recipe, std::uint32_t seed, std::uint32_t samples) {
  std::vector<std::uint32_t> order(samples);
  Identity(order);
  if (recipe == Recipe::kIdentity) return order;
  Mt19937 engine = EngineOf(recipe, seed);
  TorchRandperm(engine, order);
  return order;
}

SeedSearch::SeedSearch(Observation observation, const Options& options)
    : observation_(std::move(observation)), options_(options), seen_(observation_.samples), short_prefix_(observation_.samples, kShortPrefix), long_prefix_(observation_.samples, kLongPrefix) {
  // The first ones only: when a rank has read all that it ever reads, membership says nothing.
  const std::size_t wanted = std::clamp<std::size_t>(observation_.samples / 128, kFewSeen, kMostSeen);
  for (const SampleAccess& access : observation_.accesses) {
    if (seen_count_ == wanted) break;
    if (access.index >= seen_.size() || seen_[access.index]) continue;
    seen_[access.index] = true;
    ++seen_count_;
  }
  if (observation_.samples >= 3 && observation_.samples < kTorchWideFrom && seen_count_ > 0) filter_ = MakeFilter();
  most_evidence_ = MostEvidence(observation_);
  if (observation_.samples > OrderScreen::kMostSamples) return;
  screen_.emplace(observation_);
  outputs_wanted_ = kMostOutputs;
}

double SeedSearch::LogTried(bool all_seeds) { return all_seeds ? kLogAll : kLogSmall; }

SeedFilter SeedSearch::MakeFilter() const {
  std::set<std::uint32_t> heads;
  std::map<std::uint32_t, std::uint32_t> taken;
  for (const SampleAccess& access : observation_.accesses) {
    if (access.index < observation_.samples && taken[access.stream]++ < options_.heads) heads.insert(access.index);
  }
  const bool fast = options_.code == ScanCode::kAvx2 || (options_.code == ScanCode::kBest && BestScanCode() == ScanCode::kAvx2);
  std::uint32_t ranks = options_.ranks > 0 ? options_.ranks : fast ? 8 : 2;
  // What passes by chance is tried one by one, 4 microseconds each: at most .4 % of all seeds should.
  if (options_.ranks == 0) ranks = std::clamp<std::uint32_t>(static_cast<std::uint32_t>(0.004 * observation_.samples / static_cast<double>(heads.size())), 1, ranks);
  const std::vector<std::uint32_t> accepted(heads.begin(), heads.end());
  return SeedFilter({.samples = observation_.samples, .first = 0, .positions = ranks, .skip = 0}, accepted);
}

SeedSearch::State SeedSearch::Advance(std::uint64_t units) {
  if (state_ != State::kSearching) return state_;
  if (!identity_tried_) {
    identity_tried_ = true;
    if (Fits(Recipe::kIdentity, 0, 0)) return state_ = State::kFound;
  }
  if (!filter_ || most_evidence_ < LogTried(small_ == kSmallSeeds) + kMargin) return state_ = State::kExhausted;
  return state_ = small_ < kSmallSeeds ? TrySmall(units) : Scan(units);
}

SeedSearch::State SeedSearch::TrySmall(std::uint64_t units) {
  for (std::uint64_t done = 0; done < units && small_ < kSmallSeeds; done += kBatch) {
    std::uint32_t seeds[kBatch], derived[kBatch];
    for (std::uint32_t& seed : seeds) seed = small_++;
    OutputsOf(seeds, outputs_wanted_, outputs_);
    // What the second 64-bit draw leaves of itself as a seed: its low word.
    for (std::size_t s = 0; s < kBatch; ++s) derived[s] = outputs_[s][3];
    OutputsOf(derived, outputs_wanted_, derived_outputs_);
    for (std::size_t s = 0; s < kBatch; ++s) {
      const std::span<const std::uint32_t> outputs = std::span<const std::uint32_t>(outputs_[s]).first(outputs_wanted_);
      if (Try(Recipe::kFresh, seeds[s], outputs, kLogSmall)) return State::kFound;
      if (Try(Recipe::kGenerator, seeds[s], outputs.subspan(2), kLogSmall)) return State::kFound;
      if (Try(Recipe::kGlobal, seeds[s], std::span<const std::uint32_t>(derived_outputs_[s]).first(outputs_wanted_), kLogSmall)) return State::kFound;
    }
  }
  return small_ == kSmallSeeds && !options_.all_seeds ? State::kExhausted : State::kSearching;
}

SeedSearch::State SeedSearch::Scan(std::uint64_t units) {
  const std::uint64_t count = std::min(kAllSeeds - scanned_, units * kScannedPerUnit);
  passing_.clear();
  ScanSeeds(*filter_, scanned_, count, &passing_, options_.code);
  scanned_ += count;
  for (std::size_t first = 0; first < passing_.size(); first += kBatch) {
    std::uint32_t seeds[kBatch];
    for (std::size_t s = 0; s < kBatch; ++s) seeds[s] = passing_[std::min(first + s, passing_.size() - 1)];
    OutputsOf(seeds, outputs_wanted_, outputs_);
    for (std::size_t s = 0; s < kBatch; ++s) {
      if (Try(Recipe::kFresh, seeds[s], std::span<const std::uint32_t>(outputs_[s]).first(outputs_wanted_), kLogAll)) return State::kFound;
    }
  }
  return scanned_ == kAllSeeds ? State::kExhausted : State::kSearching;
}

bool SeedSearch::Try(Recipe recipe, std::uint32_t seed, std::span<const std::uint32_t> outputs, double log_tried) {
  const bool likely = (screen_ && screen_->Passes(outputs)) || PrefixFits(recipe, seed, outputs.first(kShortPrefix));
  return likely && Fits(recipe, seed, log_tried);
}

// More of the observed samples among the first entries than chance puts there? The first 128 say no for nearly every wrong seed.
bool SeedSearch::PrefixFits(Recipe recipe, std::uint32_t seed, std::span<const std::uint32_t> outputs) {
  const double share = static_cast<double>(seen_count_) / observation_.samples;
  const std::span<const std::uint32_t> first = short_prefix_.Draw(outputs);
  std::bitset<kShortPrefix> seen;
  for (std::size_t i = 0; i < first.size(); ++i) seen[i] = seen_[first[i]];
  const double surprise = Surprise(static_cast<double>(first.size()), static_cast<double>(seen.count()), share);
  if (surprise >= kPrefixEvidence) return true;
  if (seen.count() >= kSomeHits && RankFits(seen, first.size(), share)) return true;
  if (surprise < kWorthALook || first.size() < kShortPrefix) {
    // All of a tiny dataset is in its prefix: only its beginning says something.
    return first.size() < kShortPrefix && StartFits(first, share);
  }
  Mt19937 engine = EngineOf(recipe, seed);
  std::array<std::uint32_t, kLongPrefix> more;
  for (std::uint32_t& output : more) output = engine();
  return StartFits(long_prefix_.Draw(more), share);
}

// At the first 16, 32, 64 ... entries.
bool SeedSearch::StartFits(std::span<const std::uint32_t> entries, double share) const {
  std::uint32_t hits = 0;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    hits += seen_[entries[i]] ? 1 : 0;
    const std::uint32_t drawn = i + 1;
    if (drawn >= 16 && (drawn & i) == 0 && Surprise(drawn, hits, share) >= kPrefixEvidence) return true;
  }
  return false;
}

bool SeedSearch::Fits(Recipe recipe, std::uint32_t seed, double log_tried) {
  if (observation_.samples == 0) return false;
  const std::vector<std::uint32_t> order = PermutationOf(recipe, seed, observation_.samples);
  std::optional<OrderFit> fit = FitOrder(order, observation_, log_tried);
  if (!fit) return false;
  result_ = RecoveredOrder{recipe, seed, std::move(*fit)};
  return true;
}

}  // namespace tierd::orders
