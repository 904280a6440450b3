// mmap of cached files: as of any file, also while the cache has no room (mappings.c).
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadMappingsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Write(Of("small"), Words(1, 30'000));
    for (std::uint32_t i = 0; i < 6; ++i) Write(Of("big" + std::to_string(i)), Words(10 + i, 10'000'000));
  }
};

TEST_F(PreloadMappingsTest, BehaveAsThoseOfAnyFile) {
  StartDaemon();
  for (const char* check : {"dropped", "protection", "replaced", "resized"}) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, check});
    EXPECT_GT(served.report.value("maps", 0u), 0u) << served.report.dump();
  }
}

TEST_F(PreloadMappingsTest, KeepTheirBytesWhileTheCacheIsTooSmall) {
  StartDaemon("48 MiB");
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "churn"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GT(served.report.value("maps", 0u), 10u) << served.report.dump();
}

TEST_F(PreloadMappingsTest, AreOfTheirFileWhileOthersFork) {
  StartDaemon();
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "forks"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
}

}  // namespace
}  // namespace tierd::e2e
