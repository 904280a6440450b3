#include "tierd/ssd/space_keeper.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

namespace tierd::ssd {

namespace {

// Free regions that wait for the writer.
constexpr std::uint32_t kAhead = 2;
constexpr std::int64_t kMeasureEveryNs = 1'000'000'000;
// Where nothing was appended since, and nothing is wrong: before others, writing at 4 GB/s, have used up what may be used; but an idle daemon is not woken for it often.
constexpr std::int64_t kLeastQuietNs = 4'000'000'000, kMostQuietNs = 9'000'000'000;
constexpr std::int64_t kOthersBytesPerNs = 4;

// The directory under its name is still the one that is open.
bool DirectoryIsThere(int dir_fd, const std::string& path) {
  struct stat by_name {}, open {};
  return ::stat(path.c_str(), &by_name) == 0 && ::fstat(dir_fd, &open) == 0 && by_name.st_dev == open.st_dev && by_name.st_ino == open.st_ino;
}

// A file system that turned read-only after an error of its own need not say so in its flags (ext4 since Linux 6.15).
bool TakesWrites(int dir_fd) { return ::futimens(dir_fd, nullptr) == 0 || errno != EROFS; }

}  // namespace

SpaceKeeper::SpaceKeeper(TierContext& context, RegionWriter& writer, const SuperblockKeeper& superblock)
    : context_(context), writer_(writer), superblock_(superblock), limit_regions_(std::numeric_limits<std::uint32_t>::max()),
      min_free_bytes_(context.options.min_free_bytes), min_free_inodes_(context.options.min_free_inodes) {
  SetCapacity(context.options.capacity_bytes);
}

void SpaceKeeper::SetCapacity(std::uint64_t bytes) {
  capacity_regions_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / context_.format.region_bytes, std::numeric_limits<std::uint32_t>::max()));
  writer_.set_growable(growable());
}

void SpaceKeeper::SetMinFree(std::uint64_t bytes, std::uint64_t inodes) {
  min_free_bytes_ = bytes;
  min_free_inodes_ = inodes;
  measured_ns_ = 0;
}

std::uint32_t SpaceKeeper::target() const { return std::min(capacity_regions_, limit_regions_); }

bool SpaceKeeper::at_rest() const { return !busy_ && context_.regions.Count(RegionState::kFree) <= kAhead; }

bool SpaceKeeper::must_empty() const {
  const RegionTable& r = context_.regions;
  const std::uint32_t empty = r.Count(RegionState::kFree) + r.Count(RegionState::kAllocating) + r.Count(RegionState::kRetired);
  return must_shrink() && r.allocated() - empty > target();
}

void SpaceKeeper::Step(bool give_back) {
  writer_.set_growable(growable());
  if (busy_ || !started_ || !may_punch()) return;
  if (must_shrink() || (give_back && context_.regions.Count(RegionState::kFree) > kAhead)) {
    // Where less must be held, what is of no use goes first.
    std::optional<std::uint32_t> region = must_shrink() ? context_.regions.FindState(RegionState::kRetired) : std::nullopt;
    if (!region) region = context_.regions.FindState(RegionState::kFree);
    if (region) Punch(*region);
    return;
  }
  if (writer_.writable() && growable() && context_.regions.Count(RegionState::kFree) < kAhead) Allocate();
}

// Where there is no memory for a job nothing has changed, here and below.
void SpaceKeeper::Allocate() {
  std::uint32_t region = context_.regions.size();
  if (const auto absent = context_.regions.FindState(RegionState::kAbsent)) region = *absent;
  context_.regions.GrowTo(region + 1);
  RegionFiles::AllocateRequest request = context_.files.RequestFor(context_.directory.dir.get(), region);
  request.min_free_bytes = min_free_bytes_;
  request.min_free_inodes = min_free_inodes_;
  context_.maintenance.Post([this, request, region] {
    auto made = std::make_shared<RegionFiles::Allocation>(RegionFiles::AllocateRegion(request));
    context_.mailbox.Post([this, made, region] {
      busy_ = false;
      if (made->fd.valid()) context_.files.Install(region, std::move(made->fd));
      context_.regions.Set(region, made->status.ok() ? RegionState::kFree : RegionState::kAbsent);
      if (made->status.ok()) return;
      full_ = true;  // until the next measurement says better
      if (made->status.sys_errno() == EROFS) return OnReadOnly();
      if (made->status.code() != Code::kNoSpace) context_.health.OnError(context_.clock.MonotonicNs());
    });
  });
  context_.regions.Set(region, RegionState::kAllocating);
  busy_ = true;
}

void SpaceKeeper::Punch(std::uint32_t region) {
  const RegionAddress address = context_.files.AddressOf(region);
  context_.maintenance.Post([this, address, region, bytes = context_.format.region_bytes] {
    const Status punched = RegionFiles::PunchRegion(address, bytes);
    context_.mailbox.Post([this, region, ok = punched.ok()] {
      busy_ = punching_ = false;
      // A file system that cannot punch keeps the space; counting it as given back avoids trying for ever.
      context_.regions.Set(region, RegionState::kAbsent);
      if (ok) ++context_.counters.regions_punched;
    });
  });
  context_.regions.Set(region, RegionState::kAllocating);
  busy_ = punching_ = true;
}

void SpaceKeeper::OnReadOnly() {
  refused_ = true;
  writer_.set_writable(false);
}

void SpaceKeeper::Tick() {
  const std::int64_t now = context_.clock.MonotonicNs();
  if (const int error = writer_.TakeWriteError(); SpeaksOfSpace(error)) {
    full_ = true;
    measured_ns_ = now;
  } else if (error == EROFS) {
    OnReadOnly();
  }
  TakeMeasured();
  const std::uint64_t asked = context_.counters.appends + context_.counters.appends_refused_no_space;
  const bool quiet = asked == measured_asked_ && !full_ && writer_.writable();
  if (measuring_ || (measured_ns_ != 0 && now - measured_ns_ < (quiet ? quiet_ns_ : kMeasureEveryNs))) return;
  measured_asked_ = asked;
  measured_ns_ = now;
  Measure();
}

void SpaceKeeper::Measure() {
  measured_->done.store(false, std::memory_order_relaxed);
  context_.maintenance.Post([measured = measured_, dir = context_.directory.dir.get(), path = context_.directory.path, refused = refused_] {
    measured->space = RegionFiles::MeasureSpace(dir);
    measured->directory_there = DirectoryIsThere(dir, path);
    measured->takes_writes = refused && TakesWrites(dir);
    measured->done.store(true, std::memory_order_release);
  });
  measuring_ = true;
  // As the worker will find it: what it is punching is gone by then.
  measured_allocated_ = context_.regions.allocated() - (punching_ ? 1 : 0);
}

void SpaceKeeper::TakeMeasured() {
  if (!measuring_ || !measured_->done.load(std::memory_order_acquire)) return;
  measuring_ = false;
  const bool was_well = writer_.writable() && !full_;
  OnMeasured();
  const bool well = writer_.writable() && !full_;
  if (must_shrink() || well != was_well) context_.mailbox.Post([] {});  // a turn, where something is to be done
}

void SpaceKeeper::OnMeasured() {
  const RegionFiles::Space& space = measured_->space;
  if (measured_->takes_writes) refused_ = false;
  reachable_ = measured_->directory_there && !(space.status.ok() && space.read_only);
  writer_.set_writable(may_punch() && !superblock_.failed());
  if (!space.status.ok()) return;
  full_ = false;
  const std::int64_t spare = static_cast<std::int64_t>(std::min<std::uint64_t>(space.free_bytes, std::numeric_limits<std::int64_t>::max())) -
                             static_cast<std::int64_t>(min_free_bytes_);
  quiet_ns_ = std::clamp(spare / kOthersBytesPerNs, kLeastQuietNs, kMostQuietNs);
  const std::int64_t region = context_.format.region_bytes;
  // Rounded down, also below zero: any shortfall costs a region.
  std::int64_t more = spare >= 0 ? spare / region : -((-spare + region - 1) / region);
  if (space.free_inodes < min_free_inodes_) more = std::min<std::int64_t>(more, 0);
  const std::int64_t limit = static_cast<std::int64_t>(measured_allocated_) + more;
  limit_regions_ = static_cast<std::uint32_t>(std::clamp<std::int64_t>(limit, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace tierd::ssd
