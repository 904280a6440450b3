// Facts about this machine that a configuration is resolved with. Collecting blocks (statfs, stat, directory listings; a hung network mount is touched only if
// a setting names a path on it): at start-up or on a worker. Plain structs otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/config/config.h"

namespace tierd::config {

// A directory that could hold the SSD tier.
struct CacheDirectory {
  std::string path;
  Status usable;                    // why it cannot be used
  std::uint64_t total_bytes = 0;    // of its file system
  std::uint64_t free_bytes = 0;     // for us
  std::uint64_t held_bytes = 0;     // what the tier in it holds already: not free, but ours
};

struct HostFacts {
  std::uint32_t uid = 0;
  std::string home;                 // "" if unknown
  std::string xdg_runtime_dir;      // "" if not set or not a directory of ours
  std::string xdg_config_home;      // "" if not set
  std::uint64_t memory_bytes = 0;   // of the node, or the tightest cgroup limit if that is less
  std::uint64_t memory_room_bytes = 0;  // what can be taken now before node or cgroup run out
  std::string memory_bound_by;      // "node" or a cgroup
  bool has_private_tmpfs = true;    // false: sealed memory, which a client with an idle session keeps from returning
  std::uint64_t open_files = 0;     // descriptors that we may have after raising the limit; 0: no limit is known
  // The configured directory alone, or for "auto" the candidates in the order of preference; none for "off".
  std::vector<CacheDirectory> cache_directories;
};

HostFacts CollectHost(const Config& config, const GetEnvironment& environment);

// Facts of one directory; of one that does not exist yet those of its nearest parent.
CacheDirectory ExamineCacheDirectory(const std::string& path);

// Mount points for Config::AdoptMounts. Never touches the mounts.
std::vector<std::string> NetworkMountPoints();

}  // namespace tierd::config
