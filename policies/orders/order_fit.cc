#include "policies/orders/order_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

namespace tierd::orders {
namespace {

constexpr double kFits = 0.98;       // probability of an access where the right hypothesis wants it
constexpr std::size_t kStrides = 6;  // how many are tried beside 1
constexpr std::uint32_t kMaxStride = 1 << 16;

// Positions in the permutation of the accesses, each sample once (its first access).
struct Placed {
  std::uint32_t stream;
  std::uint32_t position;
};

std::vector<Placed> Place(std::span<const std::uint32_t> order, const Observation& observation) {
  std::vector<std::uint32_t> position(order.size(), UINT32_MAX);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    if (order[i] < position.size()) position[order[i]] = i;
  }
  std::vector<Placed> placed;
  for (const SampleAccess& access : observation.accesses) {
    if (access.index >= position.size() || position[access.index] == UINT32_MAX) continue;
    placed.push_back({access.stream, std::exchange(position[access.index], UINT32_MAX)});
  }
  return placed;
}

// 1 and the most frequent distances between neighbours of a stream.
std::vector<std::uint32_t> LikelyStrides(const std::vector<Placed>& placed) {
  std::map<std::uint32_t, std::uint32_t> last, counts;
  for (const Placed& access : placed) {
    const auto before = last.find(access.stream);
    if (before != last.end() && access.position > before->second && access.position - before->second <= kMaxStride) ++counts[access.position - before->second];
    last[access.stream] = access.position;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ranked(counts.begin(), counts.end());
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::uint32_t> strides = {1};
  for (const auto& [distance, count] : ranked) {
    if (strides.size() > kStrides) break;
    if (distance > 1 && count > 1) strides.push_back(distance);
  }
  return strides;
}

// Offsets with more than a stray access, ascending.
std::vector<std::uint32_t> Offsets(const std::vector<Placed>& placed, std::uint32_t stride) {
  std::map<std::uint32_t, std::size_t> counts;
  for (const Placed& access : placed) ++counts[access.position % stride];
  std::vector<std::uint32_t> offsets;
  for (const auto& [offset, count] : counts) {
    if (count > placed.size() / 50 + 1) offsets.push_back(offset);
  }
  return offsets;
}

bool Belongs(const OrderFit& fit, std::uint32_t position) { return std::binary_search(fit.offsets.begin(), fit.offsets.end(), position % fit.stride); }

using Streams = std::map<std::uint32_t, std::vector<std::uint32_t>>;

// Of streams that go up nearly always from one access to the next.
double NeighbourEvidence(const Streams& streams) {
  double evidence = 0;
  for (const auto& [stream, positions] : streams) {
    for (std::size_t i = 1; i < positions.size(); ++i) evidence += std::log((positions[i] > positions[i - 1] ? kFits : 1 - kFits) / 0.5);
  }
  return evidence;
}

// Of streams that go up but for strays, which may be anywhere. All that an order of few accesses says.
double AscentEvidence(const Streams& streams) {
  double evidence = 0;
  std::vector<std::uint32_t> tails;  // the lowest end of an ascending part of each length
  for (const auto& [stream, positions] : streams) {
    tails.clear();
    for (const std::uint32_t position : positions) {
      const auto at = std::lower_bound(tails.begin(), tails.end(), position);
      if (at == tails.end()) tails.push_back(position);
      else *at = position;
    }
    const auto all = static_cast<double>(positions.size()), rising = static_cast<double>(tails.size());
    if (all > 1) evidence += LogFactorial(rising) - LogChoose(all, rising) + rising * std::log(kFits) + (all - rising) * std::log(1 - kFits);
  }
  return evidence;
}

// The evidence for a fit whose entries have been read up to `limit` rounds of its stride (see the header); fills in the fit.
void Weigh(const std::vector<Placed>& placed, std::size_t samples, std::uint32_t limit, OrderFit* fit) {
  const double there = std::min(kFits, static_cast<double>(fit->offsets.size()) * limit / static_cast<double>(samples));
  const double hit = std::log(kFits / there);
  const double miss = std::log((1 - kFits) / std::max(1 - there, 1 - kFits));
  // Each choice of an offset, and the stride, is paid for.
  fit->evidence = -static_cast<double>(fit->offsets.size() + 1) * std::log(fit->stride);
  std::size_t matched = 0;
  Streams streams;
  for (const Placed& access : placed) {
    const bool fits = Belongs(*fit, access.position) && access.position / fit->stride < limit;
    fit->evidence += fits ? hit : miss;
    matched += fits ? 1 : 0;
    if (fits) streams[access.stream].push_back(access.position);
  }
  // Two ways of looking at it, which is paid for.
  fit->evidence += std::max(NeighbourEvidence(streams), AscentEvidence(streams)) - std::numbers::ln2;
  fit->matched = static_cast<double>(matched) / static_cast<double>(placed.size());
}

// The best fit with this stride: all accesses lie in what has been read, or a few are strays.
OrderFit FitStride(const std::vector<Placed>& placed, std::size_t samples, std::uint32_t stride) {
  OrderFit all;
  all.stride = stride;
  all.offsets = Offsets(placed, stride);
  all.evidence = -1;
  std::vector<std::uint32_t> rounds;
  for (const Placed& access : placed) {
    if (Belongs(all, access.position)) rounds.push_back(access.position / stride);
  }
  if (rounds.empty()) return all;
  std::sort(rounds.begin(), rounds.end());
  OrderFit most = all;
  Weigh(placed, samples, rounds.back() + 1, &all);
  Weigh(placed, samples, rounds[(rounds.size() - 1) * 19 / 20] + 1, &most);
  return all.evidence >= most.evidence ? all : most;
}

// Workers that take turns look like ranks: offsets 1 and 5 of stride 8 are offset 1 of stride 4. The smallest stride that says the same.
void Reduce(OrderFit* fit) {
  for (std::uint32_t smaller = 1; smaller < fit->stride; ++smaller) {
    if (fit->stride % smaller != 0) continue;
    std::map<std::uint32_t, std::uint32_t> counts;
    for (const std::uint32_t offset : fit->offsets) ++counts[offset % smaller];
    const bool whole = std::all_of(counts.begin(), counts.end(), [&](const auto& entry) { return entry.second == fit->stride / smaller; });
    if (!whole) continue;
    fit->stride = smaller;
    fit->offsets.clear();
    for (const auto& [offset, count] : counts) fit->offsets.push_back(offset);
    return;
  }
}

// How far accesses ran ahead of the first entry that had not been seen: nearly all of them, and room to spare.
std::uint32_t Window(const std::vector<Placed>& placed, const OrderFit& fit) {
  std::vector<bool> seen;
  std::vector<std::uint32_t> ahead;
  std::uint32_t frontier = 0;
  for (const Placed& access : placed) {
    const auto offset = std::lower_bound(fit.offsets.begin(), fit.offsets.end(), access.position % fit.stride);
    if (offset == fit.offsets.end() || *offset != access.position % fit.stride) continue;
    const auto entry = static_cast<std::uint32_t>(access.position / fit.stride * fit.offsets.size() + static_cast<std::size_t>(offset - fit.offsets.begin()));
    if (entry >= seen.size()) seen.resize(entry + std::size_t{1});
    seen[entry] = true;
    ahead.push_back(entry - std::min(entry, frontier));
    while (frontier < seen.size() && seen[frontier]) ++frontier;
  }
  if (ahead.empty()) return 0;
  const auto most = ahead.begin() + static_cast<std::ptrdiff_t>((ahead.size() - 1) * 98 / 100);
  std::nth_element(ahead.begin(), most, ahead.end());
  return *most + *most / 2 + 16;
}

}  // namespace

std::optional<OrderFit> FitOrder(std::span<const std::uint32_t> order, const Observation& observation, double log_tried) {
  const std::vector<Placed> placed = Place(order, observation);
  if (placed.empty()) return std::nullopt;
  OrderFit best;
  best.evidence = -1;
  for (const std::uint32_t stride : LikelyStrides(placed)) {
    OrderFit fit = FitStride(placed, order.size(), stride);
    if (fit.evidence > best.evidence) best = std::move(fit);
  }
  if (best.evidence < log_tried + kMargin) return std::nullopt;
  Reduce(&best);
  best.window = Window(placed, best);
  return best;
}

std::vector<std::uint32_t> EntriesOf(std::span<const std::uint32_t> order, const OrderFit& fit) {
  std::vector<std::uint32_t> entries;
  for (std::size_t start = 0; start < order.size(); start += fit.stride) {
    for (const std::uint32_t offset : fit.offsets) {
      if (start + offset < order.size()) entries.push_back(order[start + offset]);
    }
  }
  return entries;
}

}  // namespace tierd::orders
