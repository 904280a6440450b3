// Which reads belong to which epoch.
#include "tierd/engine/sources/epoch_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace tierd::engine {
namespace {

class EpochCounterTest : public testing::Test {
 protected:
  void Read(std::size_t file, std::size_t origin = 0) { counter_.OnRead(marks_[file], origin); }
  std::vector<std::size_t> Shuffled(std::size_t from, std::size_t to) {
    std::vector<std::size_t> order(to - from);
    std::iota(order.begin(), order.end(), from);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }
  std::uint64_t ReadsOf(std::size_t epoch) const {
    const auto reads = counter_.epoch(epoch).reads;
    return std::accumulate(reads.begin(), reads.end(), std::uint64_t{0});
  }

  EpochCounter counter_;
  std::vector<std::uint32_t> marks_ = std::vector<std::uint32_t>(100'000);
  std::mt19937 random_{7};
};

TEST_F(EpochCounterTest, NoReadIsNoEpoch) { EXPECT_EQ(counter_.count(), 0u); }

TEST_F(EpochCounterTest, APassOverAllIsAnEpochExactly) {
  for (std::size_t epoch = 0; epoch < 5; ++epoch) {
    for (const std::size_t file : Shuffled(0, 1000)) Read(file, epoch == 0 ? 2 : 0);
  }
  ASSERT_EQ(counter_.count(), 5u);
  for (std::size_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_EQ(counter_.epoch(epoch).files, 1000u) << epoch;
    EXPECT_EQ(counter_.epoch(epoch).reads[epoch == 0 ? 2 : 0], 1000u) << epoch;
    EXPECT_EQ(ReadsOf(epoch), 1000u) << epoch;
  }
}

TEST_F(EpochCounterTest, FilesOpenedTwiceAndAtOnceByManyAreStillOnePass) {
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto order = Shuffled(0, 1000);
    for (std::size_t i = 0; i < order.size(); ++i) {
      Read(order[i]);
      if (i >= 16) Read(order[i - 16]);  // a second look, with 16 files under way
    }
  }
  ASSERT_EQ(counter_.count(), 3u);
  EXPECT_EQ(counter_.epoch(1).files, 1000u);
}

TEST_F(EpochCounterTest, RanksOutOfStepDoNotEndAnEpochForTheOthers) {
  const auto slow = Shuffled(0, 500), fast = Shuffled(500, 1000);
  for (std::size_t i = 0; i < 500; ++i) {
    Read(fast[i]);
    if (i % 10 != 0) Read(slow[i]);
  }
  for (std::size_t i = 0; i < 500; i += 10) {  // the rest of one, while the other has begun anew
    Read(slow[i]);
    Read(fast[i]);
  }
  EXPECT_EQ(counter_.count(), 1u);
  EXPECT_EQ(counter_.epoch(0).files, 1000u);
}

TEST_F(EpochCounterTest, ASmallSetInBetweenIsNoEpoch) {
  const auto train = Shuffled(0, 1000);
  for (std::size_t i = 0; i < train.size(); ++i) {
    Read(train[i]);
    if (i % 250 != 249) continue;
    for (std::size_t file = 2000; file < 2050; ++file) Read(file);
  }
  EXPECT_EQ(counter_.count(), 1u);
}

TEST_F(EpochCounterTest, AFewFilesAreOneEpoch) {
  for (int i = 0; i < 10; ++i) {
    for (std::size_t file = 0; file < 31; ++file) Read(file);
  }
  ASSERT_EQ(counter_.count(), 1u);
  EXPECT_EQ(counter_.epoch(0).files, 31u);
  EXPECT_EQ(ReadsOf(0), 310u);
}

TEST_F(EpochCounterTest, NothingIsLostPastTheLastThatIsKept) {
  for (std::size_t epoch = 0; epoch < EpochCounter::kMost + 20; ++epoch) {
    for (std::size_t file = 0; file < 40; ++file) Read(file);
  }
  ASSERT_EQ(counter_.count(), EpochCounter::kMost);
  std::uint64_t sum = 0;
  for (std::size_t epoch = 0; epoch < counter_.count(); ++epoch) sum += ReadsOf(epoch);
  EXPECT_EQ(sum, 40 * (EpochCounter::kMost + 20));
}

// An epoch of which half is read around the cache is as long as any other.
TEST_F(EpochCounterTest, ReadsAroundTheCacheAreReadsOfTheirEpoch) {
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::size_t file = 0; file < 64; ++file) counter_.OnRead(marks_[file], file % 2 == 0 ? 0 : 3, {.chunk = 10, .file = 10, .now_ns = 1000 * epoch + static_cast<std::int64_t>(file) + 1});
  ASSERT_EQ(counter_.count(), 2u);
  const EpochCounter::Epoch first = counter_.epoch(0);
  EXPECT_EQ(first.files, 64u);
  EXPECT_EQ(first.reads[3], 32u);
  EXPECT_EQ(first.bytes[3], 320u);
  EXPECT_EQ(first.read_bytes, 640u);
  EXPECT_EQ(first.last_ns - first.first_ns, 63);
  EXPECT_EQ(counter_.epoch(1).first_ns, 1001);
}

// Bytes of an epoch: of its distinct files, of what was read, and of what came from the source; exact although its end is noticed late.
TEST_F(EpochCounterTest, AnEndedEpochSaysItsBytes) {
  const auto read = [&](std::size_t file, std::size_t origin) { counter_.OnRead(marks_[file], origin, {.chunk = 10, .file = 30}); };
  for (const std::size_t file : Shuffled(0, 100)) read(file, 2);
  for (const std::size_t file : Shuffled(0, 100)) read(file, file < 40 ? 0 : 2), read(file, 0);
  EXPECT_EQ(counter_.ended(), 1u);
  EXPECT_EQ(counter_.last_ended().bytes[2], 1000u);
  for (const std::size_t file : Shuffled(0, 100)) read(file, 0);
  ASSERT_EQ(counter_.ended(), 2u);
  const EpochCounter::Epoch& second = counter_.last_ended();
  EXPECT_EQ(second.files, 100u);
  EXPECT_EQ(second.file_bytes, 3000u);
  EXPECT_EQ(second.read_bytes, 1990u) << "the second read of the last file may be the next epoch's already";
  EXPECT_EQ(second.bytes[2], 600u);
}

TEST_F(EpochCounterTest, EpochsEndAlsoBeyondThoseThatAreKept) {
  for (int epoch = 0; epoch < 300; ++epoch) {
    for (std::size_t file = 0; file < 64; ++file) counter_.OnRead(marks_[file], epoch % 2 == 0 ? 2 : 0, {.chunk = 1, .file = 1});
    if (epoch == 0) continue;
    ASSERT_EQ(counter_.ended(), static_cast<std::uint64_t>(epoch));
    ASSERT_EQ(counter_.last_ended().bytes[2], epoch % 2 == 1 ? 64u : 0u) << epoch;
    ASSERT_EQ(counter_.last_ended().read_bytes, 64u) << epoch;
  }
}

}  // namespace
}  // namespace tierd::engine
