// Finding and greeting the daemon: the socket's directory must be ours alone (FAULTS T14), the peer must be of our own uid (T01), and what it
// hands out must hold together.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/added_memory.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/fork_mark.h"
#include "client_lib/src/session.h"
#include "client_lib/src/shared_mapping.h"

namespace tierd::client {
namespace {

// Closes at the end of a scope.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Reset(-1); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void Reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

// Opens the directory of the socket and checks that nobody else could have planted something there.
int OpenSocketDirectory(const char* socket, const char** name, Fd& directory) {
  const char* slash = std::strrchr(socket, '/');
  if (slash == nullptr || slash == socket || slash[1] == '\0') return -ENOENT;
  char path[sizeof Settings::socket];
  const auto length = static_cast<std::size_t>(slash - socket);
  std::memcpy(path, socket, length);
  path[length] = '\0';
  *name = slash + 1;
  directory.Reset(::open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory.get() < 0) return -errno;
  struct stat st;
  if (::fstat(directory.get(), &st) != 0) return -errno;
  return st.st_uid == ::geteuid() && (st.st_mode & 077) == 0 ? 0 : -EACCES;
}

// A descriptor that the application's small numbers do not collide with, and that "close 3 to 255" leaves alone.
int MoveHigh(int fd) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < 64) return fd;
  const rlim_t wanted = limit.rlim_cur / 4 * 3 < 1000 ? limit.rlim_cur / 4 * 3 : 1000;
  const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(wanted));
  if (high < 0) return fd;
  ::close(fd);
  return high;
}

int Connect(const Settings& settings, Fd& socket) {
  if (settings.socket[0] == '\0') return -ENOENT;
  Fd directory;
  const char* name = nullptr;
  if (const int error = OpenSocketDirectory(settings.socket, &name, directory); error != 0) return error;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  int length = ::snprintf(address.sun_path, sizeof address.sun_path, "%s", settings.socket);
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof address.sun_path) {
    length = ::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory.get(), name);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof address.sun_path) return -ENAMETOOLONG;
  }
  socket.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return -errno;
  // A full backlog answers EAGAIN at once: as good as nobody there.
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINTR) return -errno;
  }
  ucred peer{};
  socklen_t peer_bytes = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return -errno;
  return peer.uid == ::geteuid() ? 0 : -EACCES;
}

struct Received {
  std::size_t bytes = 0;
  Fd fds[2];
};

// One datagram of the greeting, with at most two descriptors.
int Receive(int socket, std::byte* buffer, Received& received, std::int64_t deadline_ns) {
  for (;;) {
    iovec part{buffer, abi::kMaxMessageBytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      const std::int64_t left = deadline_ns - PreciseNs();
      if (left <= 0) return -ETIMEDOUT;
      pollfd ready{socket, POLLIN, 0};
      (void)::poll(&ready, 1, static_cast<int>(left / 1'000'000 + 1));
      continue;
    }
    if (got < 0) return -errno;
    int count = 0;
    bool surplus = false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        surplus |= count == 2;
        if (count == 2) ::close(fd);
        else received.fds[count++].Reset(fd);
      }
    }
    if (got == 0) return -ECONNREFUSED;
    if (surplus || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return -EPROTO;
    received.bytes = static_cast<std::size_t>(got);
    return 0;
  }
}

bool ReadHeader(const std::byte* buffer, std::size_t bytes, abi::MessageHeader& header) {
  if (bytes < sizeof header) return false;
  std::memcpy(&header, buffer, sizeof header);
  return header.magic == abi::kMessageMagic && header.bytes == bytes;
}

int SendHello(int socket, std::uint32_t flags) {
  struct {
    abi::MessageHeader header;
    abi::Hello hello;
  } datagram{};
  datagram.header = {abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kHello), abi::kProtocolVersion, sizeof datagram, 1};
  datagram.hello.version_min = abi::kProtocolVersionMin;
  datagram.hello.version_max = abi::kProtocolVersion;
  datagram.hello.layout_version = abi::kLayoutVersion;
  datagram.hello.monotonic_coarse_ns = CoarseNs();
  datagram.hello.pid = static_cast<std::uint32_t>(::getpid());
  datagram.hello.flags = flags;
  return ::send(socket, &datagram, sizeof datagram, MSG_NOSIGNAL) == sizeof datagram ? 0 : -errno;
}

int ReceiveWelcome(int socket, const Settings& settings, std::byte* buffer, Received& received, abi::Welcome& welcome, std::int64_t deadline_ns) {
  if (const int error = Receive(socket, buffer, received, deadline_ns); error != 0) return error;
  abi::MessageHeader header;
  if (!ReadHeader(buffer, received.bytes, header)) return -EPROTO;
  if (header.type == static_cast<std::uint16_t>(abi::MessageType::kRefuse) && received.bytes == sizeof header + sizeof(abi::Refuse)) {
    abi::Refuse refuse;
    std::memcpy(&refuse, buffer + sizeof header, sizeof refuse);
    refuse.text[sizeof refuse.text - 1] = '\0';
    Log(settings, "refused: %s", refuse.text);
    return refuse.reason > 0 && refuse.reason < 4096 ? -static_cast<int>(refuse.reason) : -EPROTO;
  }
  if (header.type != static_cast<std::uint16_t>(abi::MessageType::kWelcome) || received.bytes != sizeof header + sizeof welcome) return -EPROTO;
  std::memcpy(&welcome, buffer + sizeof header, sizeof welcome);
  if (welcome.version < abi::kProtocolVersionMin || welcome.version > abi::kProtocolVersion) return -EPROTO;
  return received.fds[1].get() >= 0 ? 0 : -EPROTO;
}

int ReceiveSources(int socket, const Settings& settings, std::byte* buffer, std::uint16_t version, SourceTable** table, std::int64_t deadline_ns) {
  Received received;
  if (const int error = Receive(socket, buffer, received, deadline_ns); error != 0) return error;
  abi::MessageHeader header;
  if (!ReadHeader(buffer, received.bytes, header) || header.version != version) return -EPROTO;
  if (header.type != static_cast<std::uint16_t>(abi::MessageType::kSources) || received.fds[0].get() >= 0) return -EPROTO;
  *table = SourceTable::Create(buffer + sizeof header, received.bytes - sizeof header, header.count, settings.prefixes);
  return *table != nullptr ? 0 : -EPROTO;
}

// The daemon says unasked that its sources changed. Runs in the thread that receives, one at a time.
void OnSources(void* context, const std::byte* entries, std::size_t bytes, std::uint32_t count) {
  auto& session = *static_cast<Session*>(context);
  SourceTable* const table = SourceTable::Create(entries, bytes, count, session.settings->prefixes);
  if (table == nullptr) return;
  table->next = session.source_tables;
  session.source_tables = table;
  session.sources.store(table, std::memory_order_release);
}

// Its heart has stopped beating. Of a session that serves no more the index may be gone.
bool Hangs(void* context) {
  const auto& session = *static_cast<const Session*>(context);
  return session.serves() && session.Hung(CoarseNs());
}

bool PageHoldsTogether(const abi::SessionPage& page, const abi::Welcome& welcome) {
  return page.magic == abi::kSessionMagic && page.layout_version == abi::kLayoutVersion && page.session_id == welcome.session_id &&
         std::memcmp(page.instance, welcome.instance, sizeof page.instance) == 0;
}

// Null: it does not hold together, or there is no room for it.
abi::SessionPage* MapPage(int fd, const abi::Welcome& welcome) {
  if (welcome.session_bytes != sizeof(abi::SessionPage)) return nullptr;
  auto* const page = static_cast<abi::SessionPage*>(MapShared(fd, sizeof(abi::SessionPage), true, false));
  if (page == nullptr || PageHoldsTogether(*page, welcome)) return page;
  UnmapShared(page, sizeof *page);
  return nullptr;
}

struct Parts {
  IndexView* index = nullptr;
  abi::SessionPage* page = nullptr;
  SourceTable* sources = nullptr;
  Arena* arena = nullptr;

  // At the end of the socket the daemon looks whether the page was left, and else keeps the session for as long as this process lives.
  void Discard() const {
    if (page != nullptr) page->left.store(1, std::memory_order_release);
    if (index != nullptr) {
      UnmapShared(index->header, index->bytes);
      std::free(index);
    }
    if (page != nullptr) UnmapShared(page, sizeof *page);
    std::free(sources);
  }
};

Session* Assemble(const Settings& settings, const Parts& parts, const abi::Welcome& welcome, Fd& socket) {
  void* const memory = std::calloc(1, sizeof(Session));
  if (memory == nullptr) return nullptr;
  auto* session = new (memory) Session{};
  const int flags = ::fcntl(socket.get(), F_GETFL);
  (void)::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);  // the channel bounds its receives by SO_RCVTIMEO
  if (!session->channel.Open(MoveHigh(socket.Release()), welcome.version, {&OnSources, &Hangs, session})) {
    std::free(session);
    return nullptr;
  }
  session->index.store(parts.index, std::memory_order_relaxed);
  session->sources.store(parts.sources, std::memory_order_relaxed);
  session->index_views = parts.index;
  session->source_tables = parts.sources;
  session->page = parts.page;
  PublishAdded(*parts.page);
  session->arena = parts.arena;
  session->pin_cap_bytes = parts.page->pin_cap_bytes;
  session->mounts_seen.store(parts.page->mounts_changed.load(std::memory_order_acquire), std::memory_order_relaxed);
  session->account_from = session->pin_cap_bytes / (2 * abi::kLeaseSlots);
  session->fork_generation = ForkGeneration();
  session->takes_parts = (welcome.flags & abi::kWelcomeParts) != 0;
  session->foreign_clock = (welcome.flags & abi::kWelcomeForeignClock) != 0;
  session->check_all = session->foreign_clock || (settings.flags & TIER_CHECK_OPEN) != 0;
  session->clock_offset_ns = welcome.monotonic_coarse_ns - CoarseNs();
  session->settings = &settings;
  session->session_id = welcome.session_id;
  session->page_kind = welcome.page_kind;
  return session;
}

}  // namespace

OpenResult OpenSession(const Settings& settings, std::uint32_t timeout_ms, Arena* (*reuse)(void* context, const std::uint8_t instance[16]), void* context) {
  const std::int64_t deadline_ns = PreciseNs() + std::int64_t{timeout_ms} * 1'000'000;
  Fd socket;
  if (const int error = Connect(settings, socket); error != 0) return {nullptr, error};
  auto* const buffer = static_cast<std::byte*>(std::malloc(abi::kMaxMessageBytes));
  if (buffer == nullptr) return {nullptr, -ENOMEM};
  Parts parts;
  abi::Welcome welcome;
  Received received;
  int error = SendHello(socket.get(), abi::kHelloMarks);
  if (error == 0) error = ReceiveWelcome(socket.get(), settings, buffer, received, welcome, deadline_ns);
  if (error == 0) parts.page = MapPage(received.fds[1].get(), welcome);  // first: who gives up from here on says so in it
  if (error == 0 && parts.page == nullptr) error = -EPROTO;
  if (error == 0 && welcome.source_count != 0) error = ReceiveSources(socket.get(), settings, buffer, welcome.version, &parts.sources, deadline_ns);
  if (error == 0 && welcome.source_count == 0) parts.sources = SourceTable::Create(buffer, 0, 0, settings.prefixes);
  std::free(buffer);
  if (error == 0) {
    parts.index = MapIndex(received.fds[0].get(), welcome.index_bytes, welcome.instance, (settings.flags & TIER_POPULATE) != 0);
    if (parts.index == nullptr || parts.sources == nullptr) error = -EPROTO;
  }
  if (error == 0) {
    parts.arena = reuse(context, welcome.instance);
    if (parts.arena == nullptr) error = -ENOMEM;
  }
  Session* const session = error == 0 ? Assemble(settings, parts, welcome, socket) : nullptr;
  if (session == nullptr) {
    parts.Discard();
    return {nullptr, error != 0 ? error : -ENOMEM};
  }
  return {session, 0};
}

void SayUntold(const Settings& settings) {
  Fd socket;
  if (Connect(settings, socket) == 0) (void)SendHello(socket.get(), abi::kHelloMarks | abi::kHelloUntold);
}

}  // namespace tierd::client
