// Version skew (F54) and directories of other formats and machines (F30, F31, F32), with the real daemon: negotiated, migrated, refused or discarded with
// one line, never misread.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/messages.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tierd/base/crc32c.h"
#include "tierd/base/unique_fd.h"

namespace tierd::e2e {
namespace {

class VersionTest : public testing::Test {
 protected:
  std::string Name(int i) const { return "f" + std::to_string(i); }
  void MakeFiles(int count) {
    for (int i = 0; i < count; ++i) Write(source + "/" + Name(i), Content(Name(i), 1000 + static_cast<std::size_t>(i) * 997));
  }
  void StartDaemon() {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
  }
  std::map<std::uint32_t, int> ReadAll(int count) {
    Client client(daemon.socket());
    std::map<std::uint32_t, int> origins;
    for (int i = 0; i < count; ++i) {
      const Got got = Get(client.get(), source + "/" + Name(i));
      EXPECT_TRUE(got.bytes == Content(Name(i), 1000 + static_cast<std::size_t>(i) * 997)) << i;
      ++origins[got.origin];
    }
    return origins;
  }
  // Everything comes from the cache, and the SSD had it.
  void ExpectWarm(int count) {
    auto origins = ReadAll(count);
    EXPECT_GT(origins[TIER_FROM_SSD], 0);
    EXPECT_EQ(origins[TIER_FROM_SSD] + origins[TIER_FROM_RAM] + static_cast<int>(daemon.SlowSsdReads()), count) << "source " << origins[TIER_FROM_SOURCE] << " bypass " << origins[TIER_FROM_BYPASS] << daemon.output();
  }
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
};

// ---- clients of other versions -----------------------------------------------------------------------------------------------

TEST_F(VersionTest, AClientOfVersionOneReadsThroughThisDaemon) {  // tests/golden/client-v1, frozen
  MakeFiles(40);
  StartDaemon();
  std::string names;
  for (int i = 0; i < 40; ++i) names += Name(i) + "\n";
  Write(scratch.path() + "/names", names);
  const std::string command =
      std::string(TIERD_CLIENT_V1) + " " + daemon.socket() + " " + source + " < " + scratch.path() + "/names > " + scratch.path() + "/old.out 2>&1";
  const int status = std::system(command.c_str());
  const std::string said = Plain(scratch.path() + "/old.out").bytes;
  EXPECT_EQ(WEXITSTATUS(status), 0) << said;
  EXPECT_EQ(said, "ram 40 asked 40 bypass 0 listed 40 refused 0\n");
  // Its ring and counters were understood, and nothing is left of it.
  EXPECT_EQ(daemon.Status()["reads"]["ram"]["count"], 40);
  EXPECT_TRUE(Eventually(1000, [&] { return daemon.Status()["sessions"] == 0 && daemon.Status()["leases"] == 0; })) << daemon.Status().dump();
}

struct Greeting {
  const char* name;
  std::uint16_t header_version, oldest, newest;
  std::uint32_t layout;
  bool welcome;
};

// Type and version of the answer.
std::pair<abi::MessageType, std::uint16_t> Greet(const std::string& socket_path, const Greeting& greeting) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  struct {
    abi::MessageHeader header;
    abi::Hello hello;
  } datagram{};
  datagram.header = {abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kHello), greeting.header_version, sizeof datagram, 1};
  datagram.hello.version_min = greeting.oldest;
  datagram.hello.version_max = greeting.newest;
  datagram.hello.layout_version = greeting.layout;
  EXPECT_EQ(::send(socket.get(), &datagram, sizeof datagram, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof datagram));
  struct {
    abi::MessageHeader header;
    std::byte body[512];
  } answer{};
  const ssize_t got = ::recv(socket.get(), &answer, sizeof answer, 0);
  EXPECT_GE(got, static_cast<ssize_t>(sizeof answer.header)) << greeting.name;
  return {static_cast<abi::MessageType>(answer.header.type), answer.header.version};
}

TEST_F(VersionTest, GreetingsAreNegotiatedOrRefusedWithAReason) {
  MakeFiles(3);
  StartDaemon();
  constexpr std::uint16_t kOurs = abi::kProtocolVersion;
  const Greeting greetings[] = {
      {"ours", kOurs, abi::kProtocolVersionMin, kOurs, abi::kLayoutVersion, true},
      {"newer, but speaks ours", kOurs + 3, kOurs, kOurs + 3, abi::kLayoutVersion, true},
      {"only newer ones", kOurs + 1, kOurs + 1, kOurs + 2, abi::kLayoutVersion, false},
      {"only older ones", abi::kProtocolVersionMin - 1, 0, abi::kProtocolVersionMin - 1, abi::kLayoutVersion, false},
      {"another layout", kOurs, abi::kProtocolVersionMin, kOurs, abi::kLayoutVersion + 1, false},
  };
  std::uint64_t refused = 0;
  for (const Greeting& greeting : greetings) {
    const auto [type, version] = Greet(daemon.socket(), greeting);
    EXPECT_EQ(type, greeting.welcome ? abi::MessageType::kWelcome : abi::MessageType::kRefuse) << greeting.name;
    EXPECT_EQ(version, kOurs) << greeting.name;
    refused += greeting.welcome ? 0 : 1;
  }
  EXPECT_NE(daemon.Metrics().find("tierd_sessions_refused_total " + std::to_string(refused)), std::string::npos);
  EXPECT_EQ(ReadAll(3)[TIER_FROM_SOURCE], 3);
}

// ---- directories of other formats and machines ----------------------------------------------------------------------------------

// Changes bytes of the superblock; its checksum is made right again.
void EditSuperblock(const std::string& directory, std::size_t offset, const std::string& bytes) {
  const std::string path = directory + "/superblock";
  std::string all = Plain(path).bytes;
  ASSERT_GT(all.size(), offset + bytes.size() + 4);
  all.replace(offset, bytes.size(), bytes);
  const std::uint32_t crc = Crc32c(all.data(), all.size() - 4);
  std::memcpy(all.data() + all.size() - 4, &crc, 4);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << all;
}

int Lines(const std::string& text, const std::string& with) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(with, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_F(VersionTest, DirectoriesOfOtherFormatsAndMachinesAreDiscardedWithOneLine) {
  constexpr std::size_t kFormatAt = 8, kMachineAt = 32;  // FORMAT.md
  struct Edit {
    const char* says;
    std::size_t at;
    std::string bytes;
  };
  const Edit edits[] = {{"newer format", kFormatAt, std::string("\x63\0\0\0", 4)}, {"older format", kFormatAt, std::string(4, '\0')}, {"another machine", kMachineAt, std::string(16, 'm')}};
  constexpr int kFiles = 30;
  MakeFiles(kFiles);
  for (const Edit& edit : edits) {
    StartDaemon();
    ASSERT_EQ(daemon.Prefetch(source)["files_verified"], kFiles);
    ASSERT_EQ(daemon.Stop(), 0);
    StartDaemon();  // warm as long as nothing is changed
    ExpectWarm(kFiles);
    ASSERT_EQ(daemon.Stop(), 0);
    EditSuperblock(daemon.ssd_directory(), edit.at, edit.bytes);
    StartDaemon();
    EXPECT_EQ(Lines(daemon.output(), "discarded the content of"), 1) << daemon.output();
    EXPECT_EQ(Lines(daemon.output(), edit.says), 1) << daemon.output();
    auto origins = ReadAll(kFiles);
    EXPECT_EQ(origins[TIER_FROM_SSD], 0) << edit.says;
    EXPECT_EQ(origins[TIER_FROM_SOURCE], kFiles) << edit.says;
    ASSERT_EQ(daemon.Stop(), 0);
  }
}

TEST_F(VersionTest, TheGoldenDirectoryOfFormatOneIsTakenOver) {  // made by another machine: nothing of it may be served
  MakeFiles(5);
  std::filesystem::copy(TIERD_GOLDEN "/ssd-v1", daemon.ssd_directory(), std::filesystem::copy_options::recursive);
  std::filesystem::permissions(daemon.ssd_directory(), std::filesystem::perms::owner_all);
  StartDaemon();
  EXPECT_EQ(Lines(daemon.output(), "another machine"), 1) << daemon.output();
  EXPECT_EQ(ReadAll(5)[TIER_FROM_SOURCE], 5);
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], 5);
  ASSERT_EQ(daemon.Stop(), 0);
  StartDaemon();  // and from now on it is ours
  ExpectWarm(5);
  EXPECT_EQ(Lines(daemon.output(), "discarded"), 0) << daemon.output();
}

}  // namespace
}  // namespace tierd::e2e
