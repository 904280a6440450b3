#include "tierd/ssd/ssd_tier.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/ssd/reclaimer.h"
#include "tierd/ssd/record_reader.h"
#include "tierd/ssd/region_writer.h"
#include "tierd/ssd/space_keeper.h"
#include "tierd/ssd/superblock_keeper.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

namespace {

// A recovered batch is handed over per turn; the scan waits when this many are ahead.
constexpr std::size_t kBatchesAhead = 16;
constexpr std::size_t kInstalledAtOnce = 8192;  // regions, when the index has said what is in which
constexpr int kFillShift = 40;
constexpr int kEpochShift = 24;
constexpr std::int64_t kSecondNs = 1'000'000'000;
// Of the loop's 2 ms per turn (HAZARDS 5); what is left over runs in the next one.
constexpr std::int64_t kTurnNs = 1'000'000;
constexpr std::size_t kAnswersAtOnce = 16;

Status CheckOptions(const SsdOptions& o) {
  if (o.directory.empty()) return Status(Code::kInvalid, "SSD directory is not set");
  if (o.region_bytes < 65536 || o.region_bytes > (256u << 20) || o.region_bytes % 65536 != 0) {
    return Status(Code::kInvalid, "region size " + std::to_string(o.region_bytes) + " is not a multiple of 64 KiB in 64 KiB..256 MiB");
  }
  if (o.capacity_bytes / o.region_bytes < kSsdLeastRegions) {
    return Status(Code::kInvalid, "SSD capacity " + std::to_string(o.capacity_bytes) + " is below 4 regions of " + std::to_string(o.region_bytes));
  }
  if (o.write_unit_bytes == 0 || o.write_unit_bytes % 4096 != 0) return Status(Code::kInvalid, "SSD write unit is not a multiple of 4096");
  if (o.region_buffers < 2 || o.region_buffers > 16) return Status(Code::kInvalid, "SSD region buffers not in 2..16");
  if (o.max_reads == 0 || o.device_reads == 0 || o.background_reads == 0 || o.checksum_threads == 0) {
    return Status(Code::kInvalid, "SSD max_reads, device_reads, background_reads and checksum_threads must not be 0");
  }
  return Status::Ok();
}

}  // namespace

// Members in order of construction; what threads touch is destroyed after the threads have been joined (see ~Impl).
class SsdTier::Impl {
 public:
  Impl(const SsdOptions& options, CacheDirectory directory, RegionFiles files, io::IoEngine& io, const Clock& clock, SsdOwner& owner)
      : options_(options),
        directory_(std::move(directory)),
        files_(std::move(files)),
        regions_((directory_.superblock.lives << kEpochShift) + 1),
        health_(options_),
        maintenance_("tierd-ssd", 1),
        checksums_("tierd-crc", options_.checksum_threads),
        index_(options_, options_.directory + "/index", mailbox_, counters_),
        context_{options_, io, clock, owner, directory_, files_, regions_, index_, maintenance_, mailbox_, health_, counters_,
                 {directory_.superblock.salt, directory_.superblock.record_alignment, directory_.superblock.region_bytes},
                 GeometryFor(directory_.superblock.record_alignment)},
        writer_(context_),
        reader_(context_, writer_, checksums_),
        superblock_(context_),
        space_(context_, writer_, superblock_),
        reclaimer_(context_, writer_),
        next_fill_((directory_.superblock.lives << kFillShift) + 1) {
    writer_.set_writable(!superblock_.failed());
  }

  ~Impl() {
    StopThreads();
    // A worker that a dead device holds may still use the number, which must not become another file's.
    if (context_.io.in_flight() > 0) files_.Abandon();
  }

  void Recover(std::function<void(std::span<const RecoveredRecord>)> batch, std::function<void(const RecoveryReport&)> done,
               std::function<void(std::uint64_t)> expect);
  Result<SsdLocation> Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t crc);
  void Forget(const SsdLocation& location);
  std::uint64_t FreeBytes() const;
  void InvalidateDataset(std::uint64_t dataset_id, std::function<void(Status)> done);
  void GiveBack(std::function<void(std::uint64_t)> done);
  std::size_t Poll(std::size_t budget);
  bool more_work() const { return !mailbox_.empty() || reclaimer_.has_work() || writer_.has_work(); }
  SsdHealth health() const { return health_.state(); }
  bool stalls() const { return health_.stalls(); }
  // In this order: an answer is posted before its job counts as done.
  bool ailing() const { return !recovering_ && (!health_.MayAppend() || !writer_.writable()); }
  bool at_rest() const { return maintenance_.pending() + checksums_.pending() == 0 && index_.idle() && mailbox_.empty(); }
  void Tick();
  Status Stop(int timeout_ms);
  SsdStatus StatusNow() const;

  const SsdOptions options_;
  CacheDirectory directory_;
  RegionFiles files_;
  RegionTable regions_;
  Health health_;
  SsdCounters counters_;
  Mailbox mailbox_;
  Worker maintenance_;
  Worker checksums_;
  IndexQueue index_;
  TierContext context_;
  RegionWriter writer_;
  RecordReader reader_;
  SuperblockKeeper superblock_;
  SpaceKeeper space_;
  Reclaimer reclaimer_;
  std::uint64_t next_fill_;

 private:
  void InstallRegions(const std::vector<RecoveredRegion>& regions, std::size_t from);
  void FinishRecovery();
  bool WantsRegion() const;
  bool AnyToGiveBack() const;
  void StepGivingBack();
  void StopThreads();

  // Answered together when nothing is left to give back; `given_from_`: what had been when the first of them came.
  std::vector<std::function<void(std::uint64_t)>> giving_back_;
  std::uint64_t given_from_ = 0;

  bool recovering_ = true;
  bool index_done_ = false;  // recovery only waits for the first region to write
  bool refused_no_space_ = false;  // since the last tick
  RecoveryReport report_;
  std::function<void(const RecoveryReport&)> recovered_;
  std::int64_t last_look_ns_ = 0;
  std::size_t hung_told_ = 0;  // requests that the engine replaces
};

void SsdTier::Impl::Recover(std::function<void(std::span<const RecoveredRecord>)> batch, std::function<void(const RecoveryReport&)> done,
                            std::function<void(std::uint64_t)> expect) {
  TIERD_CHECK(recovering_ && !recovered_);
  recovered_ = std::move(done);
  RecoveryInput input;
  input.format = context_.format;
  input.index_path = options_.directory + "/index";
  input.index_env = options_.index_env;
  input.dataset_generations = directory_.superblock.dataset_generations;
  for (std::uint32_t i = 0; i < files_.region_count(); ++i) {
    input.regions.push_back(files_.HasSpace(i) ? files_.AddressOf(i) : RegionAddress());
  }
  RecoverySinks sinks;
  sinks.expect = [this, expect = std::move(expect)](std::uint64_t records) {
    if (expect) mailbox_.Post([expect, records] { expect(records); });
  };
  sinks.regions = [this](std::vector<RecoveredRegion> regions) {
    const auto all = std::make_shared<const std::vector<RecoveredRegion>>(std::move(regions));  // shared by the turns that take a piece of it
    for (std::size_t from = 0; from < all->size(); from += kInstalledAtOnce) mailbox_.Post([this, all, from] { InstallRegions(*all, from); });
  };
  sinks.batch = [this, batch = std::move(batch)](std::shared_ptr<RecordBatch> records) {
    return mailbox_.PostBounded(
        [this, batch, records = std::move(records)] {
          for (const RecoveredRecord& record : records->records()) regions_.AddLive(record.location, context_.RecordBytesOf(record.location));
          batch(records->records());
        },
        kBatchesAhead);
  };
  index_.Recover(std::move(input), std::move(sinks), [this] { writer_.TouchBuffers(); },
                 [this](const RecoveryReport& report) {
                   report_ = report;
                   index_done_ = true;
                   space_.Start();
                   space_.Step(false);
                   writer_.Prepare();
                 });
}

void SsdTier::Impl::InstallRegions(const std::vector<RecoveredRegion>& regions, std::size_t from) {
  const auto end = static_cast<std::uint32_t>(std::min(regions.size(), from + kInstalledAtOnce));
  regions_.GrowTo(end);
  for (auto i = static_cast<std::uint32_t>(from); i < end; ++i) {
    if (!regions[i].has_space) continue;
    if (regions[i].unreadable) {
      writer_.Retire(i);
      continue;
    }
    regions_.at(i).epoch = regions[i].epoch;
    regions_.Set(i, regions[i].epoch == 0 ? RegionState::kFree : RegionState::kClosed);
  }
}

void SsdTier::Impl::FinishRecovery() {
  // "Done" means that appends work, or that there is a reason why not.
  const bool on_the_way = !writer_.prepared() && writer_.writable() &&
                          (regions_.Count(RegionState::kFree) + regions_.Count(RegionState::kAllocating) + regions_.Count(RegionState::kOpening) > 0 ||
                           space_.growable());
  if (on_the_way) return;
  recovering_ = false;
  const auto done = std::move(recovered_);
  done(report_);
}

Result<SsdLocation> SsdTier::Impl::Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t crc) {
  if (payload.empty() || payload.size() > kMaxPayloadBytes || path.size() > kMaxPathBytes) {
    return Status(Code::kInvalid, "record of " + std::to_string(payload.size()) + " bytes with a path of " + std::to_string(path.size()));
  }
  if (identity.dataset_generation != context_.GenerationOf(identity.dataset_id)) {
    return Status(Code::kNotFound, "the dataset was invalidated after these bytes were asked for");
  }
  if (recovering_ || !health_.MayAppend()) {
    ++counters_.appends_refused_health;
    return Status(Code::kBusy, recovering_ ? "SSD tier is recovering" : "SSD tier is degraded");
  }
  // A record of a generation that is not on the disk would be taken for another one's after a crash.
  if (!superblock_.durable()) {
    ++counters_.appends_refused_busy;
    return Status(Code::kBusy, superblock_.failed() ? "the superblock cannot be written" : "the superblock is being written");
  }
  // While space is being given back even the open region takes nothing new.
  Result<SsdLocation> placed = space_.must_shrink() ? Result<SsdLocation>(Status(Code::kNoSpace, "SSD tier is giving space back"))
                                                    : writer_.Append(identity, path, payload, RegionWriter::Use::kNew, crc);
  if (placed.ok()) {
    ++counters_.appends;
    counters_.append_payload_bytes += payload.size();
  } else if (placed.status().code() == Code::kNoSpace) {
    ++counters_.appends_refused_no_space;
    refused_no_space_ = true;
  } else if (placed.status().code() == Code::kBusy) {
    ++counters_.appends_refused_busy;
  }
  return placed;
}

void SsdTier::Impl::Forget(const SsdLocation& location) {
  if (!location.valid() || regions_.Readable(location) == nullptr) return;
  const std::uint32_t bytes = context_.RecordBytesOf(location);
  regions_.RemoveLive(location, bytes);
  index_.Remove({location.region, location.epoch, location.place});
  if (const SsdLocation* const from = reclaimer_.OriginOf(location)) index_.Remove({from->region, from->epoch, from->place});
  reclaimer_.OnForgotten(bytes);
}

std::uint64_t SsdTier::Impl::FreeBytes() const {
  const std::uint32_t allocated = regions_.allocated();
  std::uint64_t regions = regions_.Count(RegionState::kFree) + regions_.Count(RegionState::kAllocating) + regions_.Count(RegionState::kOpening) +
                          regions_.Count(RegionState::kPrepared);
  if (space_.growable()) regions += space_.target() - allocated;
  // One stays with the mover.
  return writer_.room(RegionWriter::Use::kNew) + (regions > 0 ? regions - 1 : 0) * context_.format.region_bytes;
}

void SsdTier::Impl::InvalidateDataset(std::uint64_t dataset_id, std::function<void(Status)> done) {
  auto& generations = directory_.superblock.dataset_generations;
  if (generations.size() >= kMaxDatasets && !generations.contains(dataset_id)) {
    mailbox_.Post([done] { done(Status(Code::kNoSpace, "too many datasets for the superblock")); });
    return;
  }
  ++generations[dataset_id];
  superblock_.Store([this, done = std::move(done)](const Status& stored) {
    if (!stored.ok()) writer_.set_writable(false);
    done(stored);
  });
}

bool SsdTier::Impl::WantsRegion() const {
  if (recovering_ || space_.growable() || !writer_.writable()) return false;
  // Regions with readers come free soon, unless the readers hang: some may wait, all must not.
  if (regions_.Count(RegionState::kDraining) > std::max<std::uint32_t>(2, space_.target() / 8)) return false;
  const std::uint32_t ready = regions_.Count(RegionState::kFree) + regions_.Count(RegionState::kAllocating);
  // Two ahead, so that a burst of appends need not wait; fewer in a tier of few regions.
  return ready < std::clamp<std::uint32_t>(space_.target() / 16, 1, 2);
}

void SsdTier::Impl::GiveBack(std::function<void(std::uint64_t)> done) {
  if (giving_back_.empty()) given_from_ = counters_.regions_punched;
  giving_back_.push_back(std::move(done));
  reclaimer_.Tick();
  mailbox_.Post([] {});  // a turn, also where nothing is to be done
}

// Regions that are free, or that reclaim can make free.
bool SsdTier::Impl::AnyToGiveBack() const {
  constexpr RegionState kThose[] = {RegionState::kAllocating, RegionState::kFree, RegionState::kClosed, RegionState::kReclaiming, RegionState::kDraining, RegionState::kRetired};
  return std::any_of(std::begin(kThose), std::end(kThose), [this](RegionState state) { return regions_.Count(state) > 0; });
}

void SsdTier::Impl::StepGivingBack() {
  if (giving_back_.empty()) return;
  const bool more = regions_.AnyDead() || !reclaimer_.idle() || !space_.at_rest();
  if (more && !ailing()) return;
  const std::uint64_t bytes = (counters_.regions_punched - given_from_) * context_.format.region_bytes;
  for (const auto& done : std::exchange(giving_back_, {})) done(bytes);
}

std::size_t SsdTier::Impl::Poll(std::size_t budget) {
  const std::int64_t start = context_.clock.PreciseNs();
  const auto late = [&] { return context_.clock.PreciseNs() - start > kTurnNs; };
  std::size_t ran = 0, part = 0;
  // An answer of the device may mean summing and copying a quarter of a megabyte. What is not taken keeps the event readable.
  do {
    const std::size_t wanted = std::min(kAnswersAtOnce, budget - ran);
    part = wanted == 0 ? 0 : context_.io.Poll(wanted);
    ran += part;
  } while (part == kAnswersAtOnce && !late());
  while (ran < budget && mailbox_.Run(1) == 1) {
    ++ran;
    if (late()) break;
  }
  if (recovering_) {
    if (!index_done_) return ran;
    FinishRecovery();
  }
  const bool give_back = !giving_back_.empty();
  space_.Step(give_back);
  writer_.Step([this](const SsdRecord& copy) { return reclaimer_.TakeBack(copy); });
  if (space_.must_shrink() && space_.may_punch() && !AnyToGiveBack()) writer_.LetGo();
  else writer_.Prepare();
  reclaimer_.Step(WantsRegion() || (give_back && regions_.AnyDead()), space_.must_empty() && space_.may_punch());
  StepGivingBack();
  return ran;
}

void SsdTier::Impl::Tick() {
  const std::int64_t now = context_.clock.MonotonicNs();
  const std::size_t hung = context_.io.OlderThan(options_.hung_read_ns);
  if (hung > hung_told_) context_.io.CompensateHung(hung - hung_told_);
  hung_told_ = hung;
  if (hung > 0) health_.OnHung(now, hung);
  if (health_.ProbeDue(now)) reader_.Probe();
  reader_.Tick();
  index_.FlushRemovals();
  if (!index_done_) return;
  superblock_.Tick();
  space_.Tick();
  if (now - last_look_ns_ >= kSecondNs) {
    last_look_ns_ = now;
    if (refused_no_space_) reclaimer_.Tick();
    refused_no_space_ = false;
  }
}

Status SsdTier::Impl::Stop(int timeout_ms) {
  // A recovery has nothing to lose; its next batch finds the mailbox closed.
  if (!index_done_) {
    index_.StopRecovery();
    mailbox_.Close();
    return Status::Ok();
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  writer_.Close();
  index_.FlushRemovals();
  while (!writer_.idle() || reader_.in_flight() > 0 || !index_.idle() || !superblock_.idle() || !mailbox_.empty()) {
    if (std::chrono::steady_clock::now() > deadline) return Status(Code::kTimeout, "SSD tier did not come to rest in " + std::to_string(timeout_ms) + " ms");
    context_.io.Flush();
    context_.io.Wait(1, 64);
    mailbox_.Run(64);
    writer_.Close();  // also what was prepared or appended since
    index_.FlushRemovals();
  }
  return Status::Ok();
}

void SsdTier::Impl::StopThreads() {
  index_.StopRecovery();
  mailbox_.Close();
  index_.Stop();
  maintenance_.Stop();
  checksums_.Stop();
}

SsdStatus SsdTier::Impl::StatusNow() const {
  SsdStatus s;
  s.health = health_.state();
  s.recovering = recovering_;
  s.writable = writer_.writable();
  s.retired_regions = regions_.Count(RegionState::kRetired);
  s.configured_bytes = std::uint64_t{space_.capacity_regions()} * context_.format.region_bytes;
  s.capacity_bytes = (space_.target() - std::min<std::uint64_t>(space_.target(), s.retired_regions)) * context_.format.region_bytes;
  s.allocated_bytes = std::uint64_t{regions_.allocated()} * context_.format.region_bytes;
  s.live_bytes = regions_.live_bytes();
  s.live_payload_bytes = regions_.live_payload();
  s.live_records = regions_.live_records();
  s.reads_in_flight = reader_.in_flight();
  s.hung_reads = context_.io.OlderThan(options_.hung_read_ns);
  s.read_latency_ns = health_.read_latency_ns();
  s.direct_io = directory_.direct_io;
  s.record_alignment = context_.format.alignment;
  return s;
}

Result<std::unique_ptr<SsdTier>> SsdTier::Open(const SsdOptions& options, io::IoEngine& io, const Clock& clock, SsdOwner& owner) {
  if (Status valid = CheckOptions(options); !valid.ok()) return valid;
  Result<CacheDirectory> directory = OpenCacheDirectory(options);
  if (!directory.ok()) return directory.status();
  Result<RegionFiles> files = RegionFiles::Open(*directory);
  if (!files.ok()) return files.status();
  if (directory->recorded.code() == Code::kNoSpace) RecordWithRoomOfARegion(*directory, *files);
  auto impl = std::make_unique<Impl>(options, std::move(*directory), std::move(*files), io, clock, owner);
  if (!impl->writer_.has_memory()) return Status(Code::kNoSpace, "no memory for the SSD tier's region buffers");
  return std::unique_ptr<SsdTier>(new SsdTier(std::move(impl)));
}

SsdTier::SsdTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SsdTier::~SsdTier() = default;

const std::string& SsdTier::note() const { return impl_->directory_.note; }
const std::array<std::uint8_t, 32>& SsdTier::path_hash_key() const { return impl_->directory_.superblock.path_hash_key; }
void SsdTier::Recover(std::function<void(std::span<const RecoveredRecord>)> batch, std::function<void(const RecoveryReport&)> done,
                      std::function<void(std::uint64_t)> expect) {
  impl_->Recover(std::move(batch), std::move(done), std::move(expect));
}
std::uint64_t SsdTier::NextFillSequence() { return impl_->next_fill_++; }
Result<SsdLocation> SsdTier::Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t crc) {
  return impl_->Append(identity, path, payload, crc);
}
FrameNeeds SsdTier::NeedsOf(std::uint32_t payload_bytes) const { return impl_->reader_.NeedsOf(payload_bytes); }
Status SsdTier::Read(const SsdLocation& location, const RecordIdentity& expected, std::span<std::byte> dest, ReadDone done, ReadClass read_class,
                     std::function<void()> on_hung) {
  return impl_->reader_.Read(location, expected, {}, dest, {std::move(done), std::move(on_hung)}, read_class);
}
Status SsdTier::ReadParts(const SsdLocation& location, const RecordIdentity& expected, PayloadRange range, std::span<std::byte> dest, ReadDone done,
                          std::function<void()> on_hung) {
  if (range.bytes == 0) return Status(Code::kInvalid, "no part");
  return impl_->reader_.Read(location, expected, range, dest, {std::move(done), std::move(on_hung)}, ReadClass::kForeground);
}
void SsdTier::Hasten(const SsdLocation& location) { impl_->reader_.Hasten(location); }
void SsdTier::Forget(const SsdLocation& location) { impl_->Forget(location); }
std::uint64_t SsdTier::FreeBytes() const { return impl_->FreeBytes(); }
void SsdTier::SetCapacity(std::uint64_t bytes) { impl_->space_.SetCapacity(bytes); }
void SsdTier::SetMinFree(std::uint64_t bytes, std::uint64_t inodes) { impl_->space_.SetMinFree(bytes, inodes); }
std::uint64_t SsdTier::DatasetGeneration(std::uint64_t dataset_id) const { return impl_->context_.GenerationOf(dataset_id); }
void SsdTier::InvalidateDataset(std::uint64_t dataset_id, std::function<void(Status)> done) {
  impl_->InvalidateDataset(dataset_id, std::move(done));
}
void SsdTier::Sync(std::function<void(Status)> done) { impl_->writer_.Sync(std::move(done)); }
void SsdTier::GiveBack(std::function<void(std::uint64_t)> done) { impl_->GiveBack(std::move(done)); }
void SsdTier::Flush() { impl_->context_.io.Flush(); }
std::size_t SsdTier::Poll(std::size_t budget) { return impl_->Poll(budget); }
bool SsdTier::more_work() const { return impl_->more_work(); }
bool SsdTier::behind() const { return impl_->writer_.behind(); }
bool SsdTier::ailing() const { return impl_->ailing(); }
SsdHealth SsdTier::health() const { return impl_->health(); }
bool SsdTier::stalls() const { return impl_->stalls(); }
bool SsdTier::at_rest() const { return impl_->at_rest(); }
void SsdTier::Tick() { impl_->Tick(); }
int SsdTier::wake_fd() const { return impl_->mailbox_.fd(); }
Status SsdTier::Stop(int timeout_ms) { return impl_->Stop(timeout_ms); }
SsdCounters SsdTier::counters() const { return impl_->counters_; }
SsdStatus SsdTier::status() const { return impl_->StatusNow(); }

}  // namespace tierd::ssd
