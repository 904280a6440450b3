// FakeDaemon's files: what it reads of the source, places in RAM and publishes.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "client_lib/abi/path_hash.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/fake_daemon_wire.h"
#include "tierd/base/check.h"

namespace tierd::testing {
namespace {

constexpr std::uint64_t kPage = 4096;

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

}  // namespace

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
  values.atime_ns = NsOf(st.st_atim);
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
    struct stat own{};
    // Names no file system here can have are a test's own invention (a readdir of its own): files.
    TIERD_CHECK(::lstat((directory + "/" + name).c_str(), &own) == 0 || errno == ENAMETOOLONG);
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

}  // namespace tierd::testing
