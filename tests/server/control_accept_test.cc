// The control plane's door when descriptors have run out (F15): nobody is lost, and the loop does not spin.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <thread>

#include "tests/fuzz/daemon_fixture.h"
#include "tierd/server/control.h"

namespace tierd::server {
namespace {

UniqueFd ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

TEST(ControlAccept, WhoComesWhileDescriptorsAreShortIsServedLater) {
  fuzz::InProcessDaemon daemon;
  Control control(daemon.loop(), daemon.api(), {.max_connections = 8});
  const std::string path = daemon.socket() + ".control";
  ASSERT_TRUE(control.Listen(path).ok());
  daemon.Turn();
  const UniqueFd client = ConnectTo(path);
  ASSERT_TRUE(client.valid());
  const std::string request = "GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::write(client.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::size_t ran = daemon.loop().run_for(std::chrono::milliseconds(300));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  // The engine's timer (5 ms when busy) and three tries to accept.
  EXPECT_LT(ran, 150u);

  std::string answer(4096, '\0');
  ssize_t got = 0;
  for (int i = 0; i < 200 && got <= 0; ++i) {
    daemon.loop().run_for(std::chrono::milliseconds(10));
    got = ::recv(client.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  }
  ASSERT_GT(got, 0);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  control.Close();
  daemon.Turn();
}

}  // namespace
}  // namespace tierd::server
