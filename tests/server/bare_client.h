// A client without the library, of a daemon in the test's own process.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tests/fuzz/daemon_fixture.h"
#include "tierd/base/unique_fd.h"
#include "tierd/server/message_writer.h"

namespace tierd::server {

// It has its page, asks for the index and for files, and hears what it is told.
class BareClient {
 public:
  explicit BareClient(fuzz::InProcessDaemon& daemon) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, daemon.socket().c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    abi::Hello hello{};
    hello.version_min = hello.version_max = abi::kProtocolVersion;
    hello.layout_version = abi::kLayoutVersion;
    hello.monotonic_coarse_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    Send(abi::MessageType::kHello, hello);
    EXPECT_TRUE(daemon.Await([&] { return Welcomed(); }));
  }
  ~BareClient() {
    if (page_ != nullptr) ::munmap(page_, sizeof(abi::SessionPage));
  }
  void FillRing() {
    for (std::uint32_t i = 0; i < abi::kRingEntries; ++i) page_->ring[i].store(std::uint64_t{1} << 56 | 0xffffffu, std::memory_order_relaxed);
    page_->ring_head.store(abi::kRingEntries, std::memory_order_release);
  }
  void AskForIndex() { Send(abi::MessageType::kGetIndex, abi::IdEntry{}); }
  // In one message, with ids from `first_id` on.
  void AskFor(const std::vector<std::string>& paths, std::uint32_t source_id, std::uint64_t first_id) {
    MessageWriter writer(abi::MessageType::kFetch);
    for (const std::string& path : paths) {
      abi::FetchEntry entry{};
      entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + path.size()));
      entry.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
      entry.path_bytes = static_cast<std::uint16_t>(path.size());
      entry.request_id = first_id++;
      entry.source_id = source_id;
      writer.Add(entry, path);
    }
    SendDatagram(writer);
  }
  // The entries of the next datagram that is there already, as many as it says; 0: there is none.
  std::uint32_t Told(abi::MessageType type) {
    for (;;) {
      alignas(8) char bytes[abi::kMaxMessageBytes];
      abi::MessageHeader header;
      if (::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT) < static_cast<ssize_t>(sizeof header)) return 0;
      std::memcpy(&header, bytes, sizeof header);
      if (header.type == static_cast<std::uint16_t>(type)) return header.count;
    }
  }
  std::uint32_t session() const { return session_; }
  abi::SessionPage& page() { return *page_; }

 private:
  template <typename Entry>
  void Send(abi::MessageType type, const Entry& entry) {
    MessageWriter writer(type);
    writer.Add(entry);
    SendDatagram(writer);
  }
  void SendDatagram(MessageWriter& writer) {
    const auto datagram = writer.Finish();
    EXPECT_EQ(::send(socket_.get(), datagram.data(), datagram.size(), 0), static_cast<ssize_t>(datagram.size()));
  }
  bool Welcomed() {
    char bytes[4096];
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    iovec into{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &into;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return false;
    abi::Welcome welcome;
    std::memcpy(&welcome, bytes + sizeof(abi::MessageHeader), sizeof welcome);
    session_ = welcome.session_id;
    const cmsghdr* const head = CMSG_FIRSTHDR(&message);
    if (head == nullptr) return false;
    int fds[2];
    std::memcpy(fds, CMSG_DATA(head), sizeof fds);
    const UniqueFd index(fds[0]), page(fds[1]);
    void* const mapped = ::mmap(nullptr, sizeof(abi::SessionPage), PROT_READ | PROT_WRITE, MAP_SHARED, page.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    page_ = static_cast<abi::SessionPage*>(mapped);
    return true;
  }

  const UniqueFd socket_;
  abi::SessionPage* page_ = nullptr;
  std::uint32_t session_ = 0;
};

}  // namespace tierd::server
