// FakeDaemon's conversation: what it answers, rightly or with the mischief that was asked for.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/support/fake_daemon.h"
#include "tests/support/fake_daemon_wire.h"
#include "tierd/base/check.h"

namespace tierd::testing {

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
  if (mischief == Mischief::kNoSources) return;
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
  most_fetches = std::max(most_fetches.load(), count);
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

}  // namespace tierd::testing
