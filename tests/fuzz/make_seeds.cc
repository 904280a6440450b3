// Writes the seeds of the corpora with the project's own encoders:  fuzz_make_seeds DIRECTORY  (normally tests/fuzz/corpus). To be run again when a
// format changes; what fuzzing finds beyond them is added by hand.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/ssd_fixture.h"
#include "tierd/config/config_view.h"
#include "tierd/ram/index_table.h"
#include "tierd/server/message_writer.h"
#include "tierd/ssd/superblock.h"

using namespace tierd;

namespace {

std::filesystem::path g_root;

void Save(const char* corpus, const char* name, std::string_view bytes) {
  std::filesystem::create_directories(g_root / corpus);
  std::ofstream(g_root / corpus / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string Text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <typename T>
std::string Raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename Entry>
std::string PathEntry(abi::MessageType type, Entry entry, std::initializer_list<std::string_view> paths) {
  server::MessageWriter writer(type);
  std::uint64_t id = 1;
  for (const std::string_view path : paths) {
    entry.path_bytes = static_cast<std::uint16_t>(path.size());
    entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + path.size()));
    entry.request_id = id++;
    writer.Add(entry, path);
  }
  return Text(writer.Finish());
}

template <typename Entry>
std::string Message(abi::MessageType type, const Entry& entry) {
  server::MessageWriter writer(type);
  writer.Add(entry);
  return Text(writer.Finish());
}

std::string Fetch(abi::FetchOp op, std::uint32_t source_id, std::initializer_list<std::string_view> paths) {
  abi::FetchEntry entry{};
  entry.op = static_cast<std::uint8_t>(op);
  entry.source_id = source_id;
  return PathEntry(abi::MessageType::kFetch, entry, paths);
}

std::string Advise(abi::AdviseOp op, std::uint32_t source_id, std::initializer_list<std::string_view> paths) {
  abi::AdviseEntry entry{};
  entry.op = static_cast<std::uint8_t>(op);
  entry.flags = abi::kAdviseRecursive;
  entry.source_id = source_id;
  return PathEntry(abi::MessageType::kAdvise, entry, paths);
}

std::string Hello() {
  abi::Hello hello{};
  hello.version_min = abi::kProtocolVersionMin;
  hello.version_max = abi::kProtocolVersion;
  hello.layout_version = abi::kLayoutVersion;
  return Message(abi::MessageType::kHello, hello);
}

void DaemonMessages() {
  Save("daemon_messages", "hello", Hello());
  Save("daemon_messages", "get_index", Message(abi::MessageType::kGetIndex, abi::IdEntry{7, 2}));
  Save("daemon_messages", "get_segment", Message(abi::MessageType::kGetSegment, abi::IdEntry{8, 1}));
  Save("daemon_messages", "fetch", Fetch(abi::FetchOp::kChunk, 1, {"a", "b/c", "train/class_7/image_0042.png"}));
  abi::FetchEntry part{};
  part.entry_bytes = sizeof part + 8 + sizeof(abi::FetchPart);
  part.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
  part.flags = abi::kFetchHandle | abi::kFetchPart;
  part.path_bytes = 1;
  server::MessageWriter parts(abi::MessageType::kFetch);
  parts.Add(part, "a", abi::FetchPart{100'000, 4096});
  Save("daemon_messages", "fetch_part", Text(parts.Finish()));
  Save("daemon_messages", "list_root", Fetch(abi::FetchOp::kList, 1, {""}));
  Save("daemon_messages", "fetch_odd_paths", Fetch(abi::FetchOp::kStat, 1, {"../x", "a//b", "/abs", "a/", std::string_view("a\0b", 3)}));
  Save("daemon_messages", "advise", Advise(abi::AdviseOp::kInvalidate, 1, {"b", "b/d"}));
}

std::string Framed(const std::string& datagram, bool with_fd = false) {
  return Raw(static_cast<std::uint16_t>(datagram.size() << 1 | (with_fd ? 1 : 0))) + datagram;
}

std::string Sources() {
  server::MessageWriter writer(abi::MessageType::kSources);
  for (const std::string_view path : {"/data", "/data/a", "/"}) {
    abi::SourceEntry entry{};
    entry.path_bytes = static_cast<std::uint16_t>(path.size());
    entry.entry_bytes = static_cast<std::uint32_t>(abi::PadTo8(sizeof entry + path.size()));
    entry.source_id = 1;
    entry.chunk_bytes = 4 << 20;
    entry.ttl_ms = 60'000;
    entry.staleness = static_cast<std::uint8_t>(abi::Staleness::kTtl);
    writer.Add(entry, path);
  }
  return Text(writer.Finish());
}

void ClientMessages() {
  abi::FetchReply reply{};
  reply.request_id = 1;
  reply.status = static_cast<std::uint8_t>(abi::FetchStatus::kFrame);
  reply.kind = static_cast<std::uint8_t>(abi::SlotKind::kFile);
  reply.location = abi::EncodeLocation({1, 4096, 9});
  reply.length = reply.size = 3000;
  const std::string fetch = Framed(Message(abi::MessageType::kFetchReply, reply));
  const std::string segment = Framed(Message(abi::MessageType::kSegment, abi::SegmentEntry{2, 16 << 20, 1, 0}), true);
  const std::string index = Framed(Message(abi::MessageType::kIndex, abi::IndexEntry{3, 147456, 2, 0}), true);
  const std::string advise = Framed(Message(abi::MessageType::kAdviseReply, abi::AdviseReply{4, 0, 0, 12}));
  Save("client_messages", "sources", Framed(Sources()));
  Save("client_messages", "all", Framed(Sources()) + fetch + segment + index + advise);
  Save("client_messages", "fetch_reply", fetch);
  Save("client_messages", "gone_segment", Framed(Message(abi::MessageType::kSegment, abi::SegmentEntry{2, 0, 1, 0})));
  Save("client_messages", "late_reply", Framed(Message(abi::MessageType::kAdviseReply, abi::AdviseReply{999, 0, 0, 0})));
  Save("client_messages", "descriptor_where_none_belongs", Framed(Message(abi::MessageType::kFetchReply, reply), true));
}

void ClientIndex() {
  ram::IndexTableOptions options;
  options.slot_count = 64;
  const auto table = std::move(ram::IndexTable::Create(options)).value();
  ram::SlotValues values;
  values.kind = abi::SlotKind::kFile;
  values.size = 3000;
  values.location = abi::EncodeLocation({1, 4096, 9});
  values.deadline = abi::kDeadlineNever;
  values.attr_class = 1;
  table->attrs()[1].mode = 0100644;
  for (std::uint64_t i = 1; i <= 8; ++i) (void)table->Insert({abi::Mix64(i), abi::Mix64(i + 64)}, values, 1);
  (void)table->Insert({~std::uint64_t{0}, 0}, values, 2);
  const auto* const bytes = reinterpret_cast<const char*>(table->header());
  const std::uint64_t total = table->shared_bytes();
  std::string seed = Raw(static_cast<std::uint16_t>(total / 4096)) + Raw(std::uint16_t{0}) + std::string(bytes, 512);
  for (std::uint64_t at = abi::kIndexHeaderBytes; at < total; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + at, sizeof word);
    if (word != 0) seed += Raw(static_cast<std::uint32_t>(at)) + Raw(std::uint32_t{0}) + Raw(word);
  }
  Save("client_index", "table", seed);
  seed[2] = 1;  // claims a page more than the file has
  Save("client_index", "short_file", seed);
}

void SessionPages() {
  std::string seed;
  for (int page = 0; page < 2; ++page) {
    seed += Raw(std::uint32_t{3}) + Raw(std::uint64_t{5}) + Raw(std::uint16_t{3});
    for (std::uint64_t i = 1; i <= 3; ++i) seed += Raw(abi::EncodeLease(abi::LeaseKeyOf({abi::Mix64(i), i}), static_cast<std::uint16_t>(i - 1)));
  }
  for (std::uint32_t ordinal = 0; ordinal < 8; ++ordinal) seed += Raw(abi::EncodeRingEntry(ordinal * 24, 1, 1'000'000'000, abi::Tier::kRam, ordinal));
  Save("session_page", "two_clients", seed);
  Save("session_page", "high_beyond_the_table", Raw(std::uint32_t{0xffffffff}) + Raw(std::uint64_t{1} << 63) + Raw(std::uint16_t{2048}) + std::string(64, '\x41'));
}

ssd::RecordIdentity Identity(std::uint64_t n) {
  ssd::RecordIdentity identity;
  identity.source_id = 11;
  identity.dataset_id = 12;
  identity.dataset_generation = 1;
  identity.key = {abi::Mix64(n), abi::Mix64(n + 1)};
  identity.version = {n, 3000, 1'700'000'000'000'000'000, 1'700'000'000'000'000'000};
  identity.chunk_bytes = 4 << 20;
  identity.fill_sequence = n;
  return identity;
}

void SsdFormats() {
  const ssd::RecordGeometry geometry = ssd::GeometryFor(4096);
  const std::string_view path = "train/class_7/image_0042.png";
  const ssd::RecordIdentity identity = Identity(5);
  std::string header(ssd::HeaderBytes(geometry, 3000, path.size()), '\0');
  ssd::EncodeHeader(fuzz::Salt(), geometry, fuzz::Place(), {identity, path, 3000, 77}, reinterpret_cast<std::byte*>(header.data()));
  for (const char repair : {'\0', '\1'}) {
    const std::string suffix = repair == 0 ? "" : "_repaired";
    Save("ssd_formats", ("header" + suffix).c_str(), std::string{'\0', repair} + header);

    ssd::TocBuilder toc;
    toc.Reset(fuzz::Place().region, fuzz::Place().region_epoch);
    for (std::uint64_t i = 1; i <= 5; ++i) {
      const std::string name = "train/class_7/image_" + std::to_string(i) + ".png";
      ssd::RecordIdentity id = Identity(i);
      id.dataset_generation = i / 3;
      toc.Add(id, {i, fuzz::Place().region, 7, ssd::EncodePlace(static_cast<std::uint32_t>(i) * 4096, 256), 3000}, name);
    }
    std::string region(65536, '\0');
    const std::uint32_t start = toc.Finish(fuzz::Salt(), 32768, 512, std::as_writable_bytes(std::span(region)));
    Save("ssd_formats", ("toc" + suffix).c_str(), std::string{'\1', repair} + region.substr(start));

    Save("ssd_formats", ("index_value" + suffix).c_str(), std::string{'\2', repair} + toc.EncodeIndexValue(fuzz::Salt()));

    ssd::Superblock superblock;
    superblock.salt = fuzz::Salt();
    superblock.lives = 4;
    superblock.region_bytes = 16 << 20;
    superblock.record_alignment = 4096;
    superblock.regions_per_file = 64;
    superblock.dataset_generations = {{12, 3}, {13, 1}};
    std::string bytes = ssd::EncodeSuperblock(superblock);
    if (repair != 0) bytes.resize(512);  // the target fills it up again
    Save("ssd_formats", ("superblock" + suffix).c_str(), std::string{'\3', repair} + bytes);
  }
}

void ConfigTexts() {
  Save("config_text", "defaults", config::PrintToml(config::Config::Defaults(), {}));
  Save("config_text", "one_source", "ram.capacity=25%\n[[source]]\npath = \"/data\"\nttl = \"60s\"\npolicy = \"lru\"\n[ram]\ncapacity = \"8 GiB\"\n[ssd]\ndirectory = \"off\"\n");
  Save("config_text", "two_sources", "sources = [\"/a\", \"/b\"]\n[[source]]\nname = \"x\"\npath = \"/c\"\nstaleness = \"immutable\"\n[limits]\nsessions = 7\n");
  Save("config_text", "bad_values", "[ram]\ncapacty = \"8 GB\"\ncapacity = 8\n[daemon]\nlog_level = \"loud\"\n[[source]]\npath = \"relative\"\n");
  Save("config_text", "broken_toml", "[ram\ncapacity = \"8 GiB\n");
  Save("config_text", "units", "1.5 TiB");
}

void ControlRequests() {
  const std::pair<const char*, const char*> requests[] = {
      {"version", "GET /v1/version\n"}, {"status", "GET /v1/status\n"}, {"doctor", "GET /v1/doctor\n"}, {"config", "GET /v1/config\n"},
      {"files", "GET /v1/files?path=@&limit=2\n"}, {"file", "GET /v1/file?path=@/b%2Fc\n"}, {"du", "GET /v1/du?path=@\n"},
      {"jobs", "GET /v1/jobs\n"}, {"job", "GET /v1/jobs/1\n"}, {"cancel", "DELETE /v1/jobs/1\n"},
      {"prefetch", "POST /v1/prefetch\n{\"paths\": [\"@/b\"], \"tier\": \"ram\", \"pin\": true, \"evict\": false}"},
      {"walk", "POST /v1/walk\n{\"paths\": [\"@\"]}"}, {"evict", "POST /v1/evict\n{\"paths\": [\"@/a\"], \"invalidate\": true}"},
      {"pin", "POST /v1/pin\n{\"paths\": [{\"b64\": \"L2RhdGE=\"}, \"@/b/d\"]}"}, {"unpin", "POST /v1/unpin\n{\"paths\": [\"@/b/d\"]}"},
      {"verify", "POST /v1/verify\n{}"}, {"reload", "POST /v1/config/reload\n{}"},
      {"set", "PATCH /v1/config\n{\"key\": \"ram.capacity\", \"value\": \"1 GiB\"}"}, {"part_of_a_method", "ET /v1/status\n{\"paths\": []}"},
      {"metrics", "GET /v1/metrics\n"}, {"policies", "GET /v1/policies\n"}, {"gc", "POST /v1/gc\n{}"},
      {"prefetch_ssd", "POST /v1/prefetch\n{\"paths\": [\"@\"], \"tier\": \"ssd\"}"},
      {"policies_priorities", "POST /v1/policies/priorities\n{\"paths\": [\"@/a\", \"@/b/c\"], \"priorities\": [1, 2.5]}"},
      {"policies_try", "POST /v1/policies/try\n{\"source\": \"data\", \"policy\": \"lru\", \"parameters\": \"\"}"},
      {"policies_try_stop", "POST /v1/policies/try\n{\"policy\": \"lru\", \"stop\": true}"},
      {"trace", "POST /v1/trace\n{\"source\": \"data\", \"path\": \"@/../trace\", \"most_bytes\": 65536}"}, {"trace_stop", "POST /v1/trace\n{\"stop\": true}"},
      {"plan_tell", "POST /v1/plans\n{\"plan\": {\"tierd_plan\": 1, \"kind\": \"torch.distributed\", \"samples\": 3, \"seed\": 7, \"world\": 1, \"rank\": 0, \"epochs\": 4}, "
                    "\"list\": \"told.list\", \"path\": \"@\", \"keep\": true, \"follow\": false}"},
      {"plans", "GET /v1/plans\n"}, {"plans_one", "GET /v1/plans/1\n"}, {"plans_remove", "DELETE /v1/plans/1\n"},
      {"outside", "POST /v1/evict\n{\"paths\": [\"/etc/passwd\", \"@/../x\", 7]}"}};
  for (const auto& [name, request] : requests) Save("control_request", name, request);
}

void DaemonSessions() {
  const auto framed = [](const std::string& datagram) { return std::string(1, '\0') + Raw(static_cast<std::uint16_t>(datagram.size())) + datagram; };
  const auto words = [](std::initializer_list<std::pair<std::uint16_t, std::uint64_t>> list) {
    std::string out(1, static_cast<char>(list.size() << 1 | 1));
    for (const auto& [place, value] : list) out += Raw(place) + Raw(value);
    return out;
  };
  const auto at = [](std::size_t bytes) { return static_cast<std::uint16_t>(bytes / 8); };
  const std::string greeted(1, '\1');
  const std::string fetch = framed(Fetch(abi::FetchOp::kChunk, 1, {"a", "b/c"}));
  Save("daemon_session", "fetch", greeted + fetch + framed(Fetch(abi::FetchOp::kList, 1, {"b"})) + framed(Fetch(abi::FetchOp::kStat, 1, {"b/d"})));
  Save("daemon_session", "advise", greeted + framed(Advise(abi::AdviseOp::kPrefetch, 1, {"b"})) + framed(Advise(abi::AdviseOp::kInvalidate, 1, {"b"})));
  Save("daemon_session", "index_and_segment", greeted + framed(Message(abi::MessageType::kGetIndex, abi::IdEntry{7, 1})) +
                                                  framed(Message(abi::MessageType::kGetSegment, abi::IdEntry{8, 1})));
  Save("daemon_session", "hostile_page",
       greeted + fetch +
           words({{at(offsetof(abi::SessionPage, lease_high)), ~std::uint64_t{0}}, {at(offsetof(abi::SessionPage, ring_head)), 9000},
                  {at(offsetof(abi::SessionPage, leases)), ~std::uint64_t{0}}, {at(offsetof(abi::SessionPage, counters)), 1},
                  {at(offsetof(abi::SessionPage, ring)), abi::EncodeRingEntry(3, 1, 0, abi::Tier::kRam, 8192)}}) +
           words({{at(offsetof(abi::SessionPage, ring_head)), 5}}));
  Save("daemon_session", "hello_by_hand", std::string(1, '\0') + framed(Hello()) + fetch);
  Save("daemon_session", "hello_twice", greeted + framed(Hello()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 64;
  }
  g_root = argv[1];
  DaemonMessages();
  ClientMessages();
  ClientIndex();
  SessionPages();
  SsdFormats();
  ConfigTexts();
  ControlRequests();
  DaemonSessions();
  return 0;
}
