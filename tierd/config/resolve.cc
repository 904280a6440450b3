#include "tierd/config/resolve.h"

#include <algorithm>

#include "tierd/config/option_notes.h"
#include "tierd/config/path_text.h"
#include "tierd/config/units.h"
#include "tierd/engine/segment_size.h"

namespace tierd::config {
namespace {

constexpr std::uint64_t kPageStep = 2 * kMiB;
constexpr std::uint64_t kLeastRam = 16 * kMiB;
constexpr std::uint64_t kLeastRegions = 4;
constexpr std::uint64_t kMostRegionBytes = 256 * kMiB;
constexpr std::uint64_t kRegionStep = 64 << 10;
constexpr char kProbed[] = "probed at the start";

std::uint64_t Share(std::uint64_t of, double percent) { return static_cast<std::uint64_t>(static_cast<double>(of) * percent / 100); }

void ResolvePaths(const Config& config, const HostFacts& host, Resolved& out) {
  const DaemonSettings& daemon = config.settings().daemon;
  out.runtime_dir = daemon.runtime_dir;
  if (daemon.runtime_dir == "auto") {
    out.runtime_dir = host.xdg_runtime_dir.empty() ? "/tmp/tierd-" + std::to_string(host.uid) : host.xdg_runtime_dir + "/tierd";
    out.here["daemon.runtime_dir"] = out.runtime_dir;
  }
  out.socket = daemon.socket;
  if (daemon.socket == "auto") out.here["daemon.socket"] = out.socket = out.runtime_dir + "/tierd.sock";
  out.control_socket = daemon.control_socket;
  if (daemon.control_socket == "auto") out.here["daemon.control_socket"] = out.control_socket = ParentOf(out.socket) + "/control.sock";
  out.metrics_address = daemon.metrics_address == "off" ? "" : daemon.metrics_address;
  out.metrics_anywhere = config.OriginOf("daemon.metrics_address").kind == Origin::Kind::kDefault;
  out.log_level = daemon.log_level;

  out.policy_directory = PolicyDirectory(config, host);
  if (config.settings().policy.directory == "auto") out.here["policy.directory"] = out.policy_directory.empty() ? "none" : out.policy_directory;
}

std::uint64_t LargestChunk(const Settings& settings) {
  std::uint64_t largest = 64 << 10;
  for (const auto& source : settings.sources) largest = std::max(largest, source.chunk_bytes);
  return largest;
}

// What is left to the tier: after its capacity, from which all of it follows.
void ResolveRamParts(const Settings& settings, Resolved& out) {
  const RamSettings& ram = settings.ram;
  engine::RamOptions& options = out.engine.ram;
  options.segment_bytes = ram.segment_size.kind == Amount::Kind::kBytes ? ram.segment_size.bytes : 0;
  if (ram.segment_size.kind == Amount::Kind::kAuto) out.here["ram.segment_size"] = HumanSize(std::min(engine::SegmentBytes(options, LargestChunk(settings)), options.capacity_bytes));
  switch (ram.pin_cap.kind) {
    case Amount::Kind::kBytes: options.pin_cap_bytes = ram.pin_cap.bytes; break;
    case Amount::Kind::kPercent: options.pin_cap_bytes = Share(options.capacity_bytes, ram.pin_cap.percent); break;
    case Amount::Kind::kAuto: options.pin_cap_bytes = options.capacity_bytes / 4; break;
  }
  if (ram.pin_cap.kind != Amount::Kind::kBytes) out.here["ram.pin_cap"] = HumanSize(options.pin_cap_bytes);
  if (ram.min_available.kind == Amount::Kind::kAuto) out.here["ram.min_available"] = HumanSize(options.min_available_bytes);
  if (ram.pages == engine::PagesChoice::kAuto) out.here["ram.pages"] = kProbed;
  if (ram.seal == ram::SegmentSeal::kAuto) out.here["ram.seal"] = kProbed;
}

bool MemoryReturns(const RamSettings& ram, const HostFacts& host) {
  return ram.seal == ram::SegmentSeal::kShrink || (ram.seal == ram::SegmentSeal::kAuto && host.has_private_tmpfs);
}

void ResolveRam(const RamSettings& ram, const HostFacts& host, Resolved& out) {
  engine::RamOptions& options = out.engine.ram;
  options.pages = ram.pages;
  options.seal = ram.seal;
  options.min_available_bytes = ram.min_available.kind == Amount::Kind::kBytes ? ram.min_available.bytes : AutoMinAvailableBytes(host.memory_bytes);
  switch (ram.capacity.kind) {
    case Amount::Kind::kBytes: options.capacity_bytes = ram.capacity.bytes; break;
    case Amount::Kind::kPercent: options.capacity_bytes = std::max(kLeastRam, Share(host.memory_bytes, ram.capacity.percent)); break;
    case Amount::Kind::kAuto: options.capacity_bytes = AutoRamBytes(host.memory_bytes, host.memory_room_bytes, options.min_available_bytes, MemoryReturns(ram, host)); break;
  }
  options.capacity_bytes -= options.capacity_bytes % kPageStep;
  if (ram.capacity.kind != Amount::Kind::kBytes) {
    out.here["ram.capacity"] = HumanSize(options.capacity_bytes) + " of " + HumanSize(host.memory_bytes);
  }
}

// Whole chunks fill it, with their headers and the table of contents: of 16 MiB and not a byte more, four chunks of 4 MiB would leave a quarter empty. Four regions fit into the
// least capacity, though.
std::uint64_t RegionBytes(const SsdSettings& ssd, std::uint64_t capacity) {
  const std::uint64_t most = std::min(kMostRegionBytes, capacity / kLeastRegions);
  return std::max(ssd.region_bytes, std::min(ssd.region_bytes + ssd.region_bytes / 64, most - most % kRegionStep));
}

std::uint64_t SsdCapacity(const SsdSettings& ssd, const CacheDirectory& directory, bool named) {
  switch (ssd.capacity.kind) {
    case Amount::Kind::kBytes: return ssd.capacity.bytes;
    case Amount::Kind::kPercent: return Share(directory.total_bytes, ssd.capacity.percent);
    case Amount::Kind::kAuto: break;
  }
  return AutoSsdBytes(directory.free_bytes, directory.held_bytes, ssd.min_free_bytes, named);
}

// Why the directory will not do; OK if it will.
Status Judge(const SsdSettings& ssd, const CacheDirectory& directory, std::uint64_t capacity, const Settings& settings) {
  if (!directory.usable.ok()) return directory.usable;
  for (const auto& source : settings.sources) {
    if (IsAtOrBelow(directory.path, source.path)) return Status(Code::kInvalid, directory.path + " lies inside the source " + source.path);
  }
  const std::uint64_t least = kLeastRegions * ssd.region_bytes;
  const std::uint64_t room = AutoSsdBytes(directory.free_bytes, directory.held_bytes, ssd.min_free_bytes, true);
  if (capacity >= least && room >= least) return Status::Ok();
  return Status(Code::kNoSpace, directory.path + ": " + HumanSize(directory.free_bytes) + " free, too little for " + HumanSize(least) + " beside ssd.min_free = " + FormatSize(ssd.min_free_bytes));
}

Status ResolveSsd(const Config& config, const HostFacts& host, Resolved& out) {
  const SsdSettings& ssd = config.settings().ssd;
  engine::SsdOptions& options = out.engine.ssd;
  options.region_bytes = ssd.region_bytes;
  options.min_free_bytes = ssd.min_free_bytes;
  options.min_free_inodes = ssd.min_free_inodes;
  options.engine = ssd.engine;
  if (ssd.engine == engine::EngineChoice::kAuto) out.here["ssd.engine"] = kProbed;
  options.directory.clear();
  if (ssd.directory == "off") return Status::Ok();
  const bool named = ssd.directory != "auto";
  for (const CacheDirectory& directory : host.cache_directories) {
    const std::uint64_t capacity = SsdCapacity(ssd, directory, named);
    if (Status status = Judge(ssd, directory, capacity, config.settings()); !status.ok()) {
      if (named) return Status(status.code(), config.Where("ssd.directory") + "ssd.directory: " + status.message() + "; name another directory, or \"off\"");
      out.notes.push_back("not for the SSD tier: " + status.message());
      out.ssd_taken = out.ssd_taken || directory.usable.code() == Code::kPermission;
      continue;
    }
    out.ssd_taken = false;
    options.directory = directory.path;
    options.capacity_bytes = capacity;
    options.region_bytes = RegionBytes(ssd, capacity);
    if (!named) out.here["ssd.directory"] = directory.path;
    if (ssd.capacity.kind != Amount::Kind::kBytes) out.here["ssd.capacity"] = HumanSize(options.capacity_bytes) + " of " + HumanSize(directory.free_bytes) + " free";
    return Status::Ok();
  }
  out.here["ssd.directory"] = "off";
  out.notes.push_back("no SSD tier: no usable local directory was found; name one with ssd.directory or --ssd DIR");
  return Status::Ok();
}

}  // namespace

std::string PolicyDirectory(const Config& config, const HostFacts& host) {
  const std::string& named = config.settings().policy.directory;
  if (named == "off") return "";
  if (named != "auto") return named;
  const std::string base = host.xdg_config_home.starts_with('/') ? host.xdg_config_home : host.home.empty() ? "" : host.home + "/.config";
  return base.empty() ? "" : base + "/tierd/policies";
}

std::uint64_t AutoMinAvailableBytes(std::uint64_t memory) {
  const std::uint64_t usual = engine::RamOptions{}.min_available_bytes;
  return memory == 0 ? usual : std::min(usual, memory / 8);
}

std::uint64_t AutoRamBytes(std::uint64_t memory, std::uint64_t room, std::uint64_t min_available, bool returns) {
  const std::uint64_t least = (returns ? 64 : 32) * kMiB;
  if (room == 0) return std::clamp(memory / 4, kLeastRam, 256 * kMiB);
  std::uint64_t bytes = returns ? std::min(memory / 4, room / 2) : std::min(memory / 8, room / 4);
  bytes = std::min(bytes, room > min_available ? room - min_available : 0);
  bytes = std::max(bytes, std::min(least, room / 2));
  return std::max(kLeastRam, bytes - bytes % kPageStep);
}

std::uint64_t AutoSsdBytes(std::uint64_t free_bytes, std::uint64_t held_bytes, std::uint64_t min_free, bool named) {
  const std::uint64_t ours = free_bytes + held_bytes;
  if (ours <= min_free) return 0;
  return std::min(named ? ours - ours / 10 : ours / 2, ours - min_free);
}

Result<Resolved> Resolve(const Config& config, const HostFacts& host) {
  Resolved out;
  ResolvePaths(config, host, out);
  out.limits = config.settings().limits;
  out.engine.sources = config.settings().sources;
  out.engine.policy_seed = config.settings().policy.seed;
  for (const auto& source : config.settings().sources) {
    const std::string key = "source." + source.name + ".";
    if (source.engine == engine::EngineChoice::kAuto) out.here[key + "engine"] = kProbed;
    if (source.access_recheck_ms == 0) {
      out.here[key + "access_recheck"] = FormatDurationMs(static_cast<std::uint32_t>(source.AccessRecheckNs() / 1'000'000));
    }
  }
  ResolveRam(config.settings().ram, host, out);
  ResolveRamParts(config.settings(), out);
  if (Status status = ResolveSsd(config, host, out); !status.ok()) return status;
  out.option_notes = OptionNotes(config, host, out);
  return out;
}

}  // namespace tierd::config
