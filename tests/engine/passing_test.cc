// Bytes of the SSD tier that only pass through RAM on their way to a reader.
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class PassingTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

  PassingTest() {
    UseSsd();
    source_options().policy = "freeze";
    options_.ram.capacity_bytes = 32 << 20;
  }
  ~PassingTest() override { StopEngine(); }
};

// `freeze` names nobody who may leave, and what readers have on its way is many times the reserve: the source is not read for it.
TEST_F(PassingTest, ResidentsYieldToReadersOfTheSsd) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
  source_io_.delay_us[static_cast<std::size_t>(io::Step::kRead)] = 300'000;  // the slower of the two, however busy the machine is (F08)
  StartEngine();
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_EQ(WaitForJob(job).verified_files, names.size());
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << name;
  const std::uint64_t residents = engine().placement().ram_resident_bytes();
  ASSERT_GT(residents, options_.ram.capacity_bytes / 2);
  // Of those that the source was asked for, none but the ones that a busy SSD was too slow for.
  const auto others = [&] { return source_io_.count(io::Step::kOpen) - engine().counters().ssd_slow_bypass; };
  const std::uint64_t others_before = others();

  // All have a frame at a time, while none has been read; but for those that a busy SSD is too slow for.
  constexpr std::size_t kAtATime = 12;
  const auto passing = [&] { return engine().counters().transit_frames + engine().counters().ssd_slow_bypass; };
  const std::uint64_t passing_before = passing();
  ssd_io_.Hold(io::Step::kReadv);
  std::map<std::uint64_t, std::string> asked;
  for (const std::string& name : names) {
    if (!InRam(name) && asked.size() < kAtATime) asked.emplace(Ask(name), name);
  }
  ASSERT_EQ(asked.size(), kAtATime);
  ASSERT_TRUE(RunUntil([&] { return passing() - passing_before >= kAtATime && ssd_io_.waiting > 0; }));
  ssd_io_.Release();
  for (const auto& [id, name] : asked) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(id); })) << name;
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kFrame) << name << " reason " << int{answers()[id].reply.reason};
    EXPECT_TRUE(answers()[id].bytes == Bytes(name, kBytes)) << name;
  }
  EXPECT_EQ(others(), others_before);
  EXPECT_GE(engine().placement().ram_resident_bytes(), options_.ram.capacity_bytes / 4) << "a quarter stays";
}

}  // namespace
}  // namespace tierd::engine
