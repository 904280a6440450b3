// Bind mounts below a source's root (HAZARDS 2.14). They have the source's own st_dev, so that only the mount tells them apart. What lies behind one is
// outside of the source: each process reads what its own mount namespace has there.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/own_mounts.h"
#include "tests/e2e/reading.h"
#include "tests/support/refused_calls.h"
#include "tier/tier.h"

namespace tierd::e2e {
namespace {

constexpr int kBytes = 50'000;
constexpr int kNoticedMs = 5'000;  // a mount that is made later is noticed within a second

std::string Ours() { return std::string(kBytes, 'A'); }
std::string Theirs() { return std::string(kBytes, 'B'); }

// In the mount namespace of `pid`: binds `from` on `to`.
bool BindIn(pid_t pid, const std::string& from, const std::string& to) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int space = ::open(("/proc/" + std::to_string(pid) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
    const bool bound = ::setns(space, CLONE_NEWNS) == 0 && ::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0;
    ::_exit(bound ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

std::set<std::string> NamesIn(tier_client* client, const std::string& directory) {
  std::set<std::string> names;
  tier_listing* listing = nullptr;
  if (tier_list(client, directory.c_str(), &listing, 0) != 0) return names;
  tier_entry entry{};
  while (tier_list_next(listing, &entry) == 1) names.insert(entry.name);
  tier_list_close(listing);
  return names;
}

// Whether stat tells this process of the file that its own namespace has by that name.
bool StatIsOurs(tier_client* client, const std::string& path) {
  struct stat st {};
  tier_attr attr{};
  attr.size = sizeof attr;
  return ::stat(path.c_str(), &st) == 0 && tier_stat(client, path.c_str(), &attr, 0) == 0 && attr.ino == st.st_ino && attr.bytes == static_cast<std::uint64_t>(st.st_size);
}

class MountsBelowTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
    if (std::system("unshare -m --propagation private true 2>/dev/null") != 0 || std::getenv("TIERD_UNDER") != nullptr) GTEST_SKIP() << "no mount namespaces for the daemon here";
    KeepMountsToOneself();
    for (const std::string& path : {inside, top, beside}) Write(path, Ours());
    Write(theirs + "/f", Theirs());
    Write(theirs + "/only_theirs", "theirs");
    Write(theirs_top, Theirs());
    // Alike in all that a stat shows but for the inode.
    for (const auto& [from, to] : {std::pair{inside, theirs + "/f"}, std::pair{top, theirs_top}}) {
      struct stat st {};
      ASSERT_EQ(::stat(from.c_str(), &st), 0);
      const timespec stamps[2] = {st.st_atim, st.st_mtim};
      ASSERT_EQ(::utimensat(AT_FDCWD, to.c_str(), stamps, 0), 0);
    }
  }
  void TearDown() override {
    if (daemon.running()) daemon.Kill(SIGKILL);
    for (const std::string& place : {directory, top}) (void)::umount2(place.c_str(), MNT_DETACH);
  }

  // With `before`, a shell command that the daemon's own mount namespace is prepared by.
  void Start(const std::string& before = "") {
    DaemonProcess::Options options;
    options.source = source;
    options.ssd = "off";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.staleness=immutable", "--set", std::string("source.engine=") + GetParam()});
    options.more.insert(options.more.end(), more.begin(), more.end());
    if (!before.empty()) {
      options.binary = scratch.path() + "/own.sh";
      Write(options.binary, "#!/bin/sh\nexec unshare -m --propagation private sh -c '" + before + "; exec " TIERD_BINARY " \"$@\"' sh \"$@\"\n");
      std::filesystem::permissions(options.binary, std::filesystem::perms::owner_all);
    }
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string BindBoth() const { return "mount --bind " + theirs + " " + directory + " && mount --bind " + theirs_top + " " + top; }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string directory = source + "/directory";
  std::string inside = directory + "/f";
  std::string top = source + "/top";
  std::string beside = source + "/beside/f";
  std::string theirs = scratch.path() + "/theirs";
  std::string theirs_top = scratch.path() + "/theirs_top";
  std::vector<std::string> more;  // arguments of the daemon
  DaemonProcess daemon{scratch.path()};
};

// What a client without these mounts must see, whatever the daemon has there.
void ExpectOnlyOurs(tier_client* client, const std::vector<std::string>& files, const std::string& directory) {
  for (const std::string& file : files) {
    const Got got = Get(client, file);
    EXPECT_EQ(got.error, 0) << file;
    EXPECT_TRUE(got.bytes == Ours()) << file << " begins with " << got.bytes.substr(0, 1);
    EXPECT_EQ(got.origin, TIER_FROM_BYPASS) << file;
    EXPECT_TRUE(StatIsOurs(client, file)) << file;
  }
  EXPECT_TRUE(StatIsOurs(client, directory));
  EXPECT_EQ(NamesIn(client, directory), std::set<std::string>{"f"});
  EXPECT_EQ(Get(client, directory + "/only_theirs").error, -ENOENT);
}

TEST_P(MountsBelowTest, DaemonsMountIsNotReadThrough) {
  ASSERT_NO_FATAL_FAILURE(Start(BindBoth()));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (int round = 0; round < 3; ++round) ExpectOnlyOurs(client.get(), {inside, top}, directory);
  ASSERT_TRUE(Eventually(10'000, [&] { return Get(client.get(), beside).origin == TIER_FROM_RAM; }));
  EXPECT_TRUE(Get(client.get(), beside).bytes == Ours());
  tier_statistics statistics{};
  statistics.size = sizeof statistics;
  ASSERT_EQ(tier_stats(client.get(), &statistics), 0);
  EXPECT_GT(statistics.fallback[5], 0u) << "reads behind the mount are counted (path)";
}

TEST_P(MountsBelowTest, PrefetchAndWalkStopAtTheDaemonsMount) {
  ASSERT_NO_FATAL_FAILURE(Start(BindBoth()));
  (void)daemon.Prefetch(source);
  const auto walk = daemon.Control("POST", "/v1/walk", nlohmann::json{{"paths", {source}}}.dump());
  if (walk.contains("job")) (void)daemon.WaitJob(walk["job"]);
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  ExpectOnlyOurs(client.get(), {inside, top}, directory);
  EXPECT_EQ(Get(client.get(), beside).origin, TIER_FROM_RAM);
}

TEST_P(MountsBelowTest, LinkToTheDaemonsMountIsNotReadThrough) {
  std::filesystem::create_directory_symlink("directory", source + "/by_link");
  std::filesystem::create_symlink(source + "/top", source + "/absolute");
  ASSERT_NO_FATAL_FAILURE(Start(BindBoth()));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (int round = 0; round < 3; ++round) ExpectOnlyOurs(client.get(), {source + "/by_link/f", source + "/absolute"}, source + "/by_link");
}

TEST_P(MountsBelowTest, DaemonsMountThatIsMadeLaterIsNotReadThrough) {
  ASSERT_NO_FATAL_FAILURE(Start("true"));
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  ASSERT_TRUE(BindIn(daemon.pid(), theirs, directory));
  ASSERT_TRUE(BindIn(daemon.pid(), theirs_top, top));
  for (int round = 0; round < 3; ++round) ExpectOnlyOurs(client.get(), {inside, top}, directory);
}

// Its mount is made by another process, which tells nobody; all files are in memory and never asked about again.
TEST_P(MountsBelowTest, ClientsMountThatIsMadeLaterIsNoticed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  int ready[2], go[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(go) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    Client client(daemon.socket());
    const auto cached = [&](const std::string& path) { return Eventually(10'000, [&] { return Get(client.get(), path).origin == TIER_FROM_RAM; }); };
    if (!cached(inside) || !cached(top) || !cached(beside)) ::_exit(1);
    char byte = 0;
    if (::write(ready[1], "r", 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(2);
    if (!Eventually(kNoticedMs, [&] { return Get(client.get(), inside).bytes == Theirs(); })) ::_exit(3);
    if (Get(client.get(), top).bytes != Theirs() || !StatIsOurs(client.get(), top) || !StatIsOurs(client.get(), inside)) ::_exit(4);
    if (NamesIn(client.get(), directory) != std::set<std::string>{"f", "only_theirs"}) ::_exit(5);
    ::_exit(Get(client.get(), beside).origin == TIER_FROM_RAM ? 0 : 6);
  }
  char byte = 0;
  ::close(ready[1]);
  const bool up = ::read(ready[0], &byte, 1) == 1;
  if (up) {
    EXPECT_TRUE(BindIn(child, theirs, directory));
    EXPECT_TRUE(BindIn(child, theirs_top, top));
    EXPECT_EQ(::write(go[1], "g", 1), 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  for (const int fd : {ready[0], go[0], go[1]}) ::close(fd);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace here";
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
}

// No descriptor is left to look at the mount table with when the source is used first.
TEST_P(MountsBelowTest, ClientsMountIsSeenByAProcessThatHadNoDescriptorToLookWith) {
  const std::string other = scratch.path() + "/other/f";
  Write(other, Ours());
  more = {"--source", scratch.path() + "/other"};
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    Client client(daemon.socket());
    for (const std::string& path : {inside, beside, other}) {
      ASSERT_TRUE(Eventually(10'000, [&] { return Get(client.get(), path).origin == TIER_FROM_RAM; }));
    }
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
    if (::mount(theirs.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0) ::_exit(77);
    Client client(daemon.socket());
    if (client.error() != 0 || Get(client.get(), other).origin != TIER_FROM_RAM) ::_exit(1);  // it has all else it needs
    std::vector<int> all;
    for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) all.push_back(fd);
    if (Get(client.get(), inside).bytes == Ours()) ::_exit(4);
    for (const int fd : all) ::close(fd);
    for (int i = 0; i < 20; ++i) {
      if (Get(client.get(), inside).bytes != Theirs()) ::_exit(2);
    }
    ::_exit(Eventually(10'000, [&] { return Get(client.get(), beside).origin == TIER_FROM_RAM; }) ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(MountsBelowTest, MountOfBothThatIsMadeLaterIsNoticedAndSoIsItsEnd) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Client client(daemon.socket());
  ASSERT_EQ(client.error(), 0);
  for (const std::string& path : {inside, top})
    ASSERT_TRUE(Eventually(10'000, [&] { return Get(client.get(), path).origin == TIER_FROM_RAM; })) << path;
  ASSERT_EQ(::mount(theirs.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(theirs_top.c_str(), top.c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_TRUE(Eventually(kNoticedMs, [&] { return Get(client.get(), inside).bytes == Theirs(); }));
  EXPECT_TRUE(Get(client.get(), top).bytes == Theirs());
  EXPECT_TRUE(StatIsOurs(client.get(), top));
  EXPECT_EQ(NamesIn(client.get(), directory), (std::set<std::string>{"f", "only_theirs"}));
  ASSERT_TRUE(::umount(directory.c_str()) == 0 && ::umount(top.c_str()) == 0);
  ASSERT_TRUE(Eventually(kNoticedMs, [&] { return Get(client.get(), inside).origin == TIER_FROM_RAM; }));
  EXPECT_TRUE(Get(client.get(), inside).bytes == Ours());
  EXPECT_TRUE(Get(client.get(), top).bytes == Ours());
}

// 0: as wished. In a process of its own, since filters stay.
int JudgeWithoutMountNumbers(DaemonProcess& daemon, const std::string& file, const std::function<void()>& start) {
  if (!support::Refuse({SYS_statx}, ENOSYS)) return 77;
  start();
  if (!daemon.running()) return 1;
  const auto is_cached = [&] {
    Client client(daemon.socket());
    return Eventually(2'000, [&] { return Get(client.get(), file).origin == TIER_FROM_RAM; });
  };
  {
    Client apart(daemon.socket());
    for (int i = 0; i < 10; ++i) {
      if (const Got got = Get(apart.get(), file); got.bytes != Ours() || got.origin != TIER_FROM_BYPASS) return 2;
    }
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    if (tier_stats(apart.get(), &statistics) != 0 || std::strcmp(tier_fallback_name(6), "namespace") != 0 || statistics.fallback[6] != 10) return 3;
  }
  const int space = ::open(("/proc/" + std::to_string(daemon.pid()) + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
  if (::setns(space, CLONE_NEWNS) != 0) return 4;
  return is_cached() ? 0 : 5;
}

TEST_P(MountsBelowTest, WithoutMountNumbersOnlyTheDaemonsNamespaceIsServed) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(JudgeWithoutMountNumbers(daemon, beside, [this] { Start("mount -t tmpfs none /proc/$$/fdinfo"); }));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters here";
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
}

INSTANTIATE_TEST_SUITE_P(Engine, MountsBelowTest, testing::Values("threads", "io_uring"));

}  // namespace
}  // namespace tierd::e2e
