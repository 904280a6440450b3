#include "tierd/ssd/verifier.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace tierd::ssd {

namespace {

// I/O priority of the calling thread while it lives: idle class, where the device's scheduler knows such a thing.
class IdlePriority {
 public:
  IdlePriority() : before_(::syscall(SYS_ioprio_get, kThread, 0)) { ::syscall(SYS_ioprio_set, kThread, 0, kIdle); }
  ~IdlePriority() { ::syscall(SYS_ioprio_set, kThread, 0, before_ < 0 ? 0 : before_); }
  IdlePriority(const IdlePriority&) = delete;
  IdlePriority& operator=(const IdlePriority&) = delete;

 private:
  static constexpr int kThread = 1;       // IOPRIO_WHO_PROCESS: a thread
  static constexpr int kIdle = 3 << 13;   // IOPRIO_CLASS_IDLE
  long before_;
};

}  // namespace

struct Verifier::Found {
  RegionContents walked;           // records that verify
  std::vector<SsdRecord> damaged;  // in the table of contents, but not sound
};

void Verifier::Start(std::function<void(const VerifyReport&)> done) {
  waiting_.push_back(std::move(done));
  if (!done_) context_.mailbox.Post([this] { Next(); });
}

void Verifier::Next() {
  if (!done_) {
    if (waiting_.empty()) return;
    done_ = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    next_ = 0;
    report_ = VerifyReport();
  }
  while (next_ < context_.regions.size() && context_.regions.at(next_).state != RegionState::kClosed) ++next_;
  if (next_ >= context_.regions.size()) {
    const auto done = std::exchange(done_, nullptr);
    done(report_);
    if (!waiting_.empty()) Next();
    return;
  }
  const std::uint32_t region = next_++;
  ++context_.regions.at(region).readers;
  context_.maintenance.Post([this, region, address = context_.files.AddressOf(region), &format = context_.format, &mailbox = context_.mailbox] {
    const IdlePriority idle;
    auto found = std::make_shared<Found>();
    io::AlignedBuffer scratch;
    found->walked = ReadAndWalkRegion(format, region, address, &scratch);
    const RegionContents listed = ReadRegionContents(format, region, address, &scratch);
    std::vector<std::uint32_t> sound;
    for (const RecoveredRecord& record : found->walked.records.records()) sound.push_back(record.location.offset());
    for (const RecoveredRecord& record : listed.records.records()) {
      if (!std::binary_search(sound.begin(), sound.end(), record.location.offset())) found->damaged.push_back({record.identity, record.location});
    }
    mailbox.Post([this, region, found] { OnRegion(region, *found); });
  });
}

void Verifier::OnRegion(std::uint32_t region, const Found& found) {
  ++report_.regions;
  for (const RecoveredRecord& record : found.walked.records.records()) {
    ++report_.records;
    report_.bytes += record.location.stored_bytes;
  }
  // A broken header ends the walk: without a table of contents only what is before it is known.
  const std::uint64_t damaged = std::max<std::uint64_t>(found.damaged.size(), found.walked.damaged);
  report_.records += damaged;
  report_.damaged += damaged;
  for (const SsdRecord& record : found.damaged) {
    if (context_.regions.Readable(record.location) == nullptr || context_.owner.Worth(record) < 0) continue;
    context_.regions.RemoveLive(record.location, context_.RecordBytesOf(record.location));
    context_.index.Remove({record.location.region, record.location.epoch, record.location.place});
    context_.owner.OnGone(record, SsdGone::kDamaged);
  }
  context_.regions.DropReader(region);
  Next();
}

}  // namespace tierd::ssd
