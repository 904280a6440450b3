// Another library hooks the calls that the preload library wraps, and hands them on by each of the
// doors that such libraries use (hooks.py). Every call comes out as it does bare, and none comes back
// to its hook without end.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

struct Door {
  const char* name;
  const char* library;
};
constexpr Door kDoors[] = {{"RTLD_NEXT", PRELOAD_HOOKS_NEXT},
                           {"syscall", PRELOAD_HOOKS_SYSCALL},
                           {"raw instruction", PRELOAD_HOOKS_RAW},
                           {"another name", PRELOAD_HOOKS_OTHER},
                           {"patched GOT", PRELOAD_HOOKS_GOT}};

enum class Order { kBefore, kAfter };

class PreloadDoorsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    Both("others", Words(0x80, 100'000));
    Both("numbers.words", "12 34\n");
    for (int i = 0; i < 20; ++i) {
      Both("names/n" + std::string(i < 10 ? "0" : "") + std::to_string(i), "x");
    }
    StartDaemon();
  }

  static JobOptions With(JobOptions options, const Door& door, Order order) {
    (order == Order::kBefore ? options.before : options.beside) = door.library;
    return options;
  }

  // Each run gets an empty folder.
  std::vector<std::string> Calls() {
    const std::string folder = scratch_.path() + "/changed";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return {PRELOAD_DOORS, Of("numbers"), Twin("numbers"), folder};
  }
};

TEST_F(PreloadDoorsTest, EverySystemCallByTheFunctionSyscallAnswersAsBare) {
  const JobResult bare = RunJob(Calls(), bare_);
  ASSERT_EQ(bare.code, 0) << bare.output;
  const JobResult served = RunJob(Calls(), job_);
  EXPECT_EQ(served.code, 0);
  EXPECT_EQ(served.output, bare.output);
  EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
}

TEST_F(PreloadDoorsTest, EverySystemCallAnswersAsBareBesideALibraryOfEachDoor) {
  for (const Door& door : kDoors) {
    const JobResult bare = RunJob(Calls(), With(bare_, door, Order::kAfter));
    ASSERT_EQ(bare.code, 0) << door.name << " " << bare.output;
    for (const Order order : {Order::kBefore, Order::kAfter}) {
      SCOPED_TRACE(std::string(door.name) + (order == Order::kBefore ? " before" : " after"));
      const JobResult served = RunJob(Calls(), With(job_, door, order));
      EXPECT_EQ(served.code, 0);
      EXPECT_EQ(served.output, bare.output);
      EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
    }
  }
}

TEST_F(PreloadDoorsTest, EverySystemCallAnswersAsBareAfterAHookingLibraryIsLoadedLate) {
  JobOptions bare = bare_, job = job_;
  for (JobOptions* options : {&bare, &job}) {
    options->before = PRELOAD_HOOKS_LATE;
    options->environment = {{"HOOKS", PRELOAD_HOOKS_GOT}};
  }
  const JobResult expected = RunJob(Calls(), bare);
  ASSERT_EQ(expected.code, 0) << expected.output;
  const JobResult served = RunJob(Calls(), job);
  EXPECT_EQ(served.code, 0);
  EXPECT_EQ(served.output, expected.output);
  EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
}

// These programs call every exported name (exports_test.py), and judge for themselves.
TEST_F(PreloadDoorsTest, EveryExportedNameWorksBesideALibraryOfEachDoor) {
  struct Program {
    std::vector<std::string> arguments;
    bool looks_up = false;  // demands that the library's names come first
  };
  const std::vector<Program> programs = {
      {{PRELOAD_SYMBOLS, Of("numbers"), Twin("numbers"), Of("names")}},
      {{PRELOAD_ALIASES, Of("numbers"), Of("names")}, true},
      {{PRELOAD_EXPORTS, Of("numbers"), Of("names"), "listed", "named", "wide", "received"}, true},
      {{PRELOAD_EXPORTS, Of("numbers"), Of("names"), "viewed"}, true},
      {{PRELOAD_RARE, Of("numbers"), "asked", "used", "real_first", "wide", "executed"}}};
  for (const Program& program : programs) {
    for (const Door& door : kDoors) {
      for (const Order order : {Order::kBefore, Order::kAfter}) {
        if (program.looks_up && order == Order::kBefore) continue;
        SCOPED_TRACE(program.arguments[0] + " " + door.name +
                     (order == Order::kBefore ? " before" : " after"));
        const JobResult served = RunJob(program.arguments, With(job_, door, order));
        EXPECT_EQ(served.code, 0) << served.output;
        EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
      }
    }
  }
}

}  // namespace
}  // namespace tierd::e2e
