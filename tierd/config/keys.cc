#include "tierd/config/keys.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <span>

#include "tierd/base/check.h"
#include "tierd/config/units.h"

namespace tierd::config {
namespace {

using engine::SourceOptions;

// How one type is read and written. `set` returns false when the text is not of the type or out of range.
struct Codec {
  const char* type;
  bool quoted;
  std::function<bool(void* field, const Value&)> set;
  std::function<std::string(const void* field)> get;
};

template <typename T>
T& As(void* field) {
  return *static_cast<T*>(field);
}
template <typename T>
const T& As(const void* field) {
  return *static_cast<const T*>(field);
}

bool IsText(const Value& value) { return value.type == Value::Type::kString; }
bool IsZero(const Value& value) { return value.type == Value::Type::kInteger && value.text == "0"; }

Codec Size(const char* type, std::uint64_t low, std::uint64_t high, bool power_of_two = false) {
  return {type, true,
          [=](void* field, const Value& value) {
            if (!IsText(value) && !IsZero(value)) return false;
            const auto bytes = ParseSize(value.text);
            if (!bytes || *bytes < low || *bytes > high || (power_of_two && (*bytes & (*bytes - 1)) != 0)) return false;
            As<std::uint64_t>(field) = *bytes;
            return true;
          },
          [](const void* field) { return FormatSize(As<std::uint64_t>(field)); }};
}

// Of a second: people write "200 MB/s" as well.
Codec Rate(const char* type, std::uint64_t high) {
  Codec codec = Size(type, 0, high);
  codec.set = [set = codec.set](void* field, Value value) {
    if (value.text.ends_with("/s")) value.text.resize(value.text.size() - 2);
    return set(field, value);
  };
  return codec;
}

Codec AmountOf(const char* type, std::uint64_t low, std::uint64_t high, bool percent) {
  return {type, true,
          [=](void* field, const Value& value) {
            if (!IsText(value)) return false;
            Amount& amount = As<Amount>(field);
            if (value.text == "auto") {
              amount = Amount{};
              return true;
            }
            if (const auto share = ParsePercent(value.text); share && percent) {
              amount = Amount{Amount::Kind::kPercent, 0, *share};
              return true;
            }
            const auto bytes = ParseSize(value.text);
            if (!bytes || *bytes < low || *bytes > high) return false;
            amount = Amount{Amount::Kind::kBytes, *bytes, 0};
            return true;
          },
          [](const void* field) -> std::string {
            const Amount& amount = As<Amount>(field);
            if (amount.kind == Amount::Kind::kAuto) return "auto";
            return amount.kind == Amount::Kind::kPercent ? FormatPercent(amount.percent) : FormatSize(amount.bytes);
          }};
}

Codec Duration(const char* type, std::uint32_t low_ms, std::uint32_t high_ms) {
  return {type, true,
          [=](void* field, const Value& value) {
            if (!IsText(value) && !IsZero(value)) return false;
            const auto ms = ParseDurationMs(value.text);
            if (!ms || *ms < low_ms || *ms > high_ms) return false;
            As<std::uint32_t>(field) = *ms;
            return true;
          },
          [](const void* field) { return FormatDurationMs(As<std::uint32_t>(field)); }};
}

// 0 stands for "auto".
Codec DurationOrAuto(const char* type, std::uint32_t low_ms, std::uint32_t high_ms) {
  const Codec plain = Duration(type, low_ms, high_ms);
  return {type, true,
          [plain](void* field, const Value& value) {
            if (!IsText(value) || value.text != "auto") return plain.set(field, value);
            As<std::uint32_t>(field) = 0;
            return true;
          },
          [plain](const void* field) { return As<std::uint32_t>(field) == 0 ? "auto" : plain.get(field); }};
}

template <typename T>
Codec Number(const char* type, T low, T high) {
  return {type, false,
          [=](void* field, const Value& value) {
            if (value.type != Value::Type::kInteger && !(value.loose && IsText(value))) return false;
            std::uint64_t number = 0;
            const char* end = value.text.data() + value.text.size();
            const auto [stop, error] = std::from_chars(value.text.data(), end, number);
            if (error != std::errc() || stop != end || number < low || number > high) return false;
            As<T>(field) = static_cast<T>(number);
            return true;
          },
          [](const void* field) { return std::to_string(As<T>(field)); }};
}

Codec Boolean() {
  return {"true or false", false,
          [](void* field, const Value& value) {
            const bool is_boolean = value.type == Value::Type::kBoolean || (value.loose && IsText(value));
            if (!is_boolean || (value.text != "true" && value.text != "false")) return false;
            As<bool>(field) = value.text == "true";
            return true;
          },
          [](const void* field) -> std::string { return As<bool>(field) ? "true" : "false"; }};
}

// One of some words; T is an enum or bool whose values are 0, 1, 2, ... in the order of the words.
template <typename T>
Codec Choice(const char* type, std::vector<std::string> words) {
  return {type, true,
          [words](void* field, const Value& value) {
            const auto word = std::find(words.begin(), words.end(), value.text);
            if (!IsText(value) || word == words.end()) return false;
            As<T>(field) = static_cast<T>(word - words.begin());
            return true;
          },
          [words](const void* field) { return words[static_cast<std::size_t>(As<T>(field))]; }};
}

Codec Text(const char* type, std::function<bool(const std::string&)> accepts) {
  return {type, true,
          [accepts](void* field, const Value& value) {
            if (!IsText(value) || value.text.find('\0') != std::string::npos || value.text.find('\n') != std::string::npos || !accepts(value.text)) return false;
            As<std::string>(field) = value.text;
            return true;
          },
          [](const void* field) { return As<std::string>(field); }};
}

constexpr std::size_t kMaxPathBytes = 4095;
constexpr std::size_t kMaxSocketPathBytes = 107;  // sockaddr_un

bool IsAbsolute(const std::string& path) { return !path.empty() && path[0] == '/' && path.size() <= kMaxPathBytes; }

Codec Path(const char* type, std::vector<std::string> words, std::size_t max_bytes = kMaxPathBytes) {
  Codec codec = Text(type, [words, max_bytes](const std::string& text) {
    return (IsAbsolute(text) && text.size() <= max_bytes) || std::find(words.begin(), words.end(), text) != words.end();
  });
  codec.set = [words, set = codec.set](void* field, const Value& value) {
    if (!set(field, value)) return false;
    std::string& path = As<std::string>(field);
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return true;
  };
  return codec;
}

bool IsName(const std::string& text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  return !text.empty() && text.size() <= 64 && text.find_first_not_of(kAllowed) == std::string::npos && text[0] != '.';
}

bool IsPolicyName(const std::string& text) {
  return !text.empty() && text.size() <= 31 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
}

// "127.0.0.1:9469", "[::1]:9469" or "off".
bool IsListenAddress(const std::string& text) {
  if (text == "off") return true;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const std::string host = text.substr(0, colon);
  const std::string_view port = std::string_view(text).substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  in6_addr address;  // large enough for either
  std::uint32_t number = 0;
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return ::inet_pton(bracketed ? AF_INET6 : AF_INET, bracketed ? host.substr(1, host.size() - 2).c_str() : host.c_str(), &address) == 1 && error == std::errc() &&
         stop == port.data() + port.size() && number <= 65535;
}

struct Entry {
  KeyInfo info;
  Codec codec;
  std::function<void*(Settings&, SourceOptions*)> field;
};

// Options of a section: Part is its struct, `in` finds it in Settings.
template <typename Part, typename In>
class SectionTable {
 public:
  SectionTable(std::vector<Entry>& entries, std::string section, In in) : entries_(entries), section_(std::move(section)), in_(in) {}

  template <typename T>
  void Add(const char* name, T Part::*member, Codec codec, bool reloadable, const char* summary) {
    KeyInfo info{section_ + "." + name, codec.type, reloadable, summary};
    const In in = in_;
    entries_.push_back({std::move(info), std::move(codec), [in, member](Settings& settings, SourceOptions* source) -> void* {
                          return &(in(settings, source).*member);
                        }});
  }

 private:
  std::vector<Entry>& entries_;
  const std::string section_;
  const In in_;
};

constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;
constexpr bool kReload = true;
constexpr bool kRestart = false;
constexpr std::uint32_t kDayMs = 86'400'000;

void AddSource(std::vector<Entry>& entries) {
  SectionTable<SourceOptions, SourceOptions& (*)(Settings&, SourceOptions*)> table(
      entries, "source", +[](Settings&, SourceOptions* source) -> SourceOptions& {
        TIERD_CHECK(source != nullptr);
        return *source;
      });
  using S = SourceOptions;
  table.Add("path", &S::path, Path("an absolute path", {}), kRestart, "Directory to accelerate. Everything below it on the same mount belongs to it; file systems mounted below it do not.");
  table.Add("name", &S::name, Text("a name of letters, digits, '_', '-' and '.', 64 at most", IsName), kRestart,
            "Label in metrics and status. Default: the last component of the path.");
  table.Add("staleness", &S::staleness, Choice<abi::Staleness>("\"immutable\", \"ttl\" or \"open\"", {"immutable", "ttl", "open"}), kRestart,
            "How old an answer may be. immutable: files never change (checked once per daemon life). ttl: see ttl. open: the source is asked at each open, by an open of its own.");
  table.Add("ttl", &S::ttl_ms, Duration("a time of 100ms to 1d, such as \"60s\"", 100, kDayMs), kRestart,
            "With staleness ttl: what a read returns is no older than this. Longer: fewer stats of the source.");
  table.Add("racy_window", &S::racy_window_ms, Duration("a time of 0 to 1h, such as \"10s\"", 0, 3'600'000), kRestart,
            "Files whose stamps are younger are read again at their first deadline: a second write may not show in the stamps. Until they are 2 s old each use is compared with the source. Longer: more reads of fresh files.");
  table.Add("access_recheck", &S::access_recheck_ms, DurationOrAuto("a time of 100ms to 30d, such as \"10min\", or \"auto\"", 100, 30 * kDayMs), kRestart,
            "Revoked access is noticed in this time: so often at least the source is asked by an open whether a cached file may still be read, unless anybody may (o+r, and o+x on the way). auto: 10min; with staleness immutable 24h. Longer: fewer opens.");
  table.Add("chunk_size", &S::chunk_bytes, Size("a power of two of 64 KiB to 64 MiB, such as \"4 MiB\"", 64 * kKiB, 64 * kMiB, true), kRestart,
            "Unit of caching of larger files. Larger: fewer requests, more read for one small read of a large file.");
  table.Add("engine", &S::engine, Choice<engine::EngineChoice>("\"auto\", \"io_uring\" or \"threads\"", {"auto", "io_uring", "threads"}), kRestart,
            "How the source is read. auto: threads on a network file system and io_uring on others, unless the other is clearly faster, which is measured once a few thousand small files are read in a row.");
  table.Add("max_inflight", &S::max_inflight, Number<std::uint32_t>("a number of 4 to 448", 4, 448), kRestart,
            "Requests to the source at a time at most; how many are used adapts to its latency, and a quarter of the open files the daemon may have is the most for all sources. More: a thread each with the threads engine.");
  table.Add("byte_budget", &S::bytes_per_s, Rate("a size per second such as \"200 MB\", or 0 for none", kHuge), kReload,
            "Bytes per second drawn from the source at most, demand first. 0: no limit.");
  table.Add("request_budget", &S::requests_per_s, Number<std::uint64_t>("a number per second of 0 (no limit) to 10000000", 0, 10'000'000), kReload,
            "Requests per second to the source at most, reads, walks and the resolving of links together, demand first. A request is one read or stat of a file, one path resolved, or one directory opened or 512 names of it listed: a few operations of the file system (open, stat, read, close). 0: no limit.");
  table.Add("demand_timeout", &S::demand_timeout_ms, Duration("a time of 10ms to 1h, such as \"800ms\"", 10, 3'600'000), kRestart,
            "A reader that has waited so long is told to read the source itself. Longer: readers wait longer for a hung source.");
  table.Add("hung_cap", &S::hung_cap, Number<std::uint32_t>("a number of 1 to 512", 1, 512), kRestart,
            "Requests that may hang in the source before readers are sent there at once. More: each holds a frame of memory and maybe a thread.");
  table.Add("warm", &S::warm, Choice<bool>("\"auto\" or \"off\"", {"off", "auto"}), kRestart,
            "auto: when reads look like an epoch and there is room, the rest is brought up ahead of use.");
  table.Add("ahead", &S::ahead, Choice<bool>("\"auto\" or \"off\"", {"off", "auto"}), kRestart,
            "auto: what a plan says is read next is brought just before it is read.");
  table.Add("mode", &S::mode, Choice<engine::OrderMode>("\"seeded\", \"observed\" or \"blind\"", {"seeded", "observed", "blind"}), kRestart,
            "What may be known of the order in which readers read. seeded: plans that are told, and what is seen. observed: what is seen. blind: neither.");
  table.Add("policy", &S::policy, Text("the name of a policy, such as \"auto\" or \"lru\"", IsPolicyName), kReload,
            "Who may enter a tier and who leaves. auto fills once and evicts only what nobody reads any more, which no policy beats without knowing the order; where a plan says it, what is read last leaves first.");
  table.Add("policy_parameters", &S::policy_parameters, Text("text of the form \"key=value,key=value\", 1000 bytes at most", [](const std::string& text) { return text.size() <= 1000; }),
            kReload, "Given to the policy as it is.");
  table.Add("offline_ok", &S::offline_ok, Boolean(), kRestart,
            "With staleness immutable: after a restart, serve what is on the SSD even when the source cannot be asked.");
  table.Add("check_reads", &S::check_reads, Number<std::uint32_t>("a number of 0 to 1000000", 0, 1'000'000), kRestart,
            "Every Nth chunk read from the source is read a second time and compared before anybody gets it: what differs is counted, logged and not kept. 0: none. For hunts.");
}

void AddDaemon(std::vector<Entry>& entries) {
  SectionTable<DaemonSettings, DaemonSettings& (*)(Settings&, SourceOptions*)> table(
      entries, "daemon", +[](Settings& settings, SourceOptions*) -> DaemonSettings& { return settings.daemon; });
  using D = DaemonSettings;
  table.Add("runtime_dir", &D::runtime_dir, Path("an absolute path of 90 bytes at most, or \"auto\"", {"auto"}, 90), kRestart,
            "Directory of the sockets, made 0700. auto: $XDG_RUNTIME_DIR/tierd, else /tmp/tierd-UID. With another one programs need TIERD_SOCKET.");
  table.Add("socket", &D::socket, Path("an absolute path of 107 bytes at most, or \"auto\"", {"auto"}, kMaxSocketPathBytes), kRestart,
            "Where clients connect. auto: tierd.sock in runtime_dir; clients find that of the default runtime_dir by themselves, another one by TIERD_SOCKET.");
  table.Add("control_socket", &D::control_socket, Path("an absolute path of 107 bytes at most, or \"auto\"", {"auto"}, kMaxSocketPathBytes), kRestart,
            "Where tierctl connects. auto: control.sock beside the socket. Elsewhere tierctl needs --socket.");
  table.Add("log_level", &D::log_level,
            Choice<LogLevel>("\"trace\", \"debug\", \"info\", \"warn\", \"error\" or \"off\"", {"trace", "debug", "info", "warn", "error", "off"}), kReload,
            "Least important lines that are logged.");
  table.Add("metrics_address", &D::metrics_address, Text("an address in numbers such as \"127.0.0.1:9469\" or \"[::1]:9469\", or \"off\"", IsListenAddress), kRestart,
            "Where Prometheus scrapes /metrics. Numbers only, no paths and no users; port 0 takes a free one, and so does the default where another daemon of the node has it.");
}

void AddRam(std::vector<Entry>& entries) {
  SectionTable<RamSettings, RamSettings& (*)(Settings&, SourceOptions*)> table(
      entries, "ram", +[](Settings& settings, SourceOptions*) -> RamSettings& { return settings.ram; });
  using R = RamSettings;
  table.Add("capacity", &R::capacity, AmountOf("a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\"", 16 * kMiB, kHuge, true), kReload,
            "Memory of the RAM tier, a hard limit. auto: a quarter of memory (or of the cgroup's limit), and half of what is free at the start at most; half of that where memory may not come back (ram.seal).");
  table.Add("pages", &R::pages,
            Choice<engine::PagesChoice>("\"auto\", \"hugetlb\", \"shmem\", \"tmpfs\" or \"4k\"", {"auto", "hugetlb", "shmem", "tmpfs", "4k"}), kRestart,
            "Kind of memory pages. auto: the first of these that works. 2 MiB pages make the first touch in each process three times faster.");
  table.Add("segment_size", &R::segment_size, AmountOf("a size of 2 MiB to 256 MiB, or \"auto\"", 2 * kMiB, 256 * kMiB, false), kRestart,
            "Memory comes and goes in these steps. auto: a sixteenth of the capacity, 16 to 256 MiB. At least what a chunk needs. Larger: fewer mappings, memory returns later.");
  table.Add("seal", &R::seal, Choice<ram::SegmentSeal>("\"auto\", \"write\" or \"shrink\"", {"auto", "write", "shrink"}), kRestart,
            "What keeps processes of the user from writing into the cache. auto: a private tmpfs, else sealed memory, which returns only by whole segments that no client maps. "
            "write: sealed memory always. shrink: as auto, but without a private tmpfs memory returns at once and any process of the user can write into the cache.");
  table.Add("pin_cap", &R::pin_cap, AmountOf("a size of 1 MiB or more, a share of the capacity such as \"25%\", or \"auto\"", kMiB, kHuge, true), kRestart,
            "Memory that one client's open views may hold; past it the client gets copies. auto: a quarter of the capacity.");
  table.Add("min_available", &R::min_available, AmountOf("a size with a unit such as \"512 MiB\", or \"auto\"", 0, kHuge, false), kRestart,
            "Memory left to everybody else: when less is available the tier gives memory back. auto: 512 MiB, or an eighth of memory (or of the cgroup's limit) where that is less.");
}

void AddSsd(std::vector<Entry>& entries) {
  SectionTable<SsdSettings, SsdSettings& (*)(Settings&, SourceOptions*)> table(
      entries, "ssd", +[](Settings& settings, SourceOptions*) -> SsdSettings& { return settings.ssd; });
  using S = SsdSettings;
  table.Add("directory", &S::directory, Path("an absolute path, \"auto\" or \"off\"", {"auto", "off"}), kRestart,
            "Where the SSD tier lives: on a local disk (not tmpfs), ours alone. auto: the first usable of $CACHE_DIRECTORY, ~/.cache/tierd, /var/tmp/tierd-UID.");
  table.Add("capacity", &S::capacity, AmountOf("a size of 256 MiB or more such as \"800 GB\", a share of the file system such as \"50%\", or \"auto\"", 256 * kMiB, kHuge, true), kReload,
            "Space of the SSD tier. auto: 90 % of what is free in a directory that was named (here or by --ssd), half of it in one that was found ($CACHE_DIRECTORY too).");
  table.Add("region_size", &S::region_bytes, Size("a power of two of 8 MiB to 256 MiB", 8 * kMiB, 256 * kMiB, true), kRestart,
            "Unit of space, written once; a 64th more is taken for headers. Takes effect in a new directory only, or where the regions of the old one do not hold a chunk: that one is discarded. Larger: less metadata, coarser reclaim, three buffers of this size in memory.");
  table.Add("min_free", &S::min_free_bytes, Size("a size with a unit such as \"1 GiB\"", 0, kHuge), kReload, "Space left free on the file system, whoever fills it.");
  table.Add("min_free_inodes", &S::min_free_inodes, Number<std::uint64_t>("a number", 0, std::numeric_limits<std::int64_t>::max()), kReload,
            "Inodes left free on the file system.");
  table.Add("engine", &S::engine, Choice<engine::EngineChoice>("\"auto\", \"io_uring\" or \"threads\"", {"auto", "io_uring", "threads"}), kRestart,
            "How the SSD is read and written. auto: the better of both, measured at each start; io_uring unless threads are faster by half.");
}

void AddRest(std::vector<Entry>& entries) {
  SectionTable<PolicySettings, PolicySettings& (*)(Settings&, SourceOptions*)> policy(
      entries, "policy", +[](Settings& settings, SourceOptions*) -> PolicySettings& { return settings.policy; });
  policy.Add("directory", &PolicySettings::directory, Path("an absolute path, \"auto\" or \"off\"", {"auto", "off"}), kRestart,
             "Further policies are loaded from the shared objects here. auto: $XDG_CONFIG_HOME/tierd/policies, else ~/.config/tierd/policies, if it exists.");
  policy.Add("seed", &PolicySettings::seed, Number<std::uint64_t>("a number", 0, std::numeric_limits<std::int64_t>::max()), kRestart,
             "For policies that draw: the same seed gives the same decisions.");
  SectionTable<LimitSettings, LimitSettings& (*)(Settings&, SourceOptions*)> limits(
      entries, "limits", +[](Settings& settings, SourceOptions*) -> LimitSettings& { return settings.limits; });
  limits.Add("sessions", &LimitSettings::sessions, Number<std::uint32_t>("a number of 1 to 65536", 1, 65536), kRestart,
             "Client processes at a time; further ones read the source. More: 64 KiB of memory and two descriptors each.");
  limits.Add("control_connections", &LimitSettings::control_connections, Number<std::uint32_t>("a number of 1 to 1024", 1, 1024), kRestart,
             "Connections of tierctl and the like at a time.");
}

const std::vector<Entry>& Table() {
  static const std::vector<Entry> table = [] {
    std::vector<Entry> entries;
    Codec sources = Choice<bool>("\"auto\" or \"listed\"", {"listed", "auto"});
    KeyInfo info{"sources", sources.type, kRestart,
                 "auto: every network file system that is mounted is a source. listed: only those with a [[source]] table. Default: listed if there is such a table, else auto."};
    entries.push_back({std::move(info), std::move(sources), [](Settings& settings, SourceOptions*) -> void* { return &settings.automatic_sources; }});
    AddSource(entries);
    AddDaemon(entries);
    AddRam(entries);
    AddSsd(entries);
    AddRest(entries);
    return entries;
  }();
  return table;
}

const Entry& EntryOf(std::string_view key) {
  const auto entry = std::find_if(Table().begin(), Table().end(), [&](const Entry& e) { return e.info.key == key; });
  TIERD_CHECK(entry != Table().end());
  return *entry;
}

std::string Quoted(const Value& value) { return IsText(value) ? "\"" + value.text + "\"" : value.text; }

}  // namespace

const std::vector<KeyInfo>& AllKeys() {
  static const std::vector<KeyInfo> keys = [] {
    std::vector<KeyInfo> all;
    for (const Entry& entry : Table()) all.push_back(entry.info);
    return all;
  }();
  return keys;
}

const KeyInfo* FindKey(std::string_view key) {
  const auto info = std::find_if(AllKeys().begin(), AllKeys().end(), [&](const KeyInfo& i) { return i.key == key; });
  return info == AllKeys().end() ? nullptr : &*info;
}

const std::vector<std::string>& Sections() {
  static const std::vector<std::string> sections = {"source", "daemon", "ram", "ssd", "policy", "limits"};
  return sections;
}

Status SetKey(Settings& settings, SourceOptions* source, std::string_view key, const Value& value) {
  const Entry& entry = EntryOf(key);
  if (entry.codec.set(entry.field(settings, source), value)) return Status::Ok();
  return Status(Code::kInvalid, std::string("wants ") + entry.codec.type + ", not " + (value.type == Value::Type::kOther ? value.text : Quoted(value)));
}

std::string GetKey(const Settings& settings, const SourceOptions* source, std::string_view key) {
  const Entry& entry = EntryOf(key);
  // The accessor only forms an address; nothing is written through it here.
  return entry.codec.get(entry.field(const_cast<Settings&>(settings), const_cast<SourceOptions*>(source)));
}

bool IsQuoted(std::string_view key) { return EntryOf(key).codec.quoted; }

std::string_view ForeignKeyHint(std::string_view last_part) {
  struct Hint {
    std::string_view key;
    std::string_view text;
  };
  static constexpr Hint kHints[] = {
      {"verify_checksum", "every cached byte is checked, always; there is no switch"},
      {"revalidate", "say how old an answer may be with source.staleness and source.ttl"},
      {"high_watermark", "capacity is a hard limit and min_free is kept by itself"},
      {"low_watermark", "capacity is a hard limit and min_free is kept by itself"},
      {"write", "copies on both tiers are dropped by themselves when space runs short"},
  };
  const auto hint = std::find_if(std::begin(kHints), std::end(kHints), [&](const Hint& h) { return h.key == last_part; });
  return hint == std::end(kHints) ? std::string_view() : hint->text;
}

}  // namespace tierd::config
