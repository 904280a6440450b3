// What the parts of FakeDaemon share: clocks, and the datagrams that it sends. For fake_daemon*.cc alone.
#pragma once

#include <sys/socket.h>
#include <time.h>

#include <cstring>
#include <string>
#include <vector>

#include "client_lib/abi/messages.h"

namespace tierd::testing {

inline std::int64_t NowNs(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Header + entries as one datagram.
class Datagram {
 public:
  explicit Datagram(abi::MessageType type, std::uint16_t version = abi::kProtocolVersion) {
    header_.magic = abi::kMessageMagic;
    header_.type = static_cast<std::uint16_t>(type);
    header_.version = version;
    bytes_.resize(sizeof header_);
  }
  template <typename Entry>
  Datagram& Add(const Entry& entry, const std::string& path = {}) {
    const auto* begin = reinterpret_cast<const std::byte*>(&entry);
    bytes_.insert(bytes_.end(), begin, begin + sizeof entry);
    const auto* text = reinterpret_cast<const std::byte*>(path.data());
    bytes_.insert(bytes_.end(), text, text + path.size());
    bytes_.resize(abi::PadTo8(bytes_.size()));
    ++header_.count;
    return *this;
  }
  std::vector<std::byte> Finish() {
    header_.bytes = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &header_, sizeof header_);
    return bytes_;
  }

 private:
  abi::MessageHeader header_{};
  std::vector<std::byte> bytes_;
};

inline void Send(int fd, const std::vector<std::byte>& datagram, std::vector<int> fds = {}) {
  iovec part{const_cast<std::byte*>(datagram.data()), datagram.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  (void)!::sendmsg(fd, &message, MSG_NOSIGNAL);
}

}  // namespace tierd::testing
