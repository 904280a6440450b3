// What the user sees when the daemon is not there, is not ours, refuses, or talks nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<std::string>> kVerbs = {
    {"status"}, {"ls", "/x"}, {"stat", "/x"}, {"explain", "/x"}, {"du", "/x"}, {"prefetch", "/x"}, {"prefetch", "--wait", "/x"}, {"evict", "/x"}, {"pin", "/x"},
    {"unpin", "/x"}, {"verify"}, {"jobs"}, {"wait", "1"}, {"cancel", "1"}, {"config", "get"}, {"config", "set", "ram.capacity", "1 GB"}, {"config", "reload"}};

std::vector<std::string> With(std::vector<std::string> arguments, const std::string& socket) {
  arguments.insert(arguments.begin(), {"--socket", socket});
  return arguments;
}

TEST(Errors, NoDaemonIsExitThreeForEachVerb) {
  const FakeControl directory;
  const std::string socket = directory.directory() + "/none/control.sock";
  for (const auto& verb : kVerbs) {
    const Ran ran = RunTierctl(With(verb, socket));
    EXPECT_EQ(ran.exit_code, 3) << verb[0];
    EXPECT_EQ(ran.err, "tierctl: no tierd is running here (" + socket + ": No such file or directory); start one: tierd --source DIR\n") << verb[0];
    EXPECT_EQ(ran.out, verb[0] == "ls" ? "      SIZE     RAM     SSD  P  PATH\n" : "") << verb[0];
  }
}

TEST(Errors, RefusalsAreSaidWithTheirDetails) {
  FakeControl fake;
  fake.ReplyError("POST /v1/config/reload", 422, "invalid_config", "the configuration stays as it was", {"/e/t.toml:3: unknown key ram.capacty; did you mean capacity?"});
  const Ran reload = RunTierctl({"--socket", fake.socket(), "config", "reload"});
  EXPECT_EQ(reload.exit_code, 1);
  EXPECT_EQ(reload.err, "tierctl: the configuration stays as it was\ntierctl: /e/t.toml:3: unknown key ram.capacty; did you mean capacity?\n");
  EXPECT_EQ(reload.out, "");
}

TEST(Errors, WrongPathToEachVerb) {
  FakeControl fake;
  for (const char* end_point : {"GET /v1/files", "GET /v1/file", "GET /v1/du", "POST /v1/prefetch", "POST /v1/evict", "POST /v1/pin", "POST /v1/unpin", "POST /v1/verify"}) {
    fake.ReplyError(end_point, 404, "outside", "/x is below no source");
  }
  for (const char* verb : {"ls", "stat", "explain", "du", "prefetch", "evict", "pin", "unpin", "verify"}) {
    const Ran ran = RunTierctl({"--socket", fake.socket(), verb, "/x"});
    EXPECT_EQ(ran.exit_code, 1) << verb;
    EXPECT_EQ(ran.err, "tierctl: /x is below no source\n") << verb;
  }
}

TEST(Errors, TheOtherPathsAreStillDone) {
  FakeControl fake;
  fake.ReplyError("GET /v1/file", 404, "outside", "/bad is below no source");
  fake.Reply("GET /v1/file", {{"path", "/good"}, {"why", {"because"}}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "explain", "/bad", "/good"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.out, "/good\n  because\n");
}

TEST(Errors, NonsenseFromTheDaemon) {
  FakeControl fake;
  fake.ReplyText("GET /v1/status", "not json");
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).err, HasSubstr("something that is no JSON object"));
  fake.Reply("GET /v1/jobs", {{"jobs", 7}, {"more", nullptr}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "jobs"}).exit_code, 0);
  fake.ReplyRaw("GET /v1/config", "SSH-2.0-OpenSSH\r\n\r\n");
  const Ran ran = RunTierctl({"--socket", fake.socket(), "config", "get"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("tierd cannot be asked: reading the answer"));
}

TEST(Errors, ControlCharactersOfTheDaemonDoNotReachTheTerminal) {
  FakeControl fake;
  fake.ReplyError("GET /v1/status", 500, "internal", "bad \x1b[2J\nname");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "status"}).err, "tierctl: bad \\x1b[2J\\nname\n");
}

TEST(Errors, SocketIsFoundThroughTheEnvironment) {
  FakeControl fake;
  fake.Reply("GET /v1/version", {{"version", "9.9"}, {"pid", 5}});
  const Ran by_socket = RunTierctl({"version"}, {"TIERD_SOCKET=" + fake.directory() + "/tierd.sock"});
  EXPECT_THAT(by_socket.out, HasSubstr("tierd 9.9 pid 5"));
  ASSERT_EQ(::mkdir((fake.directory() + "/run").c_str(), 0700), 0);
  ASSERT_EQ(::symlink(fake.directory().c_str(), (fake.directory() + "/run/tierd").c_str()), 0);
  EXPECT_THAT(RunTierctl({"version"}, {"XDG_RUNTIME_DIR=" + fake.directory() + "/run"}).out, HasSubstr("tierd 9.9"));
}

TEST(Errors, VersionWorksWithoutADaemon) {
  const Ran ran = RunTierctl({"--socket", "/none/control.sock", "version"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("tierctl 0."));
  EXPECT_THAT(ran.err, HasSubstr("no tierd is running here"));
}

}  // namespace
}  // namespace tierctl
