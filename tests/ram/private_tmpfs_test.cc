// The two mounts of the private tmpfs: made by ourselves, or handed over by a service manager.
#include "tierd/ram/private_tmpfs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tierd::ram {
namespace {

constexpr int kMayNotMount = 77;

TEST(PrivateTmpfs, FilesAreReadOnlyForClientsAndNamelessForEverybody) {
  const Result<UniqueFd> user_namespace = MakeUserNamespace();
  const auto tmpfs = PrivateTmpfs::Create(user_namespace.ok() ? user_namespace->get() : -1);
  if (!tmpfs.ok()) GTEST_SKIP() << tmpfs.status().message();
  const Result<PrivateTmpfs::File> file = tmpfs->MakeFile("tierd-test", 8192);
  ASSERT_TRUE(file.ok()) << file.status().message();
  struct stat ours{};
  struct stat theirs{};
  ASSERT_EQ(::fstat(file->writable.get(), &ours), 0);
  ASSERT_EQ(::fstat(file->read_only.get(), &theirs), 0);
  EXPECT_EQ(ours.st_ino, theirs.st_ino);
  EXPECT_EQ(ours.st_size, 8192);
  EXPECT_EQ(ours.st_nlink, 0u);
  EXPECT_EQ(ours.st_mode & 07777u, 0400u);
  EXPECT_EQ(::pwrite(file->writable.get(), "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(::pread(file->read_only.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_LT(::fchmod(file->read_only.get(), 0600), 0);
  EXPECT_EQ(errno, EROFS);
}

TEST(PrivateTmpfs, TakesOnlyTwoMountsOfOneTmpfs) {
  for (const char* wrong :
       {"", ":", "/dev/shm", "/dev/shm:", ":/dev/shm", "dev:shm", "/proc:/proc"}) {
    EXPECT_EQ(PrivateTmpfs::Adopt(wrong).status().code(), Code::kInvalid) << wrong;
  }
  EXPECT_EQ(PrivateTmpfs::Adopt("/nowhere/a:/nowhere/b").status().code(), Code::kNotFound);
}

// 0, or the number of the step that failed; in a mount namespace of a child.
int AdoptMounts(const std::string& work) {
  const std::string write = work + "/write";
  const std::string read = work + "/read";
  if (::unshare(CLONE_NEWNS) != 0) return kMayNotMount;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kMayNotMount;
  if (::mkdir(write.c_str(), 0700) != 0 || ::mkdir(read.c_str(), 0700) != 0) return 1;
  if (::mount("none", write.c_str(), "tmpfs", 0, nullptr) != 0) return kMayNotMount;
  if (::mount(write.c_str(), read.c_str(), nullptr, MS_BIND, nullptr) != 0) return 2;
  // Both writable: a client could write.
  if (PrivateTmpfs::Adopt(write + ":" + read).status().code() != Code::kInvalid) return 3;
  if (::mount(nullptr, read.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
    return 4;
  if (PrivateTmpfs::Adopt(read + ":" + write).status().code() != Code::kInvalid) return 5;
  const Result<PrivateTmpfs> tmpfs = PrivateTmpfs::Adopt(write + ":" + read);
  if (!tmpfs.ok()) return 6;
  const Result<PrivateTmpfs::File> file = tmpfs->MakeFile("tierd-test", 4096);
  if (!file.ok()) return 7;
  if (::fchmod(file->read_only.get(), 0600) == 0 || errno != EROFS) return 8;
  // Another tmpfs in place of the view.
  if (::mount("none", read.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0) return 9;
  return PrivateTmpfs::Adopt(write + ":" + read).status().code() == Code::kInvalid ? 0 : 10;
}

TEST(PrivateTmpfs, TakesTwoMountsOfAServiceManager) {
  std::string work = testing::TempDir() + "/tierd-tmpfs-XXXXXX";
  ASSERT_NE(::mkdtemp(work.data()), nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(AdoptMounts(work));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  for (const char* name : {"/write", "/read", ""}) ::rmdir((work + name).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kMayNotMount) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(status, 0) << "step " << WEXITSTATUS(status);
}

}  // namespace
}  // namespace tierd::ram
