// A5: whole files in random order from the SSD tier, batches of 32, against fio (io_uring, O_DIRECT) at the same size and depth.
// A5b: one blocking read at a time against fio psync with as many jobs; its CPU against as many readers of files on the same device that the page cache has not.
//
// On a loop device with ext4 limited to 800 MB/s by blkio.throttle (root, cgroup v1), and on the disk below the work directory. Only bytes that came
// from the SSD tier count as ours: the RAM tier, 5 % of the data, would flatter it.
#include <fcntl.h>
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <numeric>

#include "bench/asking.h"
#include "bench/harness.h"
#include "bench/limited_loop.h"
#include "bench/sides.h"
#include "tests/pfs_sim/rig.h"
#include "tierd/base/crc32c.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr int kBatch = 32;

struct Size {
  const char* name;
  std::uint64_t bytes;
  std::uint64_t data_bytes;  // in all: a batch is less than a reader may hold, a quarter of the RAM tier; what is beyond is copied
  double cpu_bar;            // CPU-s/GB of A5
};
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr Size kSizes[] = {{"110k", 110'592, 2 * kGiB, 0.12}, {"1m", 1 << 20, 4 * kGiB, 0.10}};

class SsdSide final : public Side {
 public:
  SsdSide(const std::vector<std::string>& paths, std::size_t reads, std::size_t batch, std::uint64_t seed)
      : paths_(paths), reads_(reads), batch_(batch), seed_(seed) {}
  void Prepare(int reader) override {
    order_ = Permutation(paths_.size(), seed_ * 10 + static_cast<std::uint64_t>(reader));
    order_.resize(std::min(order_.size(), reads_));
    tier_view view;
    if (tier_get(nullptr, paths_[order_.back()].c_str(), &view, 0) == 0) tier_release(&view);
    before_ = Statistics();
  }
  ReaderResult Run(int /*reader*/) override {
    ReaderResult result;
    std::vector<tier_view> views(batch_);
    std::vector<const char*> names(batch_);
    for (std::size_t at = 0; at < order_.size(); at += batch_) {
      const std::size_t count = std::min(batch_, order_.size() - at);
      for (std::size_t i = 0; i < count; ++i) names[i] = paths_[order_[at + i]].c_str();
      const ssize_t got = batch_ == 1 ? (tier_get(nullptr, names[0], &views[0], 0) == 0 ? 1 : 0)
                                      : tier_get_batch(nullptr, names.data(), count, views.data(), nullptr, 0);
      if (got != static_cast<ssize_t>(count)) result.errors += count;
      for (std::size_t i = 0; i < count; ++i) {
        result.bytes += views[i].size;
        tier_release(&views[i]);
      }
      result.files += count;
    }
    const tier_statistics after = Statistics();
    result.ssd = after.reads[TIER_FROM_SSD] - before_.reads[TIER_FROM_SSD];
    result.ssd_bytes = after.bytes[TIER_FROM_SSD] - before_.bytes[TIER_FROM_SSD];
    result.ram = after.reads[TIER_FROM_RAM] - before_.reads[TIER_FROM_RAM];
    // What came from the source counts as nothing. A device that hangs for a moment leaves some reads to it (FAULTS F08); more than that would be no measurement.
    const std::uint64_t others = result.files - result.ssd - result.ram;
    if (others != 0) {
      Note(std::to_string(others) + " of " + std::to_string(result.files) + " reads went to the source");
      if (others * 50 > result.files) ++result.errors;
      for (std::uint32_t reason = 0; reason < TIER_FALLBACKS; ++reason) {
        const std::uint64_t count = after.fallback[reason] - before_.fallback[reason];
        if (count == 0) continue;
        ++result.errors;  // not the device's hiccup, but ours
        Note("of them " + std::to_string(count) + ": " + tier_fallback_name(reason));
      }
    }
    return result;
  }

 private:
  static tier_statistics Statistics() {
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    tier_stats(nullptr, &statistics);
    return statistics;
  }
  const std::vector<std::string>& paths_;
  const std::size_t reads_;
  const std::size_t batch_;
  const std::uint64_t seed_;
  std::vector<std::uint32_t> order_;
  tier_statistics before_{};
};

// open + read + close of files that the page cache does not have, each by one of the readers.
class ColdSide final : public Side {
 public:
  ColdSide(const std::vector<std::string>& paths, int readers, std::uint64_t bytes, std::uint64_t seed) : paths_(paths), readers_(readers), seed_(seed), buffer_(bytes) {}
  void Prepare(int /*reader*/) override {
    for (const std::string& path : paths_) {
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
      ::close(fd);
    }
    order_ = Permutation(paths_.size(), seed_);
  }
  ReaderResult Run(int reader) override {
    ReaderResult result;
    for (std::size_t i = static_cast<std::size_t>(reader); i < order_.size(); i += static_cast<std::size_t>(readers_)) {
      const ssize_t got = PosixReadFile(paths_[order_[i]].c_str(), buffer_.data(), buffer_.size());
      if (got != static_cast<ssize_t>(buffer_.size())) ++result.errors;
      result.bytes += buffer_.size();
      ++result.files;
    }
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
  const int readers_;
  const std::uint64_t seed_;
  std::vector<char> buffer_;
  std::vector<std::uint32_t> order_;
};

struct FioResult {
  double bytes_per_second;
  double cpu_per_gb;  // user and system
};

// Nothing when it fails.
std::optional<FioResult> Fio(const std::string& file, std::uint64_t block, const std::string& engine, int depth, int jobs) {
  const std::string out = file + ".json";
  const std::string command = "fio --name=read --filename='" + file + "' --rw=randread --bs=" + std::to_string(block) + " --ioengine=" + engine +
                              " --iodepth=" + std::to_string(depth) + " --numjobs=" + std::to_string(jobs) +
                              " --direct=1 --norandommap --time_based --runtime=2 --group_reporting --output-format=json --output='" + out + "'";
  if (Shell(command) != 0) return std::nullopt;
  std::ifstream in(out);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("jobs")) return std::nullopt;
  const auto& job = json["jobs"][0];
  const double cpu_seconds = (job["usr_cpu"].get<double>() + job["sys_cpu"].get<double>()) / 100 * job["job_runtime"].get<double>() / 1e3;
  return FioResult{job["read"]["bw_bytes"].get<double>(), cpu_seconds / (job["read"]["io_bytes"].get<double>() / 1e9)};
}

// CPU-s/GB of a checksum over memory that no cache has, as bytes are that a device has just written.
double ChecksumCpuPerGb() {
  std::vector<char> memory(std::size_t{512} << 20, 'c');
  const double from = Now();
  std::uint32_t sum = 0;
  for (std::size_t at = 0; at < memory.size(); at += 1 << 20) sum ^= tierd::Crc32cCold(memory.data() + at, 1 << 20);
  if (sum == 1) Note("");  // keeps the work
  return (Now() - from) / (static_cast<double>(memory.size()) / 1e9);
}

struct Place {
  std::string name;       // "loop" or "disk"
  std::string directory;  // for all that is read from the device: the SSD tier, fio's file, files to be read cold
  int rounds;
};

// What is read: the files of the source that the daemon has, and on the device as many as are read of them, and fio's file.
struct Paths {
  std::vector<std::string> source, cold;
  std::string fio;
};
constexpr std::uint64_t kBlockingBytes = std::uint64_t{256} << 20;  // read by each side of A5b

// Everything below the source into the SSD tier.
bool FillSsd(const Daemon& daemon, const std::string& root) {
  const auto answer = daemon.Post("/v1/prefetch", {{"paths", {root}}, {"tier", "ssd"}});
  return answer.is_object() && answer.contains("job") && WaitForJob(daemon, answer["job"].get<int>(), 600);
}

double CpuPerGb(double seconds, std::uint64_t bytes) { return seconds / (static_cast<double>(bytes) / 1e9); }

void MeasurePair(Bench& bench, const Place& place, const Size& size, const Daemon& daemon, const Paths& paths) {
  for (const bool blocking : {false, true}) {
    const std::string bar_id = blocking ? "A5b" : "A5";
    for (const int readers : {1, 2}) {
      const std::string id = bar_id + "." + place.name + "." + size.name + "." + std::to_string(readers) + "r";
      if (!bench.WantsAny({id, id + ".cpu"})) continue;
      const std::uint64_t bytes = blocking ? kBlockingBytes : kGiB;
      const std::size_t reads = bytes / size.bytes / static_cast<std::size_t>(readers);
      Samples cpu, fio_cpu, cold_cpu;
      std::uint64_t seed = 1;
      const auto ours = [&]() -> std::optional<double> {
        SsdSide side(paths.source, reads, blocking ? 1 : kBatch, ++seed);
        const double before = daemon.cpu_seconds();
        const RunResult result = RunReaders(readers, side);
        if (!result.good || result.ssd_bytes == 0) return std::nullopt;
        cpu.values.push_back(CpuPerGb(result.cpu_seconds + daemon.cpu_seconds() - before, result.ssd_bytes));
        return static_cast<double>(result.ssd_bytes) / 1e6 / result.seconds;
      };
      const auto baseline = [&]() -> std::optional<double> {
        const auto fio = blocking ? Fio(paths.fio, size.bytes, "psync", 1, readers) : Fio(paths.fio, size.bytes, "io_uring", kBatch, readers);
        if (!fio) return std::nullopt;
        fio_cpu.values.push_back(fio->cpu_per_gb);
        if (blocking) {
          ColdSide side(paths.cold, readers, size.bytes, ++seed);
          const RunResult cold = RunReaders(readers, side);
          if (!cold.good) return std::nullopt;
          cold_cpu.values.push_back(CpuPerGb(cold.cpu_seconds, cold.bytes));
        }
        return fio->bytes_per_second / 1e6;
      };
      const std::string what = std::string("SSD tier, blind, ") + size.name + (blocking ? ", one blocking read at a time, " : ", batch 32, ") +
                               std::to_string(readers) + (readers == 1 ? " reader" : " readers") + ", against fio " +
                               (blocking ? "psync" : "io_uring") + (place.name == "loop" ? ", loop device at 800 MB/s" : ", disk");
      const double bar = !blocking ? 0.90 : readers == 1 ? 0.80 : 0.55;
      const Comparison rates = Interleave(bench.rounds(place.rounds), ours, baseline);
      char note[192] = "", cpu_note[96] = "";  // of one reader: what no cache that is asked for the bytes, and checks them, can leave out
      if (blocking && readers == 1 && !rates.baseline.values.empty()) {
        const Asking asking = MeasureAsking(paths.fio, static_cast<std::uint32_t>(size.bytes));
        if (asking.asked_ns == 0) return bench.Fail("A5b: no other process to be asked");
        std::snprintf(note, sizeof note, "bare: another process that reads and sums when asked, and does nothing else, takes %.0f us where pread takes %.0f: %.2fx; fio's %.0f", asking.asked_ns / 1e3,
                      asking.alone_ns / 1e3, asking.alone_ns / asking.asked_ns, static_cast<double>(size.bytes) / rates.baseline.median());
        std::snprintf(cpu_note, sizeof cpu_note, "bare: pread %.3f, asked of another process %.3f", asking.alone_cpu_ns / static_cast<double>(size.bytes),
                      asking.asked_cpu_ns / static_cast<double>(size.bytes));
      }
      bench.Emit(RatioRow({id, what, "MB/s", note}, rates, Bar::kAtLeast, bar));
      if (!blocking) {
        if (!fio_cpu.values.empty()) std::snprintf(note, sizeof note, "fio alone %.3f, a checksum alone %.3f", fio_cpu.median(), ChecksumCpuPerGb());
        bench.Emit(ValueRow({id + ".cpu", what + ": CPU of readers and daemon", "CPU-s/GB", note}, cpu, Bar::kAtMost, size.cpu_bar));
        continue;
      }
      Comparison cpus{.ours = cpu, .baseline = cold_cpu, .ratio = {}};
      for (std::size_t i = 0; i < std::min(cpu.values.size(), cold_cpu.values.size()); ++i) cpus.ratio.values.push_back(cpu.values[i] / cold_cpu.values[i]);
      bench.Emit(RatioRow({id + ".cpu", what + ": CPU against cold buffered reads", "CPU-s/GB", cpu_note}, cpus, Bar::kAtMost, 1.0));
    }
  }
}

void MeasureSize(Bench& bench, const Place& place, const Size& size, const std::string& root, const pfs_sim::TreeOptions& tree) {
  const std::string cache = place.directory + "/cache-" + size.name, cold = place.directory + "/cold-" + size.name;
  const std::string fio_file = place.directory + "/fio-" + size.name;
  ::mkdir(cache.c_str(), 0700);
  if (Shell("fio --name=fill --filename='" + fio_file + "' --rw=write --bs=1m --size=" + std::to_string(size.data_bytes) + " --end_fsync=1 --output=/dev/null") != 0) {
    return bench.Fail("fio cannot write " + fio_file);
  }
  pfs_sim::TreeOptions some = tree;
  some.files = kBlockingBytes / size.bytes;
  std::string why = "mkdir " + cold;
  if (::mkdir(cold.c_str(), 0700) != 0 || !pfs_sim::MakeTree(cold, some, &why)) return bench.Fail("A5b: " + why);
  Shell("sync");  // cold reads need clean pages
  // A source that no SSD is slower than: what is in the page cache of a local disk answers sooner than the device, and is asked instead (FAULTS F08).
  const auto rig = pfs_sim::Rig::Start({.backing = root, .latency_us = 20'000}, &why);
  if (rig == nullptr) {
    for (const char* bar : {"A5.", "A5b."}) bench.Emit(SkippedRow({bar + place.name + "." + size.name, "SSD tier", "MB/s"}, why));
    return;
  }
  // Orders that nobody told are looked for with a tenth of a core, whatever is read: not here.
  auto daemon = Daemon::Start(bench, {.source = rig->mount(), .ram = std::to_string(size.data_bytes / 20) + " B", .ssd = cache,
                                      .ssd_capacity = std::to_string(size.data_bytes + kGiB) + " B",
                                      .more = {"--set", "source.staleness=immutable", "--set", "ssd.min_free=0", "--set", "source.mode=blind"}});
  if (daemon == nullptr) return bench.Fail("A5: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  if (!FillSsd(*daemon, rig->mount())) return bench.Fail("A5: the SSD tier was not filled");
  bench.SetPages(daemon->pages());
  MeasurePair(bench, place, size, *daemon, {TreePaths(rig->mount(), tree), TreePaths(cold, some), fio_file});
  daemon.reset();
  RemoveTree(cache);
  RemoveTree(cold);
  ::unlink(fio_file.c_str());
}

void MeasureAll(Bench& bench, const Size& size) {
  const auto wants = [&](const std::string& place) { return bench.WantsAny({"A5." + place + "." + size.name, "A5b." + place + "." + size.name}); };
  if (!wants("disk") && !wants("loop")) return;
  const pfs_sim::TreeOptions tree{.files = size.data_bytes / size.bytes, .dirs = 16, .size = {.mean = static_cast<double>(size.bytes)}, .seed = 6};
  const std::string root = MakeTreeIn(bench, std::string("ssd-") + size.name, tree);
  if (root.empty()) return bench.Fail("A5: no room");
  if (wants("disk")) InChild(bench, [&] { MeasureSize(bench, {"disk", bench.directory(), 11}, size, root, tree); });
  if (wants("loop")) {
    InChild(bench, [&] {
      LimitedLoop loop(bench, 800'000'000);
      if (loop.ready()) {
        InChild(bench, [&] { MeasureSize(bench, {"loop", loop.mount(), 5}, size, root, tree); });
      } else {
        for (const char* bar : {"A5", "A5b"}) {
          bench.Emit(SkippedRow({bar + std::string(".loop.") + size.name, "SSD tier on a loop device at 800 MB/s", "MB/s"},
                                "needs root, loop devices and cgroup v1 blkio.throttle"));
        }
      }
    });
  }
  RemoveTree(root);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  for (const Size& size : kSizes) MeasureAll(bench, size);
  return bench.Finish();
}
