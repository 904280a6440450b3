// Access rings as the hub reads them: whoever asks for something does not wait for all that others have left in theirs.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tests/fuzz/daemon_fixture.h"
#include "tierd/base/unique_fd.h"
#include "tierd/server/message_writer.h"

namespace tierd::server {
namespace {

constexpr std::uint64_t kEntriesPerTurn = 8192;

// A client without a library: it has its page, and asks for the index.
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

 private:
  template <typename Entry>
  void Send(abi::MessageType type, const Entry& entry) {
    MessageWriter writer(type);
    writer.Add(entry);
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
};

TEST(SessionRings, WhoAsksWaitsForNoMoreThanATurnOfTheOthers) {
  constexpr std::size_t kClients = 8;
  fuzz::InProcessDaemon daemon;
  std::vector<std::unique_ptr<BareClient>> clients;
  for (std::size_t i = 0; i < kClients; ++i) clients.push_back(std::make_unique<BareClient>(daemon));
  daemon.Turn();
  ASSERT_EQ(daemon.hub().Sessions().sessions, kClients);
  for (const auto& client : clients) client->FillRing();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rings that were looked at a moment ago are not looked at for a request
  clients.front()->AskForIndex();
  const auto heard = [&] { return daemon.engine().counters().ring_entries; };
  ASSERT_EQ(heard(), 0u);
  std::uint64_t most = 0;
  daemon.loop().restart();
  while (heard() < kClients * abi::kRingEntries) {
    const std::uint64_t before = heard();
    ASSERT_EQ(daemon.loop().run_one_for(std::chrono::seconds(20)), 1u) << before;
    most = std::max(most, heard() - before);
  }
  EXPECT_LE(most, kEntriesPerTurn + abi::kRingEntries) << "in one handler";
  EXPECT_EQ(daemon.engine().counters().ring_lost, 0u);
}

TEST(SessionRings, WhatAClientAsksCountsAsTimeOfTheLoop) {
  fuzz::InProcessDaemon daemon;
  BareClient client(daemon);
  daemon.Turn();
  const std::uint64_t before = daemon.engine().lag().count;
  client.AskForIndex();
  daemon.loop().restart();
  ASSERT_EQ(daemon.loop().run_one_for(std::chrono::seconds(20)), 1u);
  EXPECT_EQ(daemon.engine().lag().count, before + 1);
}

}  // namespace
}  // namespace tierd::server
