#include "tierd/config/option_notes.h"

#include <arpa/inet.h>

#include <algorithm>

#include "tierd/config/units.h"
#include "tierd/engine/descriptor_share.h"
#include "tierd/engine/segment_size.h"
#include "tierd/source/source_reader.h"

namespace tierd::config {
namespace {

class Notes {
 public:
  Notes(const Config& config, const HostFacts& host, const Resolved& resolved)
      : config_(config), settings_(config.settings()), host_(host), resolved_(resolved) {}

  std::vector<std::string> All() {
    OnSources();
    OnMetrics();
    OnRamCapacity();
    OnRamParts();
    OnSsd();
    OnSessions();
    return std::move(notes_);
  }

 private:
  bool IsSet(const std::string& key) const {
    return config_.OriginOf(key).kind != Origin::Kind::kDefault;
  }
  void Add(const std::string& key, const std::string& value, const std::string& what) {
    notes_.push_back(key + " " + value + ": " + what);
  }
  static std::string TextOf(const Amount& amount) {
    if (amount.kind == Amount::Kind::kAuto) return "auto";
    const bool share = amount.kind == Amount::Kind::kPercent;
    return share ? FormatPercent(amount.percent) : FormatSize(amount.bytes);
  }

  void OnSources() {
    const std::size_t sources = std::max<std::size_t>(settings_.sources.size(), 1);
    for (const engine::SourceOptions& source : settings_.sources) {
      const std::string prefix = "source." + source.name + ".";
      if (IsSet(prefix + "ttl") && source.staleness != abi::Staleness::kTtl) {
        const bool immutable = source.staleness == abi::Staleness::kImmutable;
        Add(prefix + "ttl", FormatDurationMs(source.ttl_ms),
            std::string("has no effect, because staleness is ") + (immutable ? "immutable" : "open") +
                "; set source.staleness to \"ttl\"");
      }
      const std::uint64_t share = engine::RequestsOfASource(host_.open_files, sources);
      if (IsSet(prefix + "max_inflight") && host_.open_files != 0 && share < source.max_inflight) {
        Add(prefix + "max_inflight", std::to_string(source.max_inflight),
            "the limit of open files (" + std::to_string(host_.open_files) + ") allows " +
                std::to_string(share) + " requests at a time; raise it (ulimit -Hn, LimitNOFILE=)");
      }
      if (source.hung_cap > source::kMostHung) {
        Add(prefix + "hung_cap", std::to_string(source.hung_cap),
            std::to_string(source::kMostHung) + " is used, the most that there is");
      }
    }
  }

  void OnMetrics() {
    const std::string& address = settings_.daemon.metrics_address;
    if (IsLoopback(address)) return;
    Add("daemon.metrics_address", address,
        "every host that reaches this address can read the metrics (numbers and names of sources, no "
        "paths); use 127.0.0.1, or \"off\" with tierctl metrics for the textfile collector");
  }

  void OnRamCapacity() {
    const Amount& capacity = settings_.ram.capacity;
    const std::uint64_t given = resolved_.engine.ram.capacity_bytes;
    const std::uint64_t kept = resolved_.engine.ram.min_available_bytes, memory = host_.memory_bytes;
    if (memory == 0) return;
    const std::string all = HumanSize(memory);
    if (kept >= memory && IsSet("ram.min_available")) {
      Add("ram.min_available", TextOf(settings_.ram.min_available),
          "this node or its cgroup has " + all + ", so the RAM tier can hold nothing; name a smaller size");
    } else if (capacity.kind != Amount::Kind::kAuto && given > memory - std::min(memory, kept)) {
      Add("ram.capacity", TextOf(capacity),
          "this node or its cgroup has " + all + ", of which " + HumanSize(kept) +
              " is left to others; the tier holds " + HumanSize(memory - std::min(memory, kept)) +
              " at most; name a smaller size, or ask for more memory");
    }
    const double wanted = static_cast<double>(memory) * capacity.percent / 100;
    if (capacity.kind == Amount::Kind::kPercent && static_cast<double>(given) > wanted) {
      Add("ram.capacity", TextOf(capacity),
          "that share of " + all + " is too little; the tier takes " + HumanSize(given) + ", the least");
    }
  }

  void OnRamParts() {
    const RamSettings& ram = settings_.ram;
    const engine::RamOptions& given = resolved_.engine.ram;
    if (ram.segment_size.kind == Amount::Kind::kBytes) {
      std::uint64_t largest = 64 << 10;
      for (const auto& source : settings_.sources) largest = std::max(largest, source.chunk_bytes);
      const std::uint64_t step = std::min(engine::SegmentBytes(given, largest), given.capacity_bytes);
      if (step != ram.segment_size.bytes) {
        Add("ram.segment_size", FormatSize(ram.segment_size.bytes),
            HumanSize(step) + " is used, by steps of 2 MiB, the largest chunk and ram.capacity");
      }
    }
    if (ram.pin_cap.kind == Amount::Kind::kBytes && ram.pin_cap.bytes > given.capacity_bytes) {
      Add("ram.pin_cap", FormatSize(ram.pin_cap.bytes),
          "the RAM tier has " + HumanSize(given.capacity_bytes) + ", which is the bound; name a smaller size");
    }
  }

  void OnSsd() {
    const SsdSettings& ssd = settings_.ssd;
    const std::string& directory = resolved_.engine.ssd.directory;
    if (directory.empty()) {
      for (const char* key : {"ssd.capacity", "ssd.region_size", "ssd.min_free", "ssd.min_free_inodes", "ssd.engine"}) {
        if (!IsSet(key)) continue;
        const Result<EffectiveValue> value = config_.Get(key);
        Add(key, value.ok() ? value->value : "",
            "has no effect, because there is no SSD tier; name a local directory (ssd.directory, --ssd)");
      }
      return;
    }
    const auto place = std::find_if(host_.cache_directories.begin(), host_.cache_directories.end(),
                                    [&](const CacheDirectory& one) { return one.path == directory; });
    if (ssd.capacity.kind == Amount::Kind::kAuto || place == host_.cache_directories.end()) return;
    const std::uint64_t all = place->total_bytes, least = all - std::min(all, ssd.min_free_bytes);
    if (all == 0 || resolved_.engine.ssd.capacity_bytes <= least) return;
    Add("ssd.capacity", TextOf(ssd.capacity),
        "the file system of " + directory + " has " + HumanSize(all) + ", of which " +
            FormatSize(ssd.min_free_bytes) + " (ssd.min_free) stay free; the tier holds " +
            HumanSize(least) + " at most; name a smaller size, or another directory");
  }

  void OnSessions() {
    constexpr std::uint64_t kDescriptorsEach = 2;
    const std::uint64_t wanted = settings_.limits.sessions, most = host_.open_files / kDescriptorsEach;
    if (!IsSet("limits.sessions") || host_.open_files == 0 || wanted <= most) return;
    Add("limits.sessions", std::to_string(wanted),
        "the limit of open files (" + std::to_string(host_.open_files) + ") allows fewer than " +
            std::to_string(most) + " client processes; raise it (ulimit -Hn, LimitNOFILE=)");
  }

  const Config& config_;
  const Settings& settings_;
  const HostFacts& host_;
  const Resolved& resolved_;
  std::vector<std::string> notes_;
};

}  // namespace

bool IsLoopback(const std::string& address) {
  if (address.empty() || address == "off") return true;
  std::string host = address.substr(0, address.rfind(':'));
  if (!host.starts_with('[')) return host.starts_with("127.");
  host = host.substr(1, host.size() - 2);
  in6_addr ip{};
  if (::inet_pton(AF_INET6, host.c_str(), &ip) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

std::vector<std::string> OptionNotes(const Config& config, const HostFacts& host, const Resolved& resolved) {
  return Notes(config, host, resolved).All();
}

}  // namespace tierd::config
