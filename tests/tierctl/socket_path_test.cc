#include "tierctl/client/socket_path.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "fake_control.h"

namespace tierctl {
namespace {

tierd::config::GetEnvironment With(const std::string& name, const std::string& value) {
  return [=](const char* asked) { return asked == name ? std::optional<std::string>(value) : std::nullopt; };
}

TEST(SocketPath, OptionThenEnvironmentThenRuntimeDirectory) {
  EXPECT_EQ(*FindControlSocket("/x/control.sock", With("TIERD_SOCKET", "/y/tierd.sock"), 7), "/x/control.sock");
  EXPECT_EQ(*FindControlSocket("/x/tierd.sock", With("", ""), 7), "/x/control.sock");
  EXPECT_EQ(*FindControlSocket("", With("TIERD_SOCKET", "/y/tierd.sock"), 7), "/y/control.sock");
  const FakeControl fake;
  EXPECT_EQ(*FindControlSocket("", With("XDG_RUNTIME_DIR", fake.directory()), ::geteuid()), fake.directory() + "/tierd/control.sock");
  EXPECT_EQ(*FindControlSocket("", With("XDG_RUNTIME_DIR", fake.directory()), 4'000'000'000), "/tmp/tierd-4000000000/control.sock") << "another user's";
  EXPECT_EQ(*FindControlSocket("", With("XDG_RUNTIME_DIR", "/does/not/exist"), 4'000'000'000), "/tmp/tierd-4000000000/control.sock");
  EXPECT_EQ(*FindControlSocket("", With("XDG_RUNTIME_DIR", "relative"), 4'000'000'000), "/tmp/tierd-4000000000/control.sock");
  EXPECT_EQ(*FindControlSocket("", With("", ""), 4'000'000'000), "/tmp/tierd-4000000000/control.sock");
}

TEST(SocketPath, AClientsSocketOfAnyNameLeadsToTheControlSocketBesideIt) {
  const FakeControl fake;
  const std::string path = fake.directory() + "/odd.name";
  const tierd::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(fd.get(), 4), 0);
  EXPECT_EQ(*FindControlSocket(path, With("", ""), 7), fake.socket());
  EXPECT_EQ(*FindControlSocket(fake.socket(), With("", ""), 7), fake.socket());
}

TEST(SocketPath, ADirectoryStandsForTheSocketInIt) {
  const FakeControl fake;
  EXPECT_EQ(*FindControlSocket(fake.directory(), With("", ""), 7), fake.socket());
  EXPECT_EQ(*FindControlSocket(fake.directory() + "/", With("", ""), 7), fake.socket());
  EXPECT_EQ(ClientSocketOf(fake.socket(), fake.directory(), With("", "")), fake.directory() + "/tierd.sock");
  // libtier would not find it.
  const auto found = FindControlSocket("", With("TIERD_SOCKET", fake.directory()), 7);
  EXPECT_EQ(found.status().code(), tierd::Code::kInvalid);
  EXPECT_NE(found.status().message().find("$TIERD_SOCKET names a directory, " + fake.directory()), std::string::npos);
}

TEST(SocketPath, PlantedDirectoryIsNotEntered) {
  // A uid that nobody has, so that the directory below is not anybody's.
  const std::uint32_t uid = 3'999'000'000u + static_cast<std::uint32_t>(::getpid());
  const std::string directory = "/tmp/tierd-" + std::to_string(uid);
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  const auto found = FindControlSocket("", With("", ""), uid);
  ::rmdir(directory.c_str());
  EXPECT_EQ(found.status().code(), tierd::Code::kPermission);
  EXPECT_NE(found.status().message().find("is not a directory of yours alone"), std::string::npos);
}

}  // namespace
}  // namespace tierctl
