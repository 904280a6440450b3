// Memory that runs out while the objects of a large file are made: nothing of them is lost, and what is known of the file can be used.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>

#include "tests/support/failing_memory.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

constexpr std::uint64_t kChunk = 64 << 10;
constexpr std::uint64_t kChunks = 30'000;  // 8 pages of them
constexpr long kTries = 40;

class ChunkMemoryTest : public testing::Test {
 protected:
  ChunkMemoryTest() {
    test::allocations_count_here = [] { return true; };
    auto made = ram::SharedIndex::Create({});
    EXPECT_TRUE(made.ok());
    index_ = std::move(made).value();
    large_.mode = S_IFREG | 0644;
    large_.size = kChunks * kChunk;
    small_ = large_;
    small_.size = 100;
  }
  std::optional<FileId> Add(const io::FileStat& stat) { return catalogue_.Add(0, "d/file", key_, stat, kChunk); }

  std::unique_ptr<ram::SharedIndex> index_;
  Catalogue catalogue_{index_};
  const abi::FileKey key_{1, 2};
  io::FileStat large_, small_;
};

TEST_F(ChunkMemoryTest, OfAFileThatCouldNotBeAddedNothingIsLeft) {
  long failures = 0;
  for (long nth = 1; nth < kTries; ++nth) {
    std::optional<FileId> added;
    {
      const test::FailingMemory failing(nth);
      (void)Survives([&] { added = Add(large_); });
    }
    if (added) {
      EXPECT_EQ(catalogue_.ChunkCount(*added), kChunks);
      catalogue_.Remove(*added);
    } else {
      ++failures;
    }
    EXPECT_EQ(catalogue_.Find(key_), kNoFile) << nth;
    EXPECT_EQ(catalogue_.file_count(), 0u) << nth;
  }
  EXPECT_GT(failures, 5);
  EXPECT_EQ(catalogue_.object_slots(), kChunks) << "what one try has made serves the next";
}

TEST_F(ChunkMemoryTest, AFileThatCouldNotBeChangedIsBareUntilThereIsMemory) {
  long failures = 0;
  for (long nth = 1; nth < kTries; ++nth) {
    const std::optional<FileId> file = Add(small_);
    ASSERT_TRUE(file);
    {
      const test::FailingMemory failing(nth);
      EXPECT_TRUE(Survives([&] { catalogue_.ChangeVersion(*file, large_, kChunk); })) << nth;
    }
    if ((catalogue_.file(*file).flags & kFileBare) != 0) {
      ++failures;
      EXPECT_EQ(catalogue_.ChunkCount(*file), 0u);
      EXPECT_EQ(catalogue_.KindOf(*file), abi::SlotKind::kFile);
      catalogue_.ChangeVersion(*file, large_, kChunk);
    }
    EXPECT_EQ(catalogue_.ChunkCount(*file), kChunks);
    EXPECT_EQ(catalogue_.KindOf(*file), abi::SlotKind::kChunked);
    catalogue_.Remove(*file);
  }
  EXPECT_GT(failures, 0);  // the list of its chunks
  EXPECT_LE(catalogue_.object_slots(), kChunks + 1);
}

}  // namespace
}  // namespace tierd::engine
