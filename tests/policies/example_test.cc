// The example of policies/README.md as a user builds it: the installed header, the plain C compiler, a .so, and a trace.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "policies/builtin.h"
#include "policies/registry.h"
#include "tests/policies/replay.h"

namespace tierd::policies {
namespace {

namespace fs = std::filesystem;

// Runs a command line; its exit status.
int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ExamplePolicy : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "tierd_example_" + std::to_string(::getpid());
    fs::create_directories(dir_);
    fs::copy_file(fs::path(TIERD_SOURCE_DIR) / "policies/example/mru.c", dir_ + "/mru.c");
    ASSERT_EQ(Shell(TIERD_CMAKE_COMMAND " --install " TIERD_BINARY_DIR " --component policy_header --prefix '" + dir_ + "/prefix' > '" + dir_ + "/install.log'"), 0);
    ASSERT_EQ(Shell("cd '" + dir_ + "' && " TIERD_C_COMPILER " -std=c11 -Wall -Wextra -Werror -shared -fPIC -O2 -I prefix/include -o mru.so mru.c"), 0);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static double HitRate(const tierd_policy_ops& ops, double share) {
    const std::vector<std::uint64_t> sizes(8000, 4096);
    const auto capacity = static_cast<std::uint64_t>(share * 8000) * 4096;
    PolicyInstance::Options options;
    options.capacity_bytes[TIERD_TIER_RAM] = capacity;
    Result<PolicyInstance> instance = PolicyInstance::Create(ops, options);
    EXPECT_TRUE(instance.ok());
    const testing::Replay replay = testing::ReplayEpochs(*instance, sizes, capacity, 2, 6, 3);
    EXPECT_EQ(instance->counters().dropped(), 0u);
    return replay.HitRate();
  }

  std::string dir_;
};

TEST_F(ExamplePolicy, BuiltOutOfTreeBeatsLruUnderPermutations) {
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(dir_ + "/prefix"), {}), 3) << "include, include/tierd and the one header";
  Registry registry;
  const Result<const tierd_policy_ops*> mru = registry.Load(dir_ + "/mru.so");
  ASSERT_TRUE(mru.ok()) << mru.status().ToString();
  for (double share : {.25, .5}) {
    const double ours = HitRate(**mru, share);
    const double lru = HitRate(*LruPolicy(), share);
    std::printf("C/N=%.2f mru=%.3f lru=%.3f\n", share, ours, lru);
    EXPECT_GT(ours, lru + .1);
    EXPECT_NEAR(ours, share, .02);
  }
}

TEST_F(ExamplePolicy, HasSixtyLinesAtMost) {
  std::ifstream source(dir_ + "/mru.c");
  std::string line;
  int lines = 0;
  while (std::getline(source, line)) ++lines;
  EXPECT_LE(lines, 60);
}

}  // namespace
}  // namespace tierd::policies
