// `tierctl run`: the command behaves as without it, the daemon comes and goes with the job, runs do not meet, and nothing is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/preload/preloaded_job.h"

namespace tierd::e2e {
namespace {

namespace fs = std::filesystem;

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    source_ = scratch_.path() + "/source";
    base_ = scratch_.path() + "/tmp";
    fs::create_directories(base_);
    Write(source_ + "/file", Content("file", 100'000));
    job_.work = scratch_.path();
    job_.environment = {{"TMPDIR", base_}, {"TIERD_CONFIG", "none"}, {"XDG_RUNTIME_DIR", base_ + "/none"}};
  }

  std::vector<std::string> Run(std::vector<std::string> options, std::vector<std::string> command) const {
    std::vector<std::string> arguments{TIERCTL_BINARY, "run", "--source", source_, "--ram", "64 MiB"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }
  JobResult RunIt(std::vector<std::string> options, std::vector<std::string> command) const { return RunJob(Run(std::move(options), std::move(command)), job_); }

  // Private directories of runs that are still there.
  std::vector<std::string> LeftOver() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(base_)) {
      if (entry.path().filename().string().starts_with("tierd-run-")) names.push_back(entry.path().string());
    }
    return names;
  }
  nlohmann::json ReadJson(const std::string& path) const {
    std::ifstream in(path);
    return nlohmann::json::parse(in, nullptr, false);
  }

  ScratchDir scratch_;
  std::string source_;
  std::string base_;
  JobOptions job_;
};

TEST_F(RunTest, ServesACommandAndLeavesNothing) {
  const std::string report = scratch_.path() + "/report.json";
  const JobResult result = RunIt({"--report", report}, {"/usr/bin/python3", "-c", "import sys\nfor i in range(3): print(len(open(sys.argv[1],'rb').read()))", source_ + "/file"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "100000\n100000\n100000\n");
  const auto document = ReadJson(report);
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["exit_code"], 0);
  EXPECT_EQ(document["job"]["opened"], 3);
  EXPECT_EQ(document["job"]["reads"]["source"], 1);
  EXPECT_EQ(document["job"]["reads"]["ram"], 2);
  EXPECT_EQ(document["source_read_bytes"], 100'000);
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, SaysSixLinesOnStderr) {
  const JobResult result = RunShell(std::string(TIERCTL_BINARY) + " run --source " + source_ + " -- cat " + source_ + "/file 2>&1 >/dev/null", job_);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 6) << result.output;
}

TEST_F(RunTest, PassesExitCodesAndSignalsThrough) {
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "kill -USR1 $$"}).code, 128 + SIGUSR1);
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "kill -KILL $$"}).code, 128 + SIGKILL);
  EXPECT_EQ(RunIt({"-q"}, {"/no/such/program"}).code, 127);
  EXPECT_EQ(RunIt({"-q"}, {source_ + "/file"}).code, 126);
  EXPECT_EQ(RunJob({TIERCTL_BINARY, "run"}, job_).code, 64);
  EXPECT_EQ(RunJob({TIERCTL_BINARY, "run", "--sauce", "x", "--", "true"}, job_).code, 64);
  // What reaches only the wrapper is passed on.
  const JobResult passed = RunIt({"-q"}, {"/bin/sh", "-c", "trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"});
  EXPECT_EQ(passed.code, 9) << passed.output;
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, DisabledIsAsIfItWereNotThere) {
  job_.environment.emplace_back("TIERD_DISABLE", "1");
  const JobResult result = RunIt({}, {"/bin/sh", "-c", "echo [$LD_PRELOAD$TIERD_SOCKET]; exit 3"});
  EXPECT_EQ(result.output, "[]\n");
  EXPECT_EQ(result.code, 3);
}

TEST_F(RunTest, WithoutPreloadOnlySetsTheEnvironment) {
  const JobResult result = RunIt({"-q", "--no-preload"}, {"/bin/sh", "-c", "echo [$LD_PRELOAD]; test -S $TIERD_SOCKET"});
  EXPECT_EQ(result.output, "[]\n");
  EXPECT_EQ(result.code, 0);
}

TEST_F(RunTest, ARunThatCannotStartADaemonRunsTheCommand) {
  job_.environment.emplace_back("TIERD_BINARY", "/bin/false");
  const JobResult result = RunIt({"-q"}, {"cmp", source_ + "/file", source_ + "/file"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.output.find("without a cache"), std::string::npos) << result.output;
}

TEST_F(RunTest, TwoRunsDoNotMeet) {
  const std::string script = "echo $TIERD_SOCKET; cat " + source_ + "/file > /dev/null; sleep 0.3";
  const std::string one = std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " --ram '64 MiB' -- sh -c '" + script + "'";
  const JobResult both = RunShell(one + " & " + one + " & wait", job_);
  std::istringstream lines(both.output);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_NE(first, second) << both.output;
  EXPECT_TRUE(first.starts_with(base_) && second.starts_with(base_));
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, ARunInsideARunUsesItsDaemon) {
  const JobResult nested = RunShell(std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " --ram '64 MiB' -- sh -c 'echo $TIERD_SOCKET; " + TIERCTL_BINARY + " run -q --source " + source_ + " -- sh -c \"echo \\$TIERD_SOCKET\"'", job_);
  std::istringstream lines(nested.output);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(first, second) << nested.output;
}

// The daemon goes with the last process of the job, not with the wrapper.
TEST_F(RunTest, TheDaemonEndsAfterTheLastProcessAlsoWhenTheWrapperIsKilled) {
  const std::string sleeper = scratch_.path() + "/sleeper";
  const std::string line = std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " --ram '64 MiB' -- sh -c 'echo $$ > " + sleeper + ".tmp; mv " + sleeper + ".tmp " + sleeper + "; exec sleep 60' & echo $!";
  const JobResult started = RunShell(line + " > " + scratch_.path() + "/wrapper; disown", job_);
  ASSERT_EQ(started.code, 0);
  ASSERT_TRUE(Eventually(10'000, [&] { return fs::exists(sleeper); }));
  pid_t wrapper = 0, command = 0;
  std::ifstream(scratch_.path() + "/wrapper") >> wrapper;
  std::ifstream(sleeper) >> command;
  ASSERT_GT(wrapper, 0);
  ASSERT_GT(command, 0);
  ::kill(wrapper, SIGKILL);
  ASSERT_EQ(LeftOver().size(), 1u);
  const std::string control = LeftOver()[0] + "/run/control.sock";
  SleepMs(700);
  EXPECT_TRUE(fs::exists(control)) << "the command is still there";
  ::kill(command, SIGKILL);
  EXPECT_TRUE(Eventually(5'000, [&] { return !fs::exists(control); }));
  // The next start that finds its lock free removes the directory.
  EXPECT_TRUE(Eventually(3'000, [&] { return RunIt({"-q"}, {"true"}).code == 0 && LeftOver().empty(); }));
}

TEST_F(RunTest, KeepsTheSsdTierForTheNextRun) {
  const std::string report = scratch_.path() + "/report.json";
  const std::vector<std::string> read{"/usr/bin/python3", "-c", "import sys,time; open(sys.argv[1],'rb').read(); time.sleep(1)", source_ + "/file"};
  EXPECT_EQ(RunIt({"-q", "--keep"}, read).code, 0);
  ASSERT_EQ(LeftOver().size(), 1u);
  EXPECT_EQ(RunIt({"--report", report, "--keep"}, read).code, 0);
  EXPECT_EQ(LeftOver().size(), 1u);
  EXPECT_TRUE(ReadJson(report).is_object());
}

}  // namespace
}  // namespace tierd::e2e
