// A4: hits of 8 shards of 128 MiB against open + fstat + read + close of files in the page cache.   A4b: the eighth epoch is no slower
// than the second; what an idle daemon costs, and one that watches deadlines; memory over a million opens.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tier/tier.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "bench/harness.h"
#include "bench/sides.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::size_t kShard = 128 << 20;
constexpr std::size_t kPiece = 1 << 20;

enum class How { kWhole, kPieces, kSum };  // into a buffer of the shard's size, into a reused one of 1 MiB, every byte summed

std::uint64_t SumBytes(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + 4096 <= size; at += 4096) {  // 4,096 bytes of 255 fit into 32 bits: the compiler makes vectors of it
    std::uint32_t part = 0;
    for (std::size_t i = 0; i < 4096; ++i) part += bytes[at + i];
    sum += part;
  }
  for (; at < size; ++at) sum += bytes[at];
  return sum;
}

class ShardSide : public Side {
 public:
  ShardSide(const std::vector<std::string>& paths, How how, int epochs) : paths_(paths), how_(how), epochs_(epochs) {}
  void Prepare(int reader) override {
    reader_ = reader;
    buffer_.resize(how_ == How::kWhole ? kShard : kPiece);
    std::fill(buffer_.begin(), buffer_.end(), 1);
    for (const std::string& path : paths_) Read(path);
  }
  ReaderResult Run(int reader) override {
    ReaderResult result;
    for (int epoch = 0; epoch < epochs_; ++epoch) {
      for (const std::uint32_t i : Permutation(paths_.size(), static_cast<std::uint64_t>(reader * 100 + epoch + 1))) {
        const std::uint64_t got = Read(paths_[i]);
        if (got != kShard) ++result.errors;
        result.bytes += got;
        ++result.files;
      }
    }
    return result;
  }

 protected:
  virtual std::uint64_t Read(const std::string& path) = 0;  // bytes

  const std::vector<std::string>& paths_;
  const How how_;
  const int epochs_;
  int reader_ = 0;
  std::vector<char> buffer_;
  volatile std::uint64_t sum_ = 0;
};

class TierShards final : public ShardSide {
 public:
  using ShardSide::ShardSide;

 private:
  std::uint64_t Read(const std::string& path) override {
    if (how_ == How::kWhole) {
      const ssize_t got = tier_read_file(nullptr, path.c_str(), buffer_.data(), buffer_.size(), nullptr, TIER_CACHED);
      return got < 0 ? 0 : static_cast<std::uint64_t>(got);
    }
    tier_file* file = nullptr;
    if (tier_open(nullptr, path.c_str(), &file, TIER_CACHED) != 0) return 0;
    std::uint64_t bytes = 0;
    for (;;) {
      ssize_t got = 0;
      if (how_ == How::kPieces) {
        got = tier_file_pread(file, buffer_.data(), kPiece, static_cast<std::int64_t>(bytes));
      } else {
        tier_view view;
        if (tier_file_pin(file, static_cast<std::int64_t>(bytes), kShard, &view) != 0) break;
        sum_ = sum_ + SumBytes(view.data, view.size);
        got = static_cast<ssize_t>(view.size);
        tier_release(&view);
      }
      if (got <= 0) break;
      bytes += static_cast<std::uint64_t>(got);
    }
    tier_close(file);
    return bytes;
  }
};

class PosixShards final : public ShardSide {
 public:
  using ShardSide::ShardSide;

 private:
  std::uint64_t Read(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat st {};
    if (fd < 0 || ::fstat(fd, &st) != 0) return 0;
    std::uint64_t bytes = 0;
    for (;;) {
      const ssize_t got = ::read(fd, buffer_.data(), buffer_.size());
      if (got <= 0) break;
      if (how_ == How::kSum) sum_ = sum_ + SumBytes(buffer_.data(), static_cast<std::size_t>(got));
      bytes += static_cast<std::uint64_t>(got);
    }
    ::close(fd);
    return bytes;
  }
};

void MeasureShards(Bench& bench) {
  const pfs_sim::TreeOptions tree{.files = 8, .size = {.mean = static_cast<double>(kShard)}, .seed = 4};
  const std::string root = MakeTreeIn(bench, "shards", tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ram = "1536 MiB"});
  if (daemon == nullptr) return bench.Fail("A4: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  const std::vector<std::string> paths = TreePaths(root, tree);
  if (!WarmAndVerify(paths, root, tree)) return bench.Fail("A4: not all shards are in RAM");
  HeatPageCache(paths);
  bench.SetPages(daemon->pages());
  struct {
    const char* id;
    const char* what;
    How how;
    int readers;
    double bar;
  } const rows[] = {
      {"A4.1r", "shards copied into 128 MiB, one reader", How::kWhole, 1, 1.3},
      {"A4.2r", "shards copied into 128 MiB, two readers", How::kWhole, 2, 1.2},
      {"A4.1r.1m", "shards copied into a reused 1 MiB, one reader", How::kPieces, 1, 1.05},
      {"A4.2r.1m", "shards copied into a reused 1 MiB, two readers", How::kPieces, 2, 0.97},
      {"A4.sum", "shards, zero-copy, every byte summed (baseline through a 1 MiB buffer), one reader", How::kSum, 1, 1.5},
  };
  for (const auto& row : rows) {
    if (!bench.Wants(row.id)) continue;
    const auto measure = [&](bool tier) -> std::optional<double> {
      TierShards ours(paths, row.how, 2);
      PosixShards baseline(paths, row.how, 2);
      const RunResult result = RunReaders(row.readers, tier ? static_cast<Side&>(ours) : static_cast<Side&>(baseline));
      if (!result.good) return std::nullopt;
      return static_cast<double>(result.bytes) / 1e9 / result.seconds;
    };
    bench.Emit(RatioRow({row.id, row.what, "GB/s"}, Interleave(bench.rounds(7), [&] { return measure(true); }, [&] { return measure(false); }),
                        Bar::kAtLeast, row.bar));
  }
}

// Nine epochs in one process; the time of each comes back through a shared page. The ninth is there for the eighth: in the last one of all a reader is alone for a while.
constexpr int kEpochs = 9;

class EpochSide final : public Side {
 public:
  EpochSide(const std::vector<std::string>& paths, double (*times)[kEpochs]) : paths_(paths), times_(times) {}
  ReaderResult Run(int reader) override {
    ReaderResult result;
    std::vector<char> buffer(1 << 20);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const auto order = Permutation(paths_.size(), static_cast<std::uint64_t>(reader * 100 + epoch + 1));
      const double from = Now();
      for (const std::uint32_t i : order) {
        if (tier_read_file(nullptr, paths_[i].c_str(), buffer.data(), buffer.size(), nullptr, 0) < 0) ++result.errors;
        ++result.files;
      }
      times_[reader][epoch] = Now() - from;
    }
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
  double (*times_)[kEpochs];
};

void MeasureEpochs(Bench& bench, const std::string& root, const pfs_sim::TreeOptions& tree) {
  const std::vector<std::string> paths = TreePaths(root, tree);
  auto* times = static_cast<double(*)[kEpochs]>(SharedPage());
  Comparison measured;
  for (int round = 0; round < bench.rounds(21); ++round) {
    const auto daemon = Daemon::Start(bench, {.source = root});
    if (daemon == nullptr) return bench.Fail("A4b: no daemon");
    ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
    EpochSide side(paths, times);
    if (!RunReaders(2, side).good) return bench.Fail("A4b: a read failed");
    bench.SetPages(daemon->pages());
    const auto rate = [&](int epoch) { return static_cast<double>(paths.size()) / times[0][epoch] + static_cast<double>(paths.size()) / times[1][epoch]; };
    measured.ours.values.push_back(rate(1));
    measured.baseline.values.push_back(rate(7));
    measured.ratio.values.push_back(rate(1) / rate(7));
  }
  bench.Emit(RatioRow({"A4b.epochs", "epoch 2 against epoch 8, two readers, permuting sampler", "files/s"}, measured, Bar::kAtLeast, 0.95));
}

// CPU in ms of a process that does nothing but be woken as often as an idle daemon, for 60 s: what a wake costs on this machine.
class BareTimer {
 public:
  BareTimer() {
    if (::pipe(pipe_) != 0) return;
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(pipe_[1]);
      return;
    }
    const double before = ProcessCpuMs();
    for (int i = 0; i < 60'000 / 660; ++i) ::usleep(660'000);
    const double took = ProcessCpuMs() - before;
    (void)!::write(pipe_[1], &took, sizeof took);
    ::_exit(0);
  }
  // Waits for its end; none if there was no such process, or it did not say.
  std::optional<double> Ms() {
    double took = 0;
    const bool told = ::read(pipe_[0], &took, sizeof took) == sizeof took;
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    ::close(pipe_[0]);
    return told ? std::optional(took) : std::nullopt;
  }

 private:
  static double ProcessCpuMs() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  }
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

void MeasureIdle(Bench& bench, const std::string& root, const std::string& path) {
  const auto daemon = Daemon::Start(bench, {.source = root});
  if (daemon == nullptr) return bench.Fail("A4b: no daemon");
  tier_client* clients[2] = {};
  tier_options options{};
  options.size = sizeof options;
  options.socket = daemon->socket().c_str();
  options.flags = TIER_REQUIRE_DAEMON;
  char byte = 0;
  for (tier_client*& client : clients) {
    if (tier_connect(&options, &client) != 0) return bench.Fail("A4b.idle: no session");
    tier_read_file(client, path.c_str(), &byte, 1, nullptr, 0);
  }
  ::usleep(3'000'000);  // what the start leaves behind is not idling
  Samples cpu;
  const double before = daemon->cpu_seconds();
  BareTimer bare;
  ::usleep(60'000'000);
  cpu.values.push_back((daemon->cpu_seconds() - before) * 1000);
  char note[64] = "";
  if (const auto ms = bare.Ms()) std::snprintf(note, sizeof note, "a bare timer, as often: %.1f", *ms);
  bench.Emit(ValueRow({"A4b.idle", "CPU of an idle daemon in 60 s, two sessions", "ms", note}, cpu, Bar::kAtMost, 10));
  for (tier_client* client : clients) tier_disconnect(client);
}

// What it costs to watch the deadlines of many files, before any of them is near (Refresher).
void MeasureWatch(Bench& bench) {
  constexpr int kFiles = 300'000, kSeconds = 10, kReadsPerSecond = 50;
  const pfs_sim::TreeOptions tree{.files = kFiles, .dirs = 20, .size = {.mean = 100}, .seed = 6};
  const std::string root = MakeTreeIn(bench, "watched", tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ssd = "off", .more = {"--set", "source.staleness=ttl"}});
  if (daemon == nullptr) return bench.Fail("A4b.watch: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  const auto answer = daemon->Post("/v1/prefetch", {{"paths", {root}}});
  if (!answer.is_object() || !answer.contains("job") || !WaitForJob(*daemon, answer["job"].get<int>(), 120)) return bench.Fail("A4b.watch: not all files were brought up");
  const std::vector<std::string> paths = TreePaths(root, tree);
  std::size_t next = 0;  // no file twice: nobody looks for the order of a first epoch
  const auto read_for = [&](int seconds) {
    for (int i = 0; i < seconds * kReadsPerSecond; ++i) {
      char byte = 0;
      if (tier_read_file(nullptr, paths[next++ * 7919 % paths.size()].c_str(), &byte, 1, nullptr, 0) < 0) return false;
      ::usleep(1'000'000 / kReadsPerSecond);
    }
    return true;
  };
  if (!read_for(2)) return bench.Fail("A4b.watch: a read failed");
  const double before = daemon->cpu_seconds();
  if (!read_for(kSeconds)) return bench.Fail("A4b.watch: a read failed");
  bench.Emit(ValueRow({"A4b.watch", "CPU of the daemon per second, 300,000 files with a ttl, 50 reads/s", "ms"}, {{(daemon->cpu_seconds() - before) * 1000 / kSeconds}}, Bar::kAtMost, 3));
}

std::uint64_t OwnRss() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long long pages = 0;
  if (file == nullptr || std::fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// When it has not changed for a second: what the daemon still writes to its SSD tier it maps page by page, whatever is opened meanwhile.
std::uint64_t SettledRss(const Daemon& daemon) {
  std::uint64_t rss = daemon.rss_bytes();
  int still = 0;
  for (int looks = 0; looks < 300 && still < 10; ++looks) {
    ::usleep(100'000);
    const std::uint64_t now = daemon.rss_bytes();
    still = now == rss ? still + 1 : 0;
    rss = now;
  }
  return rss;
}

void MeasureOpens(Bench& bench, const std::string& root, const std::vector<std::string>& paths) {
  // Without warm-up, which would still fill the RAM tier between the two looks: what is asked is what opens leave behind.
  const auto daemon = Daemon::Start(bench, {.source = root, .more = {"--set", "source.warm=off"}});
  if (daemon == nullptr) return bench.Fail("A4b: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  std::uint64_t daemon_at = 0;
  std::uint64_t own_at = 0;
  for (int i = 1; i <= 1'000'000; ++i) {
    tier_file* file = nullptr;
    char byte = 0;
    if (tier_open(nullptr, paths[static_cast<std::size_t>(i) % paths.size()].c_str(), &file, 0) != 0) return bench.Fail("A4b.rss: open failed");
    tier_file_pread(file, &byte, 1, 0);
    tier_close(file);
    if (i == 100'000) {
      daemon_at = SettledRss(*daemon);
      own_at = OwnRss();
    }
  }
  const auto growth = [](std::uint64_t now, std::uint64_t then) { return now > then ? static_cast<double>(now - then) / (1 << 20) : 0.0; };
  const double daemon_growth = growth(SettledRss(*daemon), daemon_at);
  const double own_growth = growth(OwnRss(), own_at);
  char note[64];
  std::snprintf(note, sizeof note, "daemon %.2f, client %.2f", daemon_growth, own_growth);
  bench.Emit(ValueRow({"A4b.rss", "RSS growth from open 10^5 to 10^6, daemon or client", "MiB", note}, {{std::max(daemon_growth, own_growth)}}, Bar::kAtMost, 1));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A4")) InChild(bench, [&] { MeasureShards(bench); });
  if (bench.Wants("A4b")) {
    const pfs_sim::TreeOptions tree{.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 5};
    const std::string root = MakeTreeIn(bench, "epochs", tree);
    const std::vector<std::string> paths = TreePaths(root, tree);
    if (bench.Wants("A4b.epochs")) MeasureEpochs(bench, root, tree);
    if (bench.Wants("A4b.idle")) InChild(bench, [&] { MeasureIdle(bench, root, paths[0]); });
    if (bench.Wants("A4b.watch")) InChild(bench, [&] { MeasureWatch(bench); });
    if (bench.Wants("A4b.rss")) {
      const std::vector<std::string> some(paths.begin(), paths.begin() + 500);
      InChild(bench, [&] { MeasureOpens(bench, root, some); });
    }
  }
  return bench.Finish();
}
