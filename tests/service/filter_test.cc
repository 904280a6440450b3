// unit_exec takes away what it says: each refusal is met by a program started in it, and what tierd needs is left.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/tierctl/run_tierctl.h"

namespace tierd {
namespace {

// errno of a call, 0 when it was granted.
template <typename Call>
int ErrorOf(Call call) {
  errno = 0;
  return call() < 0 ? errno : 0;
}

// Runs inside: unit_exec starts this program again with the filter of this test.
TEST(UnitInside, RefusesWhatTheUnitSays) {
  if (std::getenv("TIERD_IN_UNIT") == nullptr) GTEST_SKIP() << "run by Unit.IsWhatItSays";
  EXPECT_EQ(ErrorOf([] { return ::unshare(CLONE_NEWUSER); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_mount, "none", "/none", "tmpfs", 0, nullptr); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_init_module, nullptr, 0, ""); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_ptrace, 0, 0, nullptr, nullptr); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_bpf, 0, nullptr, 0); }), EPERM);
  EXPECT_EQ(ErrorOf([] { return ::socket(AF_NETLINK, SOCK_RAW, 0); }), EAFNOSUPPORT);
  EXPECT_EQ(ErrorOf([] { return ::setpriority(PRIO_PROCESS, 0, 5); }), EPERM);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
  EXPECT_EQ(ErrorOf([] { return ::chmod("/none", S_ISUID | 0755); }), EPERM);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &limit), 0);
  EXPECT_EQ(limit.rlim_max, 0u);
  EXPECT_EQ(::umask(0), 077u);
  if (::geteuid() == 0) {
    EXPECT_EQ(ErrorOf([] { return ::chown("/", 1, 1); }), EPERM) << "root without capabilities";
  }
  // Left: what the daemon is made of. An invalid argument is seen only where the call is allowed.
  EXPECT_EQ(ErrorOf([] { return ::syscall(SYS_io_uring_setup, 0, nullptr); }) == EPERM, std::getenv("TIERD_RESTRICTED") != nullptr);
  EXPECT_EQ(ErrorOf([] { return ::memfd_create("frames", MFD_CLOEXEC | MFD_ALLOW_SEALING); }), 0);
  EXPECT_EQ(ErrorOf([] { return ::socket(AF_UNIX, SOCK_SEQPACKET, 0); }), 0);
  std::thread([] {}).join();
}

TEST(Unit, IsWhatItSays) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> environment{"TIERD_IN_UNIT=1"};
  if (std::getenv("TIERD_RESTRICTED") != nullptr) environment.emplace_back("TIERD_RESTRICTED=1");
  const tierctl::Ran ran = tierctl::RunProgram({UNIT_EXEC, TIERD_UNIT, self, "--gtest_filter=UnitInside.*", "--gtest_brief=1"}, environment, "");
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
}

}  // namespace
}  // namespace tierd
