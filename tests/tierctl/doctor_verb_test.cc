#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fake_control.h"
#include "run_tierctl.h"
#include "tierctl/client/paths.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json CheckNamed(const json& document, const std::string& name) {
  for (const json& check : document["checks"]) {
    if (check["name"] == name) return check;
  }
  return nullptr;
}

TEST(DoctorVerb, LooksAtTheMachineWithoutADaemon) {
  const FakeControl directory;
  const Ran ran = RunTierctl({"--socket", "/none/control.sock", "doctor", "--json", "--no-speed", "--source", directory.directory(), "--config", "/none.toml"});
  EXPECT_EQ(ran.exit_code, 1);  // the configuration that was named cannot be read
  const json document = json::parse(ran.out);
  EXPECT_EQ(document["daemon"], false);
  for (const char* name : {"kernel", "io_uring", "memory.pages", "namespaces.user", "limits.memlock", "limits.files", "clock", "source.type", "ssd.directory"}) {
    EXPECT_FALSE(CheckNamed(document, name).is_null()) << name;
  }
  EXPECT_EQ(CheckNamed(document, "configuration")["state"], "fail");
  EXPECT_EQ(CheckNamed(document, "daemon")["state"], "warn");
}

TEST(DoctorVerb, AMistakeInTheConfigurationIsShownWithItsLine) {
  const FakeControl directory;
  const std::string file = directory.directory() + "/t.toml";
  std::ofstream(file) << "[ram]\ncapacty = 1\n";
  const json document = json::parse(RunTierctl({"--socket", "/none/control.sock", "doctor", "--json", "--no-speed", "--config", file}).out);
  EXPECT_EQ(CheckNamed(document, "configuration")["detail"], file + ":2: unknown key ram.capacty; did you mean ram.capacity?");
}

TEST(DoctorVerb, AddsWhatTheDaemonKnows) {
  FakeControl fake;
  fake.Reply("GET /v1/doctor", {{"checks", {{{"name", "daemon.ssd"}, {"state", "warn"}, {"detail", "buffered \x1b"}, {"remedy", "use ext4"}}}}});
  const std::string file = fake.directory() + "/t.toml";
  std::ofstream(file) << "[ssd]\ndirectory = \"off\"\n";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "doctor", "--no-speed", "--config", file, "--source", fake.directory()});
  EXPECT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("OK    daemon "));
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("WARN  daemon.ssd +buffered .x1b\n +-> use ext4\n"));
}

TEST(DoctorVerb, MeasuresTheCapacityThatTheDaemonHas) {
  FakeControl fake;
  fake.Reply("GET /v1/status", {{"config_file", nullptr}, {"sources", {{{"path", fake.directory()}}}}, {"tiers", {{"ssd", {{"state", "off"}}}}}});
  fake.Reply("GET /v1/config", {{"values", {{{"key", "ram.capacity"}, {"value", "256 MiB"}, {"origin", "command line"}, {"reloadable", true}}}}});
  fake.Reply("GET /v1/doctor", {{"checks", json::array()}});
  const json document = json::parse(RunTierctl({"--socket", fake.socket(), "doctor", "--no-speed", "--json"}).out);
  EXPECT_THAT(CheckNamed(document, "memory.room")["detail"].get<std::string>(), HasSubstr("; ram.capacity is 256 MiB"));
}

TEST(DoctorVerb, ASourceWhoseNameIsNoTextIsLookedAt) {
  FakeControl fake;
  const std::string path = fake.directory() + "/s\xff";
  std::filesystem::create_directory(path);
  fake.Reply("GET /v1/status", {{"config_file", nullptr}, {"sources", {{{"path", fake.directory() + "/s\xef\xbf\xbd"}, {"path_b64", Base64(path)}}}}, {"tiers", {{"ssd", {{"state", "off"}}}}}});
  fake.Reply("GET /v1/config", {{"values", json::array()}});
  fake.Reply("GET /v1/doctor", {{"checks", json::array()}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "doctor", "--no-speed"});
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("No such file")));
}

TEST(DoctorVerb, MissingSourceFails) {
  const Ran ran = RunTierctl({"--socket", "/none/control.sock", "doctor", "--no-speed", "--source", "/none/such"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("FAIL  source.type +/none/such: No such file or directory\n"));
}

}  // namespace
}  // namespace tierctl
