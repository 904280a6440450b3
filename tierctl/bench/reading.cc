#include "tierctl/bench/reading.h"

#include <fcntl.h>
#include <tier/tier.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tierd/base/crc32c.h"
#include "tierd/base/unique_fd.h"

namespace tierctl::bench {
namespace {

using Time = std::chrono::steady_clock;
constexpr std::size_t kCacheLine = 64;

struct ClientEnd {
  void operator()(tier_client* client) const { tier_disconnect(client); }
};

// Dirty pages stay, as do those that somebody has mapped: then the read is faster than it ought to be, never slower.
void DropFromPageCache(const std::string& path) {
  const tierd::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Bytes, or -1.
ssize_t ReadFile(const Piece& piece, std::byte* buffer) {
  const tierd::UniqueFd fd(::open(piece.path.c_str(), O_RDONLY | O_CLOEXEC));
  std::size_t done = 0;
  while (fd.valid() && done < piece.bytes) {
    const ssize_t n = ::read(fd.get(), buffer + done, piece.bytes - done);
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return fd.valid() ? static_cast<ssize_t>(done) : -1;
}

// What a program that looks at its sample in place pays: each cache line comes in.
unsigned Touch(const void* data, std::size_t size) {
  unsigned sum = 0;
  const auto* const bytes = static_cast<const volatile unsigned char*>(data);
  for (std::size_t at = 0; at < size; at += kCacheLine) sum += bytes[at];
  return sum;
}

Way WayOf(std::uint32_t origin, bool in_place) {
  switch (origin) {
    case TIER_FROM_RAM: return in_place ? Way::kRamInPlace : Way::kRam;
    case TIER_FROM_SSD: return Way::kSsd;
    case TIER_FROM_SOURCE: return Way::kSource;
    default: return Way::kBypass;
  }
}

std::uint32_t OriginSince(const tier_statistics& before, const tier_statistics& after) {
  for (std::uint32_t origin = 0; origin < TIER_ORIGINS; ++origin)
    if (after.reads[origin] != before.reads[origin]) return origin;
  return TIER_FROM_BYPASS;
}

}  // namespace

const char* NameOf(Way way) {
  constexpr const char* kNames[kWays] = {"file_cold", "file_hot", "source", "bypass", "ssd", "ram", "ram_in_place"};
  return kNames[static_cast<std::size_t>(way)];
}

const char* WordsOf(Way way) {
  constexpr const char* kWords[kWays] = {"file system, not from memory", "file system, page cache", "tierd, from the source", "bypass: by the program itself", "tierd, from the SSD", "tierd, from RAM, copied", "tierd, from RAM, in place"};
  return kWords[static_cast<std::size_t>(way)];
}

double Timed::Elapsed(unsigned readers, unsigned processors) const {
  double sum = 0;
  for (const float s : seconds) sum += static_cast<double>(s);
  return std::max(sum / readers, cpu_seconds / std::max(1u, std::min(readers, processors)));
}

void Timed::Sort() { std::sort(seconds.begin(), seconds.end()); }

double Timed::Quantile(double q) const {
  if (seconds.empty()) return 0;
  return static_cast<double>(seconds[std::min(seconds.size() - 1, static_cast<std::size_t>(q * static_cast<double>(seconds.size())))]);
}

// One thread of a pass: its own client, buffer and results.
struct Reading::Reader {
  explicit Reader(const std::string& socket) {
    const tier_options options{sizeof(tier_options), socket.c_str(), 0, 0};
    tier_client* made = nullptr;
    if (tier_connect(&options, &made) == 0) client.reset(made);
  }

  void Read(Pass pass, const Piece& piece) {
    if (pass == Pass::kFileCold || pass == Pass::kTierCold) DropFromPageCache(piece.path);
    tier_statistics before{sizeof before, {}, {}, {}, 0, 0, 0, 0, 0, 0, 0, 0, 0}, after = before;
    tier_view view{};
    const bool tier = pass == Pass::kTier || pass == Pass::kTierCold;
    if (tier) (void)tier_stats(client.get(), &before);
    const double cpu = ThreadCpuSeconds();
    const auto begin = Time::now();
    ssize_t got = -1;
    if (pass == Pass::kTierInPlace) {
      if (tier_get(client.get(), piece.path.c_str(), &view, 0) == 0) {
        touched += Touch(view.data, view.size);
        got = static_cast<ssize_t>(view.size);
      }
    } else {
      got = tier ? tier_pread(client.get(), piece.path.c_str(), buffer.get(), piece.bytes, 0, 0) : ReadFile(piece, buffer.get());
    }
    const Cost cost{std::chrono::duration<float>(Time::now() - begin).count(), ThreadCpuSeconds() - cpu};
    if (tier) (void)tier_stats(client.get(), &after);
    if (got >= 0) {
      const std::uint32_t origin = pass == Pass::kTierInPlace ? view.origin : OriginSince(before, after);
      Note(pass == Pass::kFileCold ? Way::kFileCold : pass == Pass::kFileHot ? Way::kFileHot : WayOf(origin, !tier), static_cast<std::uint64_t>(got), cost);
      sums.emplace_back(&piece.path, tierd::Crc32c(pass == Pass::kTierInPlace ? view.data : buffer.get(), static_cast<std::size_t>(got)));
    } else {
      ++failed;
    }
    tier_release(&view);
  }
  struct Cost {
    float seconds;
    double cpu_seconds;
  };
  void Note(Way way, std::uint64_t bytes, Cost cost) {
    Timed& timed = of[static_cast<std::size_t>(way)];
    ++timed.reads;
    timed.bytes += bytes;
    timed.seconds.push_back(cost.seconds);
    timed.cpu_seconds += cost.cpu_seconds;
  }

  std::unique_ptr<tier_client, ClientEnd> client;
  std::unique_ptr<std::byte[]> buffer = std::make_unique<std::byte[]>(kMostOfAFile);
  std::array<Timed, kWays> of;
  std::vector<std::pair<const std::string*, std::uint32_t>> sums;
  std::uint64_t failed = 0;
  unsigned touched = 0;
};

void Reading::Run(Pass pass, const std::vector<Piece>& pieces, std::size_t begin, std::size_t end) {
  const auto until = Time::now() + std::chrono::duration<double>(seconds_);
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<std::thread> threads;
  for (unsigned r = 0; r < readers_; ++r) {
    readers.push_back(std::make_unique<Reader>(socket_));
    threads.emplace_back([this, pass, &pieces, begin, end, until, r, reader = readers.back().get()] {
      for (std::size_t i = begin + r; i < end && Time::now() < until; i += readers_) {
        if (pass != Pass::kTierInPlace || pieces[i].whole) reader->Read(pass, pieces[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const bool files = pass == Pass::kFileCold || pass == Pass::kFileHot;
  for (const auto& reader : readers) {
    for (std::size_t way = 0; way < kWays; ++way) {
      Timed& all = readings_.of[way];
      const Timed& one = reader->of[way];
      all.reads += one.reads;
      all.bytes += one.bytes;
      all.cpu_seconds += one.cpu_seconds;
      all.seconds.insert(all.seconds.end(), one.seconds.begin(), one.seconds.end());
    }
    readings_.failed += reader->failed;
    for (const auto& [path, sum] : reader->sums) {
      const auto [known, is_new] = sums_.emplace(*path, sum);
      if (!is_new && known->second != sum && !files) ++readings_.differing;
    }
  }
}

}  // namespace tierctl::bench
