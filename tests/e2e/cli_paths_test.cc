// What verbs say of the paths they are given: a wrong one is named and the others are done, each regular file counts once, and what is missing from a listing is missed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/e2e/cli_fixture.h"
#include "tests/e2e/own_mounts.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using tierctl::Ran;

class CliPathsTest : public CliTest {
 protected:
  using Arguments = std::vector<std::string>;
  // The verbs that take several paths and give an order about them.
  static std::vector<Arguments> Orders() { return {{"evict"}, {"evict", "--invalidate"}, {"pin"}, {"unpin"}, {"verify"}, {"prefetch"}, {"prefetch", "--wait"}}; }
  Ran CtlWith(Arguments verb, const Arguments& paths) const {
    verb.insert(verb.end(), paths.begin(), paths.end());
    return Ctl(verb);
  }
  static std::string Gone(const std::string& path) { return "tierctl: " + path + ": No such file or directory\n"; }
  // `verify` waits for nobody.
  void AwaitRecovery() const {
    EXPECT_TRUE(Eventually(10'000, [&] { return Ctl({"status", "--json"}).out.find("\"recovering\"") == std::string::npos; }));
  }
  const std::string outside_ = scratch.path() + "/outside", slip_ = source + "/slip";
};

TEST_F(CliPathsTest, DuSaysWhatItCannotList) {
  MakeFiles(3);
  const std::string mount = source + "/mount", out = source + "/out", dangling = source + "/dangling", link = source + "/link";
  std::filesystem::create_directories(mount);
  std::filesystem::create_symlink("/etc", out);
  std::filesystem::create_symlink("none", dangling);
  std::filesystem::create_symlink("dir1", link);
  KeepMountsToOneself();
  const bool mounted = ::mount("tmpfs", mount.c_str(), "tmpfs", 0, "size=1m") == 0;
  if (mounted) Write(mount + "/f", "elsewhere");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const auto why = [&](const std::string& path) {
    const Ran ran = Ctl({"du", path});
    EXPECT_EQ(ran.exit_code, 2) << path << ran.err;
    return ran.err.substr(0, ran.err.find('\n'));
  };
  const std::string wholly = ": could not be listed wholly: ";
  EXPECT_EQ(why(out), "tierctl: " + out + wholly + out + " leads out of the source, or to another file system");
  EXPECT_EQ(why(dangling), "tierctl: " + dangling + wholly + dangling + " leads nowhere");
  EXPECT_EQ(why(link), "tierctl: " + link + wholly + link + " is a link: what it leads to is " + source + "/dir1");
  EXPECT_EQ(Ctl({"du", source + "/dir1"}).exit_code, 0);
  if (mounted) {
    const std::string it = mount + " is a mount: another file system is not of the source";
    for (int round = 0; round < 2; ++round) EXPECT_EQ(why(source), "tierctl: " + source + wholly + it);
    EXPECT_EQ(why(mount), "tierctl: " + mount + wholly + it);
    EXPECT_THAT(Ctl({"explain", mount + "/f"}).out, HasSubstr("It lies on another file system, mounted below the source"));
    ::umount2(mount.c_str(), MNT_DETACH);
  } else {
    EXPECT_EQ(Ctl({"du", source}).exit_code, 0);
    GTEST_SKIP() << "nothing can be mounted here";
  }
}

TEST_F(CliPathsTest, AWrongPathIsNamedAndTheOthersAreDone) {
  MakeFiles(6);
  Write(outside_, "x");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  AwaitRecovery();
  for (const Arguments& verb : Orders()) {
    const std::string name = ::testing::PrintToString(verb);
    ASSERT_EQ(Ctl({"prefetch", "--wait", source}).exit_code, 0);
    const Ran all_right = CtlWith(verb, {Path(0), Path(1)});
    EXPECT_EQ(all_right.exit_code, 0) << name << all_right.err;
    EXPECT_EQ(all_right.err, "") << name;
    ASSERT_EQ(Ctl({"prefetch", "--wait", source}).exit_code, 0);
    const Ran slip = CtlWith(verb, {Path(0), slip_});
    EXPECT_EQ(slip.exit_code, 2) << name;
    EXPECT_EQ(slip.err, Gone(slip_)) << name;
    EXPECT_NE(slip.out, "") << name;
    const Ran both = CtlWith(verb, {Path(1), slip_, outside_, Path(2)});
    EXPECT_EQ(both.exit_code, 2) << name;
    EXPECT_THAT(both.err, HasSubstr(Gone(slip_))) << name;
    EXPECT_THAT(both.err, HasSubstr("tierctl: " + outside_ + " is below no source\n")) << name;
    EXPECT_EQ(std::count(both.err.begin(), both.err.end(), '\n'), 2) << name << both.err;
    EXPECT_NE(both.out, "") << name;
    const Ran none = CtlWith(verb, {outside_, slip_});
    EXPECT_EQ(none.exit_code, 1) << name;
    EXPECT_EQ(none.out, "") << name;
    EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 2) << name << none.err;
  }
  ASSERT_EQ(Ctl({"prefetch", "--wait", source}).exit_code, 0);
  EXPECT_EQ(Ctl({"evict", slip_, Path(1)}).out, "evicted 1 file\n");
  EXPECT_EQ(Du(Path(1))["ram_bytes"], 0);
}

// It is no slip to drop what one has deleted.
TEST_F(CliPathsTest, WhatIsGoneAtTheSourceAndKnownIsRight) {
  MakeFiles(6);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  AwaitRecovery();
  ASSERT_EQ(Ctl({"prefetch", "--wait", source}).exit_code, 0);
  std::filesystem::remove(Path(0));
  std::filesystem::remove_all(source + "/dir1");
  for (const Arguments& verb : std::vector<Arguments>{{"verify"}, {"pin"}, {"unpin"}, {"evict"}, {"evict", "--invalidate"}}) {
    const Ran ran = CtlWith(verb, {Path(0), source + "/dir1"});
    EXPECT_EQ(ran.exit_code, 0) << verb.back() << ran.err;
    EXPECT_EQ(ran.err, "") << verb.back();
  }
}

TEST_F(CliPathsTest, ALineOfAListIsNamed) {
  MakeFiles(6);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const std::string list = scratch.path() + "/list";
  Write(list, Path(0) + "\n\n" + outside_ + "\n" + Path(1) + "\n");
  const Ran ran = Ctl({"prefetch", "--wait", "-f", list, Path(2)});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "tierctl: " + list + ":3: " + outside_ + " is below no source\n");
  EXPECT_THAT(ran.out, StartsWith("verified 3 of 3 files"));
  const Ran none = Ctl({"prefetch", "-f", "-"}, outside_ + "\n");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.err, "tierctl: stdin:1: " + outside_ + " is below no source\n");
}

TEST_F(CliPathsTest, EachRegularFileCountsOnce) {
  const std::string a = source + "/a", deep = a + "/deep";
  for (const char* name : {"f1", "f2", "a/f3", "a/f4", "a/f5", "a/deep/f6", "a/deep/f7"}) Write(source + "/" + name, Content(name, 3000));
  std::filesystem::create_symlink("f1", source + "/link");
  std::filesystem::create_symlink("../f1", a + "/link");
  std::filesystem::create_directory_symlink("a", source + "/tree");
  ASSERT_EQ(::mkfifo((source + "/fifo").c_str(), 0600), 0);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const auto verified = [&](const Arguments& paths) { return CtlWith({"prefetch", "--wait"}, paths).out; };
  EXPECT_THAT(verified({source + "/f1", source + "/f1", a}), StartsWith("verified 6 of 6 files"));
  EXPECT_THAT(verified({a, deep, a + "/f3", deep + "/f7"}), StartsWith("verified 6 of 6 files")) << "f1 by a link";
  EXPECT_THAT(verified({source, a, source + "/tree", source + "/link", source + "/f1"}), StartsWith("verified 7 of 7 files"));
  const Ran fifo = Ctl({"prefetch", "--wait", source + "/fifo"});
  EXPECT_EQ(fifo.exit_code, 2);
  EXPECT_THAT(fifo.out, StartsWith("verified 0 of 1 file,"));
  EXPECT_THAT(fifo.err, HasSubstr("1 file could not be read"));

  EXPECT_EQ(Du(source)["files"], 7);
  EXPECT_THAT(verified({source + "/fifo"}), StartsWith("verified 0 of 1 file,")) << "known by now";
  EXPECT_EQ(Ctl({"pin", source}).out, "pinned 7 files, 20.5 KiB in the cache\n");
  EXPECT_EQ(Ctl({"pin", source + "/link", source + "/f1"}).out, "pinned 1 file, 2.93 KiB in the cache\n");
  EXPECT_EQ(Ctl({"unpin", source, a, source + "/link"}).out, "unpinned 7 files\n");
  EXPECT_EQ(Ctl({"evict", source + "/link", a + "/link"}).out, "evicted 1 file\n");
  EXPECT_EQ(Ctl({"evict", deep, deep + "/f6"}).out, "evicted 2 files\n");
  EXPECT_EQ(Ctl({"evict", a, deep, a}).out, "evicted 6 files\n") << "f1 by a link";
  EXPECT_EQ(Ctl({"evict", source, source}).out, "evicted 7 files\n");
  EXPECT_EQ(Ctl({"evict", "--invalidate", source, deep}).out, "invalidated 7 files\n");
}

TEST_F(CliPathsTest, PinSaysWhatItDoesNotKnow) {
  MakeFiles(3);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const std::string says = ": no file is known there yet; tierctl prefetch --pin brings and pins what is there\n";
  const Ran none = Ctl({"pin", source + "/dir0"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err, "tierctl: " + source + "/dir0" + says);
  ASSERT_EQ(Ctl({"prefetch", "--wait", source + "/dir1"}).exit_code, 0);
  const Ran part = Ctl({"pin", source + "/dir0", source + "/dir1"});
  EXPECT_EQ(part.exit_code, 2);
  EXPECT_EQ(part.out, "pinned 1 file, 2.28 KiB in the cache\n");
  EXPECT_EQ(part.err, "tierctl: " + source + "/dir0" + says);
}

// A part of the source is down: the second look is shown no more than the first one (HAZARDS 2.15).
TEST_F(CliPathsTest, APrefetchMissesWhatIsKnownAndNotListed) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  source = rig->backing();
  MakeFiles(30);
  source = rig->mount();
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(Du(source)["files"], 30);
  rig->Control("hide path=dir0/f*");
  const Ran hidden = Ctl({"prefetch", "--wait", source});
  EXPECT_EQ(hidden.exit_code, 2) << hidden.out;
  EXPECT_THAT(hidden.out, StartsWith("verified 20 of 30 files"));
  EXPECT_THAT(hidden.err, HasSubstr("was there and is not listed now"));
  EXPECT_EQ(Ctl({"prefetch", "--wait", source + "/dir1"}).exit_code, 0) << "nothing is missing there";
  rig->Control("hide clear");
  EXPECT_TRUE(Eventually(10'000, [&] { return Ctl({"prefetch", "--wait", source}).exit_code == 0; }));
  // What was deleted looks the same, until somebody says so.
  std::filesystem::remove(Path(0));
  const Ran deleted = Ctl({"prefetch", "--wait", source});
  EXPECT_EQ(deleted.exit_code, 2);
  EXPECT_THAT(deleted.out, StartsWith("verified 29 of 30 files"));
  EXPECT_THAT(deleted.err, HasSubstr(Path(0) + " was there and is not listed now"));
  EXPECT_EQ(Ctl({"evict", "--invalidate", Path(0)}).exit_code, 0);
  const Ran told = Ctl({"prefetch", "--wait", source});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, StartsWith("verified 29 of 29 files"));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
