// Disk space: gets regions allocated ahead of need, keeps the minimum of free bytes and inodes on the file system, gives regions back when
// capacity is cut or somebody else fills the disk.
//
// Part of the tier; loop thread only. Everything that blocks runs on the maintenance worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tierd/ssd/region_files.h"
#include "tierd/ssd/region_writer.h"
#include "tierd/ssd/superblock_keeper.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class SpaceKeeper {
 public:
  SpaceKeeper(TierContext& context, RegionWriter& writer, const SuperblockKeeper& superblock);

  void SetCapacity(std::uint64_t bytes);
  std::uint32_t capacity_regions() const { return capacity_regions_; }
  void SetMinFree(std::uint64_t bytes, std::uint64_t inodes);
  // Allocates the next region or punches a surplus one; one at a time. Every turn. `give_back`: every free region is surplus but for the next ones.
  void Step(bool give_back);
  // Nothing is being allocated or punched, and no free region is surplus.
  bool at_rest() const;
  // Has the file system asked how full it is: once a second where somebody writes, else every four to nine, as it has room; and takes the answer, which wakes nobody
  // unless something is to be done.
  // Called a few times a second, of an idle daemon once.
  void Tick();

  // How many regions may hold space now.
  std::uint32_t target() const;
  // More regions can be allocated.
  bool growable() const { return started_ && !full_ && context_.regions.allocated() < target(); }
  // Regions beyond the target, to be given back.
  bool must_shrink() const { return started_ && context_.regions.allocated() > target(); }
  // Some of them must be emptied by reclaim before.
  bool must_empty() const;
  // Space can be given back, also where nothing may be written.
  bool may_punch() const { return reachable_ && !refused_; }
  // After recovery.
  void Start() { started_ = true; }
  // A write met a full file system although its space had been reserved.
  void OnFileSystemFull() { full_ = true; }

 private:
  void Allocate();
  void Punch(std::uint32_t region);
  void Measure();
  void TakeMeasured();
  void OnMeasured();
  void OnReadOnly();

  TierContext& context_;
  RegionWriter& writer_;
  const SuperblockKeeper& superblock_;
  std::uint32_t capacity_regions_ = 0;
  std::uint32_t limit_regions_;  // by free space
  std::uint64_t min_free_bytes_;
  std::uint64_t min_free_inodes_;
  bool started_ = false;
  bool full_ = false;       // the last allocation found no space; until the next measurement
  bool busy_ = false;       // a job is allocating or punching
  bool punching_ = false;
  // What the maintenance worker found; its own while measuring_ and not done.
  struct Measured {
    RegionFiles::Space space;
    bool directory_there = false;
    bool takes_writes = false;  // again, after it refused one
    std::atomic<bool> done{false};
  };
  const std::shared_ptr<Measured> measured_ = std::make_shared<Measured>();
  bool measuring_ = false;
  std::uint32_t measured_allocated_ = 0;  // regions that held space then
  bool reachable_ = true;   // the directory is there, on a file system that takes changes
  bool refused_ = false;    // a write met EROFS; until a touch of the directory succeeds
  std::int64_t measured_ns_ = 0;
  std::int64_t quiet_ns_ = 0;  // until the next one, if nobody writes
  std::uint64_t measured_asked_ = 0;  // appends by then, refused ones too
};

}  // namespace tierd::ssd
