// Bad input at the start: one clear line, the right exit code, nothing left behind.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"
#include "tests/tierctl/run_tierctl.h"

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
  const ExitedDaemon policy = DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off", "--policy", "fleeze", "--check-config"}), scratch.path());
  EXPECT_EQ(policy.code, 64);
  EXPECT_NE(policy.output.find("did you mean \"freeze\"?"), std::string::npos) << policy.output;
  const ExitedDaemon toml = DaemonProcess::Run({"--config", scratch.path() + "/bad.toml", "--check-config"}, scratch.path());
  EXPECT_EQ(toml.code, 64);
  EXPECT_NE(toml.output.find("bad.toml:2"), std::string::npos) << toml.output;
}

// Runs tierd to its end as somebody who is not root.
tierctl::Ran RunUnprivileged(const std::vector<std::string>& command, const std::vector<std::string>& environment = {}) {
  std::vector<std::string> all{"/usr/bin/timeout", "20"};
  if (::geteuid() == 0) all.insert(all.end(), {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  all.insert(all.end(), command.begin(), command.end());
  return tierctl::RunProgram(all, environment, "");
}

TEST_F(StartTest, SaysInOneLineWhatItMayNot) {
  namespace fs = std::filesystem;
  fs::permissions(scratch.path(), fs::perms::all);  // for nobody's sake
  if (RunUnprivileged({TIERD_BINARY, "--version"}).exit_code != 0) GTEST_SKIP() << "this build cannot be run by other users";
  const std::string shut = scratch.path() + "/shut";
  fs::create_directories(shut + "/below");
  fs::permissions(shut, ::geteuid() == 0 ? fs::perms::owner_all : fs::perms::none);
  struct Row {
    const char* name;
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Row> rows{
      {"source", {"--source", shut, "--ssd", "off"}, shut + ": "},
      {"source below", {"--source", shut + "/below", "--ssd", "off"}, "ermission denied"},
      {"cache", {"--source", source, "--ssd", shut + "/cache"}, "ermission denied"},
      {"configuration", {"--config", shut + "/t.toml"}, "ermission denied"},
      {"socket", {"--source", source, "--ssd", "off", "--socket", shut + "/run/tierd.sock"}, shut + "/run"},
  };
  for (const Row& row : rows) {
    std::vector<std::string> command{TIERD_BINARY};
    if (row.arguments[0] != "--config") {
      command = {TIERD_BINARY, "--config", "none", "--metrics", "off"};
      if (std::string(row.name) != "socket") command.insert(command.end(), {"--socket", scratch.path() + "/run-n/tierd.sock"});
    }
    command.insert(command.end(), row.arguments.begin(), row.arguments.end());
    const tierctl::Ran ran = RunUnprivileged(command);
    EXPECT_TRUE(ran.exit_code == 1 || ran.exit_code == 64) << row.name << " " << ran.exit_code;
    EXPECT_NE(ran.err.find(row.says), std::string::npos) << row.name << ": " << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << row.name << ": " << ran.err;
  }
  // Somebody else's daemon serves nobody.
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ssd = "off";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  if (::geteuid() == 0) {
    const tierctl::Ran ran = RunUnprivileged({TIERCTL_BINARY, "status"}, {"TIERD_SOCKET=" + daemon.socket()});
    EXPECT_EQ(ran.exit_code, 3);
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_NE(ran.err.find("ermission"), std::string::npos) << ran.err;
  }
  fs::permissions(shut, fs::perms::owner_all);
}

TEST_F(StartTest, RefusesANetworkFileSystemAndAFullDiskForTheCache) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig != nullptr) {
    const ExitedDaemon exited = DaemonProcess::Run(Arguments({"--source", source, "--ssd", rig->mount() + "/cache"}), scratch.path());
    EXPECT_EQ(exited.code, 64) << exited.output;
    EXPECT_NE(exited.output.find("fuse"), std::string::npos) << exited.output;
    EXPECT_EQ(std::count(exited.output.begin(), exited.output.end(), '\n'), 1) << exited.output;
    EXPECT_FALSE(std::filesystem::exists(rig->mount() + "/cache")) << "nothing is left on it";
  }
  // A disk of 24 MiB, for those who may mount one.
  const std::string disk = scratch.path() + "/disk";
  std::filesystem::create_directories(disk);
  const auto shell = [](const std::string& command) { return tierctl::RunProgram({"/bin/sh", "-c", "PATH=$PATH:/sbin:/usr/sbin; " + command}, {}, "").exit_code; };
  const std::string image = scratch.path() + "/image";
  if (shell("truncate -s 24M " + image + " && mkfs.ext4 -q " + image + " && mount -o loop " + image + " " + disk) == 0) {
    const ExitedDaemon exited = DaemonProcess::Run(Arguments({"--source", source, "--ssd", disk + "/cache"}), scratch.path());
    EXPECT_EQ(shell("umount " + disk), 0);
    EXPECT_EQ(exited.code, 1) << exited.output;
    EXPECT_NE(exited.output.find("too little"), std::string::npos) << exited.output;
    EXPECT_EQ(std::count(exited.output.begin(), exited.output.end(), '\n'), 1) << exited.output;
  }
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
