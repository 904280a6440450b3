// What a configuration says, before it meets a machine: plain structs with defaults. Meaning, unit, range and cost of every field stand in the key
// table (keys.cc: that text is also what the manual is made from); Resolve() turns all of it into what the daemon is built from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tierd/engine/options.h"

namespace tierd::config {

// A size that may depend on the machine.
struct Amount {
  enum class Kind : std::uint8_t { kAuto, kBytes, kPercent };
  Kind kind = Kind::kAuto;
  std::uint64_t bytes = 0;
  double percent = 0;
  bool operator==(const Amount&) const = default;
};

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

struct DaemonSettings {
  std::string runtime_dir = "auto";     // or an absolute path
  std::string socket = "auto";          // or an absolute path
  std::string control_socket = "auto";  // or an absolute path
  LogLevel log_level = LogLevel::kInfo;
  std::string metrics_address = "127.0.0.1:9469";  // or "off"
};

struct RamSettings {
  Amount capacity;
  engine::PagesChoice pages = engine::PagesChoice::kAuto;
  Amount segment_size;
  ram::SegmentSeal seal = ram::SegmentSeal::kAuto;
  Amount pin_cap;
  Amount min_available;  // no share
};

struct SsdSettings {
  std::string directory = "auto";  // "auto", "off" or an absolute path
  Amount capacity;
  std::uint64_t region_bytes = 16 << 20;  // of payload: the region itself is a little larger (Resolve)
  std::uint64_t min_free_bytes = engine::SsdOptions{}.min_free_bytes;
  std::uint64_t min_free_inodes = engine::SsdOptions{}.min_free_inodes;
  engine::EngineChoice engine = engine::EngineChoice::kAuto;
};

struct PolicySettings {
  std::string directory = "auto";  // "auto", "off" or an absolute path
  std::uint64_t seed = 1;
};

struct LimitSettings {
  std::uint32_t sessions = 1024;
  std::uint32_t control_connections = 16;
};

struct Settings {
  // True: network mounts are sources too, beside `sources`.
  bool automatic_sources = true;
  // What an automatic source starts from; `--policy` and `--set source.KEY=...` change it together with every listed one.
  engine::SourceOptions source_defaults;
  std::vector<engine::SourceOptions> sources;
  DaemonSettings daemon;
  RamSettings ram;
  SsdSettings ssd;
  PolicySettings policy;
  LimitSettings limits;
};

}  // namespace tierd::config
