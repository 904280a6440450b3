#include "tierd/ssd/recovery.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "tierd/base/kill_point.h"
#include "tierd/ssd/newest_versions.h"
#include "tierd/ssd/worker.h"

namespace tierd::ssd {

namespace {

class Recovery {
 public:
  Recovery(const RecoveryInput& input, const RecoverySinks& sinks) : in_(input), sinks_(sinks), epochs_(input.regions.size()), unreadable_(input.regions.size()) {}

  RecoveryOutcome Run() {
    const auto start = std::chrono::steady_clock::now();
    Status status;
    try {
      status = Steps();
    } catch (const std::bad_alloc&) {
      status = Status(Code::kNoSpace, "out of memory");
      (void)out_.index.release();  // it may hold locks for ever now: its library does not stand this
    }
    if (!status.ok()) out_.index.reset();
    // A life without an index: what lies there would tell an old story at the next start.
    if (!status.ok() && status.code() != Code::kStopped) Insist([this] { ::unlink((in_.index_path + "/CURRENT").c_str()); });
    TIERD_KILL_POINT("ssd.recover.after_scan");
    if (!regions_told_) {
      std::fill(epochs_.begin(), epochs_.end(), 0);
      Insist([this] { TellRegions(); });
    }
    out_.report.status = std::move(status);
    out_.report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(out_);
  }

 private:
  Status Steps() {
    TIERD_KILL_POINT("ssd.recover.before_scan");
    Status status = OpenIndex();
    if (status.ok()) status = BringUpToDate();
    // One second chance: an index that opens can still turn out to be damaged, or not to be readable, in the scan.
    if (IsUseless(status) && !out_.report.index_rebuilt) {
      status = Recreate(status);
      if (status.ok()) status = BringUpToDate();
    }
    if (status.ok()) status = Scan();
    // But not once a part of it has been handed over, which must not come twice.
    if (IsUseless(status) && !out_.report.index_rebuilt && !regions_told_) {
      status = Recreate(status);
      if (status.ok()) status = BringUpToDate();
      if (status.ok()) status = Scan();
    }
    // Where none can be made either (a full disk), the regions are sound all the same. This life has no index then.
    if (IsUseless(status) && !regions_told_) {
      if (const Status read = ScanRegions(); !read.ok()) return read;
    }
    return status;
  }

  static bool IsUseless(const Status& index) { return index.code() == Code::kCorrupt || index.code() == Code::kIo; }

  Status OpenIndex() {
    Result<std::unique_ptr<RecordIndex>> opened = RecordIndex::Open(in_.index_path, in_.format.salt, in_.index_env);
    if (!opened.ok()) return Recreate(opened.status());
    out_.index = std::move(*opened);
    const bool any = std::any_of(in_.regions.begin(), in_.regions.end(), [](const RegionAddress& a) { return a.fd >= 0; });
    if (out_.index->fresh() && any) Note("index missing");
    return Status::Ok();
  }

  Status Recreate(const Status& why) {
    out_.index.reset();
    (void)RecordIndex::Destroy(in_.index_path, in_.index_env);  // the next open tells
    Result<std::unique_ptr<RecordIndex>> opened = RecordIndex::Open(in_.index_path, in_.format.salt, in_.index_env);
    if (!opened.ok()) return opened.status();
    out_.index = std::move(*opened);
    Note(why.message());
    return Status::Ok();
  }

  void Note(const std::string& why) {
    out_.report.index_rebuilt = true;
    out_.report.note = "rebuilt the SSD index from its regions: " + why;
    TIERD_KILL_POINT("ssd.recover.before_rebuild");
  }

  // 0: nothing in it, or it could not be read.
  std::uint64_t FirstEpochOf(std::uint32_t region) {
    const Result<std::uint64_t> epoch = FirstEpoch(in_.format, region, in_.regions[region]);
    unreadable_[region] = !epoch.ok();
    return epoch.ok() ? *epoch : 0;
  }

  // Afterwards the index knows every region that could be read, and epochs_ agrees with it.
  Status BringUpToDate() {
    std::fill(epochs_.begin(), epochs_.end(), 0);
    unreadable_.assign(unreadable_.size(), false);
    entries_ = 0;
    std::vector<bool> known(in_.regions.size(), false);
    std::vector<std::pair<std::uint32_t, bool>> to_read;  // region, walk it
    Status status = out_.index->VisitRegions([&](const IndexedRegion& r) {
      if (r.region >= in_.regions.size() || in_.regions[r.region].fd < 0) return;
      known[r.region] = true;
      if (r.closed) {
        epochs_[r.region] = r.epoch;
        entries_ += r.entries;
      } else if (FirstEpochOf(r.region) == r.epoch) {
        // It was being overwritten: a table of contents there may be that of its former life.
        to_read.emplace_back(r.region, true);
      }  // else it was about to be: what it held had been moved or dropped. It is free; a full tier has no other for what it moves.
    });
    if (!status.ok()) return status;
    // An index that lost the news of a region being opened must not hide it.
    for (std::uint32_t i = 0; i < in_.regions.size(); ++i) {
      if (!known[i] && in_.regions[i].fd >= 0 && FirstEpochOf(i) != 0) to_read.emplace_back(i, false);
    }
    for (const auto& [region, walk] : to_read) {
      if (*in_.stop) return Status(Code::kStopped, "recovery was stopped");
      status = ReadRegionInto(region, walk);
      if (!status.ok()) return status;
    }
    return Status::Ok();
  }

  Status ReadRegionInto(std::uint32_t region, bool walk) {
    TIERD_KILL_POINT("ssd.recover.during_rebuild");
    const auto read = walk ? ReadAndWalkRegion : ReadRegionContents;
    const RegionContents contents = read(in_.format, region, in_.regions[region], &scratch_);
    // One that cannot be read holds nothing for this life; the rest may be fine, and the next start may read it.
    unreadable_[region] = !contents.status.ok();
    if (!contents.status.ok() || contents.epoch == 0) return Status::Ok();
    ++(contents.from_toc ? out_.report.regions_from_toc : out_.report.regions_walked);
    epochs_[region] = contents.epoch;
    entries_ += contents.records.size();
    // The region is not begun once more: that would take away what was removed of it. Contents of an older epoch are replaced, removals of one say nothing.
    TocBuilder toc;
    toc.Reset(region, contents.epoch);
    // Nothing is lost to a full table: it bounded the region when it was written.
    contents.records.Visit([&](const RecoveredRecord& record) { (void)toc.Add(record.identity, record.location, record.path); });
    return out_.index->EndRegion(toc);
  }

  bool IsVoid(const RecoveredRecord& r, std::uint64_t epoch) const {
    if (r.location.region >= epochs_.size() || epochs_[r.location.region] != epoch || epoch == 0) return true;
    if (std::uint64_t{r.location.offset()} + r.location.header_bytes() + r.location.stored_bytes > in_.format.region_bytes) return true;
    const auto it = in_.dataset_generations.find(r.identity.dataset_id);
    return r.identity.dataset_generation != (it == in_.dataset_generations.end() ? 0 : it->second);
  }

  using Visitor = std::function<void(const RecoveredRecord&, std::uint64_t epoch)>;

  Status Scan() {
    return HandOver([this](const Visitor& visit) { return out_.index->VisitRecords(visit, *in_.stop); });
  }

  Status ScanRegions() {
    out_.index.reset();
    std::fill(epochs_.begin(), epochs_.end(), 0);
    entries_ = 0;
    std::vector<std::size_t> records(in_.regions.size());
    for (std::uint32_t region = 0; region < in_.regions.size(); ++region) {
      if (*in_.stop) return Status(Code::kStopped, "recovery was stopped");
      if (in_.regions[region].fd < 0) continue;
      const RegionContents contents = ReadRegionContents(in_.format, region, in_.regions[region], &scratch_);
      unreadable_[region] = !contents.status.ok();
      epochs_[region] = contents.epoch;
      entries_ += records[region] = contents.records.size();
    }
    return HandOver([&](const Visitor& visit) {
      for (std::uint32_t region = 0; region < in_.regions.size(); ++region) {
        if (*in_.stop) return Status(Code::kStopped, "recovery was stopped");
        if (records[region] == 0) continue;
        const RegionContents contents = ReadRegionContents(in_.format, region, in_.regions[region], &scratch_);
        if (contents.epoch != epochs_[region] || contents.records.size() != records[region]) return Status(Code::kIo, "a region cannot be read again");
        contents.records.Visit([&](const RecoveredRecord& record) { visit(record, contents.epoch); });
      }
      return Status::Ok();
    });
  }

  // `all` visits the same records in the same order each time.
  Status HandOver(const std::function<Status(const Visitor&)>& all) {
    sinks_.expect(entries_);
    NewestVersions newest(entries_);
    Status status = all([&](const RecoveredRecord& r, std::uint64_t epoch) {
      if (IsVoid(r, epoch)) {
        newest.Skip();
      } else {
        newest.Offer(r.identity, epoch);
      }
    });
    if (!status.ok()) return status;
    newest.Decide();
    TellRegions();
    std::uint32_t number = 0;
    auto batch = std::make_shared<RecordBatch>();
    bool heard = true;
    status = all([&](const RecoveredRecord& r, std::uint64_t) {
      if (!newest.Wins(number++)) {
        ++out_.report.superseded;
        return;
      }
      if (!heard) return;
      ++out_.report.records;
      out_.report.bytes_live += r.location.stored_bytes;
      batch->Add(r);
      if (batch->size() >= in_.batch_records) heard = sinks_.batch(std::exchange(batch, std::make_shared<RecordBatch>()));
    });
    if (heard && batch->size() > 0) sinks_.batch(std::move(batch));
    return status;
  }

  void TellRegions() {
    std::vector<RecoveredRegion> regions(epochs_.size());
    for (std::size_t i = 0; i < epochs_.size(); ++i) regions[i] = {epochs_[i], in_.regions[i].fd >= 0, unreadable_[i]};
    sinks_.regions(std::move(regions));
    regions_told_ = true;
  }

  const RecoveryInput& in_;
  const RecoverySinks& sinks_;
  RecoveryOutcome out_;
  std::vector<std::uint64_t> epochs_;  // by region; 0: nothing in it
  std::vector<bool> unreadable_;       // by region
  std::uint64_t entries_ = 0;
  io::AlignedBuffer scratch_;
  bool regions_told_ = false;
};

}  // namespace

RecoveryOutcome RunRecovery(const RecoveryInput& input, const RecoverySinks& sinks) { return Recovery(input, sinks).Run(); }

}  // namespace tierd::ssd
