#include "tests/support/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "client_lib/abi/path_hash.h"
#include "tests/support/fake_daemon_wire.h"
#include "tierd/base/check.h"

namespace tierd::testing {

FakeDaemon::FakeDaemon(FakeDaemonOptions options) : options_(std::move(options)) {
  TIERD_CHECK(::getrandom(instance_, sizeof instance_, 0) == sizeof instance_);
  std::uint8_t key[32];
  TIERD_CHECK(::getrandom(key, sizeof key, 0) == sizeof key);
  abi::DeriveHashSecret(key, secret_);
  ram::IndexOptions index_options;
  index_options.initial_slots = options_.initial_slots;
  std::memcpy(index_options.instance, instance_, sizeof instance_);
  std::memcpy(index_options.hash_secret, secret_, sizeof secret_);
  auto index = ram::SharedIndex::Create(index_options);
  TIERD_CHECK(index.ok());
  index_ = std::move(index).value();
  index_->Heartbeat(NowNs(CLOCK_MONOTONIC_COARSE));

  const std::string directory = std::filesystem::path(options_.socket).parent_path();
  ::mkdir(directory.c_str(), 0700);
  ::unlink(options_.socket.c_str());
  listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const UniqueFd dir(::open(directory.c_str(), O_PATH | O_CLOEXEC));
  std::string name = options_.socket;  // long paths through /proc, as the client does
  if (name.size() >= sizeof address.sun_path) name = "/proc/self/fd/" + std::to_string(dir.get()) + "/" + std::filesystem::path(options_.socket).filename().string();
  TIERD_CHECK(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  TIERD_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  TIERD_CHECK(::listen(listener_.get(), 64) == 0);
}

FakeDaemon::~FakeDaemon() {
  Stop();
  ::unlink(options_.socket.c_str());
}

// ---- loop ------------------------------------------------------------------------------------------------------------------

void FakeDaemon::Start() {
  thread_ = std::thread([this] { Serve(); });
}

void FakeDaemon::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void FakeDaemon::Serve() {
  std::vector<pollfd> polls;
  while (!stop_) {
    polls.clear();
    {
      const std::lock_guard lock(mutex_);
      if (heartbeat) index_->Heartbeat(NowNs(CLOCK_MONOTONIC_COARSE));
      SendLate();
      polls.push_back({listener_.get(), POLLIN, 0});
      for (const auto& connection : connections_) {
        if (connection->fd.valid()) polls.push_back({connection->fd.get(), POLLIN, 0});
      }
    }
    (void)::poll(polls.data(), polls.size(), 2);
    const std::lock_guard lock(mutex_);
    Accept();
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      while (connections_[i]->fd.valid() && Receive(*connections_[i])) {
      }
    }
  }
}

void FakeDaemon::Accept() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    ram::SessionPageOptions page_options;
    page_options.session_id = static_cast<std::uint32_t>(connections_.size() + 1);
    std::memcpy(page_options.instance, instance_, sizeof instance_);
    page_options.pin_cap_bytes = options_.pin_cap_bytes;
    auto page = ram::SessionPage::Create(page_options);
    TIERD_CHECK(page.ok());
    connections_.push_back(std::make_unique<Connection>(Connection{std::move(fd), std::move(page).value()}));
    scanner_.Add(connections_.back()->page.page());
  }
}

bool FakeDaemon::Receive(Connection& connection) {
  std::byte buffer[abi::kMaxMessageBytes];
  const ssize_t got = ::recv(connection.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0) return false;
  if (got == 0 || !Handle(connection, {buffer, static_cast<std::size_t>(got)})) {
    connection.page.Revoke();
    connection.fd.Reset();
    return false;
  }
  return true;
}

bool FakeDaemon::Handle(Connection& connection, std::span<const std::byte> datagram) {
  abi::MessageHeader header;
  if (datagram.size() < sizeof header) return false;
  std::memcpy(&header, datagram.data(), sizeof header);
  if (header.magic != abi::kMessageMagic || header.bytes != datagram.size()) return false;
  const auto body = datagram.subspan(sizeof header);
  abi::IdEntry id{};
  if (body.size() >= sizeof id) std::memcpy(&id, body.data(), sizeof id);
  switch (static_cast<abi::MessageType>(header.type)) {
    case abi::MessageType::kHello: Greet(connection); return true;
    case abi::MessageType::kGetIndex: SendIndex(connection, id.request_id); return true;
    case abi::MessageType::kGetSegment: SendSegment(connection, id.request_id, id.id); return true;
    case abi::MessageType::kFetch: AnswerFetch(connection, body, header.count); return true;
    case abi::MessageType::kAdvise: AnswerAdvice(connection, body, header.count); return true;
    default: return false;
  }
}

void FakeDaemon::SendLate() {
  const std::int64_t now_ns = NowNs(CLOCK_MONOTONIC);
  for (std::size_t i = 0; i < late_.size();) {
    if (late_[i].due_ns > now_ns) {
      ++i;
      continue;
    }
    Send(late_[i].fd, late_[i].datagram);
    late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ---- what tests do ---------------------------------------------------------------------------------------------------------

void FakeDaemon::Cache(const std::string& relative) {
  const std::lock_guard lock(mutex_);
  struct stat st;
  TIERD_CHECK(::lstat((options_.root + "/" + relative).c_str(), &st) == 0);
  if (!Publish(relative, st)) return;
  const auto size = static_cast<std::uint64_t>(st.st_size);
  const std::uint64_t chunks = size > options_.chunk_bytes ? (size + options_.chunk_bytes - 1) / options_.chunk_bytes : 1;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) PublishChunk(relative, st, chunk);
}

void FakeDaemon::CacheAll() {
  for (const auto& item : std::filesystem::recursive_directory_iterator(options_.root)) {
    if (item.is_regular_file() && !item.is_symlink()) Cache(std::filesystem::relative(item.path(), options_.root));
  }
}

void FakeDaemon::CacheInvented(const std::string& relative, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::vector<std::byte> content(bytes, std::byte{'i'});
  struct stat st {};
  st.st_mode = S_IFREG | 0600;
  st.st_size = static_cast<off_t>(bytes);
  st.st_ino = 1;
  Publish(relative, st);
  index_->SetLocation(Ordinal(KeyOf(relative)), Place(KeyOf(relative), content));
}

void FakeDaemon::Evict(const std::string& relative) {
  const std::lock_guard lock(mutex_);
  const abi::FileKey key = KeyOf(relative);
  const auto evict = [&](abi::FileKey own, bool erase) {
    const auto found = index_->Find(own);
    if (!found) return false;
    const ram::SlotValues values = index_->Read(found->ordinal);
    if (values.kind == abi::SlotKind::kChunked) return true;
    if (values.location == 0) return false;
    index_->ClearLocation(found->ordinal);
    if (erase) index_->Erase(found->ordinal);
    limbo_.push_back({values.location, values.size, own});
    return true;
  };
  evict(key, false);
  for (std::uint32_t chunk = 0; evict(abi::ChunkKeyOf(key, chunk), true); ++chunk) {
  }
}

void FakeDaemon::Expire(const std::string& relative) {
  const std::lock_guard lock(mutex_);
  if (const auto found = index_->Find(KeyOf(relative))) index_->SetDeadline(found->ordinal, abi::kDeadlineExpired);
}

std::size_t FakeDaemon::Recycle() {
  const std::lock_guard lock(mutex_);
  const ram::LeaseSet& leased = scanner_.Scan();
  std::erase_if(limbo_, [&](const Frame& frame) {
    if (leased.Covers(abi::EncodeLease(abi::LeaseKeyOf(frame.key), abi::DecodeLocation(frame.location).fill))) return false;
    std::memset(DataAt(frame.location), 0xee, frame.bytes);
    return true;
  });
  return limbo_.size();
}

void FakeDaemon::Grow() {
  const std::lock_guard lock(mutex_);
  auto options = index_->NextTable();
  options.slot_count = std::max(options.slot_count, index_->slot_count() * 2);
  auto table = ram::SharedIndex::CreateTable(options);
  TIERD_CHECK(table.ok());
  TIERD_CHECK(index_->AdoptTable(std::move(table).value()).ok());
  while (!index_->GrowStep(100'000)) {
  }
  index_->Heartbeat(NowNs(CLOCK_MONOTONIC_COARSE));
  if (auto old = index_->TakeRetired()) old_tables_.push_back(std::move(old));
}

void FakeDaemon::PublishAlias(const std::string& relative, const std::string& target) {
  const std::lock_guard lock(mutex_);
  ram::SlotValues alias;
  alias.kind = abi::SlotKind::kAlias;
  alias.mtime_ns = static_cast<std::int64_t>(KeyOf(target).lo);
  alias.ctime_ns = static_cast<std::int64_t>(KeyOf(target).hi);
  alias.deadline = abi::kDeadlineNever;
  TIERD_CHECK(index_->Insert(KeyOf(relative), alias, ram::OwnerId{}).has_value());
}

std::uint64_t FakeDaemon::Leases() {
  const std::lock_guard lock(mutex_);
  scanner_.Scan();
  return scanner_.leases();
}

abi::SessionPage* FakeDaemon::page(std::size_t n) {
  const std::lock_guard lock(mutex_);
  return connections_.at(n)->page.page();
}

std::size_t FakeDaemon::sessions() {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

void FakeDaemon::CloseAllSockets(bool revoke) {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : connections_) {
    if (revoke) connection->page.Revoke();
    connection->fd.Reset();
  }
}

// ---- in a process ----------------------------------------------------------------------------------------------------------

FakeDaemonProcess::FakeDaemonProcess(const FakeDaemonOptions& options, Mischief mischief) {
  int ready[2];
  TIERD_CHECK(::pipe(ready) == 0);
  pid_ = ::fork();
  TIERD_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    FakeDaemon daemon(options);
    daemon.mischief = mischief;
    daemon.CacheAll();
    (void)!::write(ready[1], "r", 1);
    daemon.Serve();
    ::_exit(0);
  }
  char c;
  TIERD_CHECK(::read(ready[0], &c, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
}

void FakeDaemonProcess::Pause() { ::kill(pid_, SIGSTOP); }
void FakeDaemonProcess::Resume() { ::kill(pid_, SIGCONT); }

void FakeDaemonProcess::Kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace tierd::testing
