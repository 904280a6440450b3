// Several access rings as one stream: exactly in which order, what is lost, and what hostile rings cannot do.
#include "tierd/server/ring_drain.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tierd::server {
namespace {

constexpr std::int64_t kStep = std::int64_t{1} << 22;

class Ring {
 public:
  explicit Ring(std::uint32_t its_session) : session(its_session) {}
  // Ordinals are positions, unless told.
  void Read(std::int64_t step, int times = 1) {
    for (int i = 0; i < times; ++i) {
      const std::uint64_t at = page_->ring_head.load();
      page_->ring[at % abi::kRingEntries] = abi::EncodeRingEntry(static_cast<std::uint32_t>(at), 1, step * kStep, abi::Tier::kRam, at);
      page_->ring_head = at + 1;
    }
  }
  void Reserve() { ++page_->ring_head; }
  abi::SessionPage& page() { return *page_; }

  const std::uint32_t session;
  std::uint64_t tail = 0;

 private:
  const std::unique_ptr<abi::SessionPage> page_ = std::make_unique<abi::SessionPage>();
};

class RingDrainTest : public testing::Test {
 protected:
  // "1:0 2:0 1:1": session, position.
  std::string Drain(const std::vector<Ring*>& rings, std::int64_t now_step, std::size_t most = SIZE_MAX) {
    for (Ring* const ring : rings) drain_.Add(ring->session, ring->page(), ring->tail);
    std::string order;
    result_ = drain_.Run(now_step * kStep, most, [&](std::uint32_t session, std::uint64_t entry) {
      order += (order.empty() ? "" : " ") + std::to_string(session) + ":" + std::to_string(static_cast<std::uint32_t>(entry));
    });
    return order;
  }

  RingDrain drain_;
  RingDrain::Result result_;
  Ring a_{1}, b_{2}, c_{3};
};

TEST_F(RingDrainTest, EarlierStepsGoFirst) {
  a_.Read(5000);
  a_.Read(5003, 2);
  b_.Read(5001);
  b_.Read(5002);
  b_.Read(5004);
  EXPECT_EQ(Drain({&a_, &b_, &c_}, 5004), "1:0 2:0 2:1 1:1 1:2 2:2");
  EXPECT_EQ(Drain({&a_, &b_, &c_}, 5004), "");
  EXPECT_EQ(result_.lost, 0u);
  c_.Read(5005);
  a_.Read(5005);
  EXPECT_EQ(Drain({&a_, &b_, &c_}, 5006), "1:3 3:0");
}

// An epoch that two workers read within one step: neither is a batch ahead of the other.
TEST_F(RingDrainTest, WithinAStepRingsAreSpreadEvenly) {
  a_.Read(7, 4);
  b_.Read(7, 2);
  EXPECT_EQ(Drain({&b_, &a_}, 7), "1:0 2:0 1:1 1:2 2:1 1:3");
  a_.Read(8, 3);
  b_.Read(8, 3);
  c_.Read(8, 1);
  EXPECT_EQ(Drain({&b_, &a_, &c_}, 9), "1:4 2:2 1:5 2:3 3:0 1:6 2:4");
}

// The twelve bits of the time come round every 17 s; a reading that began earlier than the one before it stays behind it.
TEST_F(RingDrainTest, TimesComeRoundAndRingsKeepTheirOrder) {
  a_.Read(4095);
  a_.Read(4097);
  b_.Read(4096);
  EXPECT_EQ(Drain({&a_, &b_}, 4098), "1:0 2:0 1:1");
  a_.Read(4110);
  a_.Read(4102);
  b_.Read(4105);
  b_.Read(4111);
  EXPECT_EQ(Drain({&a_, &b_}, 4111), "2:1 1:2 1:3 2:2");
}

TEST_F(RingDrainTest, WhatWasOverwrittenIsLostAndCounted) {
  a_.Read(1, abi::kRingEntries + 3);
  EXPECT_EQ(Drain({&a_}, 1, 2), "1:3 1:4");
  EXPECT_EQ(result_.lost, 3u);
  EXPECT_TRUE(result_.more);
  b_.Read(2);
  EXPECT_EQ(Drain({&a_, &b_}, 2, 1), "1:5");
  EXPECT_EQ(result_.lost, 0u);
}

TEST_F(RingDrainTest, APlaceThatIsNotWrittenYetHoldsUpItsOwnRingAlone) {
  a_.Read(1);
  a_.Reserve();
  a_.Read(1);
  b_.Read(2, 2);
  EXPECT_EQ(Drain({&a_, &b_}, 2), "1:0 2:0 2:1");
  EXPECT_EQ(a_.tail, 1u);
  // Its writer has died: half a ring later it is given up.
  a_.Read(3, abi::kRingEntries / 2 - 1);
  b_.Read(4);
  const std::string order = Drain({&a_, &b_}, 4);
  EXPECT_EQ(order.substr(0, 8), "1:2 1:3 ");
  EXPECT_EQ(order.substr(order.size() - 4), " 2:2");
  EXPECT_EQ(result_.lost, 1u);
  EXPECT_FALSE(result_.more);
}

TEST_F(RingDrainTest, AHostileHeadCostsOneRing) {
  a_.page().ring_head = (std::uint64_t{1} << 50) + 5 * abi::kRingEntries;
  b_.Read(2);
  EXPECT_EQ(Drain({&a_, &b_}, 2), "2:0");
  EXPECT_EQ(result_.lost, (std::uint64_t{1} << 24) + abi::kRingEntries / 2 + 1);
  EXPECT_LE(a_.page().ring_head.load() - a_.tail, abi::kRingEntries / 2);
  a_.page().ring_head = 5;  // back again
  b_.Read(2);
  EXPECT_NE(Drain({&a_, &b_}, 2).find("2:1"), std::string::npos);
  EXPECT_EQ(b_.tail, 2u);
}

}  // namespace
}  // namespace tierd::server
