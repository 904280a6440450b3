// What a hit costs in system calls: none. They are counted: in a child of its own, the kernel's filter turns each into a signal.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

constexpr int kFiles = 20;
constexpr int kRounds = 500;
constexpr std::size_t kBytes = 30'000;

struct Counted {
  int calls;
  int first;   // number of the first one
  int failed;  // hits that were none
  bool refused;  // the filter: nothing is known
};
Counted* counted = nullptr;  // shared with the child

void OnCall(int, siginfo_t* info, void* context) {
  if (counted->calls++ == 0) counted->first = info->si_syscall;
#ifdef __x86_64__
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
  (void)context;
#endif
}

bool CountCalls() {
  struct sigaction action {};
  action.sa_sigaction = OnCall;
  action.sa_flags = SA_SIGINFO;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const sock_fprog program{.len = sizeof filter / sizeof filter[0], .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class HitCallsTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    counted = static_cast<Counted*>(::mmap(nullptr, sizeof(Counted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(counted, MAP_FAILED);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "d/f" + std::to_string(i);
      Write(name, ContentOf(name, kBytes));
      paths_.push_back(Path(name));
    }
    StartDaemon();
    daemon_->CacheAll();
    Client();
  }
  void TearDown() override {
    ::munmap(counted, sizeof(Counted));
    ClientRig::TearDown();
  }
  // `hit` of each file, first to open the child's session and map what it needs, then many times under the filter.
  void ExpectNone(const std::function<bool(const char* path)>& hit) {
    *counted = {};
    const pid_t child = ::fork();
    if (child == 0) {
      for (const std::string& path : paths_) counted->failed += hit(path.c_str()) ? 0 : 1;
      counted->refused = !CountCalls();
      for (int round = 0; round < kRounds && !counted->refused; ++round) {
        for (const std::string& path : paths_) counted->failed += hit(path.c_str()) ? 0 : 1;
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    if (counted->refused) GTEST_SKIP() << "no filters here";
    EXPECT_EQ(counted->failed, 0);
    EXPECT_EQ(counted->calls, 0) << "in " << kRounds * kFiles << " hits; the first is number " << counted->first;
  }
  std::vector<std::string> paths_;
};

TEST_F(HitCallsTest, Views) {
  ExpectNone([this](const char* path) {
    tier_view view;
    if (tier_get(client_, path, &view, 0) != 0) return false;
    const bool good = view.origin == TIER_FROM_RAM && view.size == kBytes;
    tier_release(&view);
    return good;
  });
}

TEST_F(HitCallsTest, Copies) {
  std::vector<char> buffer(kBytes);
  ExpectNone([&](const char* path) {
    return tier_read_file(client_, path, buffer.data(), buffer.size(), nullptr, 0) == static_cast<ssize_t>(kBytes) &&
           tier_pread(client_, path, buffer.data(), 1000, 5000, 0) == 1000;
  });
}

TEST_F(HitCallsTest, Attributes) {
  ExpectNone([this](const char* path) {
    tier_attr attr{};
    attr.size = sizeof attr;
    return tier_stat(client_, path, &attr, 0) == 0 && attr.bytes == kBytes;
  });
}

TEST_F(HitCallsTest, Handles) {
  std::vector<char> buffer(kBytes);
  tier_file* open_file = nullptr;
  ExpectNone([&](const char*) {
    if (open_file == nullptr && tier_open(client_, paths_[3].c_str(), &open_file, 0) != 0) return false;
    return tier_file_pread(open_file, buffer.data(), buffer.size(), 0) == static_cast<ssize_t>(kBytes);
  });
}

// That calls are seen at all.
TEST_F(HitCallsTest, OneCallCountsAsOne) {
  *counted = {};
  const pid_t child = ::fork();
  if (child == 0) {
    counted->refused = !CountCalls();
    if (!counted->refused) (void)::getppid();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  if (counted->refused) GTEST_SKIP() << "no filters here";
  EXPECT_EQ(counted->calls, 1);
  EXPECT_EQ(counted->first, SYS_getppid);
}

}  // namespace
}  // namespace tierd::testing
