// The page client_lib/abi/PROTOCOL.md against the structs and the code: each offset and size in its tables, and its worked bytes, read and written as the daemon does.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/messages.h"
#include "client_lib/abi/path_hash.h"
#include "tests/support/format_page.h"
#include "tierd/server/message_reader.h"
#include "tierd/server/message_writer.h"

namespace tierd::server {
namespace {

const testing::FormatPage kPage{TIERD_PROTOCOL_PAGE};

// The table of a struct: from its heading to the next one.
std::string Section(const std::string& name, std::size_t bytes) {
  const std::string& page = kPage.text();
  const std::size_t from = page.find("### " + name + ", " + std::to_string(bytes) + " bytes\n");
  if (from == std::string::npos) return "";
  return page.substr(from, page.find("\n#", from + 1) - from);
}

void ExpectRow(const std::string& section, std::size_t offset, std::size_t bytes, const std::string& field) {
  const std::string row = "| " + std::to_string(offset) + " | " + std::to_string(bytes) + " | `" + field + "` |";
  EXPECT_NE(section.find(row), std::string::npos) << "PROTOCOL.md lacks: " << row << " in\n" << section;
}

#define ROW(type, field) ExpectRow(Section(#type, sizeof(abi::type)), offsetof(abi::type, field), sizeof(abi::type::field), #field)

TEST(ProtocolPage, StructsOfGreeting) {
  ROW(MessageHeader, magic);
  ROW(MessageHeader, type);
  ROW(MessageHeader, version);
  ROW(MessageHeader, bytes);
  ROW(MessageHeader, count);
  ROW(Hello, version_min);
  ROW(Hello, version_max);
  ROW(Hello, layout_version);
  ROW(Hello, monotonic_coarse_ns);
  ROW(Hello, pid);
  ROW(Hello, flags);
  ROW(Welcome, version);
  ROW(Welcome, flags);
  ROW(Welcome, session_id);
  ROW(Welcome, instance);
  ROW(Welcome, monotonic_coarse_ns);
  ROW(Welcome, index_bytes);
  ROW(Welcome, session_bytes);
  ROW(Welcome, source_count);
  ROW(Welcome, page_kind);
  ROW(Refuse, reason);
  ROW(Refuse, text);
  ROW(SourceEntry, entry_bytes);
  ROW(SourceEntry, source_id);
  ROW(SourceEntry, root_dev);
  ROW(SourceEntry, root_ino);
  ROW(SourceEntry, chunk_bytes);
  ROW(SourceEntry, staleness);
  ROW(SourceEntry, reserved);
  ROW(SourceEntry, path_bytes);
  ROW(SourceEntry, ttl_ms);
}

TEST(ProtocolPage, StructsOfDescriptors) {
  ROW(IdEntry, request_id);
  ROW(IdEntry, id);
  ROW(IndexEntry, request_id);
  ROW(IndexEntry, bytes);
  ROW(IndexEntry, generation);
  ROW(IndexEntry, reserved);
  ROW(SegmentEntry, request_id);
  ROW(SegmentEntry, bytes);
  ROW(SegmentEntry, serial);
  ROW(SegmentEntry, page_kind);
}

TEST(ProtocolPage, StructsOfFetch) {
  ROW(FetchEntry, entry_bytes);
  ROW(FetchEntry, op);
  ROW(FetchEntry, flags);
  ROW(FetchEntry, path_bytes);
  ROW(FetchEntry, request_id);
  ROW(FetchEntry, source_id);
  ROW(FetchEntry, chunk);
  ROW(FetchEntry, expected_ino);
  ROW(FetchEntry, expected_mtime_ns);
  ROW(FetchEntry, expected_ctime_ns);
  ROW(FetchEntry, expected_size);
  ROW(FetchReply, request_id);
  ROW(FetchReply, status);
  ROW(FetchReply, reason);
  ROW(FetchReply, sys_errno);
  ROW(FetchReply, tier);
  ROW(FetchReply, kind);
  ROW(FetchReply, reserved);
  ROW(FetchReply, location);
  ROW(FetchReply, length);
  ROW(FetchReply, size);
  ROW(FetchReply, dev);
  ROW(FetchReply, ino);
  ROW(FetchReply, mtime_ns);
  ROW(FetchReply, ctime_ns);
  ROW(FetchReply, mode);
  ROW(FetchReply, uid);
  ROW(FetchReply, gid);
  ROW(FetchReply, nlink);
  ROW(FetchReply, deadline);
  ROW(FetchReply, ordinal);
  ROW(FetchReply, generation);
  ROW(FetchReply, begin);
  ROW(FetchPart, begin);
  ROW(FetchPart, bytes);
}

TEST(ProtocolPage, StructsOfAdvice) {
  ROW(AdviseEntry, entry_bytes);
  ROW(AdviseEntry, op);
  ROW(AdviseEntry, flags);
  ROW(AdviseEntry, path_bytes);
  ROW(AdviseEntry, request_id);
  ROW(AdviseEntry, source_id);
  ROW(AdviseEntry, said_ticks);
  ROW(AdviseReply, request_id);
  ROW(AdviseReply, error);
  ROW(AdviseReply, reserved);
  ROW(AdviseReply, affected);
}

TEST(ProtocolPage, MessagesAndLimits) {
  const auto expect = [](abi::MessageType type, const char* name) { kPage.ExpectContains("| " + std::to_string(static_cast<int>(type)) + " | `" + name + "` |"); };
  expect(abi::MessageType::kHello, "kHello");
  expect(abi::MessageType::kWelcome, "kWelcome");
  expect(abi::MessageType::kRefuse, "kRefuse");
  expect(abi::MessageType::kSources, "kSources");
  expect(abi::MessageType::kGetIndex, "kGetIndex");
  expect(abi::MessageType::kIndex, "kIndex");
  expect(abi::MessageType::kGetSegment, "kGetSegment");
  expect(abi::MessageType::kSegment, "kSegment");
  expect(abi::MessageType::kFetch, "kFetch");
  expect(abi::MessageType::kFetchReply, "kFetchReply");
  expect(abi::MessageType::kAdvise, "kAdvise");
  expect(abi::MessageType::kAdviseReply, "kAdviseReply");
  kPage.ExpectContains(std::to_string(abi::kMaxMessageBytes) + " bytes a datagram; " + std::to_string(abi::kMaxBatch) + " entries; a path below " + std::to_string(abi::kMaxPathBytes) + " bytes");
  kPage.ExpectContains("(protocol version " + std::to_string(abi::kProtocolVersion) + ")");
}

TEST(ProtocolPage, Hello) {
  MessageWriter writer(abi::MessageType::kHello);
  writer.Add(abi::Hello{.version_min = 1, .version_max = 1, .layout_version = 1, .monotonic_coarse_ns = 123'456'789'012'345, .pid = 4242, .flags = 0});
  const auto datagram = writer.Finish();
  kPage.ExpectBytes(datagram);
  ASSERT_TRUE(ReadHeader(datagram).ok());
  EXPECT_EQ(ReadHello(datagram)->pid, 4242u);
}

TEST(ProtocolPage, FetchAndItsReply) {
  const std::string path = "train/n01440764/n01440764_18.JPEG";
  abi::FetchEntry entry{};
  entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + path.size()));
  entry.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
  entry.path_bytes = static_cast<std::uint16_t>(path.size());
  entry.request_id = 7;
  entry.source_id = 0x5eed1234;
  MessageWriter question(abi::MessageType::kFetch);
  question.Add(entry, path);
  const auto datagram = question.Finish();
  kPage.ExpectBytes(datagram);
  const auto header = ReadHeader(datagram);
  ASSERT_TRUE(header.ok());
  const auto views = ReadFetch(datagram, header->count);
  ASSERT_TRUE(views.ok());
  EXPECT_EQ(views->at(0).path, path);
  EXPECT_TRUE(IsCanonicalRelative(path));

  // Of a file of several chunks, a part; and a whole one behind it.
  entry.flags = abi::kFetchHandle | abi::kFetchPart;
  entry.entry_bytes += sizeof(abi::FetchPart);
  MessageWriter parts(abi::MessageType::kFetch);
  parts.Add(entry, path, abi::FetchPart{100'000, 4096});
  entry.flags = abi::kFetchHandle;
  entry.entry_bytes -= sizeof(abi::FetchPart);
  parts.Add(entry, path);
  const auto both = parts.Finish();
  const auto read = ReadFetch(both, 2);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->at(0).path, path);
  EXPECT_EQ(read->at(0).part.begin, 100'000u);
  EXPECT_EQ(read->at(0).part.bytes, 4096u);
  EXPECT_EQ(read->at(1).part.bytes, 0u);
  for (std::size_t cut = 1; cut < both.size() - sizeof(abi::MessageHeader); ++cut) EXPECT_FALSE(ReadFetch(both.first(both.size() - cut), 2).ok()) << cut;

  abi::FetchReply reply{};
  reply.request_id = 7;
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.tier = static_cast<std::uint8_t>(abi::Tier::kSource);
  reply.kind = static_cast<std::uint8_t>(abi::SlotKind::kFile);
  reply.location = abi::EncodeLocation({7, 0x1234c0, 0x0102});
  reply.length = reply.size = 110'000;
  reply.dev = 0x33;
  reply.ino = 131'073;
  reply.mtime_ns = 1'700'000'000'123'456'789;
  reply.ctime_ns = 1'700'000'001'000'000'000;
  reply.mode = 0100644;
  reply.uid = reply.gid = 1000;
  reply.nlink = 1;
  reply.deadline = 0x34630;
  reply.ordinal = 12'345;
  reply.generation = 2;
  MessageWriter answer(abi::MessageType::kFetchReply);
  answer.Add(reply);
  kPage.ExpectBytes(answer.Finish());
}

}  // namespace
}  // namespace tierd::server
