// An engine over 800 small files, and what tests of plans need: telling one, reading by it, looking at what the policy was told.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/spy_policy.h"
#include "tierd/engine/orders/foresight.h"

namespace tierd::engine {

class PlanTest : public EngineTest {
 protected:
  static constexpr int kFiles = 800;

  explicit PlanTest(int files = kFiles, std::size_t bytes = 1000) {
    source_options().staleness = abi::Staleness::kImmutable;
    source_options().ahead = false;
    names_ = MakeFiles(files, bytes);
  }
  ~PlanTest() override { StopEngine(); }
  void StartWithSpy() {
    StartEngine();
    UseSpy();
  }
  void UseSpy() {
    engine().SwitchPolicy(unit(), spy_.Instance(), "spy", "");
    ASSERT_TRUE(RunUntil([&] { return !unit().policy.changing(); }));
  }

  static orders::Plan PlanOf(std::uint64_t world = 1, std::uint64_t rank = 0, std::uint64_t epochs = 6, std::int64_t seed = 5) {
    orders::Plan plan;
    plan.kind = orders::Kind::kTorchDistributed;
    plan.samples = kFiles;
    plan.world = world;
    plan.rank = rank;
    plan.epochs = epochs;
    plan.seed = seed;
    return plan;
  }
  std::string List() const {
    std::string list;
    for (const std::string& name : names_) list += tree_.path() + "/" + name + "\n";
    return list;
  }
  // `at_once` runs when the plan has just been taken.
  Result<std::uint64_t> Tell(const orders::Plan& plan, const std::string& list, UniqueFd process = UniqueFd(), const std::function<void()>& at_once = nullptr) {
    std::optional<Result<std::uint64_t>> told;
    Engine::ToldPlan plan_told;
    plan_told.plan = plan;
    plan_told.list_file = cache_.path() + "/told.list";
    std::ofstream(plan_told.list_file) << list;
    plan_told.process = std::move(process);
    engine().TellPlan(unit(), std::move(plan_told), [&](Result<std::uint64_t> result) {
      told = std::move(result);
      if (at_once) at_once();
    });
    EXPECT_TRUE(RunUntil([&] { return told.has_value(); }));
    return *told;
  }
  Foresight& foresight() { return engine().foresight(unit()); }
  static std::vector<std::uint32_t> OrderOf(const orders::Plan& plan, int epoch) {
    auto orders = orders::PlanOrders::Create(plan).value();
    std::vector<std::uint32_t> order;
    for (int i = 0; i <= epoch; ++i) orders.Next(&order);
    return order;
  }
  std::uint32_t IdOf(std::uint32_t sample) { return Raw(ObjectOf(names_[sample])); }
  // All that the policy was told since its last beginning, epoch by epoch.
  std::map<std::uint32_t, std::vector<std::uint32_t>> Declared() const {
    std::map<std::uint32_t, std::vector<std::uint32_t>> epochs;
    for (const SpyPolicy::PlanCall& call : spy_.plans) {
      EXPECT_EQ(call.consumer, TIERD_CONSUMER_ALL);
      EXPECT_EQ(call.first, epochs[call.epoch].size()) << call.epoch;
      epochs[call.epoch].insert(epochs[call.epoch].end(), call.ids.begin(), call.ids.end());
    }
    return epochs;
  }
  std::vector<std::uint32_t> IdsOf(const std::vector<std::uint32_t>& order, std::size_t from = 0) {
    std::vector<std::uint32_t> ids;
    for (std::size_t i = from; i < order.size(); ++i) ids.push_back(IdOf(order[i]));
    return ids;
  }
  // From wherever its bytes are.
  void Read(std::uint32_t sample, SessionId session = kReader, std::uint32_t chunk = 0) {
    ASSERT_NE(FileOf(names_[sample]), kNoFile);
    const ObjectId object = ObjectOf(names_[sample], chunk);
    const auto tier = engine().placement().InRam(object) ? abi::Tier::kRam : engine().placement().OnSsd(object) ? abi::Tier::kSsd : abi::Tier::kSource;
    NoteEntry(session, std::uint64_t{engine().catalogue().OrdinalOf(object)} | std::uint64_t{engine().catalogue().generation() & 0xffu} << 32 | static_cast<std::uint64_t>(tier) << 52);
  }
  void ReadAll(const std::vector<std::uint32_t>& order, SessionId session = kReader) {
    for (const std::uint32_t sample : order) Read(sample, session);
    Settle();
  }
  void Settle() {
    engine().Kick();
    RunUntil([] { return false; }, 30);
  }
  bool WaitForState(std::uint64_t id, PlanState state) {
    return RunUntil([&] {
      for (const PlanStatus& plan : foresight().List()) {
        if (plan.id == id) return plan.state == state;
      }
      return false;
    });
  }

  std::vector<std::string> names_;
  SpyPolicy spy_;
};

}  // namespace tierd::engine
