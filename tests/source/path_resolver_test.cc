#include "tierd/source/path_resolver.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/source/temp_tree.h"
#include "tests/support/refused_calls.h"
#include "tierd/source/open_beneath.h"

namespace tierd::source {
namespace {

class PathResolverTest : public testing::Test {
 protected:
  void SetUp() override {
    tree_.Write("root/a", "1");
    tree_.Write("root/d/b", "22");
    tree_.Write("outside/secret", "x");
    tree_.Link("a", "root/link");
    tree_.Link("link", "root/linklink");
    tree_.Link("d", "root/dirlink");
    tree_.Link("../outside/secret", "root/escape");
    tree_.Link("/etc/passwd", "root/absolute_escape");
    tree_.Link(tree_ / "root/d", "root/absolute_inside");
    tree_.Link("self", "root/self");
    tree_.Link("missing", "root/dangling");
    tree_.Link("/proc/self/root/etc", "root/magic");
    source_ = OpenSource(tree_ / "root");
    ASSERT_NE(source_, nullptr);
  }
  Result<ResolvedPath> Resolve(const std::string& path) const { return ResolvePath(*source_, path); }
  // Canonical name, "alias:" before it if it was one, or the code's name.
  std::string Answer(const std::string& path) const {
    const Result<ResolvedPath> result = Resolve(path);
    if (!result.ok()) return CodeName(result.status().code());
    return (result.value().was_alias ? "alias:" : "") + result.value().canonical;
  }

  TempTree tree_;
  std::shared_ptr<const Source> source_;
};

TEST_F(PathResolverTest, CanonicalPathsStayAsTheyAre) {
  EXPECT_EQ(Answer("a"), "a");
  EXPECT_EQ(Answer("d/b"), "d/b");
  EXPECT_EQ(Answer(""), "");
  EXPECT_EQ(Answer(tree_ / "root/d/b"), "d/b");
  EXPECT_EQ(Answer(tree_ / "root"), "");
  const Result<ResolvedPath> result = Resolve("d/b");
  EXPECT_EQ(result.value().stat.size, 2u);
  EXPECT_TRUE(S_ISREG(result.value().stat.mode));
  EXPECT_GT(result.value().stat_sent_ns, 0);
}

TEST_F(PathResolverTest, AliasesLeadToTheCanonicalName) {
  EXPECT_EQ(Answer("link"), "alias:a");
  EXPECT_EQ(Answer("linklink"), "alias:a");
  EXPECT_EQ(Answer("dirlink/b"), "alias:d/b");
  EXPECT_EQ(Answer("d/../a"), "alias:a");
  EXPECT_EQ(Answer("dirlink/../a"), "alias:a");
  EXPECT_EQ(Answer("./a"), "alias:a");
  EXPECT_EQ(Answer("d//b"), "alias:d/b");
  EXPECT_EQ(Answer("d/"), "alias:d");
  EXPECT_EQ(Answer("absolute_inside/b"), "alias:d/b");
  EXPECT_EQ(Answer("../root/a"), "alias:a");
  EXPECT_EQ(Resolve("link").value().stat.ino, Resolve("a").value().stat.ino);
}

TEST_F(PathResolverTest, WhatLeavesTheRootIsRefused) {
  for (const char* path : {"escape", "absolute_escape", "../outside/secret", "..", "d/../../outside/secret", "dirlink/../../outside"}) {
    const Result<ResolvedPath> result = Resolve(path);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.status().code(), Code::kPermission) << path;
    EXPECT_EQ(result.status().sys_errno(), EXDEV) << path;
  }
  EXPECT_FALSE(Resolve("magic").ok());
  EXPECT_EQ(Answer("/etc/passwd"), "invalid");
  EXPECT_EQ(Answer(tree_ / "rootx"), "invalid");
}

TEST_F(PathResolverTest, ErrorsOfTheKernelArePassedOn) {
  EXPECT_EQ(Answer("missing"), "not found");
  EXPECT_EQ(Answer("d/missing/x"), "not found");
  EXPECT_EQ(Answer("dangling"), "not found");
  EXPECT_EQ(Resolve("self").status().sys_errno(), ELOOP);
  EXPECT_EQ(Resolve("a/b").status().sys_errno(), ENOTDIR);
  EXPECT_EQ(Answer(std::string("a\0b", 3)), "invalid");
  EXPECT_EQ(Answer(std::string(5000, 'x')), "invalid");
  EXPECT_EQ(Resolve(std::string(300, 'x')).status().sys_errno(), ENAMETOOLONG);
}

TEST_F(PathResolverTest, ARemovedTargetIsNotFoundUnderItsMadeUpName) {
  tree_.Write("root/e (deleted)", "decoy");
  tree_.Write("root/e", "x");
  EXPECT_EQ(Answer("./e"), "alias:e");
  std::filesystem::remove(tree_ / "root/e");
  EXPECT_EQ(Answer("./e"), "not found");
}

TEST_F(PathResolverTest, ARenamedRootStillResolves) {
  std::filesystem::rename(tree_ / "root", tree_ / "moved");
  EXPECT_EQ(Answer("a"), "a");
  EXPECT_EQ(Answer("link"), "alias:a");
}

TEST_F(PathResolverTest, AMountBelowTheRootIsOutside) {
  tree_.MakeDirectory("root/mnt");
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string place = tree_ / "root/mnt";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWNS) != 0) ::_exit(77);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    if (::mount("tmpfs", place.c_str(), "tmpfs", 0, nullptr) != 0) ::_exit(77);
    const auto source = OpenSource(tree_ / "root");
    const Result<ResolvedPath> result = ResolvePath(*source, "mnt");
    const Result<ResolvedPath> alias = ResolvePath(*source, "d/../mnt");
    const OpenedFile opened = OpenBeneath(source->root_fd(), "mnt", O_RDONLY | O_DIRECTORY);
    const bool refused = !result.ok() && result.status().sys_errno() == EXDEV && !alias.ok() &&
                         alias.status().sys_errno() == EXDEV && opened.error == EXDEV;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace here";
  EXPECT_EQ(status, 0);
}

// Where everything has the source's own st_dev; also on kernels, and in containers, that know neither openat2 nor mount numbers of statx.
TEST_F(PathResolverTest, ABindMountOfTheSameDeviceIsOutsideOnOldKernelsToo) {
  tree_.Write("root/bound/f", "ours");
  tree_.Write("root/file", "ours");
  tree_.Write("root/beside/f", "ours");
  tree_.Write("other/f", "theirs");
  const std::vector<std::vector<int>> missing = {{}, {SYS_openat2}, {SYS_statx}, {SYS_openat2, SYS_statx}};
  for (std::size_t kernel = 0; kernel < missing.size(); ++kernel) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string place = tree_ / "root/bound", file = tree_ / "root/file", other = tree_ / "other";
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWNS) != 0) ::_exit(77);
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
      if (::mount(other.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0) ::_exit(77);
      if (::mount((other + "/f").c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0) ::_exit(77);
      if (!support::Refuse(missing[kernel], ENOSYS)) ::_exit(77);
      const auto source = OpenSource(tree_ / "root");
      if (source->root_mount() == 0) ::_exit(1);
      for (const char* name : {"bound", "bound/f", "file", "d/../bound/f"}) {
        if (const auto result = ResolvePath(*source, name); result.ok() || result.status().sys_errno() != EXDEV) ::_exit(2);
      }
      if (OpenBeneath(source->root_fd(), "bound", O_RDONLY | O_DIRECTORY).error != EXDEV) ::_exit(3);
      if (!ResolvePath(*source, "beside/f").ok() || !ResolvePath(*source, "").ok()) ::_exit(4);
      io::FileStat stat;
      std::uint64_t mount = 0;
      if (StatEntry(source->root_fd(), "file", &stat, &mount) != 0 || mount == 0 || mount == source->root_mount()) ::_exit(5);
      if (StatEntry(source->root_fd(), "beside", &stat, &mount) != 0 || mount != source->root_mount()) ::_exit(6);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace or filter here";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "kernel " << kernel;
    EXPECT_TRUE(WIFEXITED(status));
  }
}

TEST_F(PathResolverTest, AnswersComeInsidePollWithDeadlineAndBound) {
  ManualClock clock;
  PathResolver resolver(source_, clock, ResolverOptions{.threads = 1, .queue_max = 50});
  std::vector<std::string> answers;
  const auto remember = [&](const Result<ResolvedPath>& result) {
    answers.push_back(result.ok() ? result.value().canonical : CodeName(result.status().code()));
  };
  for (int i = 0; i < 60; ++i) resolver.Resolve(i % 2 == 0 ? "link" : "d/b", 0, remember);
  EXPECT_TRUE(answers.empty());
  EXPECT_EQ(resolver.pending(), 60u);
  for (int i = 0; i < 1000 && answers.size() < 60; ++i) {
    pollfd fd{resolver.event_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
    resolver.Poll(7);
  }
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "a"), 25);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "d/b"), 25);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), "busy"), 10);

  answers.clear();
  resolver.Resolve("link", clock.MonotonicNs() + 5, remember);
  EXPECT_EQ(resolver.next_tick_ns(), clock.MonotonicNs() + 5);
  resolver.Tick(clock.MonotonicNs() + 5);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0], "timeout");
  EXPECT_EQ(resolver.pending(), 0u);
}

TEST_F(PathResolverTest, PathsAreRequestsAndWhatNobodyWaitsForIsNotAsked) {
  ManualClock clock;
  const auto budget = std::make_shared<RequestBudget>(30);
  (void)budget->TakeIfAllowed(clock.PreciseNs(), false);
  PathResolver resolver(source_, clock, ResolverOptions{.threads = 1, .budget = budget});
  std::vector<std::string> answers;
  const auto remember = [&](const Result<ResolvedPath>& result) {
    answers.push_back(result.ok() ? result.value().canonical : CodeName(result.status().code()));
  };
  for (int i = 0; i < 3; ++i) resolver.Resolve("link", clock.MonotonicNs() + 5, remember);
  resolver.Tick(clock.MonotonicNs() + 5);
  EXPECT_EQ(answers, std::vector<std::string>(3, "timeout"));
  // Three tokens come, too few for all four.
  EXPECT_EQ(budget->AllowedAt(clock.PreciseNs() + 1'000'000'000, true), clock.PreciseNs() + 1'000'000'000);
  resolver.Resolve("d/b", 0, remember);
  for (int i = 0; i < 1000 && answers.size() < 4; ++i) {
    pollfd fd{resolver.event_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
    resolver.Poll(7);
  }
  EXPECT_EQ(answers.back(), "d/b");
}

}  // namespace
}  // namespace tierd::source
