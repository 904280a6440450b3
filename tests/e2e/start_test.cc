// Bad input at the start: one clear line, the right exit code, nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"
#include "tests/tierctl/run_tierctl.h"
#include "tierd/base/unique_fd.h"

namespace tierd::e2e {
namespace {

// Of a capacity what whole regions are.
constexpr std::uint64_t InRegions(std::uint64_t bytes) {
  constexpr std::uint64_t kRegion = (16 << 20) + (256 << 10);
  return bytes / kRegion * kRegion;
}

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
  int code;
  const char* says;                    // part of the line
};

void ExpectOneLine(const ExitedDaemon& exited, int code, const std::string& says, const std::string& name) {
  EXPECT_EQ(exited.code, code) << name << ": " << exited.output;
  EXPECT_NE(exited.output.find(says), std::string::npos) << name << ": " << exited.output;
  EXPECT_EQ(std::count(exited.output.begin(), exited.output.end(), '\n'), 1) << name << ": " << exited.output;
}

TEST_F(StartTest, SaysInOneLineWhatIsWrong) {
  Write(scratch.path() + "/key.toml", "[ram]\ncapacty = \"1 GiB\"\n");
  Write(scratch.path() + "/type.toml", "[ram]\ncapacity = \"1 GiB\"\n[ssd]\n\nregion_size = true\n");
  Write(scratch.path() + "/policy.toml", "[[source]]\npath = \"" + source + "\"\npolicy = \"fleeze\"\n[ssd]\ndirectory = \"off\"\n[daemon]\nruntime_dir = \"" +
                                             scratch.path() + "/run\"\n");
  Write(scratch.path() + "/text.toml", "[ram]\ncapacity =\n");
  Write(scratch.path() + "/file", "x");
  const std::vector<BadStart> cases{
      {"missing source", {"--source", "TMP/nowhere", "--ssd", "off"}, 64, "nowhere"},
      {"source is a file", {"--source", "TMP/file", "--ssd", "off"}, 64, "directory"},
      {"cache inside the source", {"--source", "SRC", "--ssd", "SRC/cache"}, 64, "inside"},
      {"unknown policy", {"--source", "SRC", "--ssd", "off", "--policy", "magic"}, 64, "magic"},
      {"unknown key", {"--source", "SRC", "--ssd", "off", "--set", "ram.capacty=1 GiB"}, 64, "capacity"},
      {"ill-typed", {"--source", "SRC", "--ssd", "off", "--ram", "lots"}, 64, "lots"},
      {"unknown option", {"--sauce", "SRC"}, 64, "sauce"},
      {"no such file", {"--config", "TMP/none.toml"}, 64, "none.toml"},
      {"unknown key in a file", {"--config", "TMP/key.toml"}, 64, "key.toml:2: "},
      {"ill-typed in a file", {"--config", "TMP/type.toml"}, 64, "type.toml:5: "},
      {"unknown policy in a file", {"--config", "TMP/policy.toml"}, 64, "policy.toml:3: "},
      {"no TOML", {"--config", "TMP/text.toml"}, 64, "text.toml:2: "},
      {"lifeline that is no pipe", {"--source", "SRC", "--ssd", "off", "--lifeline", "0"}, 64, "--lifeline 0: not the end of a pipe"},
      {"lifeline that is not open", {"--source", "SRC", "--ssd", "off", "--lifeline", "777"}, 64, "--lifeline 777: not the end of a pipe"},
      {"empty source", {"--source", "", "--ssd", "off"}, 64, "--source: the value is empty"},
      {"one empty source", {"--source", "SRC", "--source", "", "--ssd", "off"}, 64, "--source: the value is empty"},
      {"empty source after =", {"--source=", "--ssd", "off"}, 64, "--source: the value is empty"},
      {"empty cache", {"--source", "SRC", "--ssd", ""}, 64, "--ssd: the value is empty"},
      {"empty socket", {"--config", "none", "--source", "SRC", "--ssd", "off", "--socket", ""}, 64, "--socket: the value is empty"},
      {"empty file name", {"--config", "", "--source", "SRC", "--ssd", "off"}, 64, "--config: the value is empty"},
      {"empty policy", {"--source", "SRC", "--ssd", "off", "--policy", ""}, 64, "--policy: the value is empty"},
      {"empty source after = and another", {"--source=", "--ssd=off"}, 64, "--source: the value is empty"},
      {"printed and checked", {"--source", "SRC", "--ssd", "off", "--print-config", "--check-config"}, 64, "--print-config: not together with --check-config"},
      {"memory as SSD", {"--source", "SRC", "--ssd", "/dev/shm/tierd-test-cache"}, 64, "/dev/shm"},
  };
  for (const BadStart& bad : cases) {
    std::vector<std::string> arguments;
    for (std::string a : bad.arguments) {
      for (const auto& [from, to] : std::map<std::string, std::string>{{"SRC", source}, {"TMP", scratch.path()}})
        if (const auto at = a.find(from); at != std::string::npos) a.replace(at, from.size(), to);
      arguments.push_back(a);
    }
    const ExitedDaemon exited = DaemonProcess::Run(bad.arguments[0] == "--config" ? arguments : Arguments(arguments), scratch.path());
    ExpectOneLine(exited, bad.code, bad.says, bad.name);
  }
  const ExitedDaemon policy = DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off", "--policy", "fleeze", "--check-config"}), scratch.path());
  EXPECT_EQ(policy.code, 64);
  EXPECT_NE(policy.output.find("did you mean \"freeze\"?"), std::string::npos) << policy.output;
  for (const char* file : {"key.toml", "type.toml", "policy.toml", "text.toml"})
    ExpectOneLine(DaemonProcess::Run({"--config", scratch.path() + "/" + file, "--check-config"}, scratch.path()), 64, std::string(file) + ":", file);
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
  fs::permissions(scratch.path(), fs::perms::all | fs::perms::sticky_bit);  // for nobody's sake
  if (RunUnprivileged({TIERD_BINARY, "--version"}).exit_code != 0) GTEST_SKIP() << "this build cannot be run by other users";
  const std::string shut = scratch.path() + "/shut";
  fs::create_directories(shut + "/below");
  fs::permissions(shut, ::geteuid() == 0 ? fs::perms::owner_all : fs::perms::none);
  struct Row {
    const char* name;
    std::vector<std::string> arguments;
    int code;
    std::string says;
  };
  const std::vector<Row> rows{
      {"source", {"--source", shut, "--ssd", "off"}, 64, shut + ": "},
      {"source below", {"--source", shut + "/below", "--ssd", "off"}, 64, "ermission denied"},
      {"cache", {"--source", source, "--ssd", shut + "/cache"}, 1, "ermission denied"},
      {"configuration", {"--config", shut + "/t.toml"}, 1, "ermission denied"},
      {"socket", {"--source", source, "--ssd", "off", "--socket", shut + "/run/tierd.sock"}, 1, shut + "/run"},
  };
  for (const Row& row : rows) {
    std::vector<std::string> command{TIERD_BINARY};
    if (row.arguments[0] != "--config") {
      command = {TIERD_BINARY, "--config", "none", "--metrics", "off"};
      if (std::string(row.name) != "socket") command.insert(command.end(), {"--socket", scratch.path() + "/run-n/tierd.sock"});
    }
    command.insert(command.end(), row.arguments.begin(), row.arguments.end());
    const tierctl::Ran ran = RunUnprivileged(command);
    EXPECT_EQ(ran.exit_code, row.code) << row.name;
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

TEST_F(StartTest, RefusesANetworkFileSystemForTheCache) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  ExpectOneLine(DaemonProcess::Run(Arguments({"--source", source, "--ssd", rig->mount() + "/cache"}), scratch.path()), 64, "fuse", "cache on FUSE");
  EXPECT_FALSE(std::filesystem::exists(rig->mount() + "/cache")) << "nothing is left on it";
}

TEST_F(StartTest, RefusesASmallDiskForTheCache) {
  const std::string disk = scratch.path() + "/disk";
  std::filesystem::create_directories(disk);
  const auto shell = [](const std::string& command) { return tierctl::RunProgram({"/bin/sh", "-c", "PATH=$PATH:/sbin:/usr/sbin; " + command}, {}, "").exit_code; };
  const std::string image = scratch.path() + "/image";
  if (shell("truncate -s 24M " + image + " && mkfs.ext4 -q " + image + " && mount -o loop " + image + " " + disk) != 0) GTEST_SKIP() << "no loop mounts here";
  const ExitedDaemon exited = DaemonProcess::Run(Arguments({"--source", source, "--ssd", disk + "/cache"}), scratch.path());
  EXPECT_EQ(shell("umount " + disk), 0);
  ExpectOneLine(exited, 1, "too little", "disk of 24 MiB");
}

TEST_F(StartTest, ASecondDaemonEndsWithOneLine) {  // F28
  DaemonProcess first(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  ASSERT_TRUE(first.Start(options)) << first.output();
  ScratchDir elsewhere;
  const ExitedDaemon second = DaemonProcess::Run(
      {"--config", "none", "--source", source, "--metrics", "off", "--socket", elsewhere.path() + "/run/tierd.sock", "--ssd", first.ssd_directory()}, elsewhere.path());
  ExpectOneLine(second, 1, std::to_string(first.pid()), "its directory");
  const ExitedDaemon same_socket = DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off"}), elsewhere.path());
  ExpectOneLine(same_socket, 1, "another tierd", "its socket");
  EXPECT_EQ(first.Stop(), 0);
}

// What the other tests rest upon: a daemon that was not there says so, and how one ended is known.
TEST_F(StartTest, TheRigTellsHowADaemonEnded) {
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ssd = "off";
  options.binary = scratch.path() + "/none";
  EXPECT_FALSE(daemon.Start(options));
  EXPECT_EQ(daemon.exit_code(), 127);
  EXPECT_NE(daemon.output().find(scratch.path() + "/none: " + std::strerror(ENOENT)), std::string::npos) << daemon.output();
  options.binary.clear();
  for (const int signal_number : {SIGABRT, SIGKILL}) {
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    daemon.Kill(signal_number);
    EXPECT_TRUE(signal_number == SIGKILL || Eventually(10'000, [&] { return daemon.Ended(); }));
    daemon.Kill(SIGKILL);
    EXPECT_EQ(daemon.exit_code(), 128 + signal_number);
  }
}

// Nothing but a source: directories of the user's, and a line that says where everything is.
TEST_F(StartTest, WithoutAConfigurationItSaysWhereItIs) {
  namespace fs = std::filesystem;
  const std::string home = scratch.path() + "/home", runtime = scratch.path() + "/xdg";
  fs::create_directories(home);
  fs::create_directories(runtime);
  fs::create_directory_symlink(runtime + "/tierd", scratch.path() + "/run");  // where the rig looks for it
  struct Case {
    std::string variable, ssd;
  };
  for (const Case& one : {Case{"", home + "/.cache/tierd"}, Case{" XDG_CACHE_HOME=" + scratch.path() + "/cache", scratch.path() + "/cache/tierd"}}) {
    DaemonProcess::Options options;
    options.binary = scratch.path() + "/start.sh";
    Write(options.binary, "#!/bin/sh\nexec env -i HOME=" + home + " XDG_RUNTIME_DIR=" + runtime + one.variable + " " + TIERD_BINARY + " --source " + source + "\n");
    fs::permissions(options.binary, fs::perms::owner_all);
    DaemonProcess daemon(scratch.path());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    const std::string output = daemon.output();
    const auto said = [&](const std::string& name) {
      const std::size_t at = output.find(" " + name + "=", output.find("tierd ready"));
      return at == std::string::npos ? "" : output.substr(at + name.size() + 2, output.find_first_of(" \n", at + 1) - at - name.size() - 2);
    };
    EXPECT_EQ(said("socket"), runtime + "/tierd/tierd.sock");
    EXPECT_EQ(said("control"), runtime + "/tierd/control.sock");
    for (const char* name : {"socket", "control"}) EXPECT_TRUE(fs::is_socket(said(name))) << name;
    EXPECT_EQ(said("ssd"), one.ssd);
    EXPECT_TRUE(fs::is_directory(said("ssd")) && !fs::is_empty(said("ssd")));
    EXPECT_EQ(said("source"), source);
    const auto status = daemon.Status();
    EXPECT_EQ(status["runtime_directory"], runtime + "/tierd");
    EXPECT_EQ(status["tiers"]["ssd"]["directory"], one.ssd);
    EXPECT_EQ(said("metrics"), "http://" + status["metrics_address"].get<std::string>() + "/metrics");
    EXPECT_NE(daemon.Metrics().find("tierd_loop_lag_seconds"), std::string::npos);
    EXPECT_EQ(daemon.Stop(), 0);
  }
}

// Of several users of a node the first has it. One that was named is that or none: whoever scrapes it must not get another's.
TEST_F(StartTest, WhereTheDefaultPortIsTakenMetricsHaveAnother) {
  const std::string taken = "127.0.0.1:9469";
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9469);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int again = 1;  // where a test before this one had connections there
  ASSERT_EQ(::setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &again, sizeof again), 0);
  if (::bind(holder.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    ASSERT_EQ(::listen(holder.get(), 1), 0);
  }  // else a daemon of this machine has it, which does as well
  for (const bool named : {false, true}) {
    DaemonProcess::Options options;
    options.binary = scratch.path() + "/start.sh";
    Write(options.binary, std::string("#!/bin/sh\nexec ") + TIERD_BINARY + " --config none --source " + source + " --ssd off --ram '64 MiB' --socket " + scratch.path() + "/run/tierd.sock" +
                              (named ? " --metrics " + taken : "") + "\n");
    std::filesystem::permissions(options.binary, std::filesystem::perms::owner_all);
    DaemonProcess daemon(scratch.path());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    const auto at = daemon.Status()["metrics_address"];
    if (named) {
      EXPECT_TRUE(at.is_null()) << at;
      EXPECT_THAT(daemon.output(), testing::HasSubstr("metrics off reason=\"cannot serve metrics on " + taken));
    } else {
      ASSERT_TRUE(at.is_string()) << daemon.output();
      EXPECT_NE(at, taken);
      EXPECT_THAT(daemon.output(), testing::AllOf(testing::HasSubstr(" metrics=http://" + at.get<std::string>() + "/metrics "), testing::HasSubstr("metrics elsewhere ")));
      EXPECT_THAT(daemon.Metrics(), testing::HasSubstr("tierd_loop_lag_seconds"));
    }
    EXPECT_EQ(daemon.Stop(), 0);
  }
}

// Its descriptors are its own: another process of the user would write into the segments that readers map (HAZARDS 2.8).
TEST_F(StartTest, AnotherProcessOfTheUserCannotOpenItsDescriptors) {
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  if (RunUnprivileged({TIERD_BINARY, "--version"}).exit_code != 0) GTEST_SKIP() << "this build cannot be run by other users";
  // What cannot be opened of a process beside it, as a check of this check, and of the daemon.
  const std::string script = R"(
      opened() { for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do ( : </proc/$1/fd/$n ) 2>/dev/null && echo $2; done; ls /proc/$1/fd >/dev/null 2>&1 && echo $2; }
      sleep 20 </dev/null & other=$!
      "$TIERD" --config none --source "$SOURCE" --ssd off --ram "64 MiB" --metrics off --socket "$RUN/tierd.sock" >"$RUN.out" 2>&1 & daemon=$!
      for i in $(seq 100); do grep -q "tierd ready" "$RUN.out" && break; sleep 0.1; done
      cat "$RUN.out"
      opened $other other; opened $daemon daemon
      kill $other $daemon; wait $daemon; echo ended $?)";
  const tierctl::Ran ran = RunUnprivileged({"/bin/bash", "-c", script}, {std::string("TIERD=") + TIERD_BINARY, "SOURCE=" + source, "RUN=" + scratch.path() + "/run-n"});
  EXPECT_NE(ran.out.find("tierd ready"), std::string::npos) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("\nended 0\n"), std::string::npos) << ran.out << ran.err;
  if (ran.out.find("\nother\n") == std::string::npos) GTEST_SKIP() << "no process can look into another here";
  EXPECT_EQ(ran.out.find("\ndaemon\n"), std::string::npos) << ran.out;
}

TEST_F(StartTest, PrintsAndChecksTheConfiguration) {
  const ExitedDaemon printed = DaemonProcess::Run(Arguments({"--source", source, "--ssd", scratch.path() + "/ssd", "--set", "ssd.min_free=1 MiB", "--print-config"}), scratch.path());
  EXPECT_EQ(printed.code, 0) << printed.output;
  EXPECT_NE(printed.output.find("1 MiB"), std::string::npos) << printed.output;
  EXPECT_NE(printed.output.find("command line"), std::string::npos) << printed.output;
  // What "auto" comes out as, or that it is not known before the start.
  std::istringstream lines(printed.output);
  for (std::string text; std::getline(lines, text);) {
    const bool open = text.find(" = \"auto\"") != std::string::npos;
    EXPECT_TRUE(!open || text.find("; here ") != std::string::npos || text.starts_with("warm") || text.starts_with("ahead") || text.starts_with("policy")) << text;
  }
  EXPECT_EQ(DaemonProcess::Run(Arguments({"--source", source, "--ssd", "off", "--check-config"}), scratch.path()).code, 0);
}

// What is wrong is beside it, and does not hide what is in effect.
TEST_F(StartTest, PrintsTheConfigurationThatIsWrong) {
  Write(scratch.path() + "/no_source.toml", "sources = \"listed\"\n[ram]\ncapacity = \"64 MiB\"\n[ssd]\ndirectory = \"off\"\n");
  const ExitedDaemon none = DaemonProcess::Run({"--config", scratch.path() + "/no_source.toml", "--print-config"}, scratch.path());
  EXPECT_EQ(none.code, 0) << none.output;
  EXPECT_THAT(none.output, testing::HasSubstr("64 MiB"));
  EXPECT_THAT(none.output, testing::HasSubstr("tierd: no source: "));
  const ExitedDaemon wrong = DaemonProcess::Run(Arguments({"--source", scratch.path() + "/nowhere", "--ssd", "/dev/shm/tierd-test-cache", "--ram", "64 MiB", "--print-config"}), scratch.path());
  EXPECT_EQ(wrong.code, 0) << wrong.output;
  for (const char* part : {"64 MiB", "nowhere: no such directory", "tierd: command line: ssd.directory: "}) EXPECT_THAT(wrong.output, testing::HasSubstr(part));
}

// What the check says, a start says as well; and the remedy closes no directory to the others who use it.
TEST_F(StartTest, ChecksWhatAStartWouldRefuse) {
  namespace fs = std::filesystem;
  for (const char* name : {"open", "sticky", "used"}) fs::create_directories(scratch.path() + "/" + name);
  for (const char* name : {"open", "used"}) fs::permissions(scratch.path() + "/" + name, fs::perms(0755));
  fs::permissions(scratch.path() + "/sticky", fs::perms(01777));
  Write(scratch.path() + "/used/thesis.tex", "precious");
  fs::create_directory_symlink(scratch.path() + "/to", scratch.path() + "/planted");
  std::vector<BadStart> cases{
      {"parameters", {"--ssd", "off", "--set", "source.policy_parameters=foo"}, 64, "parameters \"foo\": no parameter, or no number: foo; there are: window, operation_bytes"},
      {"another policy's parameters", {"--ssd", "off", "--policy", "lru", "--set", "source.policy_parameters=window=1"}, 64, "window=1; there are none"},
      {"open cache", {"--ssd", "TMP/open"}, 1, "run: chmod 700 TMP/open"},
      {"sticky cache", {"--ssd", "TMP/sticky"}, 1, "name a directory of its own, e.g. TMP/sticky/tierd"},
      {"others' cache", {"--ssd", "TMP/used"}, 64, "holds other files; name a directory of its own, e.g. TMP/used/tierd"},
      {"cache below a file", {"--ssd", "TMP/used/thesis.tex/cache"}, 64, "thesis.tex/cache is not a directory"},
      {"no runtime directory", {"--ssd", "off", "--socket", "TMP/none/run/t.sock"}, 1, "create runtime directory TMP/none/run"},
      {"open runtime directory", {"--ssd", "off", "--socket", "TMP/open/t.sock"}, 1, "runtime directory TMP/open is open to others; chmod 0700 it"},
      {"sticky runtime directory", {"--ssd", "off", "--socket", "TMP/sticky/t.sock"}, 1, "is open to others; name a directory of its own, e.g. TMP/sticky/tierd"},
      {"planted link", {"--ssd", "off", "--socket", "TMP/planted/t.sock"}, 1,
       "runtime directory TMP/planted is not a directory (a symlink is not followed); name another: --socket PATH (and TIERD_SOCKET for programs)"},
      {"others' runtime directory", {"--ssd", "off", "--socket", "TMP/used/t.sock"}, 1, "is open to others; name a directory of its own, e.g. TMP/used/tierd"},
  };
  if (::geteuid() == 0) {
    fs::create_directory(scratch.path() + "/theirs");
    ASSERT_EQ(::chown((scratch.path() + "/theirs").c_str(), 4242, 4242), 0);
    cases.push_back({"planted directory", {"--ssd", "off", "--socket", "TMP/theirs/t.sock"}, 1,
                     "runtime directory TMP/theirs belongs to uid 4242, not to us; name another: --socket PATH (and TIERD_SOCKET for programs)"});
  }
  const auto here = [&](std::string text) {
    for (std::size_t at; (at = text.find("TMP")) != std::string::npos;) text.replace(at, 3, scratch.path());
    return text;
  };
  for (const BadStart& bad : cases) {
    std::vector<std::string> arguments{"--config", "none", "--source", source, "--metrics", "off"};
    if (std::string(bad.arguments[bad.arguments.size() - 2]) != "--socket") arguments.insert(arguments.end(), {"--socket", scratch.path() + "/run/tierd.sock"});
    for (const std::string& argument : bad.arguments) arguments.push_back(here(argument));
    ExpectOneLine(DaemonProcess::Run(arguments, scratch.path()), bad.code, here(bad.says), std::string(bad.name) + ", started");
    arguments.emplace_back("--check-config");
    ExpectOneLine(DaemonProcess::Run(arguments, scratch.path()), bad.code, here(bad.says), std::string(bad.name) + ", checked");
  }
  EXPECT_EQ(DaemonProcess::Run(Arguments({"--source", source, "--ssd", scratch.path() + "/to/be/made", "--check-config"}), scratch.path()).code, 0);
  EXPECT_FALSE(fs::exists(scratch.path() + "/to")) << "a check makes nothing";
}

// What nobody asked for is a line for who looks; that somebody else has taken the place of our directory is more.
TEST_F(StartTest, WarnsWhereSomebodyElseHasTheSsdDirectory) {
  namespace fs = std::filesystem;
  if (::geteuid() != 0) GTEST_SKIP() << "gives a directory away";
  for (const char* name : {"cache", "cache/tierd"}) fs::create_directory(scratch.path() + "/" + name);
  ASSERT_EQ(::chown((scratch.path() + "/cache/tierd").c_str(), 4242, 4242), 0);
  DaemonProcess::Options options;
  options.binary = scratch.path() + "/start.sh";
  // A mount of its own over the other directory that it would find: memory will not do.
  Write(options.binary, std::string("#!/bin/sh\nmkdir -p /var/tmp/tierd-0 && mount -t tmpfs none /var/tmp/tierd-0 || exit 77\nexec env -u CACHE_DIRECTORY XDG_CACHE_HOME=") + scratch.path() + "/cache " + TIERD_BINARY +
                            " --config none --source " + source + " --ram '64 MiB' --metrics off --socket " + scratch.path() + "/run/tierd.sock\n");
  Write(scratch.path() + "/own.sh", "#!/bin/sh\nexec unshare -m " + options.binary + "\n");
  for (const char* name : {"start.sh", "own.sh"}) fs::permissions(scratch.path() + "/" + name, fs::perms::owner_all);
  options.binary = scratch.path() + "/own.sh";
  DaemonProcess daemon(scratch.path());
  if (!daemon.Start(options)) GTEST_SKIP() << "no mounts here: " << daemon.output();
  EXPECT_THAT(daemon.output(), testing::HasSubstr(" warning not for the SSD tier: " + scratch.path() + "/cache/tierd belongs to uid 4242"));
  EXPECT_THAT(daemon.output(), testing::HasSubstr(" warning no SSD tier: "));
  EXPECT_EQ(daemon.Stop(), 0);
}

// In the log, in the status, by doctor, and by --check-config.
TEST_F(StartTest, AnOptionThatIsNotTakenAsWrittenIsSaid) {
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ram = "99 TB";
  options.ssd = "off";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const std::string begin = "ram.capacity 99 TB: this node or its cgroup has ";
  EXPECT_NE(daemon.output().find("warning option " + begin), std::string::npos) << daemon.output();
  const nlohmann::json notes = daemon.Status()["option_notes"];
  ASSERT_FALSE(notes.empty());
  EXPECT_TRUE(notes[0].get<std::string>().starts_with(begin)) << notes;
  for (const char* verb : {"status", "doctor"}) {
    const tierctl::Ran ran = tierctl::RunTierctl({"--socket", daemon.socket(), verb});
    EXPECT_NE(ran.out.find(begin), std::string::npos) << ran.out;
  }
  const tierctl::Ran set = tierctl::RunTierctl({"--socket", daemon.socket(), "config", "set", "ram.capacity", "98 TB"});
  EXPECT_NE(set.err.find("ram.capacity 98 TB: "), std::string::npos) << set.err;
  const tierctl::Ran back = tierctl::RunTierctl({"--socket", daemon.socket(), "config", "set", "ram.capacity", "64 MiB"});
  EXPECT_EQ(back.err, "");
  EXPECT_FALSE(daemon.Status()["option_notes"].dump().find("ram.capacity") != std::string::npos) << daemon.Status()["option_notes"];
}

TEST_F(StartTest, AListenerThatOtherHostsReachIsSaidWithTheRemedy) {
  const std::vector<std::string> arguments{"--config", "none", "--source", source, "--ssd", "off", "--socket", scratch.path() + "/run/tierd.sock", "--check-config", "--metrics"};
  const auto said = [&](const std::string& address) {
    std::vector<std::string> all = arguments;
    all.push_back(address);
    return DaemonProcess::Run(all, scratch.path()).output;
  };
  EXPECT_NE(said("0.0.0.0:9469").find("daemon.metrics_address 0.0.0.0:9469: every host that reaches"), std::string::npos) << said("0.0.0.0:9469");
  EXPECT_EQ(said("127.0.0.1:9469"), "configuration ok\n");
}

TEST_F(StartTest, ANamedMetricsPortThatIsTakenIsSaid) {
  const UniqueFd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  ASSERT_EQ(::getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ssd = "off";
  options.binary = scratch.path() + "/start.sh";
  Write(options.binary, std::string("#!/bin/sh\nexec ") + TIERD_BINARY + " --config none --source " + source + " --ssd off --ram '64 MiB' --socket " + daemon.socket() +
                            " --metrics 127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "\n");
  std::filesystem::permissions(options.binary, std::filesystem::perms::owner_all);
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  EXPECT_NE(daemon.Status()["option_notes"].dump().find("daemon.metrics_address: cannot serve metrics on 127.0.0.1"), std::string::npos) << daemon.Status();
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
  EXPECT_EQ(set("ssd.capacity", "512 MiB")["applied"].size(), 1u);
  EXPECT_EQ(daemon.Status()["tiers"]["ssd"]["capacity_bytes"], InRegions(512 << 20));
  EXPECT_EQ(set("source.data.policy", "lru")["applied"].size(), 1u);
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "lru");
  EXPECT_TRUE(set("source.data.policy", "nonsense").contains("error"));
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "lru");
  EXPECT_EQ(set("ram.pages", "4k")["error"]["code"], "conflict");
  EXPECT_EQ(set("ram.capcity", "1 GiB")["error"]["code"], "bad_request");
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(StartTest, RefusesToResizeAnSsdTierThatIsNotThere) {
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ssd = "off";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  for (const auto& [key, value] : {std::pair("ssd.capacity", "512 MiB"), std::pair("ssd.min_free", "1 GiB")}) {
    const auto refused = daemon.Control("PATCH", "/v1/config", nlohmann::json{{"key", key}, {"value", value}}.dump());
    ASSERT_TRUE(refused.contains("error")) << refused;
    EXPECT_EQ(refused["error"]["code"], "conflict");
    EXPECT_EQ(refused["error"]["message"], std::string(key) + " has nothing to act on: there is no SSD tier; ssd.directory is off");
  }
  EXPECT_EQ(daemon.Stop(), 0);
}

// What waits for the next start does so altogether: what is dropped from a tier meanwhile is not there then.
TEST_F(StartTest, AReloadResizesNoTierByAKeyThatNeedsARestart) {
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = source;
  options.ram = "auto";
  options.ssd = "";
  options.config = scratch.path() + "/tierd.toml";
  const auto write = [&](const std::string& directory, const std::string& capacity, const std::string& min_available) {
    Write(options.config, "[ssd]\ncapacity = \"" + capacity + "\"\nmin_free = \"1 MiB\"\ndirectory = \"" + directory + "\"\n[ram]\nmin_available = \"" + min_available + "\"\n");
  };
  write(daemon.ssd_directory(), "256 MiB", "64 MiB");
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
  const auto before = daemon.Status()["tiers"];
  EXPECT_EQ(before["ssd"]["allowed_bytes"], InRegions(256 << 20));
  const auto restart = [&] { return daemon.Control("POST", "/v1/config/reload", "{}")["restart"].size(); };
  write("off", "256 MiB", "1000 TiB");
  EXPECT_EQ(restart(), 2u);
  EXPECT_EQ(daemon.Status()["tiers"]["ssd"]["allowed_bytes"], before["ssd"]["allowed_bytes"]);
  EXPECT_EQ(daemon.Status()["tiers"]["ram"]["capacity_bytes"], before["ram"]["capacity_bytes"]);
  // What does not wait is taken from the same file.
  write("off", "512 MiB", "1000 TiB");
  EXPECT_EQ(restart(), 2u);
  EXPECT_EQ(daemon.Status()["tiers"]["ssd"]["allowed_bytes"], InRegions(512 << 20));
  EXPECT_EQ(daemon.Stop(), 0);
}

// Of other tests, which may end at any moment. In a mount namespace of our own.
void DetachRigs() {
  std::ifstream mounts("/proc/self/mounts");
  std::vector<std::string> rigs;
  for (std::string device, point, rest; mounts >> device >> point && std::getline(mounts, rest);) {
    if (point.find("/pfs_rig.") != std::string::npos) rigs.push_back(point);
  }
  for (const std::string& point : rigs) (void)::umount2(point.c_str(), MNT_DETACH);
}

// With no configuration: one mount among several is no reason not to start.
TEST_F(StartTest, LeavesOutMountsThatWillNotDo) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) GTEST_SKIP() << "no mount namespace: " << std::strerror(errno);
  DetachRigs();
  std::string why;
  auto good = pfs_sim::Rig::Start({}, &why);
  auto hung = pfs_sim::Rig::Start({.timeout_ms = 1}, &why);
  auto shut = pfs_sim::Rig::Start({}, &why);
  if (good == nullptr || hung == nullptr || shut == nullptr) GTEST_SKIP() << why;
  const std::string again = scratch.path() + "/again";
  std::filesystem::create_directories(again);
  ASSERT_EQ(::mount(good->mount().c_str(), again.c_str(), nullptr, MS_BIND, nullptr), 0);
  std::filesystem::permissions(shut->backing(), std::filesystem::perms::owner_all);
  hung->Control("fault add path=* errno=hang");
  const std::string twice = "network mount " + again + " is left out: it and " + good->mount() + " are the same directory\n";
  const std::string silent = "network mount " + hung->mount() + " is left out: its file system does not answer\n";
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.ssd = "off";
  EXPECT_TRUE(daemon.Start(options)) << daemon.output();
  EXPECT_NE(daemon.output().find("tierd: " + twice), std::string::npos) << daemon.output();
  EXPECT_NE(daemon.output().find("tierd: " + silent), std::string::npos) << daemon.output();
  std::vector<std::string> paths;
  const auto sources = daemon.Status()["sources"];
  for (const auto& one : sources) paths.push_back(one["path"]);
  EXPECT_THAT(paths, testing::IsSupersetOf({good->mount(), shut->mount()}));
  EXPECT_THAT(paths, testing::Not(testing::Contains(testing::AnyOf(again, hung->mount()))));
  hung->Control("fault clear");
  hung->Control("release");
  EXPECT_EQ(daemon.Stop(), 0);
  const ExitedDaemon checked = DaemonProcess::Run(Arguments({"--ssd", "off", "--check-config"}), scratch.path());
  EXPECT_EQ(checked.code, 0) << checked.output;
  EXPECT_NE(checked.output.find("tierd: " + twice), std::string::npos) << checked.output;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  if (::geteuid() == 0 && RunUnprivileged({TIERD_BINARY, "--version"}).exit_code == 0) {
    const tierctl::Ran ran = RunUnprivileged({TIERD_BINARY, "--config", "none", "--ssd", "off", "--socket", scratch.path() + "/run-n/tierd.sock", "--check-config"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_NE(ran.err.find(shut->mount() + " is left out: permission denied"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(::umount2(again.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace tierd::e2e
