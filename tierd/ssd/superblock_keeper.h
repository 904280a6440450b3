// Gets the superblock that is in memory onto the disk: that there is this life, and the generations of datasets. One store at a time: who asks while one is under
// way shares the next one with all others who do. What could not be stored (a full disk) is tried again every second, and until then nothing may be written: a record
// could come back as what it is no longer.
//
// Part of the tier; loop thread only. It is written by the maintenance worker.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tierd/ssd/region_files.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class SuperblockKeeper {
 public:
  using Done = std::function<void(const Status&)>;
  explicit SuperblockKeeper(TierContext& context) : context_(context), failed_(!context.directory.recorded.ok()) {}

  // Stores the superblock as it is now. `done`: it is on the disk, or could not be got there.
  void Store(Done done);
  // A few times a second.
  void Tick();

  // What is in memory is on the disk.
  bool durable() const { return !storing_ && waiting_.empty() && !failed_; }
  // The last store did not come off.
  bool failed() const { return failed_; }
  bool idle() const { return !storing_; }

 private:
  void Begin();
  void OnStored(const Status& stored);

  TierContext& context_;
  std::vector<Done> asked_;    // for the store that is under way
  std::vector<Done> waiting_;  // for the next one
  bool storing_ = false;
  bool failed_;
  std::int64_t tried_ns_ = 0;
};

// At the start, where others have filled the disk to the last byte: what was allocated and never written is given back, and if that is not enough one region
// with what it holds, so that this life can be recorded and the index opened. How much more has to go is found out when the tier has recovered.
void RecordWithRoomOfARegion(CacheDirectory& directory, const RegionFiles& files);

}  // namespace tierd::ssd
