// run beside a daemon that is there. (With one of its own, and what its command reads: tests/preload.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A clients' socket of a name that the user chose, beside the control socket.
class RunVerb : public testing::Test {
 protected:
  void SetUp() override {
    listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(socket_.size(), sizeof address.sun_path);
    std::strcpy(address.sun_path, socket_.c_str());
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener_.get(), 4), 0);
    fake_.Reply("GET /v1/status", {{"version", "0.1.0"}, {"sources", {{{"name", "d"}, {"path", "/d"}}}}});
  }
  json Report() const {
    std::ifstream in(report_);
    return json::parse(in, nullptr, false);
  }

  FakeControl fake_;
  const std::string socket_ = fake_.directory() + "/mine.sock";
  const std::string report_ = fake_.directory() + "/report.json";
  const std::vector<std::string> command_{"--", "/bin/sh", "-c", "echo $TIERD_SOCKET"};
  tierd::UniqueFd listener_;
};

TEST_F(RunVerb, TheCommandGetsTheSocketOfTheDaemonThatIsThereWhateverItsName) {
  std::vector<std::string> run{"run", "-q", "--no-preload", "--source", "/d"};
  run.insert(run.end(), command_.begin(), command_.end());
  const Ran by_environment = RunTierctl(run, {"TIERD_SOCKET=" + socket_});
  EXPECT_EQ(by_environment.out, socket_ + "\n") << by_environment.err;
  run.insert(run.begin(), {"--socket", socket_});
  EXPECT_EQ(RunTierctl(run).out, socket_ + "\n");
}

TEST_F(RunVerb, ADaemonThatIsThereIsAskedWhereItAnswered) {
  const std::string other = fake_.directory() + "/elsewhere";
  std::filesystem::create_directories(other);
  std::filesystem::create_symlink(fake_.socket(), other + "/ctl");
  const Ran ran = RunTierctl({"--socket", other + "/ctl", "run", "--no-preload", "--report", report_, "--", "true"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(Report()["daemon"].is_object()) << Report();
}

// stdout is the command's.
TEST_F(RunVerb, StdoutIsNoPlaceForTheReport) {
  const Ran ran = RunTierctl({"--socket", fake_.socket(), "run", "--no-preload", "--report", "-", "--", "echo", "mine"});
  EXPECT_EQ(ran.exit_code, 64);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("/dev/fd/3"));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST_F(RunVerb, TheReportMayGoToADescriptor) {
  const std::string script = "exec \"$0\" --socket \"$1\" run --no-preload --report /dev/fd/3 -- echo mine 3>" + report_;
  const Ran ran = RunProgram({"/bin/sh", "-c", script, TIERCTL_BINARY, fake_.socket()}, {}, "");
  EXPECT_EQ(ran.out, "mine\n") << ran.err;
  EXPECT_EQ(Report()["exit_code"], 0);
}

// A typing error does not cost hours of a job without a cache: said before anything begins.
TEST_F(RunVerb, WrongOptionsAreSaidBeforeTheCommandBegins) {
  const std::string begun = fake_.directory() + "/begun", file = fake_.directory() + "/file";
  std::ofstream{file} << "no directory";
  const std::vector<std::vector<std::string>> wrong{{"--ram", "banana"}, {"--ram", "1 MiB"}, {"--policy", "nope"}, {"--policy", "/a/path"}, {"--ssd", file}, {"--ssd", std::string(5'000, 'x')}};
  for (const std::vector<std::string>& option : wrong) {
    const Ran ran = RunTierctl({"run", option[0], option[1], "--", "touch", begun}, {"HOME=" + fake_.directory(), "XDG_CONFIG_HOME="});
    EXPECT_EQ(ran.exit_code, 64) << option[1];
    EXPECT_THAT(ran.err, HasSubstr("run: " + option[0] + ": ")) << option[1];
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(begun)) << option[1];
  }
  // As if tierd were not there.
  EXPECT_EQ(RunTierctl({"run", "--ram", "banana", "--", "true"}, {"TIERD_DISABLE=1"}).exit_code, 0);
}

// One of the user's own may have that name; the daemon knows.
TEST_F(RunVerb, APolicyOfTheUsersOwnIsNotJudged) {
  const std::string policies = fake_.directory() + "/config/tierd/policies";
  std::filesystem::create_directories(policies);
  const std::vector<std::string> environment{"TIERD_BINARY=/bin/false", "XDG_CONFIG_HOME=" + fake_.directory() + "/config", "TMPDIR=" + fake_.directory()};
  const std::vector<std::string> run{"run", "-q", "--policy", "mine", "--", "true"};
  EXPECT_EQ(RunTierctl(run, environment).exit_code, 64);
  std::ofstream{policies + "/mine.so"};
  const Ran ran = RunTierctl(run, environment);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("without a cache"));
}

// What the daemon reads is what is looked at: the file that it finds, whatever else the environment says.
TEST_F(RunVerb, PoliciesAreLookedForWhereTheDaemonDoes) {
  const std::string home = fake_.directory() + "/config/tierd", policies = fake_.directory() + "/policies";
  std::filesystem::create_directories(home);
  std::filesystem::create_directories(policies);
  std::ofstream{policies + "/mine.so"};
  const std::vector<std::string> environment{"TIERD_CONFIG=none", "TIERD_BINARY=/bin/false", "XDG_CONFIG_HOME=" + fake_.directory() + "/config", "TMPDIR=" + fake_.directory()};
  const std::vector<std::string> run{"run", "-q", "--policy", "mine", "--", "true"};
  EXPECT_EQ(RunTierctl(run, environment).exit_code, 64);
  std::ofstream{home + "/tierd.toml"} << "[policy]\ndirectory = \"" << policies << "\"\n";
  EXPECT_EQ(RunTierctl(run, environment).exit_code, 0);
}

TEST_F(RunVerb, AReportThatCannotBeWrittenIsSaidBeforeTheCommandBegins) {
  const std::string begun = fake_.directory() + "/begun", file = fake_.directory() + "/file";
  std::ofstream{file} << "no directory";
  for (const std::string& wrong : {fake_.directory(), fake_.directory() + "/none/report", file + "/report"}) {
    const Ran ran = RunTierctl({"--socket", fake_.socket(), "run", "--no-preload", "--report", wrong, "--", "touch", begun});
    EXPECT_EQ(ran.exit_code, 64) << wrong << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("run: --report: ")) << wrong;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(begun)) << wrong;
  }
}

TEST_F(RunVerb, AReportThatCannotBeWrittenAtTheEndIsSaidInWords) {
  const Ran ran = RunTierctl({"--socket", fake_.socket(), "run", "--no-preload", "--report", "/dev/full", "--", "sh", "-c", "exit 4"});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("run: cannot write /dev/full: No space left on device"));
  EXPECT_THAT(ran.err, HasSubstr("tierd: --no-preload: no program"));
}

TEST_F(RunVerb, ACommandThatNeverRanIsNoQuestionOfTheSource) {
  for (const auto& [command, code] : {std::pair("nosuchcmd", 127), std::pair("/etc", 126)}) {
    const Ran ran = RunTierctl({"--socket", fake_.socket(), "run", "--no-preload", "--", command});
    EXPECT_EQ(ran.exit_code, code) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("exit code " + std::to_string(code)));
    EXPECT_THAT(ran.err, testing::Not(HasSubstr("--source")));
  }
}

// A list parted by colons cannot name it, nor more than libtier takes of it, and what is not named there is no source.
TEST_F(RunVerb, RootsThatTheListCannotHoldLeaveItOut) {
  const auto prefix = [&](const json& sources, const std::vector<std::string>& environment) {
    fake_.Reply("GET /v1/status", {{"version", "0.1.0"}, {"sources", sources}});
    return RunTierctl({"--socket", fake_.socket(), "run", "-q", "--no-preload", "--", "sh", "-c", "echo ${TIERD_PREFIX-unset} ${TIERD_RUN_PREFIX-unset}"}, environment).out;
  };
  const json plain = {{"name", "a"}, {"path", "/a"}}, colon = {{"name", "b"}, {"path", "/b:2"}};
  EXPECT_EQ(prefix(json::array({plain}), {}), "/a /a\n");
  EXPECT_EQ(prefix(json::array({plain, colon}), {}), "unset unset\n");
  EXPECT_EQ(prefix(json::array({plain, colon}), {"TIERD_PREFIX=/x", "TIERD_RUN_PREFIX=/x"}), "unset unset\n") << "of a run around it";
  EXPECT_EQ(prefix(json::array({plain, colon}), {"TIERD_PREFIX=/mine"}), "/mine unset\n");
  json many = json::array();
  for (int i = 0; i < 16; ++i) many.push_back({{"name", "a"}, {"path", "/a" + std::to_string(i)}});
  EXPECT_NE(prefix(many, {}), "unset unset\n");
  many.push_back(plain);
  EXPECT_EQ(prefix(many, {}), "unset unset\n");
  EXPECT_EQ(prefix(json::array({{{"name", "a"}, {"path", "/" + std::string(5000, 'a')}}}), {}), "unset unset\n");
}

}  // namespace
}  // namespace tierctl
