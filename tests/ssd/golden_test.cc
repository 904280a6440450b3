// Directories written by released formats: read, or discarded with one line; never misread (F30, F31, F32).
#include <gtest/gtest.h>

#include <fstream>

#include "tests/ssd/golden.h"

namespace tierd::ssd {
namespace {

namespace fs = std::filesystem;

// A copy that may be written to.
std::string CopyOf(const TempDirectory& dir, const char* golden) {
  const std::string to = dir.path() + "/c";
  fs::copy(std::string(TIERD_GOLDEN) + "/" + golden, to, fs::copy_options::recursive);
  fs::permissions(to, fs::perms::owner_all);
  return to;
}

void ExpectGoldenFiles(Life& life) {
  EXPECT_EQ(life.items.size(), std::size(kGoldenFiles));
  for (const GoldenFile& file : kGoldenFiles) {
    const auto item = life.items.find({file.path, 0});
    ASSERT_NE(item, life.items.end()) << file.path;
    EXPECT_EQ(item->second.identity.version.mtime_ns, static_cast<std::int64_t>(file.version) * 1'000'000'000);
    EXPECT_EQ(life.Get(file.path), ReadOutcome::kOk) << file.path;
  }
}

TEST(Golden, FormatOneIsRead) {
  TempDirectory dir;
  Life life(GoldenOptions(CopyOf(dir, "ssd-v1-index2")));
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_EQ(life.tier->note(), "");
  EXPECT_FALSE(report.index_rebuilt) << report.note;
  ExpectGoldenFiles(life);
  ASSERT_TRUE(life.Put("new", 1, 5000).ok());
  life.Stop();
}

// Its index has one value per record: it is made anew, with one line, and nothing is lost.
TEST(Golden, FormatOneWithTheFirstIndexIsRead) {
  TempDirectory dir;
  Life life(GoldenOptions(CopyOf(dir, "ssd-v1")));
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  EXPECT_EQ(life.tier->note(), "");
  EXPECT_TRUE(report.index_rebuilt);
  EXPECT_NE(report.note.find("format"), std::string::npos) << report.note;
  ExpectGoldenFiles(life);
  ASSERT_TRUE(life.Put("new", 1, 5000).ok());
  life.Stop();
}

TEST(Golden, FormatOneIsReadWithoutItsIndex) {
  TempDirectory dir;
  const std::string copy = CopyOf(dir, "ssd-v1");
  fs::remove_all(copy + "/index");
  Life life(GoldenOptions(copy));
  const RecoveryReport report = life.Start();
  EXPECT_TRUE(report.index_rebuilt);
  ExpectGoldenFiles(life);
}

TEST(Golden, FormatOneOfAnotherMachineIsDiscarded) {
  TempDirectory dir;
  SsdOptions options = GoldenOptions(CopyOf(dir, "ssd-v1"));
  options.machine_id = "elsewhere";
  Life life(options);
  EXPECT_EQ(life.Start().records, 0u);
  EXPECT_NE(life.tier->note().find("another machine"), std::string::npos);
}

}  // namespace
}  // namespace tierd::ssd
