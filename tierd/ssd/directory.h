// The cache directory: who may have it, what is in it, when it is emptied. Layout (FORMAT.md): superblock, lock, regions-NNNN, index/.
//
// Blocks; used by SsdTier::Open before the loop turns, and by the maintenance worker. It does not know regions or records.
#pragma once

#include <string>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ssd/ssd_tier.h"
#include "tierd/ssd/superblock.h"

namespace tierd::ssd {

struct CacheDirectory {
  UniqueFd dir;
  UniqueFd lock;           // flocked for the tier's life
  std::string path;
  Superblock superblock;   // of this life: `lives` counts it already, and it is on the disk
  std::string note;        // one line for the log when something was discarded, else empty
  bool direct_io = false;  // O_DIRECT works with superblock.record_alignment
  Status recorded;         // not ok: this life could not be (disk full, read-only), and until it is, nothing may be written
};

// Opens or creates options.directory. See SsdTier::Open for the errors.
Result<CacheDirectory> OpenCacheDirectory(const SsdOptions& options);

// What that would say of who may have it and what is in it; makes nothing, and takes no lock: one that is in use will do.
Status CheckCacheDirectory(const std::string& path);

// Name of the i-th region file.
std::string RegionFileName(std::uint32_t file);

}  // namespace tierd::ssd
