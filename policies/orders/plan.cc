#include "policies/orders/plan.h"

#include <algorithm>
#include <utility>

namespace tierd::orders {
namespace {

constexpr std::uint32_t kMaxSkip = 64;

bool IsDigest(std::string_view text) {
  return text.empty() || (text.size() == 64 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos);
}

// DALI seeds a generator for every shuffle: it has no `continue`.
bool RuleFits(const Plan& plan) { return plan.kind != Kind::kDaliFile || plan.rule != EpochRule::kContinue; }

// Epochs that follow from one another are drawn one by one from epoch 0 on: some 20 s of drawing at most.
bool CanBeReached(const Plan& plan) {
  const bool follows = plan.rule == EpochRule::kContinue || plan.rule == EpochRule::kInPlace;
  return !follows || plan.epoch <= (1ull << 32) / std::max<std::uint64_t>(plan.samples, 1);
}

}  // namespace

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kTorchSequential: return "torch.sequential";
    case Kind::kTorchRandom: return "torch.random";
    case Kind::kTorchDistributed: return "torch.distributed";
    case Kind::kBlock: return "block";
    case Kind::kStrided: return "strided";
    case Kind::kNumpyLegacy: return "numpy.legacy";
    case Kind::kNumpyPcg64: return "numpy.pcg64";
    case Kind::kPython: return "python.random";
    case Kind::kDaliFile: return "dali.file";
  }
  return "?";
}

std::string_view RuleName(EpochRule rule) {
  switch (rule) {
    case EpochRule::kReseed: return "reseed";
    case EpochRule::kContinue: return "continue";
    case EpochRule::kInPlace: return "in_place";
    case EpochRule::kSame: return "same";
  }
  return "?";
}

Status CheckPlan(const Plan& plan) {
  const bool random = plan.kind == Kind::kTorchRandom;
  const bool numpy = plan.kind == Kind::kNumpyLegacy || plan.kind == Kind::kNumpyPcg64;
  const std::pair<bool, const char*> checks[] = {
      {plan.samples >= 1 && plan.samples <= kMaxSamples, "samples"},
      {plan.epoch <= kMaxEpoch, "epoch"},
      {!plan.epochs || *plan.epochs <= kMaxEpoch, "epochs"},
      {plan.position <= kMaxSamples * 2, "position"},
      {plan.batch_size <= kMaxSamples, "batch_size"},
      {IsDigest(plan.list_sha256), "list_sha256"},
      {plan.world >= 1 && plan.world <= kMaxWorld, "world"},
      {plan.rank < plan.world, "rank"},
      {!random || (plan.draws >= 1 && plan.draws <= kMaxSamples), "draws"},
      {!random || plan.start.has_value(), "start"},
      {!plan.start || (plan.start->index >= 1 && plan.start->index <= Mt19937::kWords), "start"},
      {plan.skip_first <= kMaxSkip, "skip_first"},
      {plan.skip_later <= kMaxSkip, "skip_later"},
      {!numpy || plan.seed >= 0, "seed"},
      {plan.kind != Kind::kNumpyLegacy || plan.seed <= UINT32_MAX, "seed"},
      {RuleFits(plan), "rule"},
      {CanBeReached(plan), "epoch"},
  };
  for (const auto& [good, field] : checks) {
    if (!good) return Status(Code::kInvalid, std::string("plan: ") + field + " is missing or out of range");
  }
  return Status::Ok();
}

}  // namespace tierd::orders
