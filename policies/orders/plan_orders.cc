#include "policies/orders/plan_orders.h"

#include <algorithm>
#include <utility>

namespace tierd::orders {
namespace {

// Every world-th entry from `rank` on; the list is repeated from its start until there are `each` of them.
void TakeRank(std::vector<std::uint32_t>* order, std::uint64_t each, std::uint64_t world, std::uint64_t rank) {
  if (world == 1 && each == order->size()) return;
  std::vector<std::uint32_t> taken(each);
  for (std::uint64_t i = 0; i < each; ++i) taken[i] = (*order)[(rank + i * world) % order->size()];
  order->swap(taken);
}

}  // namespace

Result<PlanOrders> PlanOrders::Create(const Plan& plan) {
  if (Status status = CheckPlan(plan); !status.ok()) return status;
  PlanOrders orders(plan);
  if (plan.kind == Kind::kTorchRandom) {
    const GeneratorStart& start = *plan.start;
    orders.engine_ = start.words ? Mt19937::FromState(*start.words, start.index) : Mt19937::FromSeed(static_cast<std::uint32_t>(start.seed));
  }
  const bool continues = plan.rule == EpochRule::kContinue || plan.rule == EpochRule::kInPlace;
  const bool seeded = plan.kind == Kind::kNumpyLegacy || plan.kind == Kind::kNumpyPcg64 || plan.kind == Kind::kPython;
  if (seeded) {
    orders.Reseed(plan.seed);
    std::vector<std::uint32_t> passed;
    if (!continues) return orders;
    orders.epoch_ = 0;  // these epochs follow from one another: those before the first are drawn and dropped
    while (orders.epoch_ < plan.epoch) {
      orders.Seeded(&passed);
      ++orders.epoch_;
    }
  }
  if (plan.kind == Kind::kDaliFile && plan.rule == EpochRule::kInPlace) {
    std::vector<std::uint32_t> passed;
    orders.epoch_ = 0;
    for (; orders.epoch_ < plan.epoch; ++orders.epoch_) orders.Dali(&passed);
  }
  return orders;
}

bool PlanOrders::Next(std::vector<std::uint32_t>* order) {
  order->clear();
  if (plan_.epochs && epoch_ >= plan_.epoch + *plan_.epochs) return false;
  switch (plan_.kind) {
    case Kind::kTorchSequential: order->resize(plan_.samples), Identity(*order); break;
    case Kind::kTorchRandom: TorchRandom(order); break;
    case Kind::kTorchDistributed: TorchDistributed(order); break;
    case Kind::kBlock: Block(order, plan_.rank); break;
    case Kind::kStrided: Strided(order); break;
    case Kind::kNumpyLegacy:
    case Kind::kNumpyPcg64:
    case Kind::kPython:
      Seeded(order);
      if (plan_.world > 1) TakeRank(order, (plan_.samples + plan_.world - 1 - plan_.rank) / plan_.world, plan_.world, plan_.rank);
      break;
    case Kind::kDaliFile: Dali(order); break;
  }
  if (plan_.batch_drop_last && plan_.batch_size > 0) order->resize(order->size() / plan_.batch_size * plan_.batch_size);
  if (epoch_ == plan_.epoch) order->erase(order->begin(), order->begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(plan_.position, order->size())));
  ++epoch_;
  return true;
}

std::optional<Plan> PlanOrders::Rest() const {
  const auto* const source = std::get_if<Mt19937>(&engine_);
  const bool random = plan_.kind == Kind::kTorchRandom && source != nullptr;
  const std::uint64_t passed = epoch_ - plan_.epoch;
  if (!random && !(plan_.kind == Kind::kTorchDistributed && plan_.set_epoch)) return std::nullopt;
  if (plan_.epochs && passed >= *plan_.epochs) return std::nullopt;
  if (passed == 0) return plan_;
  Plan rest = plan_;
  rest.epoch = epoch_;
  if (rest.epochs) *rest.epochs -= passed;
  rest.position = 0;
  if (!random) return rest;
  rest.skip_first = rest.skip_later;
  rest.start = GeneratorStart{.seed = 0, .words = source->words(), .index = static_cast<std::uint32_t>(source->index())};
  return rest;
}

// torch.utils.data.RandomSampler, with `shared` as without a generator of its own.
void PlanOrders::TorchRandom(std::vector<std::uint32_t>* order) {
  auto& source = std::get<Mt19937>(engine_);
  const std::uint32_t skip = epoch_ == plan_.epoch ? plan_.skip_first : plan_.skip_later;
  for (std::uint32_t i = 0; i < skip; ++i) source.Next64();
  if (!plan_.shared) return DrawEpoch(order, source);
  Mt19937 fresh = Mt19937::FromSeed(static_cast<std::uint32_t>(source.Next64()));
  DrawEpoch(order, fresh);
}

void PlanOrders::DrawEpoch(std::vector<std::uint32_t>* order, Mt19937& engine) const {
  const auto n = static_cast<std::uint32_t>(plan_.samples);
  order->resize(plan_.draws);
  if (plan_.replacement) {
    for (std::uint32_t& index : *order) index = engine() % n;
    return;
  }
  std::vector<std::uint32_t> last(n);
  std::size_t filled = 0;
  for (; order->size() - filled >= n; filled += n) TorchRandperm(engine, std::span(*order).subspan(filled, n));
  // Drawn even when nothing of it is used: the next epoch starts behind it.
  TorchRandperm(engine, last);
  std::copy_n(last.begin(), order->size() - filled, order->begin() + static_cast<std::ptrdiff_t>(filled));
}

// torch.utils.data.distributed.DistributedSampler.
void PlanOrders::TorchDistributed(std::vector<std::uint32_t>* order) {
  const std::uint64_t n = plan_.samples;
  order->resize(n);
  if (plan_.shuffle) {
    const std::uint64_t added = plan_.set_epoch ? epoch_ : plan_.epoch;
    Mt19937 engine = Mt19937::FromSeed(static_cast<std::uint32_t>(static_cast<std::uint64_t>(plan_.seed) + added));
    TorchRandperm(engine, *order);
  } else {
    Identity(*order);
  }
  const std::uint64_t each = plan_.drop_last ? n / plan_.world : (n + plan_.world - 1) / plan_.world;
  TakeRank(order, each, plan_.world, plan_.rank);
}

void PlanOrders::Strided(std::vector<std::uint32_t>* order) const {
  for (std::uint64_t i = plan_.rank; i < plan_.samples; i += plan_.world) order->push_back(static_cast<std::uint32_t>(i));
}

void PlanOrders::Block(std::vector<std::uint32_t>* order, std::uint64_t shard) const {
  const std::uint64_t from = plan_.samples * shard / plan_.world;
  const std::uint64_t to = plan_.samples * (shard + 1) / plan_.world;
  for (std::uint64_t i = from; i < to; ++i) order->push_back(static_cast<std::uint32_t>(i));
}

void PlanOrders::Reseed(std::int64_t seed) {
  if (plan_.kind == Kind::kNumpyPcg64) {
    engine_ = Pcg64::FromSeed(static_cast<std::uint64_t>(seed));
  } else {
    engine_ = plan_.kind == Kind::kPython ? PythonRandom(seed) : Mt19937::FromSeed(static_cast<std::uint32_t>(seed));
  }
}

void PlanOrders::Shuffle(std::vector<std::uint32_t>& order) {
  if (plan_.kind == Kind::kNumpyPcg64) return NumpyShuffle(std::get<Pcg64>(engine_), order);
  if (plan_.kind == Kind::kPython) return PythonShuffle(std::get<Mt19937>(engine_), order);
  NumpyShuffle(std::get<Mt19937>(engine_), order);
}

// A permutation of the whole by NumPy's or Python's generator, by `rule`.
void PlanOrders::Seeded(std::vector<std::uint32_t>* order) {
  if (plan_.rule == EpochRule::kReseed) Reseed(plan_.seed + static_cast<std::int64_t>(epoch_));
  if (plan_.rule == EpochRule::kSame) Reseed(plan_.seed);
  if (plan_.rule == EpochRule::kInPlace) {
    if (kept_.empty()) kept_.resize(plan_.samples), Identity(kept_);
    Shuffle(kept_);
    *order = kept_;
    return;
  }
  order->resize(plan_.samples);
  Identity(*order);
  Shuffle(*order);
}

// DALI's fn.readers.file. kInPlace: shuffle_after_epoch. kReseed: the same with checkpointing, which shuffles the initial list each time.
// kSame: random_shuffle, one shuffle with `seed` itself before all epochs (its buffer changes who is handed out first, not what is read
// when). DALI counts its epochs from 1.
void PlanOrders::Dali(std::vector<std::uint32_t>* order) {
  if (kept_.empty() || plan_.rule != EpochRule::kInPlace) kept_.resize(plan_.samples), Identity(kept_);
  if (plan_.shuffle) {
    const std::uint64_t added = plan_.rule == EpochRule::kSame ? 0 : epoch_ + 1;
    Mt19937 engine = Mt19937::FromSeed(static_cast<std::uint32_t>(static_cast<std::uint64_t>(plan_.seed) + added));
    StdShuffle(engine, kept_, plan_.uniform);
  }
  order->clear();
  Block(order, plan_.stick ? plan_.rank : (plan_.rank + epoch_) % plan_.world);
  for (std::uint32_t& index : *order) index = kept_[index];
}

}  // namespace tierd::orders
