// F11, F22, F23 for the tier: kill -9 at every kill point and at random times; every life verifies what it finds.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>
#include <string_view>

#include "tests/ssd/temp_directory.h"
#include "tierd/base/kill_point.h"

namespace tierd::ssd {
namespace {

struct Ending {
  bool killed = false;
  int code = 0;
};

// Runs one life; kills it after `kill_after_ms` unless that is negative.
Ending RunLife(const std::string& directory, std::uint64_t seed, int milliseconds, const std::string& kill_point, int kill_after_ms = -1) {
  const std::string seed_text = std::to_string(seed);
  const std::string time_text = std::to_string(milliseconds);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!kill_point.empty()) ::setenv("TIERD_KILL_POINT", kill_point.c_str(), 1);
    ::execl(TIERD_CRASH_CHILD, TIERD_CRASH_CHILD, directory.c_str(), seed_text.c_str(), time_text.c_str(), nullptr);
    ::_exit(127);
  }
  if (kill_after_ms >= 0) {
    ::usleep(static_cast<useconds_t>(kill_after_ms) * 1000);
    ::kill(child, SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return {WTERMSIG(status) == SIGKILL, -WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

void ExpectSound(const Ending& ending, const std::string& what) { EXPECT_TRUE(ending.killed || ending.code == 0) << what << " ended with " << ending.code; }

TEST(SsdCrash, SurvivesEveryKillPoint) {
  int reached = 0;
  std::string unreached;
  for (const char* name : KillPointNames()) {
    if (!std::string_view(name).starts_with("ssd.")) continue;
    TempDirectory dir;
    const std::string directory = dir.path() + "/c";
    // Lives with something to recover, killed at the first, the second and a later passage.
    ExpectSound(RunLife(directory, 1, 150, ""), "first life");
    bool was_killed = false;
    for (const int count : {1, 2, 9}) {
      const std::string point = std::string(name) + ":" + std::to_string(count);
      // A damaged index makes the rebuild's points reachable.
      if (std::string_view(name).find("rebuild") != std::string_view::npos) std::filesystem::remove_all(directory + "/index");
      const Ending ending = RunLife(directory, 100 + static_cast<std::uint64_t>(count), 250, point);
      ExpectSound(ending, point);
      was_killed = was_killed || ending.killed;
    }
    // A slow machine does not come that far in such a life.
    for (int ms = 500; !was_killed && ms <= 16'000; ms *= 2) was_killed = RunLife(directory, 100, ms, std::string(name) + ":1").killed;
    ExpectSound(RunLife(directory, 7, 30, ""), std::string("life after ") + name);
    reached += was_killed ? 1 : 0;
    if (!was_killed) unreached += std::string(name) + " ";
  }
  EXPECT_EQ(unreached, "");
  EXPECT_GT(reached, 15);
}

TEST(SsdCrash, SurvivesKillsAtRandomTimes) {
  TempDirectory dir;
  std::mt19937 random(20);
  for (int i = 0; i < 25; ++i) {
    const Ending ending = RunLife(dir.path() + "/c", static_cast<std::uint64_t>(i), 2000, "", static_cast<int>(random() % 250));
    ExpectSound(ending, "life " + std::to_string(i));
  }
  ExpectSound(RunLife(dir.path() + "/c", 99, 50, ""), "last life");
}

}  // namespace
}  // namespace tierd::ssd
