// Bad input at the start: one clear line, the right exit code, nothing left behind.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

class StartTest : public testing::Test {
 protected:
  StartTest() {
    std::filesystem::create_directories(source);
    std::filesystem::permissions(scratch.path(), std::filesystem::perms::owner_all);
  }
  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    std::vector<std::string> all{"--config", "none", "--socket", scratch.path() + "/run/tierd.sock", "--metrics", "off"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
};

struct BadStart {
  const char* name;
  std::vector<std::string> arguments;  // SRC and TMP are replaced
  const char* says;                    // part of the line
};

TEST_F(StartTest, SaysInOneLineWhatIsWrong) {
  Write(scratch.path() + "/bad.toml", "[ram]\ncapacty = \"1 GiB\"\n");
  Write(scratch.path() + "/file", "x");
  const std::vector<BadStart> cases{
      {"missing source", {"--source", "TMP/nowhere", "--ssd", "off"}, "nowhere"},
      {"source is a file", {"--source", "TMP/file", "--ssd", "off"}, "directory"},
      {"cache inside the source", {"--source", "SRC", "--ssd", "SRC/cache"}, "inside"},
      {"unknown policy", {"--source", "SRC", "--ssd", "off", "--policy", "magic"}, "magic"},
      {"unknown key", {"--source", "SRC", "--ssd", "off", "--set", "ram.capacty=1 GiB"}, "capacity"},
      {"ill-typed", {"--source", "SRC", "--ssd", "off", "--ram", "lots"}, "lots"},
      {"unknown option", {"--sauce", "SRC"}, "sauce"},
      {"no such file", {"--config", "TMP/none.toml"}, "none.toml"},
      {"memory as SSD", {"--source", "SRC", "--ssd", "/dev/shm/tierd-test-cache"}, "/dev/shm"},
  };
  for (const BadStart& bad : cases) {
    std::vector<std::string> arguments;
    for (std::string a : bad.arguments) {
      for (const auto& [from, to] : std::map<std::string, std::string>{{"SRC", source}, {"TMP", scratch.path()}})
        if (const auto at = a.find(from); at != std::string::npos) a.replace(at, from.size(), to);
      arguments.push_back(a);
    }
    const ExitedDaemon exited = DaemonProcess::Run(bad.arguments[0] == "--config" ? arguments : Arguments(arguments), scratch.path());
    EXPECT_TRUE(exited.code == 1 || exited.code == 64) << bad.name << " " << exited.code << " " << exited.output;
    EXPECT_NE(exited.output.find(bad.says), std::string::npos) << bad.name << ": " << exited.output;
    EXPECT_EQ(std::count(exited.output.begin(), exited.output.end(), '\n'), 1) << bad.name << ": " << exited.output;
  }
  const ExitedDaemon toml = DaemonProcess::Run({"--config", scratch.path() + "/bad.toml", "--check-config"}, scratch.path());
  EXPECT_EQ(toml.code, 64);
  EXPECT_NE(toml.output.find("bad.toml:2"), std::string::npos) << toml.output;
}

TEST_F(StartTest, ASecondDaemonEndsWithOneLine) {  // F28
  DaemonProcess first(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  ASSERT_TRUE(first.Start(options)) << first.output();
  ScratchDir elsewhere;
  const ExitedDaemon second = DaemonProcess::Run(
      {"--config", "none", "--source", source, "--metrics", "off", "--socket", elsewhere.path() + "/run/tierd.sock", "--ssd", first.ssd_directory()}, elsewhere.path());
  EXPECT_EQ(second.code, 1) << second.output;
  EXPECT_NE(second.output.find(std::to_string(first.pid())), std::string::npos) << "names the pid: " << second.output;
  const ExitedDaemon same_socket = DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off"}), elsewhere.path());
  EXPECT_EQ(same_socket.code, 1) << same_socket.output;
  EXPECT_NE(same_socket.output.find("another tierd"), std::string::npos) << same_socket.output;
  EXPECT_EQ(first.Stop(), 0);
}

TEST_F(StartTest, PrintsAndChecksTheConfiguration) {
  const ExitedDaemon printed = DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off", "--ram", "64 MiB", "--print-config"}), scratch.path());
  EXPECT_EQ(printed.code, 0) << printed.output;
  EXPECT_NE(printed.output.find("64 MiB"), std::string::npos) << printed.output;
  EXPECT_NE(printed.output.find("command line"), std::string::npos) << printed.output;
  EXPECT_EQ(DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off", "--check-config"}), scratch.path()).code, 0);
}

TEST_F(StartTest, ReloadsCapacityAndPolicyAtRunTime) {
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ram = "256 MiB";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const auto set = [&](const char* key, const char* value) { return daemon.Control("PATCH", "/v1/config", nlohmann::json{{"key", key}, {"value", value}}.dump()); };
  EXPECT_EQ(set("ram.capacity", "128 MiB")["applied"].size(), 1u);
  EXPECT_EQ(daemon.Status()["tiers"]["ram"]["capacity_bytes"], 128u << 20);
  EXPECT_EQ(set("source.data.policy", "lru")["applied"].size(), 1u);
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "lru");
  EXPECT_TRUE(set("source.data.policy", "nonsense").contains("error"));
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "lru");
  EXPECT_EQ(set("ram.pages", "4k")["error"]["code"], "conflict");
  EXPECT_EQ(set("ram.capcity", "1 GiB")["error"]["code"], "bad_request");
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
