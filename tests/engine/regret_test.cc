// What the first epoch had to read of the source: all that was not there when it began, not what it brought itself before anybody looked (ORDER.md 2).
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class RegretTest : public EngineTest {
 protected:
  static constexpr int kFiles = 64;
  static constexpr std::uint64_t kBytes = 8192;

  RegretTest() { source_options().ahead = false; }
  ~RegretTest() override { StopEngine(); }

  // The watch looks at the tiers once a second.
  void PassASecond() {
    int turns = 0;
    engine().on_timer = [&] { ++turns; };
    clock_.ahead_ns += 1'100'000'000;
    ASSERT_TRUE(RunUntil([&] { return turns >= 2; }));
    engine().on_timer = nullptr;
  }
};

TEST_F(RegretTest, OfTheFirstEpochIsAboveWhatWasThereBeforeIt) {
  const std::vector<std::string> names = MakeFiles(kFiles, kBytes);
  StartEngine();
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), names[0]}}, {});
  engine().EndTurn();
  ASSERT_EQ(WaitForJob(job).verified_files, 1u);
  PassASecond();
  std::vector<Answer> answers;
  for (int i = 1; i < kFiles; ++i) {
    answers.push_back(Fetch(names[static_cast<std::size_t>(i)]));
    ASSERT_EQ(answers.back().status(), abi::FetchStatus::kFrame);
    if (i == kFiles / 2) PassASecond();  // their access records are still in the rings
  }
  answers.push_back(Fetch(names[0]));
  for (const Answer& answer : answers) NoteRead(answer);
  for (int i = 0; i < kFiles / 2; ++i) NoteRead(answers[static_cast<std::size_t>(i)]);
  ASSERT_EQ(unit().watch->past().size(), 1u);
  EXPECT_EQ(unit().watch->past()[0].regret.least_bytes, (kFiles - 1) * kBytes);
}

}  // namespace
}  // namespace tierd::engine
