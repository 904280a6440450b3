// A tier over a temporary directory with an owner that keeps what it appended, and content that is a function of (path, version, chunk,
// offset), so that any wrong byte is seen. Time stands still but for what RunUntil adds, and no step of the tier overtakes its threads.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/ssd/sync_io.h"
#include "tests/ssd/temp_directory.h"
#include "tierd/base/clock.h"
#include "tierd/io/aligned_buffer.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::ssd {

inline abi::FileKey KeyOfPath(std::string_view path) {
  std::uint64_t h = 0x1234;
  for (const char c : path) h = abi::Mix64(h + static_cast<unsigned char>(c)) + 1;
  return {h, abi::Mix64(h + 77)};
}

inline std::vector<std::byte> ContentOf(std::string_view path, std::uint64_t version, std::uint32_t chunk, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::uint64_t state = KeyOfPath(path).lo + version * 0x9e3779b97f4a7c15ull + chunk;
  for (std::size_t i = 0; i < bytes; i += 8) {
    state = abi::Mix64(state + 0x9e3779b97f4a7c15ull);
    std::memcpy(out.data() + i, &state, std::min<std::size_t>(8, bytes - i));
  }
  return out;
}

struct Item {
  RecordIdentity identity;
  SsdLocation location;
  std::string path;
  double worth = 1;
};

// One owner, one tier life.
class Life final : public SsdOwner {
 public:
  using Name = std::pair<std::string, std::uint32_t>;
  // Over `io` (faults at will), step by step; or over a real engine, as the daemon runs it.
  explicit Life(SsdOptions options, io::IoEngine* engine = nullptr)
      : options_(std::move(options)), stepped_(engine == nullptr), engine_(engine != nullptr ? engine : &io) {}
  ~Life() override { tier.reset(); }

  Status Open() {
    Result<std::unique_ptr<SsdTier>> opened = SsdTier::Open(options_, *engine_, stepped_ ? static_cast<const Clock&>(manual_clock_) : clock_, *this);
    if (!opened.ok()) return opened.status();
    tier = std::move(*opened);
    return Status::Ok();
  }
  // Opens and recovers; recovered records become items.
  RecoveryReport Start() {
    const Status opened = Open();
    EXPECT_TRUE(opened.ok()) << opened.ToString();
    RecoveryReport report;
    report.status = opened;
    if (!opened.ok()) return report;
    bool done = false;
    tier->Recover(
        [&](std::span<const RecoveredRecord> records) {
          for (const RecoveredRecord& r : records) {
            const std::string path(r.path);
            EXPECT_FALSE(items.contains({path, r.identity.chunk})) << path << " was handed over twice";
            Remember(r.identity, r.location, path);
          }
        },
        [&](const RecoveryReport& r) {
          report = r;
          done = true;
        });
    EXPECT_TRUE(RunUntil([&] { return done; }));
    return report;
  }

  // Turns until the condition holds. False: it did not while `seconds` of the tier's own time passed.
  bool RunUntil(const std::function<bool()>& condition, int seconds = 20) {
    const Clock& time = stepped_ ? static_cast<const Clock&>(manual_clock_) : clock_;
    const std::int64_t deadline = time.PreciseNs() + seconds * std::int64_t{1'000'000'000};
    while (!condition()) {
      if (time.PreciseNs() > deadline) return false;
      const bool worked = stepped_ ? Turn() : FreeTurn();
      if (worked) continue;
      if (stepped_) {
        manual_clock_.Advance(10'000'000);
        tier->Tick();
      } else {
        AwaitEvents(1);
      }
    }
    return true;
  }
  // So much time, of which the tier hears at the end only.
  void Pass(std::int64_t ns) {
    manual_clock_.Advance(ns);
    tier->Tick();
  }
  // One turn, without time passing, in which at most one answer of the device or the tier's threads is taken; they have done what they were
  // asked before it. False when nothing is under way any more but what hangs.
  bool Turn() {
    while (!tier->at_rest() && !AwaitEvents(1)) {
    }
    tier->Flush();
    return tier->Poll(1) > 0 || tier->more_work() || !tier->at_rest() || engine_->in_flight() > io.hung();
  }
  // Ends the life in order; the directory can be opened again.
  void Stop() {
    EXPECT_TRUE(tier->Stop(20'000).ok());
    tier.reset();
  }
  // Until everything appended is on the device.
  void Settle() {
    bool synced = false;
    tier->Sync([&](Status) { synced = true; });
    EXPECT_TRUE(RunUntil([&] { return synced && engine_->in_flight() == io.hung(); }));
  }

  RecordIdentity IdentityOf(const std::string& path, std::uint64_t version, std::size_t file_bytes, std::uint32_t chunk = 0) {
    RecordIdentity id;
    id.source_id = 0x5150;
    id.dataset_id = dataset;
    id.dataset_generation = tier->DatasetGeneration(dataset);
    id.key = KeyOfPath(path);
    id.version = {1000 + version, file_bytes, static_cast<std::int64_t>(version) * 1'000'000'000, 5};
    id.chunk = chunk;
    id.chunk_bytes = 4u << 20;
    id.fill_sequence = tier->NextFillSequence();
    return id;
  }
  // Version and content follow from the arguments; retries kBusy until a buffer is there.
  Status Put(const std::string& path, std::uint64_t version, std::size_t bytes) {
    const RecordIdentity id = IdentityOf(path, version, bytes);
    return PutRecord(id, path, ContentOf(path, version, 0, bytes));
  }
  Status PutRecord(const RecordIdentity& id, const std::string& path, std::span<const std::byte> content) {
    Result<SsdLocation> placed = tier->Append(id, path, content);
    RunUntil([&] {
      if (!placed.ok() && placed.status().code() == Code::kBusy && !no_retry) placed = tier->Append(id, path, content);
      return placed.ok() || placed.status().code() != Code::kBusy || no_retry;
    });
    if (!placed.ok()) return placed.status();
    const auto old = items.find({path, id.chunk});
    if (old != items.end()) tier->Forget(old->second.location);
    Remember(id, *placed, path);
    return Status::Ok();
  }
  void Remember(const RecordIdentity& id, const SsdLocation& location, const std::string& path) {
    names_[{id.key.lo, id.chunk}] = {path, id.chunk};
    items[{path, id.chunk}] = {id, location, path, 1};
  }

  // Every item reads back right; items that are reclaimed meanwhile are left out.
  void ExpectAllReadable() {
    std::vector<Name> all;
    for (const auto& [name, item] : items) all.push_back(name);
    for (const Name& name : all) {
      const auto item = items.find(name);
      if (item == items.end()) continue;
      const Item before = item->second;
      ReadOutcome outcome = GetAt(before);
      const auto after = items.find(name);
      if (after == items.end()) continue;
      if (!(after->second.location == before.location)) outcome = GetAt(Item(after->second));
      EXPECT_EQ(outcome, ReadOutcome::kOk) << name.first;
    }
  }
  // Reads into an aligned frame and compares with the content; the outcome otherwise.
  ReadOutcome Get(const std::string& path) { return GetAt(Item(items.at({path, 0}))); }
  ReadOutcome GetAt(const Item& item) {
    const FrameNeeds needs = tier->NeedsOf(item.location.stored_bytes);
    io::AlignedBuffer frame(std::max<std::size_t>(needs.padded_bytes, 1));
    ReadResult result;
    bool done = false;
    const Status accepted = tier->Read(item.location, item.identity, frame.span().first(needs.padded_bytes), [&](const ReadResult& r) {
      result = r;
      done = true;
    });
    if (!accepted.ok()) return accepted.code() == Code::kNotFound ? ReadOutcome::kMiss : ReadOutcome::kIoError;
    EXPECT_TRUE(RunUntil([&] { return done; }));
    if (result.outcome == ReadOutcome::kOk) {
      const auto version = static_cast<std::uint64_t>(item.identity.version.mtime_ns / 1'000'000'000);
      const std::vector<std::byte> want = ContentOf(item.path, version, item.identity.chunk, item.location.stored_bytes);
      EXPECT_EQ(result.bytes, want.size());
      EXPECT_EQ(std::memcmp(frame.data(), want.data(), want.size()), 0) << "wrong bytes of " << item.path;
      for (std::size_t i = want.size(); i < needs.padded_bytes; ++i) EXPECT_EQ(frame.data()[i], std::byte{0});
    }
    return result.outcome;
  }

  double Worth(const SsdRecord& record) override {
    const Item* item = ItemOf(record);
    if (item == nullptr || !(item->location == record.location)) return -1;
    return worth_of ? worth_of(*item) : item->worth;
  }
  void OnMoved(const SsdRecord& from, const SsdLocation& to) override {
    ItemOf(from)->location = to;
    ++moved;
  }
  void OnGone(const SsdRecord& record, SsdGone why) override {
    ++gone[why];
    const Item* item = ItemOf(record);
    ASSERT_NE(item, nullptr);
    items.erase({item->path, item->identity.chunk});
  }

  std::map<Name, Item> items;
  std::map<SsdGone, int> gone;
  int moved = 0;
  std::function<double(const Item&)> worth_of;  // instead of Item::worth
  std::uint64_t dataset = 9;
  bool no_retry = false;
  SyncIo io;
  std::unique_ptr<SsdTier> tier;

 private:
  // The item that the record is about, whatever version and place it has.
  Item* ItemOf(const SsdRecord& record) {
    const auto name = names_.find({record.identity.key.lo, record.identity.chunk});
    if (name == names_.end()) return nullptr;
    const auto item = items.find(name->second);
    return item == items.end() ? nullptr : &item->second;
  }
  // As a loop does it, beside threads and a device that take their time.
  bool FreeTurn() {
    tier->Flush();
    const bool more = tier->Poll(64) > 0 || tier->more_work();
    tier->Tick();
    return more;
  }
  // True when the tier's threads or the device have answered.
  bool AwaitEvents(int timeout_ms) const {
    pollfd events[] = {{tier->wake_fd(), POLLIN, 0}, {engine_->event_fd(), POLLIN, 0}};
    return ::poll(events, 2, timeout_ms) > 0;
  }

  std::map<std::pair<std::uint64_t, std::uint32_t>, Name> names_;
  SsdOptions options_;
  SystemClock clock_;
  ManualClock manual_clock_;
  const bool stepped_;
  io::IoEngine* engine_;
};

// Small regions: 256 KiB, 16 of them.
inline SsdOptions SmallOptions(const std::string& directory) {
  SsdOptions o;
  o.directory = directory;
  o.region_bytes = 256u << 10;
  o.write_unit_bytes = 64u << 10;
  o.capacity_bytes = 16 * o.region_bytes;
  o.min_free_bytes = 0;
  o.min_free_inodes = 0;
  o.machine_id = "test machine";
  return o;
}

}  // namespace tierd::ssd
