// A hostile client: it speaks the protocol by hand and does what our library never does.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/messages.h"
#include "tierd/base/unique_fd.h"

namespace tierd::attack {

// Invalid when the daemon does not take it.
inline UniqueFd Connect(const std::string& path, int type = SOCK_SEQPACKET) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EXPECT_LT(path.size(), sizeof address.sun_path);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(fd.get(), raw, sizeof address) != 0) fd.Reset();
  const timeval patience{5, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return fd;
}

inline std::int64_t CoarseNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline std::string Message(abi::MessageType type, std::uint32_t count, const std::string& entries) {
  abi::MessageHeader header{};
  header.magic = abi::kMessageMagic;
  header.type = static_cast<std::uint16_t>(type);
  header.version = abi::kProtocolVersion;
  header.bytes = static_cast<std::uint32_t>(sizeof header + entries.size());
  header.count = count;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + entries;
}

inline std::string Hello() {
  abi::Hello hello{};
  hello.version_min = hello.version_max = abi::kProtocolVersion;
  hello.layout_version = abi::kLayoutVersion;
  hello.monotonic_coarse_ns = CoarseNs();
  return Message(abi::MessageType::kHello, 1, {reinterpret_cast<const char*>(&hello), sizeof hello});
}

inline std::string FetchEntry(std::string_view path, std::uint32_t source_id, std::uint64_t request_id) {
  abi::FetchEntry entry{};
  entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + path.size()));
  entry.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
  entry.path_bytes = static_cast<std::uint16_t>(path.size());
  entry.request_id = request_id;
  entry.source_id = source_id;
  std::string bytes(reinterpret_cast<const char*>(&entry), sizeof entry);
  bytes += path;
  bytes.resize(entry.entry_bytes);
  return bytes;
}

inline bool Send(const UniqueFd& fd, const std::string& bytes, int flags = 0) {
  return ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | flags) == static_cast<ssize_t>(bytes.size());
}

// 0, or the errno of sendmsg.
inline int SendWithDescriptor(const UniqueFd& fd, const std::string& bytes, int descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  return ::sendmsg(fd.get(), &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

// The next datagram; "" at the end of the conversation. Descriptors that come along are closed.
inline std::string Receive(const UniqueFd& fd) {
  std::string bytes(abi::kMaxMessageBytes, '\0');
  const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

// A welcomed client, and the id of the daemon's first source. Invalid when it is refused.
struct Session {
  UniqueFd socket;
  std::uint32_t source_id = 0;
};
inline Session Join(const std::string& path) {
  Session session{Connect(path)};
  if (!session.socket.valid() || !Send(session.socket, Hello())) return {};
  for (const auto wanted : {abi::MessageType::kWelcome, abi::MessageType::kSources}) {
    const std::string said = Receive(session.socket);
    abi::MessageHeader header{};
    if (said.size() < sizeof header) return {};
    std::memcpy(&header, said.data(), sizeof header);
    if (header.type != static_cast<std::uint16_t>(wanted)) return {};
    abi::SourceEntry source{};
    if (wanted != abi::MessageType::kSources || said.size() < sizeof header + sizeof source) continue;
    std::memcpy(&source, said.data() + sizeof header, sizeof source);
    session.source_id = source.source_id;
  }
  return session;
}

// A TCP connection on loopback whose last close waits for `seconds`: what it has sent is not taken.
class LingeringSocket {
 public:
  explicit LingeringSocket(int seconds) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), raw, sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), raw, &bytes), 0);
    sender_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(sender_.get(), raw, bytes), 0);
    taken_.Reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger wait{1, seconds};
    EXPECT_EQ(::setsockopt(sender_.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    const std::string much(1 << 20, 'x');
    while (::send(sender_.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  // The sender's own descriptor is closed after it was sent: the one in flight is the last.
  int get() const { return sender_.get(); }
  // Before this process closes its own descriptor, or it would wait itself.
  void GiveUp() {
    const linger none{0, 0};
    ::setsockopt(sender_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  }
  void CloseOurs() { sender_.Reset(); }

 private:
  UniqueFd listener_, sender_, taken_;
};

}  // namespace tierd::attack
