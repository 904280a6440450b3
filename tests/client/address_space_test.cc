// `ulimit -v`: the address space of a job that a batch system limits is the job's; the cache takes an eighth of it at most, and what does not fit is read from the source.
#include <sys/resource.h>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

constexpr int kFiles = 12;
constexpr std::size_t kFileBytes = 5 << 20;  // with the fake daemon's segments of 8 MiB: each has one of its own

class AddressSpaceTest : public ClientRig {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's own mappings are larger than any limit";
#endif
    ClientRig::SetUp();
    options_.chunk_bytes = 8 << 20;
    for (int i = 0; i < kFiles; ++i) Write(Name(i), ContentOf(Name(i), kFileBytes));
    StartDaemon();
    daemon_->CacheAll();
  }
  static std::string Name(int i) { return "f" + std::to_string(i); }
  static std::uint64_t SpaceInUse() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::uint64_t>(::getpagesize());
  }
  // In a process whose address space is limited to `limit`: 0, or which expectation failed.
  int ReadAll(std::uint64_t limit, std::uint64_t most_reads_of_ram) {
    const rlimit space{limit, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &space) != 0) return 1;
    Client();
    return ReadAllHere(limit, most_reads_of_ram);
  }
  int ReadAllHere(std::uint64_t limit, std::uint64_t most_reads_of_ram) {
    const std::uint64_t before = SpaceInUse();
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < kFiles; ++i) {
        if (Get(Path(Name(i))) != ContentOf(Name(i), kFileBytes)) return 2;
      }
    }
    const tier_statistics stats = Stats();
    if (Disturbed()) return 0;
    const std::uint64_t from_ram = stats.reads[TIER_FROM_RAM], bypassed = stats.reads[TIER_FROM_BYPASS];
    if (from_ram == 0 || from_ram > most_reads_of_ram || from_ram + bypassed != 2 * kFiles) return 3;
    if (Fallbacks(abi::Fallback::kNoFrame) != bypassed) return 4;
    if (limit != RLIM_INFINITY && (stats.mapped_bytes > limit / 8 || SpaceInUse() > before + limit / 8 + (32 << 20))) return 5;
    return 0;
  }
  int ReadAllInAChild(std::uint64_t limit, std::uint64_t most_reads_of_ram) {
    return InAChild([&] { return ReadAll(limit, most_reads_of_ram); });
  }
  template <typename Function>
  int InAChild(Function function) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(function());
    int status = 0;
    EXPECT_EQ(child, ::waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
};

TEST_F(AddressSpaceTest, OfALimitedOneAnEighthIsTaken) {
  // Room for what this process has mapped and for all segments: without the share, all of them would be mapped.
  const std::uint64_t limit = 384 << 20;
  ASSERT_LT(SpaceInUse() + (kFiles * std::uint64_t{8} << 20) + limit / 8, limit);
  EXPECT_EQ(0, ReadAllInAChild(limit, 2 * (limit / 8 / (8 << 20))));
}

TEST_F(AddressSpaceTest, AChildHasAShareOfItsOwn) {
  const std::uint64_t limit = 384 << 20, most = 2 * (limit / 8 / (8 << 20));
  EXPECT_EQ(0, InAChild([&] {
              if (const int failed = ReadAll(limit, most); failed != 0) return failed;
              const std::uint64_t reads_of_ram = Stats().reads[TIER_FROM_RAM];
              return InAChild([&] {
                const int failed = ReadAllHere(limit, most);
                if (failed != 0 || Disturbed()) return failed;
                return Stats().reads[TIER_FROM_RAM] == reads_of_ram ? 0 : 6;
              });
            }));
}

class LargeIndexTest : public AddressSpaceTest {
 protected:
  LargeIndexTest() { options_.initial_slots = 1 << 20; }
};

// The daemon is looked for every 5 s: each time that nothing came of it is over for the daemon, too.
TEST_F(LargeIndexTest, WhereItDoesNotFitTheSessionIsLeft) {
  const rlimit space{384 << 20, RLIM_INFINITY};
  EXPECT_EQ(0, InAChild([&] {
              if (::setrlimit(RLIMIT_AS, &space) != 0) return 1;
              Client();
              if (Get(Path(Name(0))) != ContentOf(Name(0), kFileBytes)) return 2;
              return Stats().sessions == 0 ? 0 : 3;
            }));
  ASSERT_EQ(1u, daemon_->sessions());
  EXPECT_EQ(1u, daemon_->page(0)->left);
}

TEST_F(AddressSpaceTest, WithoutALimitAllIsMapped) { EXPECT_EQ(0, ReadAllInAChild(RLIM_INFINITY, 2 * kFiles)); }

}  // namespace
}  // namespace tierd::testing
