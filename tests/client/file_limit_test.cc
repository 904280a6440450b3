#include "client_lib/src/file_limit.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

namespace tierd::client {
namespace {

constexpr char kText[] = "0123456789";

int signals_seen = 0;

// A file in memory that may have so many bytes, and a process that counts the signals which say that it has them.
class FileLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    signals_seen = 0;
    ::signal(SIGXFSZ, [](int) { ++signals_seen; });
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{15, before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    sigemptyset(&exceeded_);
    sigaddset(&exceeded_, SIGXFSZ);
  }
  void TearDown() override {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, SIG_DFL);
    ::close(fd_);
  }
  static bool IsPending() {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  }
  bool IsHeldOff() const {
    sigset_t now;
    return ::sigprocmask(SIG_SETMASK, nullptr, &now) == 0 && sigismember(&now, SIGXFSZ) == 1;
  }

  const int fd_ = ::memfd_create("limited", MFD_CLOEXEC);
  rlimit before_{};
  sigset_t exceeded_;
};

TEST_F(FileLimitTest, TheLimitIsTheProcesss) {
  EXPECT_EQ(FileSizeLimit(), 15u);
  const rlimit none{RLIM_INFINITY, before_.rlim_max};
  if (::setrlimit(RLIMIT_FSIZE, &none) == 0) {
    EXPECT_EQ(FileSizeLimit(), UINT64_MAX);
  }
}

TEST_F(FileLimitTest, WhatDoesNotFitIsAnErrorAndNoSignal) {
  errno = EDOM;
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), 10);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), 5);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), -EFBIG);
  EXPECT_EQ(signals_seen, 0);
  EXPECT_FALSE(IsHeldOff());
  EXPECT_EQ(WriteWithinLimit(-1, kText, 10), -EBADF);
  EXPECT_EQ(errno, EDOM);
  EXPECT_EQ(::write(fd_, kText, 10), -1) << "and it does come";
  EXPECT_EQ(signals_seen, 1);
}

TEST_F(FileLimitTest, WhoHoldsTheSignalOffIsLeftNone) {
  ASSERT_EQ(::sigprocmask(SIG_BLOCK, &exceeded_, nullptr), 0);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), 10);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), 5);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), -EFBIG);
  EXPECT_FALSE(IsPending());
  EXPECT_TRUE(IsHeldOff());
  ASSERT_EQ(::sigprocmask(SIG_UNBLOCK, &exceeded_, nullptr), 0);
  EXPECT_EQ(signals_seen, 0);
}

TEST_F(FileLimitTest, ASignalOfTheProgramsOwnStays) {
  ASSERT_EQ(::sigprocmask(SIG_BLOCK, &exceeded_, nullptr), 0);
  ::raise(SIGXFSZ);
  EXPECT_EQ(WriteWithinLimit(fd_, kText, 10), -EFBIG);
  EXPECT_TRUE(IsPending());
  ASSERT_EQ(::sigprocmask(SIG_UNBLOCK, &exceeded_, nullptr), 0);
  EXPECT_EQ(signals_seen, 1);
}

}  // namespace
}  // namespace tierd::client
