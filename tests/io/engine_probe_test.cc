#include "tierd/io/engine_probe.h"

#include <thread>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Probe : public EngineTest {
 protected:
  EngineProbe MakeProbe(std::size_t files) {
    EngineProbe probe;
    probe.root_fd = root();
    probe.max_ms = kPatienceMs;
    for (std::size_t i = 0; i < files; ++i) {
      probe.paths.push_back("f" + std::to_string(i));
      WriteContent(probe.paths.back(), 1000);
    }
    return probe;
  }
  static bool HasUring() { return MakeEngine(EngineKind::kUring, {}).ok(); }
};

TEST_F(Probe, MeasuresBothOnAnotherThread) {
  const EngineProbe probe = MakeProbe(200);
  EngineChoice choice;
  std::thread([&] { choice = ChooseEngine(probe); }).join();
  EXPECT_FALSE(choice.reason.empty());
  if (!HasUring()) {
    EXPECT_EQ(choice.kind, EngineKind::kThreads);
    return;
  }
  EXPECT_GT(choice.uring_per_second, 0);
  EXPECT_GT(choice.threads_per_second, 0);
  EXPECT_EQ(choice.kind == EngineKind::kUring, choice.uring_per_second >= 1.1 * choice.threads_per_second);
  EXPECT_NE(choice.reason.find("against threads"), std::string::npos);
}

TEST_F(Probe, FewFilesGiveThreads) {
  const EngineChoice choice = ChooseEngine(MakeProbe(63));
  EXPECT_EQ(choice.kind, EngineKind::kThreads);
  EXPECT_NE(choice.reason.find("too few"), std::string::npos);
}

TEST_F(Probe, FilesThatCannotBeReadGiveThreads) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring";
  EngineProbe probe = MakeProbe(100);
  for (std::size_t i = 0; i < 50; ++i) probe.paths[2 * i] = "none";
  const EngineChoice choice = ChooseEngine(probe);
  EXPECT_EQ(choice.kind, EngineKind::kThreads);
  EXPECT_EQ(choice.reason, "not measured: 50 of 100 files could not be read");
}

TEST_F(Probe, NoTimeGivesThreads) {
  if (!HasUring()) GTEST_SKIP() << "no io_uring";
  EngineProbe probe = MakeProbe(100);
  probe.max_ms = 0;
  EXPECT_EQ(ChooseEngine(probe).kind, EngineKind::kThreads);
}

}  // namespace
}  // namespace tierd::io
