// A process of the daemon's own user id that may read less than the daemon.
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/attack/attacker.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::attack {
namespace {

using e2e::Client;
using e2e::Content;
using e2e::Get;

constexpr uid_t kOther = 12'345;
constexpr gid_t kGroup = 54'321;

bool DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return ::syscall(SYS_capset, &header, none) == 0;
}

bool JoinGroup(gid_t group) {
  std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
  if (::getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return false;
  groups.push_back(group);
  return ::setgroups(groups.size(), groups.data()) == 0;
}

bool EnterOwnUserNamespace() {
  if (::unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 0 1";
  std::ofstream("/proc/self/gid_map") << "0 0 1";
  return ::geteuid() == 0;
}

class AccessTest : public testing::Test {
 protected:
  static constexpr int kSkip = 77;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "what a process may read is root's to change";
    if (std::getenv("TIERD_UNDER") != nullptr) GTEST_SKIP() << "the daemon is started by another program";
    e2e::Write(source + "/secret", Content("secret", 20'000));
    e2e::Write(source + "/dir/open", Content("open", 20'000));
    ::chmod(scratch.path().c_str(), 0755);
    options.source = source;
    options.ssd = "off";
    options.more = e2e::kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  }
  void Own(const std::string& path, gid_t group, mode_t mode) {
    ASSERT_EQ(::chown(path.c_str(), kOther, group), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  void StartWithoutCapabilities() {
    ::setenv("TIERD_UNDER", "/usr/bin/setpriv --bounding-set=-all --inh-caps=-all", 1);
    const bool started = daemon.Start(options);
    ::unsetenv("TIERD_UNDER");
    ASSERT_TRUE(started) << daemon.output();
  }
  // In a process that has become what `become` makes of it: whether it gets of `path` what a plain
  // open gives it. -1: it could not become that.
  int GetsWhatItMayRead(const std::string& path, const std::function<bool()>& become) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!become()) ::_exit(kSkip);
      const e2e::Got plain = e2e::Plain(path);
      if (plain.error == 0) ::_exit(kSkip);
      Client client(daemon.socket(), 0);
      const e2e::Got first = Get(client.get(), path), second = Get(client.get(), path);
      ::_exit(first.error == plain.error && second.error == plain.error ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kSkip) return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  void Warm(const std::string& path) {
    Client client(daemon.socket());
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Get(client.get(), path).bytes.size(), 20'000u);
  }
  double TurnedAway(const std::string& reason) const {
    return e2e::ParseExposition(daemon.Metrics()).Value("tierd_sessions_turned_away_total{reason=\"" + reason + "\"}");
  }

  e2e::ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  e2e::DaemonProcess daemon{scratch.path()};
  e2e::DaemonProcess::Options options;
};

TEST_F(AccessTest, RootWithoutCapabilitiesGetsNothingByThoseOfTheDaemon) {
  Own(source + "/secret", kOther, 0600);
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Warm(source + "/secret");
  const int gets = GetsWhatItMayRead(source + "/secret", DropCapabilities);
  if (gets < 0) GTEST_SKIP() << "this root can read less than everything";
  EXPECT_EQ(gets, 1);
  EXPECT_GE(TurnedAway("capabilities"), 1);
  const std::string doctor = daemon.Control("GET", "/v1/doctor").dump();
  EXPECT_NE(doctor.find("capabilities 1"), std::string::npos) << doctor;
}

TEST_F(AccessTest, RootOfAnotherUserNamespaceGetsNothingByCapabilitiesOfTheDaemon) {
  Own(source + "/secret", kOther, 0600);
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Warm(source + "/secret");
  const int gets = GetsWhatItMayRead(source + "/secret", EnterOwnUserNamespace);
  if (gets < 0) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(gets, 1);
}

TEST_F(AccessTest, AMemberOfAGroupThatMayReadLessThanOthersIsRefused) {
  Own(source + "/secret", kGroup, 0604);
  ASSERT_NO_FATAL_FAILURE(StartWithoutCapabilities());
  const auto reads_all = [&] {
    Warm(source + "/secret");
    return DropCapabilities();
  };
  const pid_t other = ::fork();  // a client without the group may read it, and does
  if (other == 0) ::_exit(reads_all() && !HasFailure() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  const int gets = GetsWhatItMayRead(source + "/secret", [] { return JoinGroup(kGroup) && DropCapabilities(); });
  ASSERT_GE(gets, 0);
  EXPECT_EQ(gets, 1);
}

// Files of any other kind are served to a client that has more groups than the daemon.
TEST_F(AccessTest, AClientWithMoreGroupsIsServed) {
  ASSERT_NO_FATAL_FAILURE(StartWithoutCapabilities());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!JoinGroup(kGroup)) ::_exit(kSkip);
    Warm(source + "/dir/open");
    Client client(daemon.socket());
    const bool cached = Get(client.get(), source + "/dir/open").origin == TIER_FROM_RAM;
    ::_exit(cached && !HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(AccessTest, NamesThatAGroupMayNotListAreNotListedForIt) {
  Own(source + "/dir", kGroup, 0705);
  ASSERT_NO_FATAL_FAILURE(StartWithoutCapabilities());
  const Session client = Join(daemon.socket());
  ASSERT_TRUE(client.socket.valid());
  std::string entry = FetchEntry("dir", client.source_id, 1);
  entry[4] = static_cast<char>(abi::FetchOp::kList);
  ASSERT_TRUE(Send(client.socket, Message(abi::MessageType::kFetch, 1, entry)));
  const std::string said = Receive(client.socket);
  abi::FetchReply reply{};
  ASSERT_EQ(said.size(), sizeof(abi::MessageHeader) + sizeof reply);
  std::memcpy(&reply, said.data() + sizeof(abi::MessageHeader), sizeof reply);
  EXPECT_EQ(reply.status, static_cast<std::uint8_t>(abi::FetchStatus::kBypass));
  EXPECT_EQ(reply.reason, static_cast<std::uint8_t>(abi::Fallback::kPermission));
}

TEST_F(AccessTest, AMountNamespaceWithoutTheSourceGetsNothing) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Warm(source + "/secret");
  const int gets = GetsWhatItMayRead(source + "/secret", [&] {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", source.c_str(), "tmpfs", 0, nullptr) == 0;
  });
  if (gets < 0) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(gets, 1);
}

// What a container is given: the clients' socket alone, in a directory without the control socket.
TEST_F(AccessTest, TheSocketOfClientsMayLieApartFromTheControlSocket) {
  const std::string control = scratch.path() + "/control/control.sock";
  options.more.insert(options.more.end(), {"--set", "daemon.control_socket=" + control});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Warm(source + "/secret");
  EXPECT_TRUE(std::filesystem::is_socket(control));
  std::size_t others = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(daemon.socket()).parent_path()))
    others += entry.path() == daemon.socket() ? 0 : 1;
  EXPECT_EQ(others, 0u);
}

}  // namespace
}  // namespace tierd::attack
