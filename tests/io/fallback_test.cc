// Where the kernel or a container refuses system calls: io_uring says so, the pool works all the same.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/io/engine_test_base.h"
#include "tests/support/refused_calls.h"
#include "tierd/io/file_access.h"

namespace tierd::io {
namespace {

using support::Refuse;

class Fallback : public EngineTest {
 protected:
  // Runs `body` in a child; its return value is the exit status, 0 for success.
  static int InChild(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int WalkRead(const std::string& name, bool follow = false) {
    AccessContext context;
    context.has_openat2 = false;
    FileReadRequest request;
    std::byte buffer[4096];
    request.root_fd = root();
    request.path = name;
    request.buffer = buffer;
    request.capacity = sizeof buffer;
    request.follow_symlinks = follow;
    StepCounts counts;
    const FileReadResult result = ReadFile(context, request, &counts);
    if (result.error == 0) read_.assign(reinterpret_cast<const char*>(buffer), result.bytes);
    return result.error;
  }
  StatResult WalkStat(const std::string& name) {
    AccessContext context;
    context.has_openat2 = false;
    StepCounts counts;
    return StatPath(context, {root(), name}, &counts);
  }
  std::string read_;
};

TEST_F(Fallback, SeccompRefusesIoUring) {
  for (const int error : {EPERM, ENOSYS}) {
    const int exit = InChild([&] {
      if (!Refuse({SYS_io_uring_setup}, error)) return 77;
      const auto uring = MakeEngine(EngineKind::kUring, {});
      if (uring.ok() || uring.status().code() != Code::kUnsupported) return 1;
      const std::string& why = uring.status().message();
      if (why.find("io_uring") == std::string::npos || why.find(error == EPERM ? "EPERM" : "ENOSYS") == std::string::npos) return 2;
      WriteContent("file", 100);
      MakeEngineOrSkip(EngineKind::kThreads);
      if (engine_ == nullptr || Read("file").bytes != Content("file", 100)) return 3;
      engine_.reset();
      return 0;
    });
    if (exit == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(exit, 0);
  }
}

TEST_F(Fallback, SeccompRefusesOpenat2AndTheLike) {
  for (const int error : {EPERM, ENOSYS}) {
    const int exit = InChild([&] {
      if (!Refuse({SYS_openat2, SYS_preadv2}, error)) return 77;
      WriteContent("file", 100);
      if (::symlink("file", Path("link").c_str()) != 0 && errno != EEXIST) return 1;
      MakeEngineOrSkip(EngineKind::kThreads);
      if (engine_ == nullptr || Read("file").bytes != Content("file", 100)) return 2;
      if (Read("link").result.error != ELOOP) return 3;
      if (Read("../x").result.error != EXDEV) return 4;
      engine_.reset();
      return 0;
    });
    if (exit == 77) GTEST_SKIP() << "no seccomp here";
    EXPECT_EQ(exit, 0);
  }
}

TEST_F(Fallback, WalkingGivesTheAnswersOfOpenat2) {
  ASSERT_EQ(::mkdir(Path("a").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir(Path("a/b").c_str(), 0700), 0);
  WriteContent("a/b/file", 100);
  ASSERT_EQ(::symlink("a", Path("dirlink").c_str()), 0);
  ASSERT_EQ(::symlink("b/file", Path("a/link").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", Path("absolute").c_str()), 0);
  ASSERT_EQ(::symlink("../../../../../../etc/passwd", Path("outside").c_str()), 0);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);

  for (const char* name : {"a/b/file", "a//b/file", "./a/./b/file"}) {
    EXPECT_EQ(WalkRead(name), 0) << name;
    EXPECT_TRUE(read_ == Content("a/b/file", 100));
  }
  EXPECT_EQ(WalkRead("dirlink/b/file"), ELOOP);
  EXPECT_EQ(WalkRead("a/link"), ELOOP);
  EXPECT_EQ(WalkRead("a/../a/b/file"), EXDEV);
  EXPECT_EQ(WalkRead("/etc/passwd"), EXDEV);
  EXPECT_EQ(WalkRead(""), ENOENT);
  EXPECT_EQ(WalkRead("a/b/file/x"), ENOTDIR);
  EXPECT_EQ(WalkRead("a/b"), EINVAL);
  EXPECT_EQ(WalkRead("fifo"), EINVAL);
  EXPECT_EQ(WalkRead("none"), ENOENT);

  EXPECT_EQ(WalkStat("a/b/file").stat.size, 100U);
  EXPECT_TRUE(S_ISLNK(WalkStat("a/link").stat.mode));
  EXPECT_TRUE(S_ISFIFO(WalkStat("./fifo").stat.mode));
  EXPECT_TRUE(S_ISDIR(WalkStat("").stat.mode));
  EXPECT_EQ(WalkStat("dirlink/b/file").error, ELOOP);
  EXPECT_EQ(WalkStat("a/../a/b/file").error, EXDEV);
  EXPECT_EQ(WalkStat("..").error, EXDEV);
  EXPECT_EQ(WalkStat("/etc/passwd").error, EXDEV);
  EXPECT_EQ(WalkStat("a/b/file/x").error, ENOTDIR);
  EXPECT_EQ(WalkStat("a/none").error, ENOENT);

  EXPECT_EQ(WalkRead("dirlink/link", true), 0);
  EXPECT_TRUE(read_ == Content("a/b/file", 100));
  EXPECT_EQ(WalkRead("a/../a/link", true), 0);
  EXPECT_EQ(WalkRead("absolute", true), EXDEV);
  EXPECT_EQ(WalkRead("outside", true), EXDEV);
  EXPECT_EQ(WalkRead("fifo", true), EINVAL);
}

}  // namespace
}  // namespace tierd::io
