// One ring without an engine: chains that a submission breaks, completions that overflow.
#include "tierd/io/uring_ring.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/io/engine_test_base.h"
#include "tierd/io/completion_event.h"

namespace tierd::io {
namespace {

class Ring : public testing::Test {
 protected:
  void Make(RingOptions options) {
    options.event_fd = event_.fd();
    options.faults = &faults_;
    Result<std::unique_ptr<UringRing>> ring = UringRing::Create(options);
    if (!ring.ok()) GTEST_SKIP() << ring.status().ToString();
    ring_ = std::move(ring).value();
  }
  void Nop(std::uint64_t number, unsigned flags) {
    ASSERT_TRUE(ring_->Reserve(1));
    io_uring_sqe* sqe = ring_->Next();
    io_uring_prep_nop(sqe);
    sqe->flags = static_cast<unsigned char>(flags);
    sqe->user_data = number << 1;
  }
  // Results by number.
  std::vector<int> Collect(std::size_t count) {
    std::vector<int> results(count, 1);
    for (std::size_t taken = 0; taken < count;) {
      UringRing::Completion batch[7];
      const unsigned n = ring_->Take(batch, 7);
      for (unsigned i = 0; i < n; ++i) results[batch[i].user_data >> 1] = batch[i].result;
      taken += n;
      if (n == 0) event_.Wait(kPatienceMs);
    }
    return results;
  }

  CompletionEvent event_;
  ScriptedFaults faults_{nullptr};
  std::unique_ptr<UringRing> ring_;
};

TEST_F(Ring, ChainCutBySubmissionIsCancelledBehindTheCutAndOnlyThere) {
  Make({});
  if (IsSkipped()) return;
  std::vector<unsigned> limits = {5, 2};
  faults_.submit_limit = [&limits](unsigned pending) {
    if (limits.empty()) return pending;
    const unsigned limit = limits.front();
    limits.erase(limits.begin());
    return limit;
  };
  // Two of one, a chain of four that is cut after its third, one more, a chain of three that is whole.
  for (unsigned i = 0; i < 10; ++i) {
    const bool linked = (i >= 2 && i < 5) || (i >= 7 && i < 9);
    Nop(i, linked ? IOSQE_IO_HARDLINK : 0);
  }
  EXPECT_TRUE(ring_->Submit());
  const std::vector<int> expected = {0, 0, 0, 0, 0, -ECANCELED, 0, 0, 0, 0};
  EXPECT_EQ(Collect(10), expected);
}

TEST_F(Ring, ChainCutAtEveryPlace) {
  for (unsigned cut = 1; cut < 5; ++cut) {
    Make({});
    if (IsSkipped()) return;
    bool first = true;
    faults_.submit_limit = [&first, cut](unsigned pending) { return std::exchange(first, false) ? cut : pending; };
    for (unsigned i = 0; i < 5; ++i) Nop(i, i < 4 ? IOSQE_IO_HARDLINK : 0);
    EXPECT_TRUE(ring_->Submit());
    const std::vector<int> results = Collect(5);
    for (unsigned i = 0; i < 5; ++i) EXPECT_EQ(results[i], i < cut ? 0 : -ECANCELED);
  }
}

TEST_F(Ring, MoreThanTheCompletionRingHolds) {
  for (const RingStyle style : {RingStyle::kTransfers, RingStyle::kChains}) {
    Make({.style = style, .submission_entries = 8, .completion_entries = 8});
    if (IsSkipped()) return;
    for (unsigned i = 0; i < 100; ++i) Nop(i, 0);
    EXPECT_TRUE(ring_->Submit());
    EXPECT_TRUE(ring_->HasCompletions());
    EXPECT_EQ(Collect(100), std::vector<int>(100, 0));
    EXPECT_FALSE(ring_->HasCompletions());
  }
}

TEST_F(Ring, ReserveRefusesMoreThanTheRingHolds) {
  Make({.submission_entries = 8});
  if (IsSkipped()) return;
  EXPECT_TRUE(ring_->Reserve(8));
  EXPECT_FALSE(ring_->Reserve(9));
}

}  // namespace
}  // namespace tierd::io
