#include "tierctl/run/share.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "tierctl/client/control_client.h"
#include "tierd/config/host.h"
#include "tierd/config/resolve.h"
#include "tierd/config/units.h"
#include "tierd/ram/memory_pressure.h"

namespace tierctl::run {
namespace {

using nlohmann::json;
using tierd::config::Config;
using tierd::config::kMiB;

constexpr int kClaimAnswerMs = 1'000;
// Of what is free: what tierd takes by itself of memory, and of a disk whose directory was named.
constexpr unsigned kRamPercent = 50, kSsdPercent = 90;
constexpr std::uint64_t kLeastShareRam = 16 * kMiB, kLeastShareSsd = 256 * kMiB;  // what tierd takes for a size

std::string InMiB(std::uint64_t bytes) { return std::to_string(bytes / kMiB) + " MiB"; }

// The file system that a path is on, or will be.
std::optional<dev_t> DiskOf(const std::string& path) {
  struct stat info {};
  for (std::filesystem::path there = path; !there.empty(); there = there.parent_path()) {
    if (::stat(there.c_str(), &info) == 0) return info.st_dev;
    if (there == there.parent_path()) break;
  }
  return std::nullopt;
}

// What the daemon will go by; nothing: its configuration is wrong, and it will say so.
std::optional<Config> ConfigOf(const DaemonOptions& options, const std::string& ssd, const tierd::config::GetEnvironment& environment) {
  const std::string file = Config::FindFile(environment);
  auto config = file.empty() ? tierd::Result<Config>(Config::Defaults()) : Config::Load(file);
  if (!config.ok() || !config->ApplyEnvironment(environment).ok()) return std::nullopt;
  tierd::config::Overrides overrides;
  overrides.sources = options.sources;
  overrides.ssd = ssd;
  if (!options.ram.empty()) overrides.ram = options.ram;
  if (!config->Apply(overrides, "/").ok()) return std::nullopt;
  return std::move(config).value();
}

bool IsAutomatic(const tierd::config::Amount& amount) { return amount.kind == tierd::config::Amount::Kind::kAuto; }

std::uint64_t Named(const tierd::config::Amount& amount, std::uint64_t whole) {
  using Kind = tierd::config::Amount::Kind;
  if (amount.kind == Kind::kBytes) return amount.bytes;
  return amount.kind == Kind::kPercent ? static_cast<std::uint64_t>(static_cast<double>(whole) * amount.percent / 100) : 0;
}

// A daemon that is here already, as it says itself.
struct Other {
  ControlClient client;
  bool in_our_cgroup = false;
  std::string ssd_directory;
  Claim ram, ssd;
};

std::vector<Other> AskAll(const std::vector<Ledger::Entry>& entries, const JobIdentity& identity) {
  std::vector<Other> others;
  for (const Ledger::Entry& entry : entries) {
    Other other{ControlClient(entry.record.control), entry.record.identity.cgroup == identity.cgroup, "", {}, {}};
    other.client.WaitAtMost(kClaimAnswerMs);
    const Answer answer = other.client.Get("/v1/status");
    if (!answer.ok()) continue;  // it is on its way out, or hangs and takes nothing more
    const json &ram = PartOf(PartOf(answer.body, "tiers"), "ram"), &ssd = PartOf(PartOf(answer.body, "tiers"), "ssd");
    other.ssd_directory = TextOf(ssd, "directory");
    other.ram = {NumberOf(ram, "capacity_bytes"), NumberOf(ram, "allocated_bytes"), entry.record.ram_auto};
    other.ssd = {NumberOf(ssd, "capacity_bytes"), NumberOf(ssd, "allocated_bytes"), entry.record.ssd_auto};
    others.push_back(std::move(other));
  }
  return others;
}

// Makes the others' automatic claims as small as the share. One that will not is taken as named.
template <typename ClaimOf>
void GiveWay(std::vector<Other*>& others, ClaimOf claim_of, const char* key, std::uint64_t share) {
  for (Other* const other : others) {
    Claim& claim = claim_of(*other);
    if (!claim.automatic || claim.promised_bytes <= share) continue;
    if (other->client.Patch("/v1/config", {{"key", key}, {"value", InMiB(share)}}).ok()) claim.promised_bytes = share;
    else claim.automatic = false;
  }
}

template <typename ClaimOf>
std::uint64_t DivideAmong(std::vector<Other*> others, ClaimOf claim_of, const char* key, bool automatic, std::uint64_t named, std::uint64_t free_bytes, unsigned percent) {
  std::uint64_t share = 0;
  for (int round = 0; round < 2; ++round) {  // the second without those that would not
    std::vector<Claim> claims;
    for (Other* const other : others) claims.push_back(claim_of(*other));
    share = EqualShare(claims, automatic, named, free_bytes, percent);
    GiveWay(others, claim_of, key, share);
  }
  return share;
}

std::uint64_t DivideMemory(std::vector<Other>& others, const Config& config, bool automatic) {
  const auto claim = [](Other& other) -> Claim& { return other.ram; };
  const tierd::ram::MemoryRoom room = tierd::ram::ReadMemoryRoom({});
  const std::uint64_t memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t whole = room.cgroup_limit_bytes != 0 ? std::min(memory, room.cgroup_limit_bytes) : memory;
  const std::uint64_t named = automatic ? 0 : Named(config.settings().ram.capacity, whole);
  std::vector<Other*> all, ours;
  for (Other& other : others) {
    all.push_back(&other);
    if (other.in_our_cgroup) ours.push_back(&other);
  }
  std::uint64_t share = std::numeric_limits<std::uint64_t>::max();
  if (room.available_bytes != 0) share = DivideAmong(all, claim, "ram.capacity", automatic, named, room.available_bytes, kRamPercent);
  if (room.room_bytes < room.available_bytes) share = std::min(share, DivideAmong(ours, claim, "ram.capacity", automatic, named, room.room_bytes, kRamPercent));
  return std::max(kLeastShareRam, std::min(share, whole / 4));
}

}  // namespace

std::uint64_t EqualShare(const std::vector<Claim>& others, bool is_new_automatic, std::uint64_t new_named_bytes, std::uint64_t free_bytes, unsigned percent) {
  std::uint64_t all = free_bytes, named = is_new_automatic ? 0 : new_named_bytes, sharing = is_new_automatic ? 1 : 0;
  for (const Claim& claim : others) {
    all += claim.held_bytes;
    if (claim.automatic) ++sharing;
    else named += std::max(claim.promised_bytes, claim.held_bytes);
  }
  const std::uint64_t rest = all - std::min(all, named);
  const std::uint64_t shared = rest / 100 * percent + rest % 100 * percent / 100;
  return sharing == 0 ? 0 : shared / sharing / kMiB * kMiB;
}

Share Divide(const std::vector<Ledger::Entry>& entries, const DaemonOptions& options, const std::string& ssd, const JobIdentity& identity,
             const tierd::config::GetEnvironment& environment) {
  Share share;
  const std::optional<Config> config = ConfigOf(options, ssd, environment);
  if (!config) return share;
  share.ram_auto = IsAutomatic(config->settings().ram.capacity);
  share.ssd_auto = IsAutomatic(config->settings().ssd.capacity);
  std::vector<Other> others = AskAll(entries, identity);
  if (others.empty()) return share;
  const std::uint64_t ram = DivideMemory(others, *config, share.ram_auto);
  if (share.ram_auto) share.ram = InMiB(ram);
  share.said = (others.size() == 1 ? "another cache" : std::to_string(others.size()) + " other caches") + std::string(" of yours on this node: they divide what is free; this one takes ") +
               (share.ram_auto ? tierd::config::HumanSize(ram) : options.ram.empty() ? "what the configuration says" : options.ram) + " of memory";
  const std::optional<dev_t> disk = ssd == "off" ? std::nullopt : DiskOf(ssd);
  if (!disk) return share;
  std::vector<Other*> same_disk;
  for (Other& other : others)
    if (!other.ssd_directory.empty() && DiskOf(other.ssd_directory) == disk) same_disk.push_back(&other);
  const tierd::config::CacheDirectory place = tierd::config::ExamineCacheDirectory(ssd);
  if (same_disk.empty() || !place.usable.ok()) return share;
  const std::uint64_t min_free = config->settings().ssd.min_free_bytes;
  const std::uint64_t free_bytes = place.free_bytes + place.held_bytes - std::min(place.free_bytes + place.held_bytes, min_free);
  const std::uint64_t room = DivideAmong(same_disk, [](Other& other) -> Claim& { return other.ssd; }, "ssd.capacity", share.ssd_auto,
                                         share.ssd_auto ? 0 : Named(config->settings().ssd.capacity, place.total_bytes), free_bytes, kSsdPercent);
  if (!share.ssd_auto) return share;
  share.without_ssd = room < kLeastShareSsd;
  if (!share.without_ssd) share.ssd_capacity = InMiB(room);
  share.said += share.without_ssd ? " and no disk" : " and " + tierd::config::HumanSize(room) + " of disk";
  return share;
}

}  // namespace tierctl::run
