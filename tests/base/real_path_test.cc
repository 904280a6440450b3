#include "tierd/base/real_path.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>

namespace tierd {
namespace {

class RealPathTest : public testing::Test {
 protected:
  RealPathTest() {
    std::string name = testing::TempDir() + "/real_path_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = std::filesystem::canonical(name).string();
    std::filesystem::create_directories(directory_ + "/a/b");
    std::filesystem::create_symlink("a/b", directory_ + "/link");
  }
  ~RealPathTest() override { std::filesystem::remove_all(directory_); }

  // In a child whose filter refuses faccessat2 as filters do that do not know it. -1: there can be
  // no such filter.
  static int UnderOldFilter(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr int kFaccessat2 = 439;
      sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kFaccessat2, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
      const sock_fprog program{4, steps};
      if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(77);
      ::_exit(body());
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) != 77 ? WEXITSTATUS(status) : -1;
  }

  std::string directory_;
};

TEST_F(RealPathTest, LinksAndDotsAreResolved) {
  for (const char* name : {"/a/b", "/link", "/link/../b", "/a/./b/"}) EXPECT_EQ(RealPath(directory_ + name).value(), directory_ + "/a/b") << name;
}

TEST_F(RealPathTest, WhatIsNotThereIsSaidWithItsReason) {
  const auto missing = RealPath(directory_ + "/none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().sys_errno(), ENOENT);
  EXPECT_NE(missing.status().message().find(directory_ + "/none"), std::string::npos);
}

TEST_F(RealPathTest, AFilterThatDoesNotKnowFaccessat2ChangesNoAnswer) {
  const int wrong = UnderOldFilter([&] {
    int count = 0;
    for (const char* name : {"/a/b", "/link/../b", "/a/./b/"}) {
      const auto real = RealPath(directory_ + name);
      count += real.ok() && *real == directory_ + "/a/b" ? 0 : 1;
    }
    return count + (RealPath(directory_ + "/none/..").status().sys_errno() == ENOENT ? 0 : 16);
  });
  if (wrong == -1) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tierd
