// A whole conversation of a hostile client: datagrams (the first after a sound greeting if the first byte says so), and words written to the session
// page that it was given, while the daemon turns.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>

#include "tests/fuzz/daemon_fixture.h"

using namespace tierd;

namespace {

// Sessions of a living process never end (HAZARDS 2.5), and this process lives: a fresh daemon now and then.
constexpr int kInputsPerDaemon = server::SessionHub::kMostLeftBehind;

int Connect(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  FUZZ_CHECK(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void Greet(int fd) {
  struct {
    abi::MessageHeader header;
    abi::Hello hello;
  } datagram{};
  datagram.header = {abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kHello), abi::kProtocolVersion, sizeof datagram, 1};
  datagram.hello.version_min = abi::kProtocolVersionMin;
  datagram.hello.version_max = abi::kProtocolVersion;
  datagram.hello.layout_version = abi::kLayoutVersion;
  datagram.hello.monotonic_coarse_ns = SystemClock().MonotonicNs();
  (void)::send(fd, &datagram, sizeof datagram, MSG_NOSIGNAL);
}

// Everything that came. A welcome brings the session page: mapped and returned once.
void Receive(int fd, abi::SessionPage** page) {
  alignas(8) static std::byte buffer[abi::kMaxMessageBytes];
  for (;;) {
    iovec part{buffer, sizeof buffer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) return;
    abi::MessageHeader header;
    FUZZ_CHECK(static_cast<std::size_t>(got) >= sizeof header);
    std::memcpy(&header, buffer, sizeof header);
    FUZZ_CHECK(header.magic == abi::kMessageMagic && header.bytes == static_cast<std::size_t>(got));
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int passed;
        std::memcpy(&passed, CMSG_DATA(c) + i * sizeof passed, sizeof passed);
        if (header.type == static_cast<std::uint16_t>(abi::MessageType::kWelcome) && i == 1 && *page == nullptr) {
          void* const mapped = ::mmap(nullptr, sizeof(abi::SessionPage), PROT_READ | PROT_WRITE, MAP_SHARED, passed, 0);
          if (mapped != MAP_FAILED) *page = static_cast<abi::SessionPage*>(mapped);
        }
        ::close(passed);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<fuzz::InProcessDaemon> daemon;
  static int inputs = 0;
  if (daemon == nullptr || ++inputs % kInputsPerDaemon == 0) {
    daemon.reset();
    daemon = std::make_unique<fuzz::InProcessDaemon>();
  }
  fuzz::Input input(data, size);
  const int fd = Connect(daemon->socket());
  abi::SessionPage* page = nullptr;
  if ((input.Take<std::uint8_t>() & 1) != 0) Greet(fd);
  daemon->Turn();
  Receive(fd, &page);
  for (int i = 0; i < 6 && input.size() > 0; ++i) {
    const auto kind = input.Take<std::uint8_t>();
    if ((kind & 1) == 0) {
      const auto datagram = input.Datagram();
      (void)::send(fd, datagram.data(), datagram.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    } else if (page != nullptr) {
      auto* const words = reinterpret_cast<std::atomic<std::uint64_t>*>(page);
      for (int n = kind >> 1 & 15; n > 0; --n) {
        const auto place = input.Take<std::uint16_t>();
        words[place % (sizeof(abi::SessionPage) / 8)].store(input.Take<std::uint64_t>());
      }
      daemon->hub().OnTimer();
      (void)daemon->hub().Totals();
      (void)daemon->hub().Sessions();
    }
    daemon->Turn();
    Receive(fd, &page);
  }
  ::close(fd);
  daemon->Turn();
  if (page != nullptr) ::munmap(page, sizeof(abi::SessionPage));
  return 0;
}
