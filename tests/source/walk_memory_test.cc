// Memory that runs out in a walk, on its workers or on the loop: the walk ends, and whoever walks hears that it has not seen everything (FAULTS F16).
#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <set>
#include <string>

#include "tests/source/temp_tree.h"
#include "tests/support/failing_memory.h"
#include "tierd/source/path_resolver.h"
#include "tierd/source/tree_walker.h"

namespace tierd::source {
namespace {

thread_local bool on_loop = false;
bool OnLoop() { return on_loop; }
bool OnWorkers() { return !on_loop; }

class WalkMemoryTest : public testing::Test {
 protected:
  static constexpr int kFiles = 150;  // of each directory: more than a slice of stats

  WalkMemoryTest() {
    on_loop = true;
    for (const char* dir : {"a", "b", "b/c"}) {
      for (int i = 0; i < kFiles; ++i) tree_.Write(std::string(dir) + "/file" + std::to_string(i), "x");
    }
  }
  struct Ended {
    int times = 0;
    bool complete = false;
    std::set<std::string> files;
  };
  Ended Walk(long nth, bool with_stat) {
    Ended ended;
    TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{.threads = 2, .batch_entries = 32});
    WalkRequest request;
    request.with_stat = with_stat;
    request.on_batch = [&](const WalkBatch& batch) {
      for (const WalkEntry& entry : batch.entries) {
        if (entry.type == DT_REG) ended.files.insert(batch.directory + "/" + entry.name);
      }
    };
    request.on_done = [&](const WalkTotals& totals) {
      ++ended.times;
      ended.complete = totals.complete();
    };
    const test::FailingMemory failing(nth);
    try {
      walker.Start(std::move(request));
    } catch (const std::bad_alloc&) {
      return {1, false, {}};  // the caller has heard it
    }
    for (int i = 0; i < 3000 && ended.times == 0; ++i) {
      pollfd fd{walker.event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      try {
        walker.Poll(4);
      } catch (const std::bad_alloc&) {
      }
    }
    return ended;
  }
  void FailEach(bool (*where)(), bool with_stat) {
    test::allocations_count_here = where;
    const Ended whole = Walk(0, with_stat);
    ASSERT_TRUE(whole.complete);
    ASSERT_EQ(whole.files.size(), 3u * kFiles);
    const long count = test::allocations;
    ASSERT_GT(count, 20);
    const long step = std::max(1L, count / 400);
    int incomplete = 0;
    for (long n = 1; n <= count; n += step) {
      const Ended ended = Walk(n, with_stat);
      ASSERT_EQ(ended.times, 1) << "allocation " << n << " of " << count;
      if (ended.complete) {
        ASSERT_EQ(ended.files.size(), 3u * kFiles) << "allocation " << n << " of " << count;
      }
      incomplete += ended.complete ? 0 : 1;
    }
    EXPECT_GT(incomplete, 0);
  }
  TempTree tree_;
  SystemClock clock_;
};

TEST_F(WalkMemoryTest, OnTheWorkersNamesAlone) { FailEach(&OnWorkers, false); }
TEST_F(WalkMemoryTest, OnTheWorkersWithStats) { FailEach(&OnWorkers, true); }
TEST_F(WalkMemoryTest, OnTheLoopNamesAlone) { FailEach(&OnLoop, false); }
TEST_F(WalkMemoryTest, OnTheLoopWithStats) { FailEach(&OnLoop, true); }

TEST_F(WalkMemoryTest, APathIsResolvedOrNot) {
  tree_.Link("b/c", "link");
  test::allocations_count_here = &OnWorkers;
  for (long n = 0; n <= 60; ++n) {
    PathResolver resolver(OpenSource(tree_.path()), clock_, ResolverOptions{});
    int answers = 0;
    const test::FailingMemory failing(n);
    resolver.Resolve("link/file1", 0, [&](const Result<ResolvedPath>& resolved) {
      ++answers;
      if (resolved.ok()) {
        EXPECT_EQ(resolved->canonical, "b/c/file1");
      }
    });
    for (int i = 0; i < 500 && answers == 0; ++i) {
      pollfd fd{resolver.event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      resolver.Poll(4);
    }
    ASSERT_EQ(answers, 1) << "allocation " << n;
  }
}

}  // namespace
}  // namespace tierd::source
