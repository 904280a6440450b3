// A process of the daemon's own user that wants to stop it, fill it, or lock others out.
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/attack/attacker.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::attack {
namespace {

using e2e::Client;
using e2e::Content;
using e2e::Eventually;
using e2e::Get;

constexpr int kLingerSeconds = 20;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class SessionAttackTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"/a", "/b", "/c", "/deep/d"}) e2e::Write(source + name, Content(name, 20'000));
    options.source = source;
    options.ssd = "off";
    options.more = e2e::kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  }
  void Start() { ASSERT_TRUE(daemon.Start(options)) << daemon.output(); }
  void Set(const std::string& key_and_value) { options.more.insert(options.more.end(), {"--set", key_and_value}); }
  // A client that behaves: how long a new one waits for bytes that the daemon has to read.
  double HonestSeconds() {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(daemon.Control("POST", "/v1/evict", R"({"paths": [")" + source + R"("]})").is_object());
    Client client(daemon.socket());
    EXPECT_EQ(client.error(), 0);
    const e2e::Got got = Get(client.get(), source + "/a");
    EXPECT_EQ(got.bytes, Content("/a", 20'000));
    EXPECT_NE(got.origin, static_cast<std::uint32_t>(TIER_FROM_BYPASS));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // The same in a process of its own.
  bool HonestProcessIsServed() {
    const pid_t other = ::fork();
    if (other == 0) ::_exit(HonestSeconds() < 5 && !HasFailure() ? 0 : 1);
    int status = -1;
    EXPECT_EQ(::waitpid(other, &status, 0), other);
    return status == 0;
  }
  double Metric(const std::string& name) const { return e2e::ParseExposition(daemon.Metrics()).Value(name); }
  std::uint64_t AnonymousBytes() const {
    std::ifstream status("/proc/" + std::to_string(daemon.pid()) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
    return 0;
  }

  e2e::ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  e2e::DaemonProcess daemon{scratch.path()};
  e2e::DaemonProcess::Options options;
};

// A descriptor in a datagram is closed by the thread that takes the datagram, or that closes the
// socket it lies in; the last close of a TCP socket with unsent bytes waits for SO_LINGER.
enum class Kernel : std::uint8_t { kThis, kOlder };
class DescriptorTest : public SessionAttackTest, public testing::WithParamInterface<Kernel> {
 protected:
  void SetUp() override {
    SessionAttackTest::SetUp();
    if (std::getenv("TIERD_UNDER") != nullptr) GTEST_SKIP() << "the daemon is started by another program";
    if (GetParam() == Kernel::kOlder) ::setenv("TIERD_UNDER", TIERD_OLDER_KERNEL, 1);
    const bool started = daemon.Start(options);
    ::unsetenv("TIERD_UNDER");
    ASSERT_TRUE(started) << daemon.output();
  }
  void Plant(const UniqueFd& socket, const std::string& bytes) {
    const int error = SendWithDescriptor(socket, bytes, lingering.get());
    EXPECT_TRUE(error == 0 || error == EPERM) << std::strerror(error);
    if (error != 0) lingering.GiveUp();
    lingering.CloseOurs();
  }
  void ExpectNobodyWaits() {
    EXPECT_TRUE(HonestProcessIsServed());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(daemon.Stop(), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  }
  LingeringSocket lingering{kLingerSeconds};
};

TEST_P(DescriptorTest, InAMessageOfAClientStopsNobody) {
  const Session attacker = Join(daemon.socket());
  ASSERT_TRUE(attacker.socket.valid());
  Plant(attacker.socket, Message(abi::MessageType::kFetch, 1, FetchEntry("a", attacker.source_id, 1)));
  ExpectNobodyWaits();
}

TEST_P(DescriptorTest, InPlaceOfHelloStopsNobody) {
  const UniqueFd attacker = Connect(daemon.socket());
  ASSERT_TRUE(attacker.valid());
  Plant(attacker, Hello());
  ExpectNobodyWaits();
}

TEST_P(DescriptorTest, BehindARefusedMessageStopsNobody) {
  Session attacker = Join(daemon.socket());
  ASSERT_TRUE(attacker.socket.valid());
  daemon.Kill(SIGSTOP);
  EXPECT_TRUE(Send(attacker.socket, "nonsense"));
  Plant(attacker.socket, Hello());
  attacker.socket.Reset();
  daemon.Kill(SIGCONT);
  ExpectNobodyWaits();
}

TEST_P(DescriptorTest, InAConnectionThatIsRefusedStopsNobody) {
  std::vector<UniqueFd> all;  // of one process, more than it may have
  for (int i = 0; i < 300; ++i) all.push_back(Join(daemon.socket()).socket);
  daemon.Kill(SIGSTOP);
  const UniqueFd attacker = Connect(daemon.socket());
  ASSERT_TRUE(attacker.valid());
  Plant(attacker, Hello());
  daemon.Kill(SIGCONT);
  all.clear();
  ExpectNobodyWaits();
}

INSTANTIATE_TEST_SUITE_P(Kernels, DescriptorTest, testing::Values(Kernel::kThis, Kernel::kOlder),
                         [](const auto& kernel) { return kernel.param == Kernel::kThis ? "This" : "Older"; });

TEST_F(SessionAttackTest, DescriptorToTheControlSocketStopsNobody) {
  Start();
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int pass = 0;
  if (::setsockopt(probe.get(), SOL_SOCKET, 83, &pass, sizeof pass) != 0)
    GTEST_SKIP() << "before Linux 6.16 a tool of the user's own can stop the daemon (SECURITY.md)";
  LingeringSocket lingering(kLingerSeconds);
  const std::string control = std::filesystem::path(daemon.socket()).parent_path().string() + "/control.sock";
  const UniqueFd attacker = Connect(control, SOCK_STREAM);
  ASSERT_TRUE(attacker.valid());
  const int error = SendWithDescriptor(attacker, "GET /v1/status HTTP/1.1\r\n", lingering.get());
  EXPECT_EQ(error, EPERM);
  if (error != 0) lingering.GiveUp();
  lingering.CloseOurs();
  EXPECT_LT(HonestSeconds(), 5);
}

// Questions cost a client nothing, and each answer is larger than its question.
TEST_F(SessionAttackTest, RepliesThatAreNotReadAreBounded) {
  Start();
  (void)HonestSeconds();
  const std::uint64_t before = AnonymousBytes();
  std::string entries;
  for (std::uint64_t id = 0; id < abi::kMaxBatch; ++id) entries += FetchEntry("no-such-source", 1, id);
  const std::string questions = Message(abi::MessageType::kFetch, abi::kMaxBatch, entries);
  std::vector<Session> attackers;
  std::uint64_t most = 0;
  for (int i = 0; i < 8; ++i) {
    attackers.push_back(Join(daemon.socket()));
    ASSERT_TRUE(attackers.back().socket.valid());
    for (int sent = 0; sent < 4000 && Send(attackers.back().socket, questions); ++sent) {
      if (sent % 256 == 0) most = std::max(most, AnonymousBytes());
    }
    most = std::max(most, AnonymousBytes());
  }
  EXPECT_LT(most - std::min(before, most), 128 * kMiB);
  EXPECT_LT(HonestSeconds(), 5);
  EXPECT_EQ(Metric("tierd_sessions_turned_away_total{reason=\"unread\"}"), 8);
}

TEST_F(SessionAttackTest, SilentConnectionsLockNobodyOut) {
  Set("limits.sessions=32");
  Start();
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 40; ++i) silent.push_back(Connect(daemon.socket()));
    ::close(go[1]);
    char byte;
    (void)!::read(go[0], &byte, 1);
    ::_exit(0);
  }
  EXPECT_TRUE(Eventually(5000, [&] { return Metric("tierd_sessions") >= 32; }));
  EXPECT_LT(HonestSeconds(), 5) << "one of those goes";
  EXPECT_TRUE(Eventually(8000, [&] { return Metric("tierd_sessions") == 0; })) << "they are not waited for";
  EXPECT_GE(Metric("tierd_sessions_turned_away_total{reason=\"silent\"}"), 32);
  ::close(go[1]);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  ::close(go[0]);
}

TEST_F(SessionAttackTest, OneProcessCannotTakeAllSessions) {
  Set("limits.sessions=300");
  Start();
  std::vector<Session> all;
  for (int i = 0; i < 320; ++i) all.push_back(Join(daemon.socket()));
  EXPECT_TRUE(HonestProcessIsServed());
  EXPECT_LE(Metric("tierd_sessions"), 256);
  EXPECT_GE(Metric("tierd_sessions_turned_away_total{reason=\"limit\"}"), 64);
}

class AliasAttackTest : public SessionAttackTest {
 protected:
  // Two links that lead where they lie: of each length there are twice as many paths.
  static constexpr std::size_t kNameBytes = 100;
  static constexpr int kLinks = 35;  // the kernel follows 40
  void SetUp() override {
    SessionAttackTest::SetUp();
    for (const char name : {'l', 'm'}) std::filesystem::create_directory_symlink(".", source + "/" + std::string(kNameBytes, name));
  }
  static std::string Path(std::uint32_t number) {
    std::string path;
    for (int bit = 0; bit < kLinks; ++bit) path += std::string(kNameBytes, (number >> bit & 1) != 0 ? 'l' : 'm') + "/";
    return path + "a";
  }
  void Ask(const Session& session, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(Send(session.socket, Message(abi::MessageType::kFetch, 1, FetchEntry(Path(i), session.source_id, i))));
      ASSERT_NE(Receive(session.socket), "") << i;
    }
  }
};

TEST_F(AliasAttackTest, PathsThroughALoopOfLinksAreBounded) {
  Set("source.ttl=1h");
  Start();
  const Session attacker = Join(daemon.socket());
  ASSERT_TRUE(attacker.socket.valid());
  ASSERT_NO_FATAL_FAILURE(Ask(attacker, 14'000));
  EXPECT_LT(Metric("tierd_files"), 10'000) << "64 MiB of aliases";
  EXPECT_LT(HonestSeconds(), 5);
}

TEST_F(AliasAttackTest, AliasesThatNobodyUsesAreForgotten) {
  Set("source.ttl=1s");
  Start();
  const Session attacker = Join(daemon.socket());
  ASSERT_TRUE(attacker.socket.valid());
  ASSERT_NO_FATAL_FAILURE(Ask(attacker, 500));
  EXPECT_TRUE(Eventually(10'000, [&] { return Metric("tierd_files") < 20; })) << Metric("tierd_files");
}

}  // namespace
}  // namespace tierd::attack
