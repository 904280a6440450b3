// A5c: records of one large file in random order from the SSD tier, one blocking pread at a time, while the RAM tier has a twentieth of the file; against O_DIRECT reads of as
// many bytes at random places of a file on the same disk, by as many readers. The device is asked for the parts (16 KiB) that a record lies in.
#include <fcntl.h>
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "bench/harness.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::uint64_t kFileBytes = std::uint64_t{2} << 30;
constexpr std::size_t kBlock = 4096;  // what O_DIRECT takes on any disk

struct Size {
  const char* name;
  std::size_t bytes;
  std::size_t reads;  // of each reader
  double bar;         // of O_DIRECT's rate: a round trip to the daemon counts more, the less is read
};
constexpr Size kSizes[] = {{"4k", 4096, 4000, 0.30}, {"110k", 110'592, 2000, 0.60}};

// Where records begin, without an order.
std::vector<std::uint64_t> Places(const Size& size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> places(size.reads);
  for (std::uint64_t& place : places) place = random() % (kFileBytes / size.bytes) * size.bytes;
  return places;
}

tier_statistics Statistics() {
  tier_statistics statistics{};
  statistics.size = sizeof statistics;
  tier_stats(nullptr, &statistics);
  return statistics;
}

class RecordSide final : public Side {
 public:
  RecordSide(const std::string& path, const Size& size, std::uint64_t seed) : path_(path), size_(size), seed_(seed), buffer_(size.bytes) {}
  void Prepare(int reader) override {
    places_ = Places(size_, seed_ * 10 + static_cast<std::uint64_t>(reader));
    if (tier_open(nullptr, path_.c_str(), &file_, 0) != 0) file_ = nullptr;
    before_ = Statistics();
  }
  ReaderResult Run(int /*reader*/) override {
    ReaderResult result;
    if (file_ == nullptr) {
      result.errors = size_.reads;
      return result;
    }
    for (const std::uint64_t place : places_) {
      if (tier_file_pread(file_, buffer_.data(), buffer_.size(), static_cast<int64_t>(place)) != static_cast<ssize_t>(buffer_.size())) ++result.errors;
      result.bytes += buffer_.size();
      ++result.files;
    }
    const tier_statistics after = Statistics();
    result.ssd = after.reads[TIER_FROM_SSD] - before_.reads[TIER_FROM_SSD];
    result.ssd_bytes = after.bytes[TIER_FROM_SSD] - before_.bytes[TIER_FROM_SSD];
    result.ram = after.reads[TIER_FROM_RAM] - before_.reads[TIER_FROM_RAM];
    if (result.ssd + result.ram != result.files) {
      Note(std::to_string(result.files - result.ssd - result.ram) + " of " + std::to_string(result.files) + " reads went to the source");
      if ((result.files - result.ssd - result.ram) * 50 > result.files) ++result.errors;
    }
    tier_close(file_);
    return result;
  }

 private:
  const std::string& path_;
  const Size& size_;
  const std::uint64_t seed_;
  std::vector<char> buffer_;
  std::vector<std::uint64_t> places_;
  tier_file* file_ = nullptr;
  tier_statistics before_{};
};

class DirectSide final : public Side {
 public:
  DirectSide(const std::string& path, const Size& size, std::uint64_t seed) : path_(path), size_(size), seed_(seed) {}
  void Prepare(int reader) override {
    places_ = Places(size_, seed_ * 10 + static_cast<std::uint64_t>(reader));
    buffer_.reset(static_cast<char*>(std::aligned_alloc(kBlock, size_.bytes)));
    fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  }
  ReaderResult Run(int /*reader*/) override {
    ReaderResult result;
    for (const std::uint64_t place : places_) {
      if (::pread(fd_, buffer_.get(), size_.bytes, static_cast<off_t>(place)) != static_cast<ssize_t>(size_.bytes)) ++result.errors;
      result.bytes += size_.bytes;
      ++result.files;
    }
    ::close(fd_);
    return result;
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  const std::string& path_;
  const Size& size_;
  const std::uint64_t seed_;
  std::unique_ptr<char, Free> buffer_;
  std::vector<std::uint64_t> places_;
  int fd_ = -1;
};

void Measure(Bench& bench, const std::string& path, const std::string& plain) {
  for (const Size& size : kSizes) {
    for (const int readers : {1, 4}) {
      const std::string id = std::string("A5c.") + size.name + "." + std::to_string(readers) + "r";
      if (!bench.Wants(id)) continue;
      std::uint64_t seed = 1;
      const auto ours = [&]() -> std::optional<double> {
        RecordSide side(path, size, ++seed);
        const RunResult result = RunReaders(readers, side);
        if (!result.good || result.ssd == 0) return std::nullopt;
        return static_cast<double>(result.ssd) / result.seconds;
      };
      const auto baseline = [&]() -> std::optional<double> {
        DirectSide side(plain, size, ++seed);
        const RunResult result = RunReaders(readers, side);
        if (!result.good) return std::nullopt;
        return static_cast<double>(result.files) / result.seconds;
      };
      const std::string what = std::string("records of ") + size.name + " of a 2 GiB file, SSD tier, one blocking pread at a time, " + std::to_string(readers) +
                               (readers == 1 ? " reader" : " readers") + ", against O_DIRECT pread, disk";
      bench.Emit(RatioRow({id, what, "reads/s"}, Interleave(bench.rounds(7), ours, baseline), Bar::kAtLeast, size.bar));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (!bench.Wants("A5c")) return bench.Finish();
  const std::string cache = bench.directory() + "/cache-records";
  const pfs_sim::TreeOptions tree{.files = 1, .dirs = 1, .size = {.mean = static_cast<double>(kFileBytes)}, .seed = 9};
  const std::string root = MakeTreeIn(bench, "records", tree);
  if (root.empty() || ::mkdir(cache.c_str(), 0700) != 0) {
    bench.Fail("A5c: no room");
    return bench.Finish();
  }
  std::string why;
  // A source that no SSD is slower than (FAULTS F08).
  const auto rig = pfs_sim::Rig::Start({.backing = root, .latency_us = 20'000}, &why);
  if (rig == nullptr) {
    bench.Emit(SkippedRow({"A5c", "records from the SSD tier", "reads/s"}, why));
    return bench.Finish();
  }
  auto daemon = Daemon::Start(bench, {.source = rig->mount(), .ram = std::to_string(kFileBytes / 20) + " B", .ssd = cache, .ssd_capacity = std::to_string(2 * kFileBytes) + " B",
                                      .more = {"--set", "source.staleness=immutable", "--set", "ssd.min_free=0", "--set", "source.mode=blind"}});
  if (daemon == nullptr) {
    bench.Fail("A5c: no daemon");
    return bench.Finish();
  }
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  const auto answer = daemon->Post("/v1/prefetch", {{"paths", {rig->mount()}}, {"tier", "ssd"}});
  if (!answer.is_object() || !answer.contains("job") || !WaitForJob(*daemon, answer["job"].get<int>(), 600)) {
    bench.Fail("A5c: the SSD tier was not filled");
    return bench.Finish();
  }
  bench.SetPages(daemon->pages());
  Shell("sync");
  Measure(bench, TreePaths(rig->mount(), tree).front(), TreePaths(root, tree).front());
  daemon.reset();
  RemoveTree(cache);
  RemoveTree(root);
  return bench.Finish();
}
