// The walker on the rig: what a slow, a failing and a hanging directory do to it.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

#include "tests/pfs_sim/rig_test_base.h"
#include "tests/source/temp_tree.h"
#include "tierd/source/tree_walker.h"

namespace tierd::source {
namespace {

using std::chrono::steady_clock;

constexpr std::int64_t kMs = 1'000'000;

class WalkerRig : public pfs_sim::RigTest {
 protected:
  void MakeTree() {
    const pfs_sim::TreeOptions tree{.files = 600, .dirs = 6, .size = {.mean = 100}};
    std::string why;
    ASSERT_TRUE(pfs_sim::MakeTree(rig_->backing(), tree, &why)) << why;
  }
  void Walk(TreeWalker* walker, bool with_stat) {
    WalkRequest request;
    request.with_stat = with_stat;
    request.on_batch = [this](const WalkBatch& batch) { entries_ += batch.entries.size(); };
    request.on_done = [this](const WalkTotals& totals) {
      totals_ = totals;
      done_ = true;
    };
    walker->Start(std::move(request));
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    while (!done_ && steady_clock::now() < limit) {
      pollfd fd{walker->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 5);
      walker->Poll(64);
      walker->Tick(clock_.MonotonicNs());
    }
    EXPECT_TRUE(done_);
  }

  SystemClock clock_;
  std::size_t entries_ = 0;
  WalkTotals totals_;
  bool done_ = false;
};

TEST_F(WalkerRig, StatsInParallel) {
  StartRig({.latency_us = 2000, .timeout_ms = 0});
  MakeTree();
  TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{});
  Walk(&walker, true);
  EXPECT_EQ(totals_.files, 600u);
  EXPECT_EQ(totals_.bytes, 60'000u);
  EXPECT_GE(rig_->Counters().max_concurrency, 6u);
}

TEST_F(WalkerRig, AFailingDirectoryIsCountedAndHiddenNamesAreMissing) {
  StartRig({.timeout_ms = 0});
  MakeTree();
  Control("fault add op=readdir path=d0002 errno=EIO");
  Control("hide path=d0003/*");
  TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{});
  Walk(&walker, false);
  EXPECT_EQ(totals_.errors, 1u);
  EXPECT_EQ(totals_.first_error, EIO);
  EXPECT_EQ(totals_.files, 400u);
  EXPECT_FALSE(totals_.complete());
}

TEST_F(WalkerRig, AHangingDirectoryIsGivenUpAndTheRestIsWalked) {
  StartRig({.timeout_ms = 0});
  MakeTree();
  Control("fault add op=readdir path=d0002 errno=hang");
  {
    TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{.threads = 2, .hung_after_ns = 200 * kMs});
    Walk(&walker, true);
    EXPECT_EQ(totals_.hung, 1u);
    EXPECT_EQ(totals_.files, 500u);
    EXPECT_FALSE(totals_.complete());
    EXPECT_EQ(walker.hung_workers(), 1u);
    Control("fault clear");
    Control("release");
    // The one that hung serves again.
    done_ = false;
    Walk(&walker, false);
    EXPECT_EQ(totals_.files, 600u);
  }
}

// What hangs is one call: a directory that takes many is only slow.
TEST_F(WalkerRig, ALargeDirectoryThatIsSlowIsListedToItsEnd) {
  StartRig({.timeout_ms = 0});
  const pfs_sim::TreeOptions tree{.files = 5000, .dirs = 1, .size = {.mean = 1}};
  std::string why;
  ASSERT_TRUE(pfs_sim::MakeTree(rig_->backing(), tree, &why)) << why;
  Control("fault add op=readdir errno=delay usec=60000");
  TreeWalker walker(OpenSource(rig_->mount()), clock_, WalkerOptions{.hung_after_ns = 200 * kMs});
  const std::int64_t begun_ns = clock_.MonotonicNs();
  Walk(&walker, true);
  EXPECT_GT(clock_.MonotonicNs() - begun_ns, 200 * kMs) << "long enough to be taken for hung";
  EXPECT_TRUE(totals_.complete());
  EXPECT_EQ(totals_.hung, 0u);
  EXPECT_EQ(totals_.files, 5000u);
}

}  // namespace
}  // namespace tierd::source
