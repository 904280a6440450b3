#include "tierd/source/tree_walker.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <set>

#include "tests/source/temp_tree.h"

namespace tierd::source {
namespace {

class TreeWalkerTest : public testing::Test {
 protected:
  struct Seen {
    std::map<std::string, WalkEntry> entries;  // by path relative to the root
    std::map<std::string, WalkBatch> ended;    // by directory: the batch with `last`
    std::set<std::string> late;                // directories with batches after their last
    WalkTotals totals;
    int done = 0;
  };

  WalkRequest Request(const std::string& path, Seen* seen, bool with_stat = false) {
    WalkRequest request;
    request.path = path;
    request.with_stat = with_stat;
    request.on_batch = [seen](const WalkBatch& batch) {
      EXPECT_EQ(seen->done, 0);
      if (seen->ended.contains(batch.directory)) seen->late.insert(batch.directory);
      for (const WalkEntry& entry : batch.entries) {
        const std::string name = batch.directory.empty() ? entry.name : batch.directory + "/" + entry.name;
        EXPECT_TRUE(seen->entries.emplace(name, entry).second) << "twice: " << name;
      }
      if (batch.last) seen->ended[batch.directory] = batch;
    };
    request.on_done = [seen](const WalkTotals& totals) {
      seen->totals = totals;
      ++seen->done;
    };
    return request;
  }
  void Finish(TreeWalker* walker, const Seen& seen) {
    for (int i = 0; i < 6000 && seen.done == 0; ++i) {
      pollfd fd{walker->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      walker->Poll(16);
    }
    EXPECT_EQ(seen.done, 1);
    EXPECT_TRUE(seen.late.empty());
  }

  TempTree tree_;
  SystemClock clock_;
};

TEST_F(TreeWalkerTest, OneThatRestsKeepsNoOtherWaiting) {
  constexpr int kDirectories = 100;
  for (int i = 0; i < kDirectories; ++i) tree_.Write("large/" + std::to_string(i) + "/file", "1");
  tree_.Write("small/file", "1");
  WalkerOptions options;
  options.threads = 2;
  options.max_batches = 2;
  TreeWalker walker(OpenSource(tree_.path()), clock_, options);
  Seen large, small;
  const WalkId resting = walker.Start(Request("large", &large));
  walker.Rest(resting);
  walker.Start(Request("small", &small));
  Finish(&walker, small);
  for (int i = 0; i < 20; ++i) walker.Poll(16);
  EXPECT_EQ(large.done, 0);
  EXPECT_LT(large.ended.size(), kDirectories / 2u) << "what was listed before it rested";
  for (int i = 0; i < 20; ++i) {  // whoever comes to it between the two
    walker.GoOn(resting);
    walker.Rest(resting);
    walker.Poll(1);
  }
  walker.GoOn(resting);
  Finish(&walker, large);
  EXPECT_EQ(large.totals.directories, kDirectories + 1u);
  EXPECT_EQ(large.totals.files, std::uint64_t{kDirectories});
  EXPECT_TRUE(large.totals.complete());
}

TEST_F(TreeWalkerTest, OneThatRestsCanBeCancelled) {
  for (int i = 0; i < 20; ++i) tree_.Write(std::to_string(i) + "/file", "1");
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{});
  Seen seen;
  const WalkId resting = walker.Start(Request("", &seen));
  walker.Rest(resting);
  ::usleep(20'000);  // its root, or all, is put off
  walker.Cancel(resting);
  Finish(&walker, seen);
  EXPECT_TRUE(seen.totals.cancelled);
  walker.Rest(resting);
  walker.GoOn(resting);
}

// A directory that is larger than a block rests in the middle of its names.
TEST_F(TreeWalkerTest, ALargeDirectoryRestsToo) {
  constexpr std::size_t kBlock = 65536;
  constexpr std::size_t kNames = 2 * kBlock + 10;
  const TempTree tree(TempTree::MemoryDir());
  for (std::size_t i = 0; i < kNames; ++i) ASSERT_EQ(::symlink("nowhere", (tree / std::to_string(i)).c_str()), 0);
  WalkerOptions options;
  options.max_batches = 4;  // the loop has taken few of the first block
  TreeWalker walker(OpenSource(tree.path()), clock_, options);
  Seen seen;
  const WalkId resting = walker.Start(Request("", &seen));
  while (seen.entries.empty()) walker.Poll(1);
  walker.Rest(resting);
  for (int i = 0; i < 300; ++i) {
    walker.Poll(16);
    ::usleep(1000);
  }
  EXPECT_EQ(seen.done, 0);
  EXPECT_EQ(seen.entries.size(), kBlock);
  walker.GoOn(resting);
  Finish(&walker, seen);
  EXPECT_EQ(seen.entries.size(), kNames);
}

TEST_F(TreeWalkerTest, FindsEverythingOnceWithTypesAndHiddenNames) {
  tree_.Write("a", "1");
  tree_.Write("d/b", "22");
  tree_.Write("d/.hidden/..c", "333");
  tree_.Write("d/odd \n\xff name", "4");
  tree_.MakeDirectory("empty");
  tree_.Link("a", "link");
  tree_.Link("d", "dirlink");
  ASSERT_EQ(::mkfifo((tree_ / "fifo").c_str(), 0600), 0);
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{});
  Seen seen;
  walker.Start(Request("", &seen));
  EXPECT_EQ(walker.active(), 1u);
  Finish(&walker, seen);
  EXPECT_EQ(seen.entries.size(), 10u);
  EXPECT_EQ(seen.entries.at("d/.hidden/..c").type, DT_REG);
  EXPECT_EQ(seen.entries.at("link").type, DT_LNK);
  EXPECT_EQ(seen.entries.at("dirlink").type, DT_LNK);
  EXPECT_EQ(seen.entries.at("fifo").type, DT_FIFO);
  EXPECT_EQ(seen.entries.at("empty").type, DT_DIR);
  EXPECT_FALSE(seen.entries.at("a").has_stat);
  EXPECT_TRUE(seen.entries.contains("d/odd \n\xff name"));
  EXPECT_EQ(seen.ended.size(), 4u);
  EXPECT_EQ(seen.totals.directories, 4u);
  EXPECT_EQ(seen.totals.files, 4u);
  EXPECT_EQ(seen.totals.others, 3u);
  EXPECT_TRUE(seen.totals.complete());
  EXPECT_EQ(walker.active(), 0u);
}

TEST_F(TreeWalkerTest, StatsAndSumsOnRequest) {
  for (int i = 0; i < 300; ++i) tree_.Write("d/f" + std::to_string(i), std::string(static_cast<std::size_t>(i), 'x'));
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{.threads = 4});
  Seen seen;
  walker.Start(Request("d", &seen, true));
  Finish(&walker, seen);
  EXPECT_EQ(seen.totals.files, 300u);
  EXPECT_EQ(seen.totals.bytes, 300u * 299 / 2);
  const WalkEntry& entry = seen.entries.at("d/f123");
  EXPECT_TRUE(entry.has_stat);
  EXPECT_EQ(entry.stat.size, 123u);
  EXPECT_EQ(entry.stat.ino, entry.ino);
  EXPECT_TRUE(S_ISDIR(seen.ended.at("d").stat.mode));
}

TEST_F(TreeWalkerTest, OneDirectoryOnly) {
  tree_.Write("d/e/f", "x");
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{});
  Seen seen;
  WalkRequest request = Request("d", &seen, true);
  request.recursive = false;
  walker.Start(std::move(request));
  Finish(&walker, seen);
  EXPECT_EQ(seen.entries.size(), 1u);
  EXPECT_EQ(seen.ended.size(), 1u);
}

TEST_F(TreeWalkerTest, WalksAHundredThousandFilesInInodeOrderWithinBatches) {
  const TempTree large(TempTree::MemoryDir());
  for (int dir = 0; dir < 10; ++dir) {
    const std::string name = large / ("d" + std::to_string(dir));
    ASSERT_EQ(::mkdir(name.c_str(), 0700), 0);
    for (int file = 0; file < 10'000; ++file) {
      ASSERT_EQ(::mknod((name + "/" + std::to_string(file)).c_str(), S_IFREG | 0600, 0), 0);
    }
  }
  TreeWalker walker(OpenSource(large.path()), clock_, WalkerOptions{.max_batches = 8});
  Seen seen;
  std::map<std::string, std::uint64_t> last_ino;
  WalkRequest request = Request("", &seen);
  request.on_batch = [&](const WalkBatch& batch) {
    for (const WalkEntry& entry : batch.entries) {
      if (!batch.directory.empty()) {
        EXPECT_GE(entry.ino, last_ino[batch.directory]);
      }
      last_ino[batch.directory] = entry.ino;
    }
  };
  walker.Start(std::move(request));
  Finish(&walker, seen);
  EXPECT_EQ(seen.totals.files, 100'000u);
  EXPECT_EQ(seen.totals.directories, 11u);

  // The same tree again, given up in the middle.
  Seen cancelled;
  WalkRequest again = Request("", &cancelled, true);
  int batches = 0;
  WalkId id{};
  again.on_batch = [&](const WalkBatch&) {
    ++batches;
    if (batches == 20) walker.Cancel(id);
  };
  id = walker.Start(std::move(again));
  Finish(&walker, cancelled);
  EXPECT_EQ(batches, 20);
  EXPECT_TRUE(cancelled.totals.cancelled);
  EXPECT_FALSE(cancelled.totals.complete());
  EXPECT_LT(cancelled.totals.files, 100'000u);
}

TEST_F(TreeWalkerTest, ErrorsAreCountedAndTheRestIsWalked) {
  tree_.Write("a", "x");
  tree_.Write("file", "x");
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{});
  for (const auto& [path, error] : std::map<std::string, int>{{"missing", ENOENT}, {"file", ENOTDIR}, {"../", EXDEV}}) {
    Seen seen;
    walker.Start(Request(path, &seen));
    Finish(&walker, seen);
    EXPECT_EQ(seen.ended.at(path).error, error) << path;
    EXPECT_EQ(seen.totals.errors + seen.totals.outside, 1u);
  }
  if (::geteuid() != 0) {
    tree_.Write("locked/x", "x");
    ASSERT_EQ(::chmod((tree_ / "locked").c_str(), 0), 0);
    Seen seen;
    walker.Start(Request("", &seen));
    Finish(&walker, seen);
    EXPECT_EQ(seen.totals.first_error, EACCES);
    EXPECT_EQ(seen.totals.files, 2u);
    ::chmod((tree_ / "locked").c_str(), 0700);
  }
}

TEST_F(TreeWalkerTest, DoesNotFollowLinksInThePath) {
  tree_.Write("d/x", "x");
  tree_.Link("d", "link");
  tree_.Link("/etc", "away");
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{});
  for (const char* path : {"link", "away"}) {
    Seen seen;
    walker.Start(Request(path, &seen));
    Finish(&walker, seen);
    EXPECT_EQ(seen.ended.at(path).error, ELOOP);
    EXPECT_TRUE(seen.entries.empty());
  }
}

TEST_F(TreeWalkerTest, DestroyedInTheMiddleOfAWalk) {
  const TempTree large(TempTree::MemoryDir());
  for (int i = 0; i < 2000; ++i) large.Write("d" + std::to_string(i % 40) + "/f" + std::to_string(i), "x");
  Seen seen;
  {
    TreeWalker walker(OpenSource(large.path()), clock_, WalkerOptions{.max_batches = 4});
    walker.Start(Request("", &seen, true));
    walker.Start(Request("", &seen, false));
    walker.Poll(2);
  }
  EXPECT_EQ(seen.done, 0);
}

TEST_F(TreeWalkerTest, EveryDirectoryEveryStatAndEveryFewHundredNamesAreRequests) {
  for (int i = 0; i < 1100; ++i) tree_.Write("d/f" + std::to_string(i), "x");
  for (const bool with_stat : {false, true}) {
    // Nothing comes in: the clock stands still. What is asked for is owed.
    ManualClock clock;
    const auto budget = std::make_shared<RequestBudget>(10'000'000);
    (void)budget->TakeIfAllowed(clock.PreciseNs(), false);
    clock.Advance(1'000'000'000);
    TreeWalker walker(OpenSource(tree_.path()), clock, WalkerOptions{.budget = budget});
    Seen seen;
    walker.Start(Request("", &seen, with_stat));
    Finish(&walker, seen);
    int left = 0;
    while (budget->TakeIfAllowed(clock.PreciseNs(), false) == clock.PreciseNs()) ++left;
    EXPECT_EQ(1'000'000 - left, with_stat ? 2 + 2 + 1 + 1100 : 2 + 2);
  }
}

TEST_F(TreeWalkerTest, AWalkThatWaitsForItsBudgetCanBeCancelledAndDestroyed) {
  for (int i = 0; i < 40; ++i) tree_.Write("d" + std::to_string(i) + "/f", "x");
  ManualClock clock;  // stands still: no token ever comes
  std::shared_ptr<const Source> source = OpenSource(tree_.path());
  const std::weak_ptr<const Source> used = source;
  Seen cancelled;
  Seen left;
  {
    TreeWalker walker(std::move(source), clock, WalkerOptions{.budget = std::make_shared<RequestBudget>(1)});
    const WalkId id = walker.Start(Request("", &cancelled));
    walker.Start(Request("", &left));
    walker.Cancel(id);
    Finish(&walker, cancelled);
    EXPECT_TRUE(cancelled.totals.cancelled);
    EXPECT_EQ(walker.active(), 1u);
  }
  EXPECT_TRUE(cancelled.entries.empty());
  EXPECT_EQ(left.done, 0);
  EXPECT_TRUE(used.expired()) << "a worker still waits";
}

TEST_F(TreeWalkerTest, SeveralWalksAtATime) {
  for (int i = 0; i < 200; ++i) tree_.Write("d" + std::to_string(i % 10) + "/f" + std::to_string(i), "x");
  TreeWalker walker(OpenSource(tree_.path()), clock_, WalkerOptions{.threads = 3});
  std::vector<Seen> seen(10);
  for (int i = 0; i < 10; ++i) walker.Start(Request("d" + std::to_string(i), &seen[static_cast<std::size_t>(i)], i % 2 == 0));
  for (Seen& one : seen) {
    for (int i = 0; i < 1000 && one.done == 0; ++i) {
      pollfd fd{walker.event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      walker.Poll(5);
    }
    EXPECT_EQ(one.totals.files, 20u);
  }
}

}  // namespace
}  // namespace tierd::source
