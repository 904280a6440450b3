#include "tierd/ssd/superblock_keeper.h"

#include <optional>
#include <utility>

#include "tierd/base/kill_point.h"

namespace tierd::ssd {
namespace {

constexpr std::int64_t kTryAgainNs = 1'000'000'000;

}  // namespace

void SuperblockKeeper::Store(Done done) {
  waiting_.push_back(std::move(done));
  if (!storing_) Begin();
}

void SuperblockKeeper::Begin() {
  tried_ns_ = context_.clock.MonotonicNs();
  context_.maintenance.Post([this, dir = context_.directory.dir.get(), superblock = context_.directory.superblock] {
    TIERD_KILL_POINT("ssd.invalidate.before_write");
    const Status stored = StoreSuperblock(dir, superblock);
    TIERD_KILL_POINT("ssd.invalidate.after_write");
    context_.mailbox.Post([this, stored] { OnStored(stored); });
  });
  storing_ = true;
  asked_ = std::exchange(waiting_, {});
}

void SuperblockKeeper::OnStored(const Status& stored) {
  storing_ = false;
  failed_ = !stored.ok();
  for (const Done& done : std::exchange(asked_, {})) done(stored);
  if (!storing_ && !waiting_.empty()) Begin();
}

// Also what there was no memory to begin.
void SuperblockKeeper::Tick() {
  if (storing_ || durable()) return;
  if (!waiting_.empty() || context_.clock.MonotonicNs() - tried_ns_ >= kTryAgainNs) Begin();
}

void RecordWithRoomOfARegion(CacheDirectory& directory, const RegionFiles& files) {
  const auto punched = [&](std::uint32_t region) { return RegionFiles::PunchRegion(files.AddressOf(region), directory.superblock.region_bytes).ok(); };
  const auto recorded = [&](const std::string& what) {
    directory.recorded = StoreSuperblock(directory.dir.get(), directory.superblock);
    if (directory.recorded.ok()) directory.note = "the disk of " + directory.path + " is full: the SSD tier gave back " + what;
    return directory.recorded.ok();
  };
  // What was allocated ahead of need, and nothing written to.
  std::optional<std::uint32_t> last;
  for (std::uint32_t i = 0; i < files.region_count(); ++i) {
    if (files.HasSpace(i)) last = i;
    else (void)punched(i);
  }
  if (recorded("what it had allocated and not written") || !last || !punched(*last)) return;
  (void)recorded("region " + std::to_string(*last));
}

}  // namespace tierd::ssd
