// The client's reading of what a daemon sends: datagrams (with a descriptor where the low bit of the length says so) through a Channel
// over a real socket pair, and the sources they announce.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client_lib/src/channel.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/source_table.h"
#include "tests/fuzz/fuzz_input.h"

using namespace tierd;
using namespace tierd::client;

namespace {

void OnSources(void*, const std::byte* entries, std::size_t bytes, std::uint32_t count) {
  for (const bool with_prefix : {false, true}) {
    Prefixes prefixes;
    if (with_prefix) {
      prefixes.text[0] = "/data/a";
      prefixes.bytes[0] = 7;
      prefixes.count = 1;
    }
    SourceTable* const table = SourceTable::Create(entries, bytes, count, prefixes);
    if (table == nullptr) continue;
    FUZZ_CHECK(table->count() <= count);
    const char* relative = nullptr;
    std::size_t relative_bytes = 0;
    for (const std::string_view path : {"/data/a/b", "/", "/data", ""}) {
      const Source* const source = table->Match(path.data(), path.size(), &relative, &relative_bytes);
      if (source != nullptr) FUZZ_CHECK(relative >= path.data() && relative + relative_bytes == path.data() + path.size());
    }
    for (std::uint32_t i = 0; i < table->count(); ++i) FUZZ_CHECK(std::strlen(table->at(i).root) == table->at(i).root_bytes);
    (void)table->LongestValidityNs();
    std::free(table);
  }
}

void SendDatagram(int socket, std::span<const std::byte> bytes, int fd) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  (void)::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return 0;
  Channel channel;
  FUZZ_CHECK(channel.Open(sockets[0], abi::kProtocolVersion, {.on_sources = OnSources, .hangs = [](void*) { return false; }, .context = nullptr}));
  fuzz::Input input(data, size);
  for (int i = 0; i < 8 && input.size() > 0; ++i) {
    const auto length = input.Take<std::uint16_t>();
    SendDatagram(sockets[1], input.Bytes(length >> 1), (length & 1) != 0 ? null : -1);
  }
  ::close(sockets[1]);  // the end of the conversation follows: Wait never waits for the clock

  Group group;
  Waiter waiters[4];  // ids 1 to 4
  waiters[0].answer = abi::MessageType::kFetchReply;
  waiters[1].answer = abi::MessageType::kSegment;
  waiters[2].answer = abi::MessageType::kIndex;
  waiters[3].answer = abi::MessageType::kAdviseReply;
  channel.Register(group, waiters, 4);
  const WaitOutcome outcome = channel.Wait(group, waiters, 4, PreciseNs() + 10'000'000'000);
  FUZZ_CHECK(outcome != WaitOutcome::kTimeout);
  for (const Waiter& waiter : waiters) {
    if (outcome == WaitOutcome::kAll) FUZZ_CHECK(waiter.done);
    FUZZ_CHECK(waiter.fd < 0 || (waiter.done && (waiter.answer == abi::MessageType::kSegment || waiter.answer == abi::MessageType::kIndex)));
    if (waiter.fd >= 0) ::close(waiter.fd);
  }
  FUZZ_CHECK(channel.TryClose());
  return 0;
}
