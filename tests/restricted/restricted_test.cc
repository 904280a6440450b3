// The restricted environment is one: each refusal is met by a program started in it.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace tierd {
namespace {

// errno of a call, 0 when it was granted.
template <typename Call>
int ErrorOf(Call call) {
  errno = 0;
  return call() < 0 ? errno : 0;
}

// Runs inside: restricted_exec starts this program again with the filter of this test.
TEST(RestrictedInside, RefusesWhatItSays) {
  if (std::getenv("TIERD_RESTRICTED") == nullptr) GTEST_SKIP() << "run by Restricted.IsWhatItSays";
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_LE(limit.rlim_max, 1024u);
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_LE(limit.rlim_max, 64u << 10);
  void* memory = ::mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_NE(ErrorOf([&] { return ::syscall(SYS_mlock, memory, 128 << 10); }), 0) << "also as root";  // the sanitizers' mlock does nothing
  EXPECT_EQ(ErrorOf([&] { return ::madvise(memory, 4 << 20, MADV_HUGEPAGE); }), EINVAL);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_io_uring_setup, 8, nullptr); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_io_uring_enter, -1, 0, 0, 0, nullptr, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_io_uring_register, -1, 0, nullptr, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_clone3, nullptr, 0); }), ENOSYS);
  EXPECT_EQ(ErrorOf([] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNS); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::unshare(CLONE_NEWNS); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::memfd_create("huge", MFD_HUGETLB); }), EINVAL);
  EXPECT_EQ(ErrorOf([] { return ::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING); }), 0);
  std::thread([] {}).join();  // threads start by clone
  ::munmap(memory, 4 << 20);
}

// What doctor says of it: each refusal with a remedy. 64 KiB of locked memory are enough, tierd locks none.
TEST(Restricted, DoctorWarns) {
  if (std::getenv("TIERD_RESTRICTED") != nullptr) GTEST_SKIP() << "once is enough";
  FILE* const pipe = ::popen(RESTRICTED_EXEC " " TIERCTL_BINARY " --json --socket /none/control.sock doctor --no-speed --source /usr", "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char buffer[4096];
  for (std::size_t n; (n = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  ::pclose(pipe);
  const auto document = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(document.is_object()) << text;
  std::map<std::string, nlohmann::json> checks;
  for (const auto& check : document["checks"]) checks[check["name"]] = check;
  for (const char* name : {"io_uring", "memory.pages", "namespaces.user", "limits.files"}) {
    EXPECT_EQ(checks[name].value("state", ""), "warn") << name << " " << checks[name];
    EXPECT_NE(checks[name].value("remedy", ""), "") << name;
  }
  EXPECT_EQ(checks["limits.memlock"].value("state", ""), "ok") << checks["limits.memlock"];
}

TEST(Restricted, IsWhatItSays) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl(RESTRICTED_EXEC, RESTRICTED_EXEC, self.c_str(), "--gtest_filter=RestrictedInside.*", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tierd
