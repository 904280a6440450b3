#include "tierd/io/engine_probe.h"

#include <filesystem>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Probe : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "engine_probe_XXXXXX").string();
    probe.directory = ::mkdtemp(pattern.data());
    probe.engine = {.depth = 64, .workers = 16, .max_replacements = 4};
    probe.max_ms = kPatienceMs;
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(probe.directory)) << "it leaves nothing behind";
    std::filesystem::remove_all(probe.directory);
  }
  static bool HasUring() { return MakeEngine(EngineKind::kUring, {}).ok(); }
  EngineProbe probe;
};

TEST_F(Probe, MeasuresBoth) {
  const EngineChoice choice = ChooseEngine(probe);
  EXPECT_FALSE(choice.reason.empty());
  if (!HasUring()) {
    EXPECT_EQ(choice.kind, EngineKind::kThreads);
    return;
  }
  if (choice.reason.starts_with("not measured: a file without a name")) GTEST_SKIP() << choice.reason;
  EXPECT_GT(choice.uring_per_second, 0) << choice.reason;
  EXPECT_GT(choice.threads_per_second, 0) << choice.reason;
  EXPECT_EQ(choice.kind == EngineKind::kThreads, choice.threads_per_second >= 1.5 * choice.uring_per_second);
  EXPECT_NE(choice.reason.find("against threads"), std::string::npos);
}

// A first start: neither the directory nor the one above is there.
TEST_F(Probe, MeasuresWhereTheDirectoryWillBeMade) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring";
  probe.directory += "/none/below";
  const EngineChoice choice = ChooseEngine(probe);
  probe.directory.resize(probe.directory.size() - std::string("/none/below").size());
  if (choice.reason.starts_with("not measured: a file without a name")) GTEST_SKIP() << choice.reason;
  EXPECT_NE(choice.reason.find("against threads"), std::string::npos) << choice.reason;
}

TEST_F(Probe, WhereNothingCanBeMeasuredItIsIoUring) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring";
  probe.max_ms = 0;
  EXPECT_EQ(ChooseEngine(probe).kind, EngineKind::kUring);
  EngineProbe nowhere = probe;
  nowhere.directory = "/proc/none/below";
  const EngineChoice choice = ChooseEngine(nowhere);
  EXPECT_EQ(choice.kind, EngineKind::kUring);
  EXPECT_EQ(choice.reason.find("not measured: "), 0u) << choice.reason;
}

}  // namespace
}  // namespace tierd::io
