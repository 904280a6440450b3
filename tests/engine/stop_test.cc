// What an engine that is gone has left in the loop touches nothing of it: the sanitizers' suites see it if it does.
#include <thread>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

// After so many of the handlers that were ready: a turn is posted, a read has ended, and the timer is due.
class StopTest : public EngineTest, public testing::WithParamInterface<std::size_t> {};

TEST_P(StopTest, HandlersOutliveTheEngine) {
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  (void)Ask(name);
  while (source_io_.count(io::Step::kRead) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its completion is there, and the tick is due
  engine().Kick();
  ASSERT_EQ(RunReady(GetParam()), GetParam());
  StopEngine();
  EXPECT_GT(HandlersIn(10), 0u) << "there was none left";
}

INSTANTIATE_TEST_SUITE_P(AfterHandlers, StopTest, testing::Values(0, 1, 2));

}  // namespace
}  // namespace tierd::engine
