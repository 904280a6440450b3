// Access that the source has taken back: it refuses the open, and a stat does not show it. So do
// ACLs, export rules and mapped users of a server. The source is the rig, which counts what it is
// asked for.
#include <sys/stat.h>

#include <chrono>
#include <map>
#include <memory>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::attack {
namespace {

using e2e::Client;
using e2e::Content;
using e2e::Get;

class RevokedTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    rig = pfs_sim::Rig::Start({}, &why);
    if (rig == nullptr) GTEST_SKIP() << why;
    ::chmod(rig->backing().c_str(), 0755);
  }
  std::string Path(const std::string& name) const { return rig->mount() + "/" + name; }
  void Make(const std::string& name, mode_t mode) {
    e2e::Write(rig->backing() + "/" + name, Content(Path(name), 20'000));
    Mode(name, mode);
  }
  void Mode(const std::string& name, mode_t mode) { ASSERT_EQ(::chmod((rig->backing() + "/" + name).c_str(), mode), 0); }
  void Start(const std::vector<std::string>& more) {
    e2e::DaemonProcess::Options options;
    options.source = rig->mount();
    options.more = e2e::kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  // The bytes are in RAM, and on the SSD.
  void Warm(const std::string& name) {
    Client client(daemon.socket());
    ASSERT_EQ(Get(client.get(), Path(name)).bytes, Content(Path(name), 20'000));
    ASSERT_EQ(Get(client.get(), Path(name)).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
  }
  void Revoke() {
    ASSERT_EQ(rig->Control("fault add op=open errno=EACCES every=1").find("error"), std::string::npos);
    struct stat st {};
    ASSERT_EQ(e2e::Plain(Path("secret")).error, -EACCES);
    ASSERT_EQ(::stat(Path("secret").c_str(), &st), 0);
  }
  std::map<std::string, std::uint64_t> Opens() const {
    std::map<std::string, std::uint64_t> opens;
    for (const auto& [path, counters] : rig->PathCounters()) opens[path] = counters.opens;
    return opens;
  }
  // Reads files again and again for so long, or until one is refused. When the last read that was
  // served began, in ms.
  std::int64_t Serves(const std::vector<std::string>& names, std::int64_t ms) {
    Client client(daemon.socket());
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t served = 0;; e2e::SleepMs(20)) {
      for (const std::string& name : names) {
        const std::int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
        if (now >= ms) return ms;
        const e2e::Got got = Get(client.get(), Path(name));
        if (got.error == -EACCES) return served;
        EXPECT_EQ(got.bytes, Content(Path(name), 20'000)) << name << " error " << got.error;
        if (got.origin == TIER_FROM_BYPASS) ++own_opens[name];  // on a machine that has more to do than it can
        served = now;
      }
    }
  }
  const std::vector<std::string> kShort{"--set", "source.ttl=500ms", "--set", "source.access_recheck=2s"};

  static constexpr std::int64_t kBoundMs = 2000 + 100;  // the recheck, and some ticks of a coarse clock

  std::map<std::string, std::uint64_t> own_opens;  // by the readers
  std::unique_ptr<pfs_sim::Rig> rig;
  e2e::ScratchDir scratch;
  e2e::DaemonProcess daemon{scratch.path()};
};

TEST_F(RevokedTest, BytesAreServedNoLongerThanTheRecheck) {
  Make("secret", 0640);
  ASSERT_NO_FATAL_FAILURE(Start(kShort));
  ASSERT_NO_FATAL_FAILURE(Warm("secret"));
  ASSERT_NO_FATAL_FAILURE(Revoke());
  EXPECT_LE(Serves({"secret"}, 10'000), kBoundMs);
  EXPECT_EQ(Serves({"secret"}, 1500), 0) << "a stat brings nothing back";
  const std::string metrics = daemon.Metrics();
  EXPECT_NE(metrics.find("tierd_access_checks_total{result=\"refused\"}"), std::string::npos);
}

TEST_F(RevokedTest, ADaemonThatStartsAsksAtOnce) {
  for (const char* staleness : {"ttl", "immutable"}) {
    Make("secret", 0640);
    const std::vector<std::string> more{"--set", std::string("source.staleness=") + staleness};
    ASSERT_NO_FATAL_FAILURE(Start(more));
    ASSERT_NO_FATAL_FAILURE(Warm("secret"));
    ASSERT_EQ(daemon.Stop(), 0);
    ASSERT_NO_FATAL_FAILURE(Revoke());
    ASSERT_NO_FATAL_FAILURE(Start(more));
    Client client(daemon.socket());
    EXPECT_EQ(Get(client.get(), Path("secret")).error, -EACCES) << staleness;
    // It was a ticket that had run out.
    rig->Control("fault clear");
    EXPECT_EQ(Get(client.get(), Path("secret")).bytes, Content(Path("secret"), 20'000));
    EXPECT_EQ(Get(client.get(), Path("secret")).origin, static_cast<std::uint32_t>(TIER_FROM_RAM));
    ASSERT_EQ(daemon.Stop(), 0);
  }
}

TEST_F(RevokedTest, ADirectoryOnTheWayThatNotEverybodyMaySearchCounts) {
  Make("secret", 0640);
  Make("group/below/file", 0644);
  Mode("group", 0750);
  ASSERT_NO_FATAL_FAILURE(Start(kShort));
  ASSERT_NO_FATAL_FAILURE(Warm("group/below/file"));
  ASSERT_NO_FATAL_FAILURE(Revoke());
  EXPECT_LE(Serves({"group/below/file"}, 10'000), kBoundMs);
}

TEST_F(RevokedTest, FilesThatAnybodyMayReadAreNeverOpenedForIt) {
  const std::vector<std::string> names{"open/a", "open/b", "open/below/c"};
  for (const std::string& name : names) Make(name, 0644);
  for (const char* directory : {"open", "open/below"}) Mode(directory, 0755);
  ASSERT_NO_FATAL_FAILURE(Start(kShort));
  EXPECT_GE(Serves(names, 5000), 5000);
  for (const std::string& name : names) EXPECT_EQ(Opens()[name] - own_opens[name], 1u) << name << " was read once";
  ASSERT_EQ(daemon.Stop(), 0);
  ASSERT_NO_FATAL_FAILURE(Start(kShort));
  EXPECT_GE(Serves(names, 1000), 1000);
  for (const std::string& name : names) EXPECT_EQ(Opens()[name] - own_opens[name], 1u) << name << " after a restart";
}

TEST_F(RevokedTest, TheSourceSeesOneOpenOfAFilePerRecheck) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) {
    names.push_back("d/f" + std::to_string(i));
    Make(names.back(), 0640);
  }
  ASSERT_NO_FATAL_FAILURE(Start(kShort));
  EXPECT_GE(Serves(names, 1000), 1000);
  const auto before = Opens();
  auto own_before = own_opens;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GE(Serves(names, 6000), 6000);
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto took_ms = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  for (const std::string& name : names) {
    const std::uint64_t opens = Opens()[name] - before.at(name) - (own_opens[name] - own_before[name]);
    EXPECT_GE(opens, 2u) << name;
    EXPECT_LE(opens, took_ms / 1500 + 1) << name << " within a ttl of each recheck";
  }
}

TEST_F(RevokedTest, InModeOpenEachOpenAsksForItself) {
  Make("secret", 0640);
  ASSERT_NO_FATAL_FAILURE(Start({"--set", "source.staleness=open"}));
  ASSERT_NO_FATAL_FAILURE(Warm("secret"));
  ASSERT_NO_FATAL_FAILURE(Revoke());
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), Path("secret")).error, -EACCES);
  tier_file* file = nullptr;
  EXPECT_EQ(tier_open(client.get(), Path("secret").c_str(), &file, 0), -EACCES);
}

}  // namespace
}  // namespace tierd::attack
