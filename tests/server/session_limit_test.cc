// How many sessions there may be: what a process leaves behind counts against nobody else (HAZARDS 2.5 keeps it until that process ends).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/bare_client.h"

namespace tierd::server {
namespace {

// Whether the daemon keeps a client of this process.
bool Takes(fuzz::InProcessDaemon& daemon) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, daemon.socket().c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  daemon.Turn();
  char byte;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) < 0;  // 0: it has hung up
}

TEST(SessionLimit, SessionsLeftBehindTakeNoPlaceOfThoseConnected) {
  constexpr std::uint32_t kMost = 4;
  fuzz::InProcessDaemon daemon(fuzz::SsdTier::kOff, nullptr, {.socket_path = "", .max_sessions = kMost});
  for (std::uint32_t i = 0; i < 2 * kMost; ++i) {
    BareClient client(daemon);
    ASSERT_FALSE(testing::Test::HasFailure()) << i;
  }
  ASSERT_TRUE(daemon.Await([&] { return daemon.hub().Sessions().lingering == 2 * kMost; }));
  std::vector<std::unique_ptr<BareClient>> clients;
  for (std::uint32_t i = 0; i < kMost; ++i) clients.push_back(std::make_unique<BareClient>(daemon));
  EXPECT_FALSE(Takes(daemon)) << "so many are connected";
}

TEST(SessionLimit, AProcessThatLeavesManyBehindIsRefused) {
  fuzz::InProcessDaemon daemon;
  for (std::uint32_t i = 0; i < SessionHub::kMostLeftBehind; ++i) {
    ASSERT_TRUE(Takes(daemon)) << i;  // without a page: ends with its socket
    BareClient client(daemon);
  }
  ASSERT_TRUE(daemon.Await([&] { return daemon.hub().Sessions().lingering == SessionHub::kMostLeftBehind; }));
  EXPECT_FALSE(Takes(daemon));
  EXPECT_EQ(daemon.hub().Sessions().sessions, 0u);
}

}  // namespace
}  // namespace tierd::server
