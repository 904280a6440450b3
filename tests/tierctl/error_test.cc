// Around errors: what is done in spite of them, and what they may not do. The words of each are in golden files (error_golden_test).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using ::testing::HasSubstr;

TEST(Errors, TheOtherPathsAreStillDone) {
  FakeControl fake;
  fake.ReplyError("GET /v1/file", 404, "outside", "/bad is below no source");
  fake.Reply("GET /v1/file", {{"path", "/good"}, {"why", {"because"}}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "explain", "/bad", "/good"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.out, "/good\n  because\n");
}

TEST(Errors, NonsenseFromTheDaemon) {
  FakeControl fake;
  fake.Reply("GET /v1/jobs", {{"jobs", 7}, {"more", nullptr}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "jobs"}).exit_code, 0);
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
