// What the parts of the tier share: references to objects that SsdTier::Impl owns and that outlive every part. Loop thread only, except
// the workers and the mailbox, which are thread-safe.
#pragma once

#include <cstdint>

#include "tierd/ssd/directory.h"
#include "tierd/ssd/health.h"
#include "tierd/ssd/index_queue.h"
#include "tierd/ssd/region_files.h"
#include "tierd/ssd/region_scan.h"
#include "tierd/ssd/region_table.h"
#include "tierd/ssd/ssd_tier.h"
#include "tierd/ssd/worker.h"

namespace tierd::ssd {

struct TierContext {
  const SsdOptions& options;
  io::IoEngine& io;
  const Clock& clock;
  SsdOwner& owner;
  CacheDirectory& directory;
  RegionFiles& files;
  RegionTable& regions;
  IndexQueue& index;
  Worker& maintenance;
  Mailbox& mailbox;
  Health& health;
  SsdCounters& counters;
  ScanFormat format;
  RecordGeometry geometry;

  std::uint64_t GenerationOf(std::uint64_t dataset_id) const {
    const auto& generations = directory.superblock.dataset_generations;
    const auto it = generations.find(dataset_id);
    return it == generations.end() ? 0 : it->second;
  }
  std::uint32_t RecordBytesOf(const SsdLocation& location) const { return RecordBytes(geometry, location); }
};

}  // namespace tierd::ssd
