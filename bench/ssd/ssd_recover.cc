// A8: start-up of the SSD tier with N records of 4 KB: with its index, and with the index deleted. Usage: ssd_recover DIR [N] [BYTES].
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "bench/ssd/bench_tier.h"

namespace tierd::ssd {
namespace {

std::string PathOf(std::uint64_t i) {
  char path[96];
  // 60 bytes, as A9 has it.
  std::snprintf(path, sizeof(path), "train/class-%05llu/an-image-with-a-longer-name-%010llu.jpeg", static_cast<unsigned long long>(i / 1000),
                static_cast<unsigned long long>(i));
  return path;
}

long StatusKb(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field)) return std::strtol(line.c_str() + std::strlen(field) + 1, nullptr, 10);
  }
  return 0;
}

void Fill(const SsdOptions& options, std::uint64_t count, std::size_t bytes) {
  BenchTier bench(options, io::EngineKind::kThreads);
  bool ready = false;
  bench.tier->Recover([](auto) {}, [&](const RecoveryReport&) { ready = true; });
  bench.RunUntil([&] { return ready; });
  std::vector<std::byte> payload(bytes);
  const double start = Now();
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(payload.data(), &i, sizeof(i));
    const RecordIdentity id = BenchIdentity(*bench.tier, i, bytes);
    for (;;) {
      const Result<SsdLocation> placed = bench.tier->Append(id, PathOf(i), payload);
      if (placed.ok()) break;
      if (placed.status().code() != Code::kBusy) BenchTier::Die(placed.status());
      bench.Turn();
    }
    if (i % 64 == 0) bench.Work();
  }
  if (Status stopped = bench.tier->Stop(60'000); !stopped.ok()) BenchTier::Die(stopped);
  const SsdCounters c = bench.tier->counters();
  std::printf("fill: %.1f s, write amplification %.4f, index updates dropped %llu\n", Now() - start, c.WriteAmplification(),
              static_cast<unsigned long long>(c.index_updates_dropped));
}

void Recover(const SsdOptions& options, const char* what) {
  const double start = Now();
  const long rss_before = StatusKb("VmRSS:");
  BenchTier bench(options, io::EngineKind::kThreads);
  double first = 0;
  std::uint64_t records = 0;
  RecoveryReport report;
  bool done = false;
  RecordIdentity identity;
  SsdLocation location;
  std::vector<std::byte> frame(1 << 20);
  bench.tier->Recover(
      [&](std::span<const RecoveredRecord> batch) {
        if (records == 0) {
          identity = batch[0].identity;
          location = batch[0].location;
          const Status read = bench.tier->Read(location, identity, frame, [&](const ReadResult& r) {
            if (r.outcome == ReadOutcome::kOk && first == 0) first = Now() - start;
          });
          if (!read.ok()) BenchTier::Die(read);
        }
        records += batch.size();
      },
      [&](const RecoveryReport& r) {
        report = r;
        done = true;
      });
  bench.RunUntil([&] { return done; });
  const double whole = Now() - start;
  bench.RunUntil([&] { return first > 0; });
  std::printf("%s: first verified hit %.3f s, all of %llu records %.3f s (%s, toc %llu, walked %llu), RSS +%ld MB, peak %ld MB\n", what, first,
              static_cast<unsigned long long>(records), whole, report.index_rebuilt ? "rebuilt" : "index",
              static_cast<unsigned long long>(report.regions_from_toc), static_cast<unsigned long long>(report.regions_walked),
              (StatusKb("VmRSS:") - rss_before) / 1024, StatusKb("VmHWM:") / 1024);
  if (!report.status.ok()) BenchTier::Die(report.status);
  if (Status stopped = bench.tier->Stop(60'000); !stopped.ok()) BenchTier::Die(stopped);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIR [RECORDS] [BYTES]\n", argv[0]);
    return 64;
  }
  SsdOptions options;
  options.directory = argv[1];
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
  const std::size_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 4096;
  options.capacity_bytes = count * (bytes + 600) + (std::uint64_t{256} << 20);
  if (std::filesystem::exists(options.directory)) {
    std::fprintf(stderr, "%s exists\n", argv[1]);
    return 64;
  }
  Fill(options, count, bytes);
  for (int i = 0; i < 3; ++i) Recover(options, "with index");
  std::filesystem::remove_all(options.directory + "/index");
  Recover(options, "index deleted");
  Recover(options, "after rebuild");
  std::filesystem::remove_all(options.directory);
  return 0;
}

}  // namespace
}  // namespace tierd::ssd

int main(int argc, char** argv) { return tierd::ssd::Main(argc, argv); }
