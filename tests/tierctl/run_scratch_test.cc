// The directories of `tierctl run`: what is removed, and above all what is not.
#include "tierctl/run/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;

class RunScratchTest : public testing::Test {
 protected:
  RunScratchTest() {
    std::string pattern = "/tmp/scratch-test-XXXXXX";
    base_ = ::mkdtemp(pattern.data());
  }
  ~RunScratchTest() override { fs::remove_all(base_); }

  Scratch Make(const std::string& base, bool keep = false) {
    const auto environment = [&base](const std::string& name) { return name == "TMPDIR" ? std::optional<std::string>(base) : std::nullopt; };
    auto scratch = Scratch::Make(environment, ::geteuid(), keep);
    EXPECT_TRUE(scratch.ok()) << scratch.status().message();
    return std::move(scratch).value();
  }
  // One whose run was killed.
  std::string Abandoned() {
    const Scratch scratch = Make(base_);
    std::ofstream(scratch.path() + "/file") << "x";
    fs::create_directories(scratch.path() + "/ssd/deep");
    return scratch.path();
  }
  void Clean(const std::string& host = HostName()) { RemoveLeftOvers(base_, ::geteuid(), host); }
  std::string Named(const std::string& end) const { return base_ + "/tierd-run-" + std::to_string(::geteuid()) + "-" + end; }
  static void Age(const std::string& path) {
    const timespec old[2] = {{1, 0}, {1, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  }

  std::string base_;
};

TEST_F(RunScratchTest, WhatNobodyHoldsIsRemoved) {
  const std::string path = Abandoned();
  const Scratch live = Make(base_);  // cleans by itself
  EXPECT_FALSE(fs::exists(path));
  Age(live.path());
  Clean();
  EXPECT_TRUE(fs::exists(live.path()));
}

// The job's own directory, which Slurm removes with the job, and then the user's choice.
TEST_F(RunScratchTest, SlurmsDirectoryComesBeforeTheUsers) {
  for (const char* name : {"slurm", "user"}) fs::create_directory(base_ + "/" + name);
  const auto made_in = [&](bool both) {
    const auto environment = [&](const std::string& name) {
      if (name == "SLURM_TMPDIR" && both) return std::optional<std::string>(base_ + "/slurm");
      return name == "TMPDIR" ? std::optional<std::string>(base_ + "/user") : std::nullopt;
    };
    auto scratch = Scratch::Make(environment, ::geteuid(), false);
    return scratch.ok() ? fs::path(scratch->path()).parent_path().string() : scratch.status().message();
  };
  EXPECT_EQ(made_in(true), base_ + "/slurm");
  EXPECT_EQ(made_in(false), base_ + "/user");
}

// Also through a link, and where only the name is alike.
TEST_F(RunScratchTest, NothingIsMadeInASource) {
  fs::create_directories(base_ + "/data/tmp");
  fs::create_directories(base_ + "/data2");
  fs::create_directory_symlink(base_ + "/data/tmp", base_ + "/link");
  const auto made_in = [&](const std::string& directory) {
    const auto environment = [&](const std::string& name) { return name == "TMPDIR" ? std::optional<std::string>(directory) : std::nullopt; };
    const auto scratch = Scratch::Make(environment, ::geteuid(), false, {base_ + "/data"});
    return scratch.ok() && fs::path(scratch->path()).parent_path() == directory;
  };
  EXPECT_FALSE(made_in(base_ + "/data"));
  EXPECT_FALSE(made_in(base_ + "/data/tmp"));
  EXPECT_FALSE(made_in(base_ + "/link"));
  EXPECT_TRUE(made_in(base_ + "/data2"));
  EXPECT_TRUE(fs::is_empty(base_ + "/data/tmp"));
  const auto scratch = Scratch::Make([](const std::string&) { return std::nullopt; }, ::geteuid(), false, {"/"});
  ASSERT_FALSE(scratch.ok());
  EXPECT_NE(scratch.status().message().find("set TMPDIR"), std::string::npos);
}

// The daemon takes no such name, and it cannot be said in a line.
TEST_F(RunScratchTest, ANameWithANewlineIsPassedOver) {
  std::string odd = base_ + "/a\nb", user = base_ + "/user";
  for (const std::string& name : {odd, user}) fs::create_directory(name);
  const auto environment = [&](const std::string& name) { return std::optional<std::string>(name == "SLURM_TMPDIR" ? odd : name == "TMPDIR" ? user : ""); };
  EXPECT_EQ(PassedOver(environment), "$SLURM_TMPDIR");
  auto scratch = Scratch::Make(environment, ::geteuid(), false);
  ASSERT_TRUE(scratch.ok()) << scratch.status().message();
  EXPECT_EQ(fs::path(scratch->path()).parent_path(), user);
  EXPECT_TRUE(fs::is_empty(odd));
  user = odd;
  EXPECT_EQ(PassedOver(environment), "$SLURM_TMPDIR and $TMPDIR");
  EXPECT_TRUE(Scratch::Make(environment, ::geteuid(), false).ok());
  EXPECT_TRUE(fs::is_empty(odd));
  odd = user = base_;
  EXPECT_EQ(PassedOver(environment), "");
}

// Somebody else could put another directory in its place, with another library to preload in it.
TEST_F(RunScratchTest, NothingIsMadeWhereOthersMayRenameIt) {
  const std::string open = base_ + "/open", user = base_ + "/user";
  for (const std::string& name : {open, user}) fs::create_directory(name);
  const auto environment = [&](const std::string& name) { return std::optional<std::string>(name == "SLURM_TMPDIR" ? open : name == "TMPDIR" ? user : ""); };
  for (const auto mode : {fs::perms(0777), fs::perms(0770)}) {
    fs::permissions(open, mode);
    EXPECT_EQ(OpenToOthers(environment), "$SLURM_TMPDIR (" + open + ")");
    auto scratch = Scratch::Make(environment, ::geteuid(), false);
    ASSERT_TRUE(scratch.ok()) << scratch.status().message();
    EXPECT_EQ(fs::path(scratch->path()).parent_path(), user);
  }
  fs::permissions(open, fs::perms(01777));
  EXPECT_EQ(OpenToOthers(environment), "");
  auto scratch = Scratch::Make(environment, ::geteuid(), false);
  ASSERT_TRUE(scratch.ok()) << scratch.status().message();
  EXPECT_EQ(fs::path(scratch->path()).parent_path(), open);
}

TEST_F(RunScratchTest, AnotherHostsLocksSayNothingHere) {
  const std::string path = Abandoned();
  Age(path);
  Clean("another machine");
  EXPECT_TRUE(fs::exists(path + "/file"));
  Clean();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(RunScratchTest, OnlyExactlyWhatARunMade) {
  const std::string path = Abandoned();
  fs::copy(path, Named("backup"), fs::copy_options::recursive);  // as many letters as a run's
  fs::copy(path, Named("abcdef-backup"), fs::copy_options::recursive);
  fs::create_directory(Named("foreig"));
  std::ofstream(Named("foreig") + "/lock") << "of somebody else";
  fs::create_directory(Named("nolock"));
  std::ofstream(Named("nolock") + "/data") << "x";
  for (const char* name : {"backup", "abcdef-backup", "foreig", "nolock"}) {
    fs::permissions(Named(name), fs::perms::owner_all);
    Age(Named(name));
  }
  fs::create_directory(Named("others"));
  std::ofstream(Named("others") + "/lock");
  fs::permissions(Named("others"), fs::perms::all);
  Age(Named("others"));
  Clean();
  EXPECT_FALSE(fs::exists(path));
  for (const char* name : {"backup/file", "abcdef-backup/file", "foreig/lock", "nolock/data", "others/lock"}) EXPECT_TRUE(fs::exists(Named(name))) << name;
}

TEST_F(RunScratchTest, LinksInItAreNotFollowed) {
  const std::string outside = base_ + "/outside";
  fs::create_directory(outside);
  std::ofstream(outside + "/precious") << "x";
  const std::string path = Abandoned();
  fs::create_directory_symlink(outside, path + "/link");
  Clean();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(outside + "/precious"));
}

// The socket of a run whose directory has a long name lies in /tmp, where others look, too.
TEST_F(RunScratchTest, TheDirectoryOfAShortSocketIsHeldAsWell) {
  const std::string longer = base_ + "/" + std::string(90, 'a');
  fs::create_directory(longer);
  std::string short_directory;
  {
    const Scratch live = Make(longer);
    ASSERT_LE(live.socket().size(), 107u);
    ASSERT_TRUE(live.socket().starts_with("/tmp/tierd-run-"));
    EXPECT_EQ(live.lock_fds().size(), 2u);
    short_directory = fs::path(live.socket()).parent_path().parent_path();
    fs::create_directory(short_directory + "/run");
    Age(short_directory);
    RemoveLeftOvers("/tmp", ::geteuid(), HostName());
    EXPECT_TRUE(fs::exists(short_directory + "/run"));
  }
  Make(base_);  // any start looks there
  EXPECT_FALSE(fs::exists(short_directory));
}

TEST_F(RunScratchTest, RemovesItsOwn) {
  std::string path;
  {
    Scratch scratch = Make(base_);
    path = scratch.path();
    const int heir = ::dup(scratch.lock_fds()[0]);  // as a daemon has it
    scratch.Remove();
    EXPECT_TRUE(fs::exists(path)) << "a daemon is still at work in it";
    ::close(heir);
    scratch.Remove();
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(RunScratchTest, AKeptOneIsFoundAgainAndNeverShared) {
  std::string kept;
  {
    Scratch first = Make(base_, true);
    kept = first.path();
    EXPECT_TRUE(first.kept());
    std::ofstream(kept + "/ssd");
    fs::create_directory(kept + "/run");
    std::ofstream(first.reads());
    const Scratch second = Make(base_, true);
    EXPECT_NE(second.path(), kept);
    EXPECT_FALSE(second.kept());
    first.Remove();
  }
  EXPECT_TRUE(fs::exists(kept + "/ssd"));
  EXPECT_FALSE(fs::exists(kept + "/run"));
  EXPECT_FALSE(fs::exists(kept + "/reads.jsonl"));
  EXPECT_EQ(Make(base_, true).path(), kept);
}

// A start removes what another one is just making only before that one has it.
TEST_F(RunScratchTest, ManyStartsAtOnce) {
  std::atomic<bool> done = false;
  std::thread cleaner([&] {
    while (!done) Clean();
  });
  for (int i = 0; i < 200; ++i) {
    const Scratch scratch = Make(base_);
    struct stat held {}, there {};
    ASSERT_EQ(::fstat(scratch.lock_fds()[0], &held), 0);
    ASSERT_EQ(::stat((scratch.path() + "/lock").c_str(), &there), 0) << i;
    ASSERT_EQ(held.st_ino, there.st_ino) << i;
  }
  done = true;
  cleaner.join();
}

TEST_F(RunScratchTest, WhatWasRemovedIsCounted) {
  const LeftOvers nothing = RemoveLeftOvers(base_, ::geteuid(), HostName());
  EXPECT_EQ(nothing.directories, 0u);
  const std::string first = Abandoned();
  std::ofstream(first + "/ssd/deep/region") << std::string(100'000, 'x');
  const LeftOvers removed = RemoveLeftOvers(base_, ::geteuid(), HostName());
  EXPECT_EQ(removed.directories, 1u);
  EXPECT_GE(removed.bytes, 100'000u);
  EXPECT_FALSE(fs::exists(first));
}

}  // namespace
}  // namespace tierctl::run
