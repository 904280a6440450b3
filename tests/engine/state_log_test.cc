// What becomes worse, and what gets well again, is a line of the log each (C4 in docs/semantics.md); so is what keeps the loop (HAZARDS 5).
#include <filesystem>

#include "tests/engine/engine_fixture.h"
#include "tierd/engine/state_log.h"

namespace tierd::engine {
namespace {

using Lines = std::vector<std::string>;

TEST(StateLog, EachChangeIsOneLine) {
  StateLog log;
  EXPECT_EQ(log.Look("ssd", "ok", "ok", 1), "");
  EXPECT_EQ(log.Look("ssd", "degraded", "ok", 2), "ssd state=degraded was=ok");
  EXPECT_EQ(log.Look("ssd", "degraded", "ok", 3), "");
  EXPECT_EQ(log.Look("source name=a", "hung", "up", 3), "source name=a state=hung was=up");
  EXPECT_EQ(log.Look("ssd", "out", "ok", 4), "ssd state=out was=degraded");
  EXPECT_EQ(log.Look("ssd", "ok", "ok", 5), "ssd state=ok was=out");
}

TEST(StateLog, WhatComesAndGoesDoesNotFillIt) {
  StateLog log;
  int lines = 0;
  for (std::int64_t now_ns = 0; now_ns < 100 * StateLog::kAgainNs; now_ns += StateLog::kAgainNs / 10)
    lines += log.Look("ssd", now_ns / (StateLog::kAgainNs / 10) % 2 == 0 ? "degraded" : "ok", "ok", now_ns).empty() ? 0 : 1;
  EXPECT_GE(lines, 100);
  EXPECT_LE(lines, 200);
  EXPECT_EQ(log.Look("ssd", "out", "ok", 1000 * StateLog::kAgainNs).substr(0, 14), "ssd state=out ");
}

class StateLogTest : public EngineTest {
 protected:
  ~StateLogTest() override { StopEngine(); }
  void Start() {
    StartEngine();
    engine().log = [this](const std::string& line) { lines_.push_back(line); };
  }
  // Those lines, and none in the next three looks.
  void ExpectOnly(const Lines& lines) {
    EXPECT_TRUE(RunUntil([&] { return lines_.size() >= lines.size(); }, 20'000));
    (void)HandlersIn(3200);
    EXPECT_EQ(lines_, lines);
  }
  Lines lines_;
};

TEST_F(StateLogTest, TheSsdGoesAndComesBack) {
  UseSsd();
  Start();
  const std::string& directory = options_.ssd.directory;
  std::filesystem::rename(directory, directory + ".away");
  ExpectOnly({"ssd state=degraded was=ok"});
  std::filesystem::rename(directory + ".away", directory);
  ExpectOnly({"ssd state=degraded was=ok", "ssd state=ok was=degraded"});
}

TEST_F(StateLogTest, ASourceHangsAndAnswersAgain) {
  source_options().hung_cap = 1;
  source_options().demand_timeout_ms = 60;
  const std::string name = Write("file", Bytes("file", 5000));
  Start();
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting > 0; }));
  clock_.ahead_ns += 60'000'000'000;
  ExpectOnly({"source name=data state=hung was=up"});
  source_io_.Release();
  ExpectOnly({"source name=data state=hung was=up", "source name=data state=up was=hung"});
  EXPECT_TRUE(answers().contains(id));
}

TEST_F(StateLogTest, WhatKeepsTheLoopIsNamed) {
  Start();
  int answered = 0;
  for (const int took_ms : {60, 900, 40}) {
    ASSERT_TRUE(engine().workers().Run([] { return 1; }, [&, took_ms](int) {
      clock_.ahead_ns += took_ms * std::int64_t{1'000'000};
      ++answered;
    }));
  }
  ASSERT_TRUE(RunUntil([&] { return answered == 3; }));
  ASSERT_TRUE(RunUntil([&] { return !lines_.empty(); }));
  EXPECT_TRUE(lines_[0].starts_with("loop late handler=worker_answer took_ms=9")) << lines_[0];
  {
    const auto handler = engine().CountHandler("message");
    clock_.ahead_ns += 70'000'000;
  }
  (void)HandlersIn(2500);
  EXPECT_EQ(lines_.size(), 1u) << "the next one in a while";
  clock_.ahead_ns += StateLog::kAgainNs;
  ASSERT_TRUE(RunUntil([&] { return lines_.size() == 2; }));
  EXPECT_TRUE(lines_[1].starts_with("loop late handler=message took_ms=7")) << lines_[1];
}

}  // namespace
}  // namespace tierd::engine
