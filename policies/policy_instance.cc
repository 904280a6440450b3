#include "policies/policy_instance.h"

#include <algorithm>
#include <cmath>

#include "policies/prefetch.h"

namespace tierd::policies {

namespace {
constexpr std::size_t kErrorBytes = 256;
}

Result<PolicyInstance> PolicyInstance::Create(const tierd_policy_ops& ops, const Options& options) {
  tierd_policy_env env{};
  env.abi_version = TIERD_POLICY_ABI_VERSION;
  env.struct_size = sizeof(env);
  env.seed = options.seed;
  std::copy_n(options.capacity_bytes, TIERD_POLICY_TIERS, env.capacity_bytes);
  env.parameters = options.parameters.c_str();
  char error[kErrorBytes] = "";
  void* self = ops.create(&env, error, sizeof(error));
  if (self == nullptr) {
    error[kErrorBytes - 1] = '\0';
    return Status(Code::kInvalid, "policy " + std::string(ops.name) + " with parameters \"" + options.parameters +
                                      "\": " + (error[0] == '\0' ? "refused without a reason" : error));
  }
  return PolicyInstance(ops, self);
}

void PolicyInstance::ObjectKnown(const Object& object) {
  if (object.id >= kMaxObjects) return;
  states_.Cover(object.id);
  states_.Set(kKnown, object.id);
  tierd_object c{};
  c.struct_size = sizeof(c);
  c.id = object.id;
  c.file_id = object.file_id;
  c.chunk = object.chunk;
  c.bytes = object.bytes;
  ++counters_.events;
  ops_->object_known(self_.get(), &c);
}

void PolicyInstance::ObjectForgotten(std::uint32_t id) {
  if (!IsKnown(id)) return;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) Removed(tier, id);
  states_.Clear(kKnown, id);
  ++counters_.events;
  ops_->object_forgotten(self_.get(), id);
}

void PolicyInstance::SetCapacity(std::uint32_t tier, std::uint64_t bytes) {
  if (tier >= TIERD_POLICY_TIERS || ops_->capacity == nullptr) return;
  ++counters_.events;
  ops_->capacity(self_.get(), tier, bytes);
}

void PolicyInstance::EpochBoundary(std::uint32_t consumer, std::uint32_t epoch) {
  if (ops_->epoch_boundary == nullptr) return;
  ++counters_.events;
  ops_->epoch_boundary(self_.get(), consumer, epoch);
}

void PolicyInstance::Plan(std::uint32_t consumer, std::uint32_t epoch, std::span<const std::uint32_t> ids, std::uint32_t first) {
  if (ops_->plan == nullptr || ids.empty()) return;
  tierd_plan c{};
  c.struct_size = sizeof(c);
  c.consumer = consumer;
  c.epoch = epoch;
  c.first = first;
  c.ids = ids.data();
  c.count = ids.size();
  ++counters_.events;
  ops_->plan(self_.get(), &c);
}

void PolicyInstance::WithdrawPlan(std::uint32_t consumer) {
  if (ops_->plan == nullptr) return;
  tierd_plan c{};
  c.struct_size = sizeof(c);
  c.consumer = consumer;
  ++counters_.events;
  ops_->plan(self_.get(), &c);
}

void PolicyInstance::Prioritize(std::span<const std::uint32_t> ids, std::span<const double> priorities) {
  const std::size_t count = std::min(ids.size(), priorities.size());
  if (ops_->hint == nullptr || count == 0) return;
  std::vector<double> sound(priorities.begin(), priorities.begin() + static_cast<std::ptrdiff_t>(count));
  for (double& value : sound) value = std::isfinite(value) && value > 0 ? value : 0;
  tierd_hint c{};
  c.struct_size = sizeof(c);
  c.kind = TIERD_HINT_PRIORITY;
  c.ids = ids.data();
  c.values = sound.data();
  c.count = count;
  ++counters_.events;
  ops_->hint(self_.get(), &c);
}

void PolicyInstance::Soon(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) {
    PrefetchLine(states_.Line(TIERD_TIER_RAM, id));  // of any id: no more than a hint
    PrefetchLine(states_.Line(kKnown, id));
  }
  if (ops_->soon != nullptr) ops_->soon(self_.get(), ids.data(), ids.size());
}

bool PolicyInstance::Accept(std::uint32_t id, std::uint32_t tier, bool in_tier) {
  if (!IsKnown(id)) {
    ++counters_.unknown_ids;
    return false;
  }
  if (IsIn(tier, id) != in_tier) {
    ++counters_.misplaced_ids;
    return false;
  }
  if (states_.Has(kMarked, id)) {
    ++counters_.duplicate_ids;
    return false;
  }
  states_.Set(kMarked, id);
  return true;
}

std::size_t PolicyInstance::Sift(std::uint32_t tier, std::span<std::uint32_t> ids, std::size_t named) {
  if (named > ids.size()) {
    ++counters_.overlong_answers;
    named = ids.size();
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < named; ++i) {
    if (Accept(ids[i], tier, true)) ids[kept++] = ids[i];
  }
  for (std::size_t i = 0; i < kept; ++i) states_.Clear(kMarked, ids[i]);
  return kept;
}

std::size_t PolicyInstance::Next(std::uint32_t tier, std::int64_t now_ns, std::span<tierd_candidate> out) {
  if (tier >= TIERD_POLICY_TIERS || out.empty() || ops_->next == nullptr) return 0;
  ++counters_.questions;
  std::size_t named = ops_->next(self_.get(), tier, now_ns, out.data(), out.size());
  if (named > out.size()) {
    ++counters_.overlong_answers;
    named = out.size();
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < named; ++i) {
    if (Accept(out[i].id, tier, false)) out[kept++] = out[i];
  }
  for (std::size_t i = 0; i < kept; ++i) states_.Clear(kMarked, out[i].id);
  counters_.candidates_named += kept;
  return kept;
}

double PolicyInstance::Worth(std::uint32_t tier, std::uint32_t id) {
  if (tier >= TIERD_POLICY_TIERS || !IsKnown(id)) return 0;
  if (ops_->worth == nullptr) return 1;
  ++counters_.questions;
  const double worth = ops_->worth(self_.get(), tier, id);
  if (std::isnan(worth)) return 0;
  return std::clamp(worth, -1e300, 1e300);
}

}  // namespace tierd::policies
