// A5, tier part: random whole objects at a fixed depth from one tier on a directory; prints objects/s, MB/s, CPU-s/GB of the whole
// process. Usage: ssd_read DIR OBJECTS BYTES DEPTH SECONDS uring|threads. fio beside it: bench/ssd/fio_baseline.sh.
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "bench/ssd/bench_tier.h"
#include "tierd/io/aligned_buffer.h"

namespace tierd::ssd {
namespace {

struct Cpu {
  double user = 0;
  double system = 0;
};
Cpu CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

struct Object {
  RecordIdentity identity;
  SsdLocation location;
};

std::vector<Object> Prepare(BenchTier& bench, std::uint64_t count, std::size_t bytes) {
  std::vector<Object> objects;
  bool ready = false;
  bench.tier->Recover(
      [&](std::span<const RecoveredRecord> batch) {
        for (const RecoveredRecord& r : batch) {
          if (r.location.stored_bytes == bytes) objects.push_back({r.identity, r.location});
        }
      },
      [&](const RecoveryReport&) { ready = true; });
  bench.RunUntil([&] { return ready; });
  std::vector<std::byte> payload(bytes);
  std::mt19937_64 random(1);
  for (std::uint64_t i = objects.size(); i < count; ++i) {
    for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
      const std::uint64_t word = random();
      std::memcpy(payload.data() + at, &word, 8);
    }
    const RecordIdentity id = BenchIdentity(*bench.tier, i, bytes);
    for (;;) {
      const Result<SsdLocation> placed = bench.tier->Append(id, "train/image" + std::to_string(i), payload);
      if (placed.ok()) {
        objects.push_back({id, *placed});
        break;
      }
      if (placed.status().code() != Code::kBusy) BenchTier::Die(placed.status());
      bench.Turn();
    }
  }
  return objects;
}

class Reader {
 public:
  Reader(BenchTier& bench, const std::vector<Object>& objects, std::size_t bytes, unsigned depth) : bench_(bench), objects_(objects) {
    const FrameNeeds needs = bench.tier->NeedsOf(static_cast<std::uint32_t>(bytes));
    for (unsigned i = 0; i < depth; ++i) frames_.emplace_back(needs.padded_bytes);
  }
  void Run(double seconds) {
    const Cpu before = CpuSeconds();
    const double start = Now();
    stop_at_ = start + seconds;
    for (std::size_t i = 0; i < frames_.size(); ++i) Next(i);
    bench_.RunUntil([&] { return running_ == 0; });
    const double wall = Now() - start;
    const double gb = static_cast<double>(bytes_) * 1e-9;
    const Cpu after = CpuSeconds();
    const double user = (after.user - before.user) / gb;
    const double system = (after.system - before.system) / gb;
    std::printf("%.0f objects/s, %.1f MB/s, %.3f CPU-s/GB (user %.3f, system %.3f), failed %llu\n", static_cast<double>(done_) / wall,
                gb * 1000 / wall, user + system, user, system, static_cast<unsigned long long>(failed_));
  }

 private:
  void Next(std::size_t frame) {
    const Object& object = objects_[random_() % objects_.size()];
    ++running_;
    const Status read = bench_.tier->Read(object.location, object.identity, frames_[frame].span(), [this, frame](const ReadResult& result) {
      --running_;
      if (result.outcome == ReadOutcome::kOk) {
        ++done_;
        bytes_ += result.bytes;
      } else {
        ++failed_;
      }
      if (Now() < stop_at_) Next(frame);
    });
    if (!read.ok()) BenchTier::Die(read);
  }

  BenchTier& bench_;
  const std::vector<Object>& objects_;
  std::vector<io::AlignedBuffer> frames_;
  std::mt19937_64 random_{7};
  double stop_at_ = 0;
  std::uint64_t running_ = 0, done_ = 0, failed_ = 0, bytes_ = 0;
};

int Main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: %s DIR OBJECTS BYTES DEPTH SECONDS uring|threads\n", argv[0]);
    return 64;
  }
  SsdOptions options;
  options.directory = argv[1];
  const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
  const std::size_t bytes = std::strtoull(argv[3], nullptr, 10);
  options.capacity_bytes = count * (bytes + 8192) * 11 / 10 + (std::uint64_t{256} << 20);
  const io::EngineKind kind = std::strcmp(argv[6], "uring") == 0 ? io::EngineKind::kUring : io::EngineKind::kThreads;
  {
    // Filled by a life of its own, so that nothing is read from a region buffer.
    BenchTier bench(options, kind);
    Prepare(bench, count, bytes);
    if (Status stopped = bench.tier->Stop(60'000); !stopped.ok()) BenchTier::Die(stopped);
    const SsdCounters c = bench.tier->counters();
    if (c.appends > 0) std::printf("filled: write amplification %.4f\n", c.WriteAmplification());
  }
  BenchTier bench(options, kind);
  const std::vector<Object> objects = Prepare(bench, count, bytes);
  Reader reader(bench, objects, bytes, static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10)));
  reader.Run(std::strtod(argv[5], nullptr));
  if (Status stopped = bench.tier->Stop(60'000); !stopped.ok()) BenchTier::Die(stopped);
  return 0;
}

}  // namespace
}  // namespace tierd::ssd

int main(int argc, char** argv) { return tierd::ssd::Main(argc, argv); }
