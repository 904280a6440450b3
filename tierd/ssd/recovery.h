// The start: from index and regions to the list of what the SSD holds. Order: regions that were open at a crash are walked into the
// index; an index that is missing or damaged is made anew from all regions; then the index is scanned twice, once to find the newest
// versions, once to hand them over. Killed at any point, the next start does the same again: nothing here overwrites a region.
//
// Runs on the index worker and blocks. Results go out through the sinks, called on that worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tierd/ssd/record_index.h"
#include "tierd/ssd/region_scan.h"

namespace tierd::ssd {

struct RecoveryInput {
  ScanFormat format;
  std::string index_path;
  leveldb::Env* index_env = nullptr;
  std::vector<RegionAddress> regions;  // fd < 0: absent
  std::map<std::uint64_t, std::uint64_t> dataset_generations;
  std::size_t batch_records = 512;
  const std::atomic<bool>* stop = nullptr;  // once true the recovery ends with kStopped; must be given, outlives it
};

struct RecoveredRegion {
  std::uint64_t epoch = 0;  // 0: nothing in it
  bool has_space = false;
  bool unreadable = false;  // what is in it could not be found out: a device that fails, or no memory
};

struct RecoverySinks {
  // First: at most so many records will come.
  std::function<void(std::uint64_t)> expect;
  // Once, before the first batch: one entry per region of the input.
  std::function<void(std::vector<RecoveredRegion>)> regions;
  // False: stop, nobody listens any more.
  std::function<bool(std::shared_ptr<RecordBatch>)> batch;
};

struct RecoveryOutcome {
  RecoveryReport report;
  std::unique_ptr<RecordIndex> index;  // null: there is none in this life
};

RecoveryOutcome RunRecovery(const RecoveryInput& input, const RecoverySinks& sinks);

}  // namespace tierd::ssd
