// When a session ends (HAZARDS 2.5, 2.6, 2.14): not before the last process that may look at its frames is gone, and at once when its client has left in order.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/messages.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tierd/base/unique_fd.h"

namespace tierd::e2e {
namespace {

constexpr int kFiles = 40;
constexpr std::size_t kBytes = 200'000;
constexpr unsigned kPeerPidfd = 77;  // SO_PEERPIDFD, which older headers lack

class SessionEndTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(Path(i), kBytes));
    options.source = source;
    options.more = kTrustStamps;
    options.ssd = "off";
    ASSERT_EQ(::pipe2(up, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  }
  void TearDown() override {
    for (const int fd : {up[0], up[1], go[0], go[1]}) ::close(fd);
  }
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  // A child that says 'r' when it is asked and the view is still right.
  void Grandchild(const tier_view& view) {
    if (::fork() != 0) return;
    ::close(go[1]);
    char c = 0;
    if (::read(go[0], &c, 1) == 1) {
      c = std::string(static_cast<const char*>(view.data), view.size) == Content(Path(0), kBytes) ? 'r' : 'w';
      (void)!::write(up[1], &c, 1);
    }
    (void)!::read(go[0], &c, 1);  // until the test ends it
    ::_exit(0);
  }
  // Drops the file from RAM and lets others take its place.
  void ReuseFrames() {
    EXPECT_TRUE(daemon.Control("POST", "/v1/evict", R"({"paths": [")" + source + R"("]})").is_object());
    Client client(daemon.socket());
    for (int i = 1; i < kFiles; ++i) EXPECT_EQ(Get(client.get(), Path(i)).bytes, Plain(Path(i)).bytes);
    EXPECT_TRUE(daemon.Control("POST", "/v1/evict", R"({"paths": [")" + source + R"("]})").is_object());
    for (int i = 1; i < kFiles; ++i) EXPECT_EQ(Get(client.get(), Path(i)).bytes, Plain(Path(i)).bytes);
  }
  void ExpectTheChildSeesItsBytes(const std::function<void(Client&, tier_view&)>& part) {
    const pid_t parent = ::fork();
    if (parent == 0) {
      auto* const client = new Client(daemon.socket());
      tier_view view{};
      if (tier_get(client->get(), Path(0).c_str(), &view, 0) != 0 || view.origin == TIER_FROM_BYPASS) ::_exit(1);
      Grandchild(view);
      part(*client, view);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(parent, &status, 0), parent);
    ASSERT_EQ(status, 0);
    SleepMs(50);
    EXPECT_EQ(daemon.Status()["leases"], 1) << "the child's view is all that is left";
    EXPECT_EQ(daemon.Status()["leases_frozen"], 1);
    ReuseFrames();
    char verdict = 'a';
    ASSERT_EQ(::write(go[1], &verdict, 1), 1);
    ASSERT_EQ(::read(up[0], &verdict, 1), 1);
    EXPECT_EQ(verdict, 'r');
    EXPECT_EQ(daemon.Status()["leases"], 1);
    ASSERT_EQ(::write(go[1], &verdict, 1), 1);
    EXPECT_TRUE(Eventually(5000, [&] { return daemon.Status()["leases"] == 0 && Lingering() == 0; })) << daemon.Status().dump();
    EXPECT_EQ(daemon.Status()["leases_frozen"], 0);
  }
  // A client that does nothing by itself: its socket, with kHello said.
  int SayHello() const {
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(daemon.socket().size(), sizeof address.sun_path);
    std::strcpy(address.sun_path, daemon.socket().c_str());
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval patience{10, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct {
      abi::MessageHeader header;
      abi::Hello hello;
    } hello{};
    hello.header = {abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kHello), abi::kProtocolVersion, sizeof hello, 1};
    hello.hello.version_min = abi::kProtocolVersionMin;
    hello.hello.version_max = abi::kProtocolVersion;
    hello.hello.layout_version = abi::kLayoutVersion;
    EXPECT_EQ(::send(fd, &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
    return fd;
  }
  struct Heard {
    std::string bytes;
    UniqueFd descriptor;  // the first one
  };
  static Heard Hear(int fd) {
    Heard heard;
    heard.bytes.resize(1 << 16);
    iovec part{heard.bytes.data(), heard.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    heard.bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    cmsghdr* const first = CMSG_FIRSTHDR(&message);
    for (std::size_t i = 0; first != nullptr && i < (first->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(first) + i * sizeof number, sizeof number);
      UniqueFd received(number);
      if (i == 0) heard.descriptor = std::move(received);
    }
    return heard;
  }
  int Lingering() const { return static_cast<int>(Metric("tierd_sessions_lingering ")); }
  double Metric(const std::string& name) const {
    const std::string text = daemon.Metrics();
    const std::size_t at = text.find("\n" + name);
    return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + 1 + name.size(), nullptr);
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
  DaemonProcess::Options options;
  int up[2] = {-1, -1}, go[2] = {-1, -1};
};

TEST_F(SessionEndTest, ParentLeavesInOrderWhileItsChildHasAView) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ExpectTheChildSeesItsBytes([](Client& client, tier_view& view) {
    tier_release(&view);
    client.~Client();
  });
}

TEST_F(SessionEndTest, ParentIsCutOffWhileItsChildHasAView) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ExpectTheChildSeesItsBytes([](Client&, tier_view&) {
    // Something that is no message, on every socket that is not the test's.
    for (int fd = 3; fd < 1100; ++fd) {
      int type = 0;
      socklen_t bytes = sizeof type;
      if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET) (void)!::send(fd, "nonsense", 8, MSG_NOSIGNAL);
    }
    SleepMs(50);
  });
}

// HAZARDS 2.5: the end of the socket is not the end of the process.
TEST_F(SessionEndTest, AReaderThatClosedEveryDescriptorKeepsItsView) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const pid_t reader = ::fork();
  if (reader == 0) {
    Client client(daemon.socket());
    tier_view view{};
    if (tier_get(client.get(), Path(0).c_str(), &view, 0) != 0 || view.origin == TIER_FROM_BYPASS) ::_exit(1);
    ::dup2(go[0], 0);
    ::dup2(up[1], 1);
    ::close_range(3, ~0u, 0);
    char c = 'c';
    (void)!::write(1, &c, 1);
    (void)!::read(0, &c, 1);  // frames are reused meanwhile
    c = std::string(static_cast<const char*>(view.data), view.size) == Content(Path(0), kBytes) ? 'r' : 'w';
    const Got again = Get(client.get(), Path(1));
    if (again.bytes != Content(Path(1), kBytes)) c = 'w';
    (void)!::write(1, &c, 1);
    (void)!::read(0, &c, 1);
    ::_exit(0);
  }
  char verdict = 'a';
  ASSERT_EQ(::read(up[0], &verdict, 1), 1);
  ASSERT_EQ(verdict, 'c');
  EXPECT_TRUE(Eventually(2000, [&] { return Lingering() == 1; })) << "without a socket, and not at its end";
  EXPECT_EQ(daemon.Status()["leases"], 1);
  ReuseFrames();
  ASSERT_EQ(::write(go[1], &verdict, 1), 1);
  ASSERT_EQ(::read(up[0], &verdict, 1), 1);
  EXPECT_EQ(verdict, 'r');
  ASSERT_EQ(::write(go[1], &verdict, 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Eventually(1000, [&] { return daemon.Status()["leases"] == 0 && Lingering() == 0; })) << daemon.Status().dump();
}

TEST_F(SessionEndTest, SessionsThatWereLeftDoNotLinger) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  for (int i = 0; i < 200; ++i) {
    Client client(daemon.socket());
    ASSERT_EQ(client.error(), 0);
    EXPECT_EQ(Get(client.get(), Path(i % 3)).bytes, Plain(Path(i % 3)).bytes);
  }
  EXPECT_TRUE(Eventually(2000, [&] { return daemon.Status()["sessions"] == 0 && Lingering() == 0; })) << Lingering();
  EXPECT_EQ(Metric("tierd_sessions_refused_total "), 0);
}

// A client that puts many questions before it reads an answer: what comes with a descriptor waits its turn like the rest.
TEST_F(SessionEndTest, DescriptorsWaitForAClientThatReadsLate) {
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const int fd = SayHello();
  struct {
    abi::MessageHeader header;
    abi::IdEntry entry;
  } question{};
  constexpr std::uint64_t kQuestions = 2000;
  for (std::uint64_t id = 1; id <= kQuestions; ++id) {
    const auto type = id == kQuestions ? abi::MessageType::kGetIndex : abi::MessageType::kGetSegment;
    question.header = {abi::kMessageMagic, static_cast<std::uint16_t>(type), abi::kProtocolVersion, sizeof question, 1};
    question.entry = {id, 999'999};  // no such segment
    ASSERT_EQ(::send(fd, &question, sizeof question, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof question)) << id;
  }
  SleepMs(100);  // all are answered into the queue
  for (abi::MessageHeader header{}; header.type != static_cast<std::uint16_t>(abi::MessageType::kIndex);) {
    const Heard heard = Hear(fd);
    ASSERT_GE(heard.bytes.size(), sizeof header) << "cut off";
    std::memcpy(&header, heard.bytes.data(), sizeof header);
    const bool with_descriptor = heard.descriptor.valid();
    EXPECT_EQ(with_descriptor, header.type == static_cast<std::uint16_t>(abi::MessageType::kIndex) || header.type == static_cast<std::uint16_t>(abi::MessageType::kWelcome));
  }
  EXPECT_EQ(Metric("tierd_sessions "), 1);
  ::close(fd);
}

// A trainer that calls nothing maps the segments of a daemon that was stopped: it keeps what it has leased, and no more (HAZARDS 2.8).
TEST_F(SessionEndTest, AStoppedDaemonsMemoryGoesBackWhileClientsIdle) {
  options.more.insert(options.more.end(), {"--set", "ram.seal=shrink"});  // sealed memory returns with its clients
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  std::vector<tier_view> views(2);
  for (int i = 0; i < kFiles; ++i) ASSERT_EQ(Get(client.get(), Path(i)).bytes.size(), kBytes);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(tier_get(client.get(), Path(i * 17).c_str(), &views[static_cast<std::size_t>(i)], 0), 0);
  const int raw = SayHello();
  std::vector<UniqueFd> segments;
  for (std::uint64_t serial = 1; serial <= 8; ++serial) {
    struct {
      abi::MessageHeader header;
      abi::IdEntry entry;
    } question{{abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kGetSegment), abi::kProtocolVersion, sizeof question, 1}, {serial, serial}};
    ASSERT_EQ(::send(raw, &question, sizeof question, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof question));
    for (abi::MessageHeader header{}; header.type != static_cast<std::uint16_t>(abi::MessageType::kSegment);) {
      Heard heard = Hear(raw);
      ASSERT_GE(heard.bytes.size(), sizeof header) << "cut off";
      std::memcpy(&header, heard.bytes.data(), sizeof header);
      if (heard.descriptor.valid() && header.type == static_cast<std::uint16_t>(abi::MessageType::kSegment)) segments.push_back(std::move(heard.descriptor));
    }
  }
  const auto allocated = [&] {
    std::uint64_t bytes = 0;
    for (const UniqueFd& segment : segments) {
      struct stat st {};
      EXPECT_EQ(::fstat(segment.get(), &st), 0);
      bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    }
    return bytes;
  };
  const std::uint64_t before = allocated();
  EXPECT_GE(before, std::uint64_t{16} << 20);
  EXPECT_EQ(daemon.Stop(), 0);
  EXPECT_LE(allocated(), std::size_t{2} * (4 << 20)) << "of " << before << ": a leased frame may cross from one huge page into the next\n" << daemon.output();
  for (int i = 0; i < 2; ++i) {
    tier_view& view = views[static_cast<std::size_t>(i)];
    EXPECT_EQ(std::string(static_cast<const char*>(view.data), view.size), Content(Path(i * 17), kBytes));
    tier_release(&view);
  }
  EXPECT_EQ(Get(client.get(), Path(5)).bytes, Content(Path(5), kBytes));
  ::close(raw);
}

TEST_F(SessionEndTest, ClientWithoutAGroupOfTheDaemonReadsTheSource) {
  if (::geteuid() != 0) GTEST_SKIP() << "groups are root's to change";
  const gid_t extra = 54321;
  std::vector<gid_t> ours(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_EQ(::getgroups(static_cast<int>(ours.size()), ours.data()), static_cast<int>(ours.size()));
  std::vector<gid_t> more = ours;
  more.push_back(extra);
  if (::setgroups(more.size(), more.data()) != 0) GTEST_SKIP() << "not permitted here";
  const bool started = daemon.Start(options);
  Client member(daemon.socket());
  ASSERT_EQ(::setgroups(ours.size(), ours.data()), 0);
  ASSERT_TRUE(started) << daemon.output();
  EXPECT_EQ(member.error(), 0);
  Client stranger(daemon.socket(), 0);
  const Got got = Get(stranger.get(), Path(1));
  EXPECT_EQ(got.bytes, Plain(Path(1)).bytes);
  EXPECT_EQ(got.origin, static_cast<std::uint32_t>(TIER_FROM_BYPASS));
  Client insisting(daemon.socket());
  EXPECT_EQ(insisting.error(), -EACCES);
}

// There groups and owners that are not mapped all have one number: every file's, every process's.
TEST_F(SessionEndTest, DaemonInAUserNamespaceServesOnlyWhoIsInItWithAsManyGroups) {
  if (std::getenv("TIERD_UNDER") != nullptr) GTEST_SKIP() << "a unit makes no user namespace, and may not see the processes in one";
  ::setenv("TIERD_UNDER", ("/usr/bin/unshare -U --map-user=" + std::to_string(::geteuid()) + " --map-group=" + std::to_string(::getegid())).c_str(), 1);
  std::vector<gid_t> ours(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_EQ(::getgroups(static_cast<int>(ours.size()), ours.data()), static_cast<int>(ours.size()));
  std::vector<gid_t> more = ours;
  more.push_back(54321);
  const bool changes = ::setgroups(more.size(), more.data()) == 0;
  const bool started = daemon.Start(options);
  const std::string output = daemon.output();
  ::unsetenv("TIERD_UNDER");
  if (!started && output.find("unshare") != std::string::npos) GTEST_SKIP() << output;
  ASSERT_TRUE(started) << output;
  EXPECT_EQ(Client(daemon.socket()).error(), -EACCES) << "outside, with all of its groups";
  // How a process with these groups (nullptr: those of the daemon) fares inside.
  const auto inside = [&](const std::vector<gid_t>* groups) {
    const pid_t child = ::fork();
    if (child == 0) {
      const UniqueFd space(::open(("/proc/" + std::to_string(daemon.pid()) + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
      const bool there = (groups == nullptr || ::setgroups(groups->size(), groups->data()) == 0) && ::setns(space.get(), CLONE_NEWUSER) == 0;
      ::_exit(there ? -Client(daemon.socket()).error() : 255);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(inside(nullptr), 0);
  if (!changes) return;  // groups are root's to change
  EXPECT_EQ(inside(&ours), EACCES);
  ASSERT_EQ(::setgroups(ours.size(), ours.data()), 0);
}

// As on a kernel that gives no pidfd of a process in a foreign pid namespace: for this process and those it starts.
bool RefusePidfds() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPeerPidfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = sizeof filter / sizeof filter[0], .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whose end cannot be seen gets no mappings: its leases would count for ever, or not long enough (HAZARDS 2.5).
TEST_F(SessionEndTest, ClientWithoutAPidfdReadsTheSource) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!RefusePidfds()) ::_exit(77);
    if (!daemon.Start(options)) ::_exit(1);
    int bad = 0;
    {
      Client insisting(daemon.socket());
      bad |= insisting.error() == -EACCES ? 0 : 2;
      Client stranger(daemon.socket(), 0);
      const Got got = Get(stranger.get(), Path(1));
      bad |= got.bytes == Plain(Path(1)).bytes && got.origin == TIER_FROM_BYPASS ? 0 : 4;
      bad |= Metric("tierd_sessions_refused_total ") >= 2 && Metric("tierd_sessions ") == 0 ? 0 : 8;
    }
    bad |= daemon.Stop() == 0 ? 0 : 16;
    ::_exit(bad);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tierd::e2e
