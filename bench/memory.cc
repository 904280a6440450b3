// A9: memory at 1 M files whose paths below the source have 60 bytes: the daemon's own and its memfds without the segments, less the same of an empty
// daemon; the shared index over 1..10 M files; what a client process needs beside the bytes it reads.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/harness.h"
#include "client_lib/abi/layout.h"
#include "tierd/ram/shared_index.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

// 40 bytes of directories; with a slash and "d0000/f00000000.bin" (19) a path has 60 bytes.
constexpr char kPrefix[] = "training/images-of-everyday-objects/v001";
static_assert(sizeof kPrefix - 1 == 40);

// Bytes: anonymous memory and page tables of this process.
std::uint64_t PrivateBytes() {
  std::uint64_t kib = 0;
  FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long value = 0;
    if (std::sscanf(line, "RssAnon: %llu", &value) == 1 || std::sscanf(line, "VmPTE: %llu", &value) == 1) kib += value;
  }
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

// Reads every file once; reports in `bytes` what it touched and in `ssd_bytes` by how much its private memory grew.
class ClientSide final : public Side {
 public:
  explicit ClientSide(const std::vector<std::string>& paths) : paths_(paths) {}
  ReaderResult Run(int /*reader*/) override {
    ReaderResult result;
    const std::uint64_t before = PrivateBytes();
    unsigned sum = 0;
    for (const std::string& path : paths_) {
      tier_view view;
      if (tier_get(nullptr, path.c_str(), &view, 0) != 0) {
        ++result.errors;
        continue;
      }
      for (std::size_t at = 0; at < view.size; at += 64) sum += static_cast<const unsigned char*>(view.data)[at];
      result.bytes += view.size;
      ++result.files;
      tier_release(&view);
    }
    result.p50_ns = sum;
    result.ssd_bytes = PrivateBytes() - before;
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
};

double MiB(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void MeasureDaemon(Bench& bench) {
  const std::string base = bench.directory() + "/source";
  Shell("mkdir -p '" + base + "/" + kPrefix + "'");
  ::rmdir((base + "/" + kPrefix).c_str());
  const pfs_sim::TreeOptions tree{.files = 1'000'000, .dirs = 1000, .size = {.mean = 256}, .seed = 12};
  const std::string root = MakeTreeIn(bench, std::string("source/") + kPrefix, tree);
  const std::string cache = bench.directory() + "/cache";
  ::mkdir(cache.c_str(), 0700);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = base, .ram = "1 GiB", .ssd = cache, .ssd_capacity = "4 GiB",
                                                                    .more = {"--set", "source.staleness=immutable"}});
  if (daemon == nullptr) return bench.Fail("A9: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  bench.SetPages(daemon->pages());
  // The SSD tier's region buffers are there when it has looked for records.
  for (int waited = 0; waited < 10'000 && daemon->Get("/v1/status")["state"] == "recovering"; ++waited) ::usleep(1000);
  const std::uint64_t empty = daemon->overhead_bytes();
  std::uint64_t peak = 0;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    for (; !done; ::usleep(20'000)) peak = std::max(peak, daemon->overhead_bytes());
  });
  const auto answer = daemon->Post("/v1/prefetch", {{"paths", {base}}});
  const bool filled = answer.is_object() && answer.contains("job") && WaitForJob(*daemon, answer["job"].get<int>(), 900);
  done = true;
  watch.join();
  if (!filled) return bench.Fail("A9: a million files were not brought up");
  ::usleep(3'000'000);  // the index of the SSD is written behind the data
  const std::uint64_t full = daemon->overhead_bytes();
  char note[96];
  std::snprintf(note, sizeof note, "empty %.1f MiB, full %.1f MiB", MiB(empty), MiB(full));
  const auto megabytes = [&](std::uint64_t bytes) { return static_cast<double>(bytes - std::min(bytes, empty)) / 1e6; };
  bench.Emit(ValueRow({"A9.daemon", "memory at 1M files of 60-byte paths, beside the segments, less empty", "MB", note}, {{megabytes(full)}}, Bar::kAtMost, 300));
  bench.Emit(ValueRow({"A9.peak", "the same, highest moment while it filled (index swaps included)", "MB", note}, {{megabytes(peak)}}, Bar::kAtMost, 450));
  const std::vector<std::string> paths = TreePaths(root, tree);
  ClientSide side(paths);
  const RunResult result = RunReaders(1, side);
  if (!result.good) return bench.Fail("A9: the client could not read");
  const double allowed = 4.0 + MiB(result.bytes) / 100;
  std::snprintf(note, sizeof note, "allowed 4 MiB + 1%% of %.0f MiB = %.2f MiB", MiB(result.bytes), allowed);
  bench.Emit(ValueRow({"A9.client", "private memory and page tables of a client that touched it all", "MiB", note}, {{MiB(result.ssd_bytes)}}, Bar::kAtMost, allowed));
}

// The published table while files come one by one; the copy under way during growth is in A9.peak.
void MeasureIndex(Bench& bench) {
  auto made = tierd::ram::SharedIndex::Create({});
  if (!made.ok()) return bench.Fail("A9: " + made.status().message());
  tierd::ram::SharedIndex& index = **made;
  tierd::ram::SlotValues values;
  values.kind = tierd::abi::SlotKind::kFile;
  double sum = 0;
  double worst = 0;
  int looks = 0;
  for (std::uint64_t n = 1; n <= 10'000'000; ++n) {
    const tierd::abi::FileKey key{tierd::abi::Mix64(n * 0x9e3779b97f4a7c15ULL + 1), tierd::abi::Mix64(n + 0x1234567)};
    if (!index.Insert(key, values, static_cast<std::uint32_t>(n))) return bench.Fail("A9: the index refused file " + std::to_string(n));
    if (index.WantsGrowth()) {
      auto table = tierd::ram::SharedIndex::CreateTable(index.NextTable());
      if (!table.ok() || !index.AdoptTable(std::move(table).value()).ok()) return bench.Fail("A9: the index cannot grow");
    }
    if (index.growing() && n % 64 == 0 && index.GrowStep(2000)) index.TakeRetired().reset();
    if (n < 1'000'000 || n % 10'000 != 0) continue;
    struct stat st {};
    if (::fstat(index.client_fd(), &st) != 0) return bench.Fail("A9: the index has no size");
    const double per_file = static_cast<double>(st.st_size) / static_cast<double>(n);
    sum += per_file;
    worst = std::max(worst, per_file);
    ++looks;
  }
  bench.Emit(ValueRow({"A9.index", "shared index, average over 1..10 M files", "B/file"}, {{sum / looks}}, Bar::kAtMost, 128));
  bench.Emit(ValueRow({"A9.index.worst", "shared index, worst point", "B/file"}, {{worst}}, Bar::kAtMost, 170));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.Wants("A9.index")) InChild(bench, [&] { MeasureIndex(bench); });
  if (bench.WantsAny({"A9.daemon", "A9.peak", "A9.client"})) InChild(bench, [&] { MeasureDaemon(bench); });
  return bench.Finish();
}
