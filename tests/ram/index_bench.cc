// Throughput of the shared index on the daemon's side: index_bench [files]. Inserts with growth, finds in random order, location changes. Prints one line
// each; not a test (timings mean nothing on a busy machine).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "tierd/ram/shared_index.h"

namespace {

using Clock = std::chrono::steady_clock;

void Report(const char* what, Clock::time_point begin, std::uint64_t count) {
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  std::printf("%-28s %8.1f ns each, %.2f M/s\n", what, ns / static_cast<double>(count), static_cast<double>(count) * 1e3 / ns);
}

// CPU time of this thread: what a busy machine does in between is not ours.
double CpuMs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

tierd::abi::FileKey KeyOf(std::uint64_t n) { return {tierd::abi::Mix64(n * 0x9e3779b97f4a7c15ull + 1), tierd::abi::Mix64(n + 0x1234567)}; }

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t files = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  auto made = tierd::ram::SharedIndex::Create({});
  if (!made.ok()) return std::fprintf(stderr, "%s\n", made.status().message().c_str()), 1;
  tierd::ram::SharedIndex& index = **made;
  tierd::ram::SlotValues values;
  values.kind = tierd::abi::SlotKind::kFile;

  double longest_ms = 0;
  double copying_ms = 0;
  auto begin = Clock::now();
  Clock::duration creating{};
  for (std::uint64_t n = 0; n < files; ++n) {
    if (!index.Insert(KeyOf(n), values, static_cast<std::uint32_t>(n))) return std::fprintf(stderr, "refused at %llu\n", static_cast<unsigned long long>(n)), 1;
    if (index.WantsGrowth()) {
      const auto from = Clock::now();
      auto table = tierd::ram::SharedIndex::CreateTable(index.NextTable());
      if (!table.ok() || !index.AdoptTable(std::move(table).value()).ok()) return 1;
      creating += Clock::now() - from;
    }
    if (index.growing() && n % 64 == 0) {
      const double from = CpuMs();
      const bool published = index.GrowStep(2000);
      const double took = CpuMs() - from;
      copying_ms += took;
      longest_ms = std::max(longest_ms, took);
      if (published) (void)index.TakeRetired();  // a worker's work
    }
  }
  begin += creating;  // a worker's time
  Report("insert, growth included", begin, files);
  std::printf("%-28s %8.2f ms of 2,000 slots; all copying %.0f ms, creating %.0f ms\n", "longest growth step", longest_ms,
              copying_ms, std::chrono::duration<double, std::milli>(creating).count());

  std::vector<std::uint64_t> order(files);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::uint64_t found = 0;
  begin = Clock::now();
  for (const std::uint64_t n : order) found += index.Find(KeyOf(n))->owner == n;
  Report("find, present", begin, files);
  begin = Clock::now();
  for (const std::uint64_t n : order) found += index.Find(KeyOf(n + files)).has_value();
  Report("find, absent", begin, files);
  begin = Clock::now();
  for (const std::uint64_t n : order) index.SetLocation(index.Find(KeyOf(n))->ordinal, n);
  Report("find + set location", begin, files);
  std::printf("%-28s %8.1f bytes a file, load %.2f, huge pages %s\n", "memory", static_cast<double>(index.memory_bytes()) / static_cast<double>(files),
              static_cast<double>(index.live()) / static_cast<double>(index.slot_count()), index.huge_pages() ? "yes" : "no");
  return found == files ? 0 : 1;
}
