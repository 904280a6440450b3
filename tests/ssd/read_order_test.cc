// Who waits goes first: the order in which the device gets reads of the two classes.
#include <gtest/gtest.h>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

class ReadOrder : public testing::Test {
 protected:
  void SetUp() override {
    options.device_reads = 4;
    options.background_reads = 2;
    life = std::make_unique<Life>(options);
    ASSERT_TRUE(life->Start().status.ok());
    // More than are read, so that none of those is still in a region's buffer.
    for (int i = 0; i < 2 * kFiles; ++i) ASSERT_TRUE(life->Put(NameOf(i), 1, 20'000).ok());
    life->Settle();
    life->io.read_log.clear();
  }
  static std::string NameOf(int i) { return "f" + std::to_string(i); }
  void Read(int i, ReadClass read_class) {
    const Item& item = life->items.at({NameOf(i), 0});
    const Status accepted = life->tier->Read(item.location, item.identity, frames[i].span(), [this](const ReadResult& r) {
      EXPECT_EQ(r.outcome, ReadOutcome::kOk);
      ++done;
    }, read_class);
    EXPECT_TRUE(accepted.ok()) << accepted.ToString();
    ++asked;
  }
  // Files in the order in which the device was asked for them.
  std::vector<int> Order() {
    EXPECT_TRUE(life->RunUntil([&] { return done == asked; }));
    std::vector<int> order;
    for (const auto& [offset, bytes] : life->io.read_log) {
      for (int i = 0; i < kFiles; ++i) {
        const SsdLocation& at = life->items.at({NameOf(i), 0}).location;
        if (std::uint64_t{at.region} * options.region_bytes + at.offset() == offset) order.push_back(i);
      }
    }
    EXPECT_EQ(order.size(), static_cast<std::size_t>(asked));
    return order;
  }

  static constexpr int kFiles = 16;
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  io::AlignedBuffer frames[kFiles] = {};
  std::unique_ptr<Life> life;
  int asked = 0;
  int done = 0;

 public:
  ReadOrder() {
    for (io::AlignedBuffer& frame : frames) frame = io::AlignedBuffer(32768);
  }
};

TEST_F(ReadOrder, AReaderOvertakesWhatTheDeviceDoesNotHaveYet) {
  for (int i = 0; i < 10; ++i) Read(i, ReadClass::kBackground);
  EXPECT_EQ(life->io.in_flight(), 2u) << "of a prefetch the device has only its share";
  for (int i = 10; i < 15; ++i) Read(i, ReadClass::kForeground);
  EXPECT_EQ(life->io.in_flight(), 4u);
  EXPECT_EQ(Order(), (std::vector<int>{0, 1, 10, 11, 12, 13, 14, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(ReadOrder, BothClassesKeepTheirOwnOrder) {
  for (int i = 0; i < 6; ++i) Read(i, ReadClass::kForeground);
  for (int i = 6; i < 12; ++i) Read(i, ReadClass::kBackground);
  EXPECT_EQ(Order(), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST_F(ReadOrder, ABackgroundReadThatSomebodyWaitsForIsHastened) {
  for (int i = 0; i < 8; ++i) Read(i, ReadClass::kBackground);
  life->tier->Hasten(life->items.at({NameOf(6), 0}).location);
  life->tier->Hasten(life->items.at({NameOf(0), 0}).location);   // with the device already
  life->tier->Hasten(life->items.at({NameOf(12), 0}).location);  // nobody reads it
  EXPECT_EQ(Order(), (std::vector<int>{0, 1, 6, 2, 3, 4, 5, 7}));
}

TEST_F(ReadOrder, AHungPrefetchHoldsNoReader) {
  life->io.fault = [](bool write, std::uint64_t number) { return !write && number < 2 ? IoFault{0, ~0ull, true} : IoFault(); };
  for (int i = 0; i < 6; ++i) Read(i, ReadClass::kBackground);
  Read(10, ReadClass::kForeground);
  EXPECT_TRUE(life->RunUntil([&] { return done == 1; }));
  EXPECT_EQ(life->io.hung(), 2u);
  life->io.Release();
  EXPECT_TRUE(life->RunUntil([&] { return done == asked; }));
}

// A device at work on a hundred megabytes is busy: what it has is little enough for its answers not to look late.
TEST_F(ReadOrder, TheDeviceHasFewBytesAtATime) {
  life->Stop();
  life.reset();
  options.device_reads = options.background_reads = 100;
  options.device_bytes = 110'000;
  options.background_bytes = 50'000;
  life = std::make_unique<Life>(options);
  ASSERT_TRUE(life->Start().status.ok());
  for (int i = 0; i < 8; ++i) Read(i, ReadClass::kBackground);
  EXPECT_EQ(life->io.in_flight(), 2u);
  for (int i = 8; i < 16; ++i) Read(i, ReadClass::kForeground);
  EXPECT_EQ(life->io.in_flight(), 5u);
  EXPECT_TRUE(life->RunUntil([&] { return done == asked; }));
}

TEST_F(ReadOrder, OneReadMayBeLonger) {
  life->Stop();
  life.reset();
  options.device_bytes = options.background_bytes = 1000;
  life = std::make_unique<Life>(options);
  ASSERT_TRUE(life->Start().status.ok());
  Read(0, ReadClass::kBackground);
  Read(1, ReadClass::kForeground);
  EXPECT_EQ(life->io.in_flight(), 1u);
  Read(2, ReadClass::kBackground);
  EXPECT_TRUE(life->RunUntil([&] { return done == asked; }));
}

// What waits counts: a stop waits for it, its region is not overwritten.
TEST_F(ReadOrder, WaitingReadsAreFinishedByAStop) {
  for (int i = 0; i < 10; ++i) Read(i, ReadClass::kBackground);
  EXPECT_EQ(life->tier->status().reads_in_flight, 10u);
  life->Stop();
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace tierd::ssd
