#include "tierd/base/kill_point.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <set>
#include <string>

#include "tierd/base/check.h"

namespace tierd {
namespace {

TEST(KillPoint, NamesAreDistinct) {
  const std::set<std::string> names(KillPointNames().begin(), KillPointNames().end());
  EXPECT_EQ(names.size(), KillPointNames().size());
  EXPECT_FALSE(names.empty());
}

// In children, because the choice is read once per process and ends it.
TEST(KillPointDeathTest, KillsAtTheChosenTurnOfTheChosenName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string name = KillPointNames()[0];
  const std::string other = KillPointNames()[1];
  const auto run = [&](const char* choice, int turns) {
    if (choice != nullptr) ::setenv("TIERD_KILL_POINT", choice, 1);
    for (int i = 0; i < turns; ++i) ReachKillPoint(name.c_str());
    ::_exit(0);
  };
  EXPECT_EXIT(run(nullptr, 3), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(name.c_str(), 1), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run((name + ":3").c_str(), 2), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run((name + ":3").c_str(), 3), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(run(other.c_str(), 5), testing::ExitedWithCode(0), "");
}

TEST(KillPointDeathTest, UnknownNameFailsACheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ReachKillPoint("no.such.point"), "check failed");
}

TEST(CheckDeathTest, NamesThePlaceAndTheCondition) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(TIERD_CHECK(1 + 1 == 3), "kill_point_test.cc:[0-9]+: 1 \\+ 1 == 3");
  TIERD_CHECK(1 + 1 == 2);
}

}  // namespace
}  // namespace tierd
