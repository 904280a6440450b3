// Devices that fail, lie, fill up and hang.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

namespace fs = std::filesystem;

std::string RegionFile(const SsdOptions& options) { return options.directory + "/regions-0000"; }

void FlipByte(const std::string& path, std::uint64_t at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get() ^ (1 << bit);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte));
}

// F01, F04, F06: whichever write fails, and however, appends go on or are refused, and nothing wrong is ever read.
TEST(SsdFault, EveryWriteMayFail) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO}) {
    for (std::uint64_t failing = 0; failing < 12; ++failing) {
      TempDirectory dir;
      Life life(SmallOptions(dir.path() + "/c"));
      ASSERT_TRUE(life.Start().status.ok());
      life.io.fault = [&](bool write, std::uint64_t number) {
        IoFault f;
        if (write && number == failing) f = {error, 4096, false};
        return f;
      };
      int stored = 0;
      for (int i = 0; i < 40; ++i) stored += life.Put("f" + std::to_string(i), 1, 20'000).ok() ? 1 : 0;
      life.Settle();
      EXPECT_GT(stored, 10);  // a full disk stops appends until it is measured again
      const int lost = life.gone[SsdGone::kWriteFailed];
      EXPECT_GT(lost, 0) << "write " << failing;
      EXPECT_EQ(life.items.size() + static_cast<std::size_t>(lost), static_cast<std::size_t>(stored));
      life.ExpectAllReadable();
      const SsdCounters counters = life.tier->counters();
      EXPECT_EQ(counters.records_lost_to_write_errors, static_cast<std::uint64_t>(lost));
      EXPECT_EQ(counters.write_no_space + counters.write_errors, 1u);
      EXPECT_EQ(counters.write_errors, error == EIO ? 1u : 0u);
      EXPECT_EQ(life.tier->status().health, SsdHealth::kHealthy) << "one error is no verdict";
      life.Stop();
    }
  }
}

// HAZARDS 5: of a region full of small files the owner hears over several turns; until it has heard of one, that one can be read.
TEST(SsdFault, RecordsOfAFailedRegionAreToldSomeAtATurn) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.region_bytes = options.write_unit_bytes = 2u << 20;
  options.capacity_bytes = 8 * options.region_bytes;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault{EIO, 0, false} : IoFault(); };
  life.no_retry = true;
  int stored = 0;
  while (life.Put("f" + std::to_string(stored), 1, 100).ok()) ++stored;
  ASSERT_GT(stored, 3 * 1024);
  const auto records = [&] { return life.tier->status().live_records; };
  EXPECT_EQ(records(), static_cast<std::uint64_t>(stored));
  int most_told = 0, turns = 0;
  while (!life.items.empty() && ++turns < 1000) {
    const int told = life.gone[SsdGone::kWriteFailed];
    life.Turn();
    const int now = life.gone[SsdGone::kWriteFailed];
    most_told = std::max(most_told, now - told);
    EXPECT_EQ(records(), life.items.size());
    if (now == told || life.items.empty()) continue;
    const Item unheard = life.items.begin()->second;
    EXPECT_EQ(life.GetAt(unheard), ReadOutcome::kOk);
    if (life.items.empty()) continue;
    const Item forgotten = life.items.rbegin()->second;
    life.tier->Forget(forgotten.location);
    life.items.erase({forgotten.path, 0});
  }
  EXPECT_LE(most_told, 1024);
  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(life.tier->counters().records_lost_to_write_errors, static_cast<std::uint64_t>(life.gone[SsdGone::kWriteFailed])) << "what was forgotten before it was told is not lost";
  // Its room serves again.
  life.io.fault = nullptr;
  life.no_retry = false;
  ASSERT_TRUE(life.Put("again", 1, 100).ok());
  life.Settle();
  EXPECT_EQ(life.Get("again"), ReadOutcome::kOk);
}

TEST(SsdFault, AllWritesFailing) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  life.no_retry = true;
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault{EIO, 0, false} : IoFault(); };
  int i = 0;
  const auto put = [&] { (void)life.Put("f" + std::to_string(i++), 1, 20'000); };
  EXPECT_TRUE(life.RunUntil([&] {
    put();
    return life.tier->status().health == SsdHealth::kDegraded;
  }));
  put();
  life.Settle();
  EXPECT_EQ(life.tier->status().health, SsdHealth::kDegraded);
  EXPECT_TRUE(life.items.empty());
  EXPECT_EQ(life.tier->status().live_records, 0u);
  EXPECT_GT(life.tier->counters().appends_refused_health, 0u);
}

// F12: each bit of a record on the device, header, path, payload.
TEST(SsdFault, EveryFlippedByteOfARecordIsNoticed) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.degrade_errors = 1'000'000;
  options.out_errors = 2'000'000;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  ASSERT_TRUE(life.Put("packed", 1, 300).ok());
  ASSERT_TRUE(life.Put("direct", 1, 16'400).ok());
  // Closes the region, so that reads go to the device.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(life.Put("pad" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  std::mt19937 random(1);
  for (const char* path : {"packed", "direct"}) {
    const Item item = life.items.at({path, 0});
    const std::uint32_t end = item.location.offset() + item.location.header_bytes() + item.location.stored_bytes;
    for (std::uint32_t at = item.location.offset(); at < end; at += end - at > 2000 && at > item.location.offset() + 1000 ? 61 : 1) {
      const int bit = static_cast<int>(random() % 8);
      FlipByte(RegionFile(options), item.location.region * std::uint64_t{options.region_bytes} + at, bit);
      EXPECT_EQ(life.GetAt(item), ReadOutcome::kCorrupt) << path << " byte " << at;
      FlipByte(RegionFile(options), item.location.region * std::uint64_t{options.region_bytes} + at, bit);
    }
    EXPECT_EQ(life.GetAt(item), ReadOutcome::kOk);
  }
  EXPECT_GT(life.tier->counters().read_corrupt, 400u);
}

// F13: sound records in each other's places, and locations that name another record.
TEST(SsdFault, SwappedRecordsAreMisses) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  Item a = life.items.at({"f1", 0});
  Item b = life.items.at({"f2", 0});
  Item crossed = a;
  crossed.location = b.location;
  crossed.location.fill_sequence = a.location.fill_sequence;
  EXPECT_EQ(life.GetAt(crossed), ReadOutcome::kMiss);
  ASSERT_EQ(a.location.region, b.location.region);
  const std::uint64_t base = a.location.region * std::uint64_t{options.region_bytes};
  const std::size_t bytes = b.location.offset() - a.location.offset();
  std::string first(bytes, 0), second(bytes, 0);
  {
    std::fstream file(RegionFile(options), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(base + a.location.offset()));
    file.read(first.data(), static_cast<std::streamsize>(bytes));
    file.read(second.data(), static_cast<std::streamsize>(bytes));
    file.seekp(static_cast<std::streamoff>(base + a.location.offset()));
    file.write(second.data(), static_cast<std::streamsize>(bytes));
    file.write(first.data(), static_cast<std::streamsize>(bytes));
  }
  EXPECT_EQ(life.GetAt(a), ReadOutcome::kMiss);
  EXPECT_EQ(life.GetAt(b), ReadOutcome::kMiss);
  EXPECT_EQ(life.tier->counters().read_corrupt, 0u) << "the device told the truth";
}

// F05: EIO on reads degrades, then takes the device out; probes bring it back.
TEST(SsdFault, ReadErrorsDegradeAndProbesRecover) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.probe_interval_ns = 1'000'000;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault() : IoFault{EIO, 0, false}; };
  int errors = 0;
  for (int i = 0; i < 12 && life.tier->status().health == SsdHealth::kHealthy; ++i) {
    errors += life.Get("f1") == ReadOutcome::kIoError ? 1 : 0;
  }
  EXPECT_GE(errors, 3);
  EXPECT_NE(life.tier->status().health, SsdHealth::kHealthy);
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health == SsdHealth::kOut; })) << "probes go on failing";
  EXPECT_EQ(life.tier->Append(life.IdentityOf("n", 1, 5), "n", ContentOf("n", 1, 0, 5)).status().code(), Code::kBusy);
  life.io.fault = nullptr;
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health == SsdHealth::kHealthy; }));
  EXPECT_EQ(life.Get("f1"), ReadOutcome::kOk);
}

// Of nobody's fault: neither reads that cannot be made for want of memory or threads, nor probes, say anything about the device.
TEST(SsdFault, AShortageSaysNothingAboutTheDevice) {
  for (const int error : {ENOMEM, EAGAIN}) {
    TempDirectory dir;
    Life life(SmallOptions(dir.path() + "/c"));
    ASSERT_TRUE(life.Start().status.ok());
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
    life.Settle();
    const auto fail = [&](int with) { life.io.fault = [with](bool write, std::uint64_t) { return write ? IoFault() : IoFault{with, 0, false}; }; };
    fail(error);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(life.Get("f1"), ReadOutcome::kIoError);
    EXPECT_EQ(life.tier->status().health, SsdHealth::kHealthy);
    EXPECT_EQ(life.tier->counters().read_errors, 0u);
    fail(EIO);
    for (int i = 0; i < 4; ++i) (void)life.Get("f1");
    ASSERT_EQ(life.tier->status().health, SsdHealth::kDegraded);
    fail(error);
    EXPECT_FALSE(life.RunUntil([&] { return life.tier->status().health != SsdHealth::kDegraded; }, 30)) << "by probes";
    life.io.fault = nullptr;
    EXPECT_EQ(life.Get("f1"), ReadOutcome::kOk);
  }
}

// F07: a hung read is noticed, others are refused instead of piling up, and its late completion is harmless.
TEST(SsdFault, HungReadDegrades) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault() : IoFault{0, ~0ull, true}; };
  const Item item = life.items.at({"f1", 0});
  io::AlignedBuffer frame(32768);
  bool done = false;
  ASSERT_TRUE(life.tier->Read(item.location, item.identity, frame.span(), [&](const ReadResult&) { done = true; }).ok());
  EXPECT_TRUE(life.RunUntil([&] { return life.tier->status().health != SsdHealth::kHealthy; }));
  EXPECT_EQ(life.tier->status().hung_reads, life.io.hung());
  EXPECT_FALSE(done);
  life.io.Release();
  EXPECT_TRUE(life.RunUntil([&] { return done && life.tier->status().health == SsdHealth::kHealthy; }));
}

// Who reads is told once that the device gives no answer, and only of what the device has; the bytes still come.
TEST(SsdFault, AHungReadIsToldOfOnce) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.device_reads = 2;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  life.io.fault = [](bool write, std::uint64_t) { return write ? IoFault() : IoFault{0, ~0ull, true}; };
  io::AlignedBuffer frames[3] = {io::AlignedBuffer(32768), io::AlignedBuffer(32768), io::AlignedBuffer(32768)};
  std::vector<int> hung(3), done(3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Item item = life.items.at({"f" + std::to_string(i), 0});
    const auto on_done = [&done, i](const ReadResult& r) { done[i] += r.outcome == ReadOutcome::kOk ? 1 : 100; };
    ASSERT_TRUE(life.tier->Read(item.location, item.identity, frames[i].span(), on_done, ReadClass::kForeground, [&hung, i] { ++hung[i]; }).ok());
  }
  life.Pass(options.hung_read_ns * 9 / 10);
  EXPECT_EQ(hung, (std::vector<int>{0, 0, 0}));
  life.Pass(options.hung_read_ns / 5);
  life.Pass(options.hung_read_ns);
  EXPECT_EQ(hung, (std::vector<int>{1, 1, 0})) << "the third one is in the line";
  EXPECT_EQ(done, (std::vector<int>{0, 0, 0}));
  life.io.Release();
  EXPECT_TRUE(life.RunUntil([&] { return done == std::vector<int>{1, 1, 1}; }));
  EXPECT_EQ(hung, (std::vector<int>{1, 1, 0}));
}

// F10: the directory goes away under us.
TEST(SsdFault, RemovedDirectoryStopsAppendsNotReads) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  fs::remove_all(options.directory);
  EXPECT_TRUE(life.RunUntil([&] { return !life.tier->status().writable; }));
  EXPECT_EQ(life.Get("f1"), ReadOutcome::kOk);
  life.no_retry = true;
  EXPECT_EQ(life.Put("late", 1, 100).code(), Code::kBusy);
}

TEST(SsdFault, ReadLimitRefusesInsteadOfQueueing) {
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.max_reads = 2;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, 20'000).ok());
  life.Settle();
  const Item item = life.items.at({"f1", 0});
  io::AlignedBuffer frames[3] = {io::AlignedBuffer(32768), io::AlignedBuffer(32768), io::AlignedBuffer(32768)};
  int done = 0;
  for (int i = 0; i < 3; ++i) {
    const Status s = life.tier->Read(item.location, item.identity, frames[i].span(), [&](const ReadResult& r) {
      EXPECT_EQ(r.outcome, ReadOutcome::kOk);
      ++done;
    });
    EXPECT_EQ(s.code(), i < 2 ? Code::kOk : Code::kBusy);
  }
  EXPECT_TRUE(life.RunUntil([&] { return done == 2; }));
}

// Object bytes read = one device read, also for a destination that takes no direct read.
TEST(SsdFault, OneDeviceReadPerObjectWhateverTheDestination) {
  TempDirectory dir;
  Life life(SmallOptions(dir.path() + "/c"));
  ASSERT_TRUE(life.Start().status.ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(life.Put("f" + std::to_string(i), 1, i % 2 == 0 ? 20'001 : 777).ok());
  life.Settle();
  for (const char* path : {"f2", "f3"}) {
    const Item item = life.items.at({path, 0});
    for (const std::size_t shift : {0u, 1u, 64u}) {
      life.io.read_log.clear();
      io::AlignedBuffer frame(65536);
      bool done = false;
      const std::span<std::byte> dest = frame.span().subspan(shift, item.location.stored_bytes);
      ASSERT_TRUE(life.tier->Read(item.location, item.identity, dest, [&](const ReadResult& r) {
        EXPECT_EQ(r.outcome, ReadOutcome::kOk);
        done = true;
      }).ok());
      ASSERT_TRUE(life.RunUntil([&] { return done; }));
      EXPECT_EQ(life.io.read_log.size(), 1u);
      const auto want = ContentOf(path, 1, 0, item.location.stored_bytes);
      EXPECT_EQ(std::memcmp(dest.data(), want.data(), want.size()), 0);
    }
  }
}

}  // namespace
}  // namespace tierd::ssd
