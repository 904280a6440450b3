// Answers of a policy that lies in every way the ABI allows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "policies/builtin.h"
#include "policies/policy_instance.h"

namespace tierd::policies {
namespace {

// What the liar answers next and what it was told. The ABI hands only `self` around, so that state lives there.
struct Liar {
  std::vector<std::uint32_t> answer;
  std::size_t claim = 0;  // returned when not 0
  double worth = 1;
  std::vector<std::string> told;
};
Liar* g_created = nullptr;  // the instance that create() handed out last; tests run in one thread

Liar& Self(void* p) { return *static_cast<Liar*>(p); }
std::size_t Answer(Liar& liar, std::size_t max, const std::function<void(std::size_t, std::uint32_t)>& put) {
  const std::size_t count = std::min(liar.answer.size(), max);
  for (std::size_t i = 0; i < count; ++i) put(i, liar.answer[i]);
  return liar.claim != 0 ? liar.claim : count;
}

tierd_policy_ops LiarOps() {
  tierd_policy_ops ops{};
  ops.abi_version = TIERD_POLICY_ABI_VERSION;
  ops.struct_size = sizeof(ops);
  ops.name = "liar";
  ops.summary = "for tests";
  ops.create = [](const tierd_policy_env* env, char* error, std::size_t error_bytes) -> void* {
    if (std::string_view(env->parameters) == "fail") {
      std::snprintf(error, error_bytes, "fail is not a number");
      return nullptr;
    }
    if (std::string_view(env->parameters) == "mute") return nullptr;
    return g_created = new Liar;
  };
  ops.destroy = [](void* p) { delete &Self(p); };
  ops.object_known = [](void* p, const tierd_object* o) { Self(p).told.push_back("known " + std::to_string(o->id)); };
  ops.object_forgotten = [](void* p, std::uint32_t id) { Self(p).told.push_back("forgotten " + std::to_string(id)); };
  ops.accessed = [](void* p, const tierd_access* a) { Self(p).told.push_back("accessed " + std::to_string(a->id)); };
  ops.inserted = [](void* p, std::uint32_t t, std::uint32_t id) { Self(p).told.push_back("inserted " + std::to_string(t) + " " + std::to_string(id)); };
  ops.removed = [](void* p, std::uint32_t t, std::uint32_t id) { Self(p).told.push_back("removed " + std::to_string(t) + " " + std::to_string(id)); };
  ops.admit = [](void*, std::uint32_t, std::uint32_t, std::uint64_t) { return 1; };
  ops.victims = [](void* p, std::uint32_t, std::uint64_t, std::uint32_t* ids, std::size_t max) {
    return Answer(Self(p), max, [&](std::size_t i, std::uint32_t id) { ids[i] = id; });
  };
  ops.next = [](void* p, std::uint32_t, std::int64_t, tierd_candidate* out, std::size_t max) {
    return Answer(Self(p), max, [&](std::size_t i, std::uint32_t id) { out[i] = {id, 0, TIERD_TIME_NONE}; });
  };
  ops.worth = [](void* p, std::uint32_t, std::uint32_t) { return Self(p).worth; };
  return ops;
}

class PolicyInstanceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<PolicyInstance> made = PolicyInstance::Create(ops_, {});
    ASSERT_TRUE(made.ok());
    instance_.emplace(std::move(made).value());
    for (std::uint32_t id : {1u, 2u, 3u}) instance_->ObjectKnown({.id = id, .file_id = id, .chunk = 0, .bytes = 1});
    instance_->Inserted(TIERD_TIER_RAM, 1);
    instance_->Inserted(TIERD_TIER_RAM, 2);
    g_created->told.clear();
  }
  const tierd_policy_ops ops_ = LiarOps();
  std::optional<PolicyInstance> instance_;
};

TEST_F(PolicyInstanceTest, VictimsDropsUnknownMisplacedAndDuplicateIds) {
  g_created->answer = {2, 77, 3, 2, TIERD_NO_OBJECT, 0, 1};
  std::uint32_t ids[8];
  ASSERT_EQ(instance_->Victims(TIERD_TIER_RAM, 1, ids), 2u);
  EXPECT_EQ(ids[0], 2u);
  EXPECT_EQ(ids[1], 1u);
  EXPECT_EQ(instance_->counters().unknown_ids, 3u);
  EXPECT_EQ(instance_->counters().misplaced_ids, 1u);
  EXPECT_EQ(instance_->counters().duplicate_ids, 1u);
  EXPECT_EQ(instance_->counters().victims_named, 2u);
  EXPECT_EQ(instance_->Victims(TIERD_TIER_RAM, 1, ids), 2u) << "the marks of the last answer are gone";
}

TEST_F(PolicyInstanceTest, NextDropsWhatIsThereAlready) {
  g_created->answer = {1, 3, 3, 900};
  tierd_candidate out[4];
  ASSERT_EQ(instance_->Next(TIERD_TIER_RAM, 0, out), 1u);
  EXPECT_EQ(out[0].id, 3u);
  EXPECT_EQ(instance_->counters().dropped(), 3u);
  ASSERT_EQ(instance_->Next(TIERD_TIER_SSD, 0, out), 2u) << "1 and 3 are not on the SSD";
}

TEST_F(PolicyInstanceTest, AnAnswerLongerThanAllowedIsCut) {
  g_created->answer = {1};
  g_created->claim = 1'000'000;
  std::uint32_t ids[2] = {5, 5};
  EXPECT_EQ(instance_->Victims(TIERD_TIER_RAM, 1, ids), 1u);
  EXPECT_EQ(instance_->counters().overlong_answers, 1u);
  EXPECT_EQ(instance_->Victims(TIERD_TIER_RAM, 1, {}), 0u);
}

TEST_F(PolicyInstanceTest, WorthIsFinite) {
  for (double worth : {std::nan(""), HUGE_VAL, -HUGE_VAL, 2.5}) {
    g_created->worth = worth;
    EXPECT_TRUE(std::isfinite(instance_->Worth(TIERD_TIER_RAM, 1)));
  }
  EXPECT_EQ(instance_->Worth(TIERD_TIER_RAM, 1), 2.5);
  EXPECT_EQ(instance_->Worth(TIERD_TIER_RAM, 99), 0);
  EXPECT_EQ(instance_->Worth(9, 1), 0);
}

TEST_F(PolicyInstanceTest, EventsThatSayNothingNewAreNotPassedOn) {
  instance_->Inserted(TIERD_TIER_RAM, 1);
  instance_->Inserted(TIERD_TIER_RAM, 50);
  instance_->Inserted(7, 1);
  instance_->Removed(TIERD_TIER_SSD, 1);
  instance_->Accessed({.id = 50, .consumer = 0, .time_ns = 0, .tier = 0});
  instance_->ObjectForgotten(50);
  instance_->ObjectKnown({.id = PolicyInstance::kMaxObjects, .file_id = 0, .chunk = 0, .bytes = 0});
  EXPECT_TRUE(g_created->told.empty());
}

TEST_F(PolicyInstanceTest, ForgettingAnObjectTakesItOutOfItsTiersFirst) {
  instance_->Inserted(TIERD_TIER_SSD, 1);
  g_created->told.clear();
  instance_->ObjectForgotten(1);
  EXPECT_EQ(g_created->told, (std::vector<std::string>{"removed 0 1", "removed 1 1", "forgotten 1"}));
  EXPECT_FALSE(instance_->IsKnown(1));
  EXPECT_FALSE(instance_->Admit(TIERD_TIER_RAM, 1, 100));
}

TEST(PolicyInstanceCreate, AFailureCarriesThePolicysSentence) {
  const tierd_policy_ops ops = LiarOps();
  PolicyInstance::Options options;
  options.parameters = "fail";
  Result<PolicyInstance> made = PolicyInstance::Create(ops, options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "policy liar with parameters \"fail\": fail is not a number");
  options.parameters = "mute";
  made = PolicyInstance::Create(ops, options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "policy liar with parameters \"mute\": refused without a reason");
}

TEST(PolicyInstanceCreate, OptionalFunctionsMayBeMissing) {
  tierd_policy_ops ops = LiarOps();
  ops.next = nullptr;
  ops.worth = nullptr;
  Result<PolicyInstance> made = PolicyInstance::Create(ops, {});
  ASSERT_TRUE(made.ok());
  PolicyInstance instance = std::move(made).value();
  instance.ObjectKnown({.id = 0, .file_id = 0, .chunk = 0, .bytes = 1});
  instance.SetCapacity(TIERD_TIER_RAM, 1);
  instance.EpochBoundary(1, 1);
  instance.Plan(1, 1, {});
  tierd_candidate out[1];
  EXPECT_EQ(instance.Next(TIERD_TIER_RAM, 0, out), 0u);
  EXPECT_EQ(instance.Worth(TIERD_TIER_RAM, 0), 1);
}

TEST(PolicyInstance, HandsOnPrioritiesThatAreNumbers) {
  static std::vector<std::pair<std::uint32_t, double>> told;
  told.clear();
  tierd_policy_ops ops = LiarOps();
  ops.hint = [](void*, const tierd_hint* hint) {
    EXPECT_EQ(hint->struct_size, sizeof(tierd_hint));
    EXPECT_EQ(hint->kind, TIERD_HINT_PRIORITY);
    for (std::size_t i = 0; i < hint->count; ++i) told.emplace_back(hint->ids[i], hint->values[i]);
  };
  Result<PolicyInstance> instance = PolicyInstance::Create(ops, {});
  ASSERT_TRUE(instance.ok());
  EXPECT_TRUE(instance->takes_priorities());
  const std::uint32_t ids[] = {1, 2, 3, 4, 5};
  const double priorities[] = {.5, -1, NAN, INFINITY};
  instance->Prioritize(ids, priorities);
  EXPECT_EQ(told, (std::vector<std::pair<std::uint32_t, double>>{{1, .5}, {2, 0}, {3, 0}, {4, 0}})) << "as many as there are of both";
  instance->Prioritize({}, priorities);
  EXPECT_EQ(told.size(), 4u);
}

}  // namespace
}  // namespace tierd::policies
