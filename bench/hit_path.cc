// The hit path alone, without a daemon process: nanoseconds per get + release and per copy, on an index and segments made in this process.
// usage: hit_path [--files N] [--rounds N] [--threads N]     one line per measurement on stdout
//        hit_path --copy                      GB/s of memcpy and of the three copies of libtier, by size of the destination; which of those is used here
// For tuning; bars are measured against the real daemon (bench/lookup.cc, bench/hit.cc).
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/src/copy.h"
#include "tests/support/fake_daemon.h"
#include "tier/tier.h"

namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t NowNs() { return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()); }

std::uint64_t Random(std::uint64_t& state) { return state = tierd::abi::Mix64(state + 0x9e3779b97f4a7c15ull); }

struct Percentiles {
  double p50, p99;
};

// Cost of `op(i)` for i in random order, each call timed by itself, the price of the clock taken off.
template <typename Op>
Percentiles Measure(std::size_t calls, Op op) {
  std::vector<std::uint32_t> ns(calls);
  std::vector<std::uint32_t> empty(100'000);
  for (auto& e : empty) {
    const std::uint64_t start = NowNs();
    e = static_cast<std::uint32_t>(NowNs() - start);
  }
  for (std::size_t i = 0; i < calls; ++i) {
    const std::uint64_t start = NowNs();
    op(i);
    ns[i] = static_cast<std::uint32_t>(NowNs() - start);
  }
  const auto at = [](std::vector<std::uint32_t>& v, double q) {
    const auto place = v.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(v.size() - 1) * q);
    std::nth_element(v.begin(), place, v.end());
    return static_cast<double>(*place);
  };
  const double clock = at(empty, 0.5);
  return {at(ns, 0.5) - clock, at(ns, 0.99) - clock};
}

// GB/s out of pages in random order, as frames lie, into a buffer that begins `offset` bytes behind the begin of a page.
void CopyTable(std::size_t offset) {
  const std::size_t source_bytes = std::size_t{256} << 20;
  auto* const source = static_cast<char*>(std::aligned_alloc(std::size_t{2} << 20, source_bytes));
  ::madvise(source, source_bytes, MADV_HUGEPAGE);
  std::memset(source, 's', source_bytes);
  using Copy = void (*)(void*, const void*, std::size_t);
  constexpr Copy kCopies[] = {[](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }, tierd::client::CopySideBySide, tierd::client::CopyByString,
                              tierd::client::CopyStreaming};
  std::printf("into a buffer %zu bytes behind the begin of a page, GB/s\n%12s %12s %12s %12s %12s\n", offset, "bytes", "memcpy", "side by side", "string", "streaming");
  for (std::size_t bytes = 4 << 10; bytes <= std::size_t{128} << 20; bytes *= 2) {
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at + bytes <= source_bytes; at += bytes) places.push_back(at);
    std::shuffle(places.begin(), places.end(), std::mt19937(1));
    auto* const block = static_cast<char*>(std::aligned_alloc(4096, bytes + 4096));
    char* const to = block + offset;
    std::memset(to, 't', bytes);
    double best[std::size(kCopies)] = {};
    for (int round = 0; round < 5; ++round) {
      for (std::size_t kind = 0; kind < std::size(kCopies); ++kind) {
        const std::uint64_t start = NowNs();
        for (const std::size_t at : places) {
          kCopies[kind](to, source + at, bytes);
          __asm__ volatile("" : : "r"(to) : "memory");
        }
        best[kind] = std::max(best[kind], static_cast<double>(source_bytes) / static_cast<double>(NowNs() - start));
      }
    }
    std::printf("%10zuKi %12.2f %12.2f %12.2f %12.2f\n", bytes >> 10, best[0], best[1], best[2], best[3]);
    std::free(block);
  }
  std::free(source);
}

void CopyTables() {
  using tierd::client::CopyWay;
  const CopyWay way = tierd::client::BestCopyWay();
  std::printf("used here: %s\n", way == CopyWay::kSideBySide ? "from 2 KiB, side by side; from 32 MiB, streaming" : way == CopyWay::kString ? "from 4 KiB, string; from 32 MiB, streaming" : "memcpy");
  CopyTable(16);  // where malloc begins a large block
  CopyTable(1040);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 10'000;
  std::size_t rounds = 1'000'000;
  unsigned threads = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--copy") return CopyTables(), 0;
    if (i + 1 == argc) return std::fprintf(stderr, "hit_path: %s needs a number\n", argv[i]), 64;
    const auto value = static_cast<std::size_t>(std::strtoull(argv[++i], nullptr, 10));
    if (option == "--files") files = value;
    else if (option == "--rounds") rounds = value;
    else if (option == "--threads") threads = static_cast<unsigned>(value);
    else return std::fprintf(stderr, "hit_path: what is %s?\n", option.c_str()), 64;
  }
  std::string base = (std::filesystem::temp_directory_path() / "hit_path_XXXXXX").string();
  if (::mkdtemp(base.data()) == nullptr) return std::perror("hit_path"), 1;
  std::filesystem::create_directory(base + "/source");
  tierd::testing::FakeDaemonOptions options;
  options.root = std::filesystem::canonical(base + "/source");
  options.socket = base + "/run/tierd.sock";
  options.initial_slots = files * 2;
  options.segment_bytes = 128 << 20;
  options.ttl_ms = 3'600'000;
  std::vector<std::string> paths;
  {
    tierd::testing::FakeDaemon daemon(options);
    for (std::size_t i = 0; i < files; ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "train/class_%03zu/sample_%09zu.jpeg", i / 1000 % 1000, i);
      daemon.CacheInvented(name, 64);
      paths.push_back(options.root + "/" + name);
    }
    // Served by a child: this process stays without threads, as the bar has it, until --threads asks for them.
    const pid_t server = ::fork();
    if (server == 0) daemon.Serve();
    tier_options client_options{};
    client_options.size = sizeof client_options;
    client_options.socket = options.socket.c_str();
    client_options.flags = TIER_REQUIRE_DAEMON;
    tier_client* client = nullptr;
    if (tier_connect(&client_options, &client) != 0) return std::fprintf(stderr, "hit_path: no session\n"), 1;
    for (const std::string& path : paths) {  // first touch of every page
      tier_view view;
      if (tier_get(client, path.c_str(), &view, 0) != 0 || view.origin != TIER_FROM_RAM) return std::fprintf(stderr, "hit_path: a miss\n"), 1;
      tier_release(&view);
    }
    // The bar's order: paths lie in memory one behind the other, slots are where the hash puts them.
    const auto get_release = [&](std::size_t i) {
      tier_view view;
      if (tier_get(client, paths[i % files].c_str(), &view, 0) != 0) std::abort();
      tier_release(&view);
    };
    std::uint64_t state = 1;
    std::vector<std::uint32_t> order(rounds);
    for (auto& o : order) o = static_cast<std::uint32_t>(Random(state) % files);
    char sink = 0;
    const auto touch = [&](std::size_t i) {
      tier_view view;
      if (tier_get(client, paths[i % files].c_str(), &view, 0) != 0) std::abort();
      sink = static_cast<char>(sink + *static_cast<const char*>(view.data));
      tier_release(&view);
    };
    const auto print = [&](const char* what, Percentiles p) { std::printf("%-34s files=%zu p50=%.0fns p99=%.0fns\n", what, files, p.p50, p.p99); };
    print("get+release, memory order", Measure(rounds, get_release));
    print("get+first byte+release", Measure(rounds, touch));
    print("get+release, random paths", Measure(rounds, [&](std::size_t i) { get_release(order[i]); }));
    // On a busy machine the fastest slice says what the code costs, the mean what its neighbours do.
    constexpr std::size_t kSlice = 1000;
    double fastest = 1e9;
    const std::uint64_t start = NowNs();
    for (std::size_t i = 0; i < rounds; i += kSlice) {
      const std::uint64_t begin = NowNs();
      for (std::size_t j = i; j < i + kSlice; ++j) get_release(j);
      fastest = std::min(fastest, static_cast<double>(NowNs() - begin) / kSlice);
    }
    std::printf("%-34s files=%zu mean=%.1fns fastest_1000=%.1fns\n", "get+release, back to back", files,
                static_cast<double>(NowNs() - start) / static_cast<double>(rounds), fastest);
    if (threads > 1) {
      std::vector<std::thread> all;
      const std::uint64_t begin = NowNs();
      for (unsigned t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
          for (std::size_t i = 0; i < rounds; ++i) get_release(i + t * 7919);
        });
      }
      for (std::thread& thread : all) thread.join();
      std::printf("%-34s files=%zu threads=%u mean=%.1fns\n", "get+release, each thread", files, threads, static_cast<double>(NowNs() - begin) / static_cast<double>(rounds));
    }
    tier_disconnect(client);
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
  }
  std::filesystem::remove_all(base);
  return 0;
}
