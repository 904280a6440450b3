#include "tests/support/fake_daemon.h"

#include <dirent.h>
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
#include "tierd/base/check.h"

namespace tierd::testing {
namespace {

constexpr std::uint64_t kPage = 4096;

std::int64_t NowNs(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
std::int64_t NsOf(const timespec& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

std::vector<std::byte> ReadRange(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd.get(), out.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  out.resize(done);
  return out;
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

void Send(int fd, const std::vector<std::byte>& datagram, std::vector<int> fds = {}) {
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

}  // namespace

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

// ---- conversation ----------------------------------------------------------------------------------------------------------

void FakeDaemon::Greet(Connection& connection) {
  if (options_.refuse != 0) {
    abi::Refuse refuse{};
    refuse.reason = options_.refuse;
    std::strcpy(refuse.text, "the test says no");
    Send(connection.fd.get(), Datagram(abi::MessageType::kRefuse).Add(refuse).Finish());
    return;
  }
  if (mischief == Mischief::kSilent) return;
  abi::Welcome welcome{};
  welcome.version = options_.answer_version;
  welcome.flags = options_.foreign_clock ? abi::kWelcomeForeignClock : 0;
  welcome.session_id = connection.page.page()->session_id;
  std::memcpy(welcome.instance, instance_, sizeof instance_);
  welcome.monotonic_coarse_ns = NowNs(CLOCK_MONOTONIC_COARSE);
  welcome.index_bytes = index_->shared_bytes();
  welcome.session_bytes = ram::SessionPage::kBytes;
  welcome.source_count = 1;
  Send(connection.fd.get(), Datagram(abi::MessageType::kWelcome).Add(welcome).Finish(), {index_->client_fd(), connection.page.client_fd()});
  struct stat st;
  TIERD_CHECK(::stat(options_.root.c_str(), &st) == 0);
  abi::SourceEntry source{};
  source.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof source + options_.root.size()));
  source.source_id = 7;
  source.root_dev = st.st_dev;
  source.root_ino = st.st_ino + options_.root_ino_offset;
  source.chunk_bytes = options_.chunk_bytes;
  source.staleness = static_cast<std::uint8_t>(options_.staleness);
  source.path_bytes = static_cast<std::uint16_t>(options_.root.size());
  source.ttl_ms = options_.ttl_ms;
  Send(connection.fd.get(), Datagram(abi::MessageType::kSources).Add(source, options_.root).Finish());
}

void FakeDaemon::SendIndex(Connection& connection, std::uint64_t request_id) {
  abi::IndexEntry entry{};
  entry.request_id = request_id;
  entry.bytes = index_->shared_bytes();
  entry.generation = index_->generation();
  Send(connection.fd.get(), Datagram(abi::MessageType::kIndex).Add(entry).Finish(), {index_->client_fd()});
}

void FakeDaemon::SendSegment(Connection& connection, std::uint64_t request_id, std::uint64_t serial) {
  ++segments_sent;
  abi::SegmentEntry entry{};
  entry.request_id = request_id;
  entry.serial = static_cast<std::uint32_t>(serial);
  for (const ram::Segment& segment : segments_) {
    if (segment.serial() != serial) continue;
    entry.bytes = segment.bytes();
    Send(connection.fd.get(), Datagram(abi::MessageType::kSegment).Add(entry).Finish(), {segment.client_fd()});
    return;
  }
  Send(connection.fd.get(), Datagram(abi::MessageType::kSegment).Add(entry).Finish());
}

void FakeDaemon::AnswerFetch(Connection& connection, std::span<const std::byte> body, std::uint32_t count) {
  for (std::size_t at = 0; count > 0; --count) {
    abi::FetchEntry entry;
    std::memcpy(&entry, body.data() + at, sizeof entry);
    const std::string path(reinterpret_cast<const char*>(body.data() + at + sizeof entry), entry.path_bytes);
    at += entry.entry_bytes;
    ++fetches;
    if (mischief == Mischief::kSilent) continue;
    abi::FetchReply reply = entry.op == static_cast<std::uint8_t>(abi::FetchOp::kList) ? List(entry, path) : Fetch(entry, path);
    if (bypass_reason != 0) {
      reply = {};
      reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kBypass);
      reply.reason = static_cast<std::uint8_t>(bypass_reason.load());
    }
    reply.request_id = entry.request_id;
    Reply(connection, reply);
  }
}

void FakeDaemon::Reply(Connection& connection, const abi::FetchReply& the_reply) {
  abi::FetchReply reply = the_reply;
  const int fd = connection.fd.get();
  if (mischief == Mischief::kBadLocation && reply.location != 0) reply.location = abi::EncodeLocation({abi::DecodeLocation(reply.location).segment, options_.segment_bytes - 64, 1});
  if (mischief == Mischief::kNoSegment && reply.location != 0) reply.location = abi::EncodeLocation({999'999, 0, 1});
  std::vector<std::byte> datagram = Datagram(abi::MessageType::kFetchReply, options_.answer_version).Add(reply).Finish();
  abi::MessageHeader header;
  std::memcpy(&header, datagram.data(), sizeof header);
  std::vector<int> fds;
  switch (mischief.load()) {
    case Mischief::kLate:
      late_.push_back({fd, NowNs(CLOCK_MONOTONIC) + std::int64_t{late_ms} * 1'000'000, datagram});
      return;
    case Mischief::kShortMessage: datagram.resize(20); break;
    case Mischief::kWrongLength: header.bytes += 8; break;
    case Mischief::kWrongMagic: header.magic ^= 1; break;
    case Mischief::kTooMany: header.count = 200; break;
    case Mischief::kSurplusFd: fds = {0}; break;
    case Mischief::kManyFds: fds.assign(12, 0); break;
    case Mischief::kUnknownType: header.type = 99; break;
    case Mischief::kStrangerFirst: {
      abi::FetchReply stranger = reply;
      stranger.request_id += 1'000'000;
      Send(fd, Datagram(abi::MessageType::kFetchReply).Add(stranger).Finish());
      break;
    }
    default: break;
  }
  std::memcpy(datagram.data(), &header, std::min(sizeof header, datagram.size()));
  Send(fd, datagram, fds);
}

void FakeDaemon::AnswerAdvice(Connection& connection, std::span<const std::byte> body, std::uint32_t count) {
  Datagram answer(abi::MessageType::kAdviseReply);
  for (std::size_t at = 0; count > 0; --count) {
    abi::AdviseEntry entry;
    std::memcpy(&entry, body.data() + at, sizeof entry);
    const std::string path(reinterpret_cast<const char*>(body.data() + at + sizeof entry), entry.path_bytes);
    at += entry.entry_bytes;
    abi::AdviseReply reply{};
    reply.request_id = entry.request_id;
    reply.affected = 1;
    ++advices;
    if (entry.op == static_cast<std::uint8_t>(abi::AdviseOp::kInvalidate)) {
      ++invalidations;
      if (const auto found = index_->Find(KeyOf(path))) index_->SetDeadline(found->ordinal, abi::kDeadlineExpired);
    }
    answer.Add(reply);
  }
  if (mischief != Mischief::kSilent) Send(connection.fd.get(), answer.Finish());
}

// ---- files -----------------------------------------------------------------------------------------------------------------

abi::FileKey FakeDaemon::KeyOf(const std::string& relative) const { return abi::HashPath(secret_, 7, relative.data(), relative.size()); }

std::byte* FakeDaemon::DataAt(std::uint64_t location) {
  const abi::Location at = abi::DecodeLocation(location);
  for (const ram::Segment& segment : segments_) {
    if (segment.serial() == at.segment) return segment.data() + at.offset;
  }
  return nullptr;
}

std::uint64_t FakeDaemon::Place(abi::FileKey key, std::span<const std::byte> bytes) {
  (void)key;
  const std::uint64_t unit = bytes.size() >= 64 * 1024 ? kPage : abi::kGranule;
  std::uint64_t offset = (used_in_last_ + unit - 1) / unit * unit;
  const std::uint64_t room = (bytes.size() + unit - 1) / unit * unit;
  if (segments_.empty() || offset + room > options_.segment_bytes) {
    auto segment = factory_.Create(options_.segment_bytes);
    TIERD_CHECK(segment.ok());
    segments_.push_back(std::move(segment).value());
    offset = 0;
  }
  used_in_last_ = offset + room;
  ram::Segment& segment = segments_.back();
  std::memcpy(segment.data() + offset, bytes.data(), bytes.size());
  if (++next_fill_ == 0) next_fill_ = 1;
  return abi::EncodeLocation({segment.serial(), offset, next_fill_});
}

std::uint32_t FakeDaemon::Ordinal(abi::FileKey key) {
  const auto found = index_->Find(key);
  return found ? found->ordinal : 0xffffffffu;
}

bool FakeDaemon::Publish(const std::string& relative, const struct stat& st) {
  const abi::FileKey key = KeyOf(relative);
  ram::SlotValues values;
  values.size = static_cast<std::uint64_t>(st.st_size);
  values.attr_class = index_->AttrClass({st.st_dev, st.st_mode, st.st_uid, st.st_gid, static_cast<std::uint32_t>(st.st_nlink), 4096, 0});
  values.kind = S_ISDIR(st.st_mode) ? abi::SlotKind::kDirectory : S_ISLNK(st.st_mode) ? abi::SlotKind::kSymlink
                : values.size > options_.chunk_bytes                ? abi::SlotKind::kChunked
                                                                    : abi::SlotKind::kFile;
  values.mtime_ns = NsOf(st.st_mtim);
  values.ctime_ns = NsOf(st.st_ctim);
  values.ino = st.st_ino;
  values.deadline = options_.staleness == abi::Staleness::kImmutable ? abi::kDeadlineNever
                    : options_.staleness == abi::Staleness::kOpen    ? abi::kDeadlineExpired
                                                                     : abi::TicksOf(NowNs(CLOCK_MONOTONIC_COARSE) + std::int64_t{options_.ttl_ms} * 1'000'000);
  if (const auto found = index_->Find(key)) {
    const ram::SlotValues old = index_->Read(found->ordinal);
    const bool same = old.size == values.size && old.ino == values.ino && old.mtime_ns == values.mtime_ns && old.ctime_ns == values.ctime_ns;
    if (same) {
      index_->SetDeadline(found->ordinal, values.deadline);
      return S_ISREG(st.st_mode) && values.size != 0;
    }
    if (old.kind == abi::SlotKind::kFile && old.location != 0) limbo_.push_back({old.location, old.size, key});
  }
  values.location = values.kind == abi::SlotKind::kChunked ? next_tag_++ : 0;
  TIERD_CHECK(index_->Insert(key, values, ram::OwnerId{}).has_value());
  return S_ISREG(st.st_mode) && values.size != 0;
}

std::uint64_t FakeDaemon::PublishChunk(const std::string& relative, const struct stat& st, std::uint32_t chunk) {
  const abi::FileKey key = KeyOf(relative);
  const auto size = static_cast<std::uint64_t>(st.st_size);
  const bool chunked = size > options_.chunk_bytes;
  const abi::FileKey own = chunked ? abi::ChunkKeyOf(key, chunk) : key;
  const std::uint64_t tag = chunked ? index_->Read(Ordinal(key)).location : 0;
  if (const auto found = index_->Find(own)) {
    const ram::SlotValues values = index_->Read(found->ordinal);
    if (values.location != 0 && (!chunked || static_cast<std::uint64_t>(values.mtime_ns) == tag)) return values.location;
  }
  const std::uint64_t begin = std::uint64_t{chunk} * options_.chunk_bytes;
  const std::vector<std::byte> bytes = ReadRange(options_.root + "/" + relative, begin, std::min(options_.chunk_bytes, size - begin));
  const std::uint64_t location = Place(own, bytes);
  if (!chunked) {
    index_->SetLocation(Ordinal(key), location);
    return location;
  }
  ram::SlotValues values;
  values.kind = abi::SlotKind::kChunk;
  values.size = bytes.size();
  values.mtime_ns = static_cast<std::int64_t>(tag);
  values.deadline = abi::kDeadlineNever;
  values.location = location;
  TIERD_CHECK(index_->Insert(own, values, ram::OwnerId{}).has_value());
  return location;
}

abi::FetchReply FakeDaemon::Fetch(const abi::FetchEntry& entry, const std::string& relative) {
  abi::FetchReply reply{};
  reply.ordinal = 0xffffffffu;
  const auto fail = [&](int error) {
    reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kError);
    reply.sys_errno = static_cast<std::uint16_t>(error);
    return reply;
  };
  const auto bypass = [&](abi::Fallback reason) {
    reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kBypass);
    reply.reason = static_cast<std::uint8_t>(reason);
    return reply;
  };
  const std::string given = relative.empty() ? options_.root : options_.root + "/" + relative;
  std::string at = relative;
  struct stat st;
  if ((entry.flags & abi::kFetchNoFollow) != 0) {
    if (::lstat(given.c_str(), &st) != 0) return fail(errno);
  } else {
    char* real = ::realpath(given.c_str(), nullptr);
    if (real == nullptr) return fail(errno);
    const std::string canonical(real);
    std::free(real);
    if (canonical.compare(0, options_.root.size(), options_.root) != 0) return bypass(abi::Fallback::kPath);
    at = canonical.size() > options_.root.size() ? canonical.substr(options_.root.size() + 1) : "";
    if (at != relative) {
      const abi::FileKey target = KeyOf(at);
      if ((entry.flags & abi::kFetchAlias) == 0 || entry.expected_ino != target.lo || entry.expected_size != target.hi) {
        ram::SlotValues alias;
        alias.kind = abi::SlotKind::kAlias;
        alias.mtime_ns = static_cast<std::int64_t>(target.lo);
        alias.ctime_ns = static_cast<std::int64_t>(target.hi);
        alias.deadline = abi::TicksOf(NowNs(CLOCK_MONOTONIC_COARSE) + std::int64_t{options_.ttl_ms} * 1'000'000);
        TIERD_CHECK(index_->Insert(KeyOf(relative), alias, ram::OwnerId{}).has_value());
        reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kRetry);
        return reply;
      }
    }
    if (::stat(canonical.c_str(), &st) != 0) return fail(errno);
    if (S_ISREG(st.st_mode) && ::access(canonical.c_str(), R_OK) != 0) return fail(errno);
  }
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) return bypass(abi::Fallback::kNotRegular);
  const bool bytes = Publish(at, st);
  const auto size = static_cast<std::uint64_t>(st.st_size);
  reply.size = size;
  reply.dev = st.st_dev;
  reply.ino = st.st_ino;
  reply.mtime_ns = NsOf(st.st_mtim);
  reply.ctime_ns = NsOf(st.st_ctim);
  reply.mode = st.st_mode;
  reply.uid = st.st_uid;
  reply.gid = st.st_gid;
  reply.nlink = static_cast<std::uint32_t>(st.st_nlink);
  reply.kind = static_cast<std::uint8_t>(index_->Read(Ordinal(KeyOf(at))).kind);
  reply.deadline = index_->Read(Ordinal(KeyOf(at))).deadline;
  reply.generation = index_->generation();
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kMeta);
  if (entry.op == static_cast<std::uint8_t>(abi::FetchOp::kStat) || !bytes) return reply;
  if ((entry.flags & abi::kFetchHandle) != 0 &&
      (entry.expected_ino != reply.ino || entry.expected_size != size || entry.expected_mtime_ns != reply.mtime_ns || entry.expected_ctime_ns != reply.ctime_ns))
    return bypass(abi::Fallback::kChanged);
  const bool chunked = size > options_.chunk_bytes;
  if (std::uint64_t{entry.chunk} * options_.chunk_bytes >= size) return bypass(abi::Fallback::kChanged);
  reply.location = PublishChunk(at, st, entry.chunk);
  reply.length = chunked ? std::min(options_.chunk_bytes, size - std::uint64_t{entry.chunk} * options_.chunk_bytes) : size;
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.tier = static_cast<std::uint8_t>(abi::Tier::kSource);
  reply.ordinal = Ordinal(chunked ? abi::ChunkKeyOf(KeyOf(at), entry.chunk) : KeyOf(at));
  return reply;
}

abi::FetchReply FakeDaemon::List(const abi::FetchEntry& entry, const std::string& relative) {
  (void)entry;
  abi::FetchReply reply{};
  reply.ordinal = 0xffffffffu;
  const std::string directory = relative.empty() ? options_.root : options_.root + "/" + relative;
  struct stat st;
  if (::stat(directory.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kError);
    reply.sys_errno = ENOTDIR;
    return reply;
  }
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(directory)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  std::vector<std::byte> bytes;
  for (const std::string& name : names) {
    struct stat own;
    TIERD_CHECK(::lstat((directory + "/" + name).c_str(), &own) == 0);
    abi::ListingEntry head{};
    head.ino = own.st_ino;
    head.name_bytes = static_cast<std::uint16_t>(name.size());
    head.d_type = S_ISDIR(own.st_mode) ? DT_DIR : S_ISLNK(own.st_mode) ? DT_LNK : DT_REG;
    const std::size_t at = bytes.size();
    bytes.resize(at + abi::PadTo8(sizeof head + name.size()));
    std::memcpy(bytes.data() + at, &head, sizeof head);
    std::memcpy(bytes.data() + at + sizeof head, name.data(), name.size());
  }
  reply.kind = static_cast<std::uint8_t>(abi::SlotKind::kDirectory);
  if (bytes.empty()) {
    reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kMeta);
    return reply;
  }
  const abi::FileKey key = abi::ListingKeyOf(KeyOf(relative));
  ram::SlotValues values;
  values.kind = abi::SlotKind::kListing;
  values.size = bytes.size();
  values.deadline = abi::TicksOf(NowNs(CLOCK_MONOTONIC_COARSE) + std::int64_t{options_.ttl_ms} * 1'000'000);
  values.location = Place(key, bytes);
  TIERD_CHECK(index_->Insert(key, values, ram::OwnerId{}).has_value());
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.tier = static_cast<std::uint8_t>(abi::Tier::kSource);
  reply.location = values.location;
  reply.length = bytes.size();
  reply.size = bytes.size();
  reply.ordinal = Ordinal(key);
  reply.generation = index_->generation();
  return reply;
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
