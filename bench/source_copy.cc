// Files per second that SourceReader draws from the rig, against a copier with 64 threads in the same run.
//
//   source_copy [--files N] [--size MEAN[:SIGMA]] [--latency-us N] [--bandwidth BYTES] [--rounds N] [--window MAX] [--engine auto|threads|io_uring]
//
// Sides take turns; between turns the rig's entry timeout (1 s) passes, so that every turn pays for its lookups. Both sides read into
// memory; the copier does what cp does (open, fstat, read, close) and drops the bytes. Prints one line per side: median, min, max, CPU per file.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/pfs_sim/rig.h"
#include "tests/pfs_sim/tree.h"
#include "tierd/source/source_reader.h"

namespace {

using std::chrono::steady_clock;
using namespace tierd;  // NOLINT: a program of one file

constexpr std::size_t kBuffer = 1 << 20;
constexpr int kCopierThreads = 64;

struct Settings {
  pfs_sim::TreeOptions tree{.files = 6000, .dirs = 10, .size = {.mean = 800}};
  pfs_sim::RigOptions rig{.latency_us = 1000};
  int rounds = 5;
  std::string engine = "auto";
  std::uint32_t window_max = source::SourceOptions().window_max;
};

// CPU time of this process; the rig is another one.
double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

double Seconds(steady_clock::time_point since) {
  return std::chrono::duration<double>(steady_clock::now() - since).count();
}

// Returns files per second; 0 if any read failed.
double CopyWithThreads(const std::string& root, const std::vector<std::string>& paths) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> good = 0;
  const auto started = steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kCopierThreads; ++i) {
    threads.emplace_back([&] {
      const auto buffer = std::make_unique<char[]>(kBuffer);
      for (std::size_t at = next++; at < paths.size(); at = next++) {
        const int fd = ::open((root + "/" + paths[at]).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        struct stat st {};
        ssize_t got = ::fstat(fd, &st) == 0 ? 1 : -1;
        for (off_t offset = 0; got > 0 && offset < st.st_size; offset += got) got = ::pread(fd, buffer.get(), kBuffer, offset);
        if (got >= 0) ++good;
        ::close(fd);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good == paths.size() ? static_cast<double>(paths.size()) / Seconds(started) : 0;
}

double ReadThroughReader(source::SourceReader* reader, const SystemClock& clock, const std::vector<std::string>& paths) {
  std::vector<std::unique_ptr<std::byte[]>> free;
  std::size_t done = 0;
  std::size_t good = 0;
  const auto started = steady_clock::now();
  for (const std::string& path : paths) {
    source::ReadRequest request;
    request.path = path;
    request.capacity = kBuffer;
    request.priority = source::Priority::kPrefetch;
    request.acquire = [&free](source::ReadRequest& sent) {
      if (free.empty()) free.emplace_back(new std::byte[kBuffer]);
      sent.buffer = free.back().release();
      free.pop_back();
      return true;
    };
    request.done = [&](const source::ReadResult& result) {
      ++done;
      good += result.error == source::ReadError::kNone;
      if (result.buffer != nullptr) free.emplace_back(result.buffer);
    };
    reader->Read(std::move(request));
  }
  reader->Flush();
  while (done < paths.size()) {
    pollfd fd{reader->event_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
    reader->Poll(std::numeric_limits<std::size_t>::max());
    reader->Tick(clock.MonotonicNs());
  }
  return good == paths.size() ? static_cast<double>(paths.size()) / Seconds(started) : 0;
}

void Print(const char* side, std::vector<double> rates, double cpu_us) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-14s %10.0f files/s  (min %.0f, max %.0f)  %5.1f us CPU each\n", side, rates[rates.size() / 2], rates.front(), rates.back(),
              cpu_us);
}

bool Parse(int argc, char** argv, Settings* settings) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--files") {
      settings->tree.files = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--size") {
      const auto rule = pfs_sim::ParseSizeRule(value.find(':') == std::string::npos ? value : "lognormal:" + value);
      if (!rule) return false;
      settings->tree.size = *rule;
    } else if (key == "--latency-us") {
      settings->rig.latency_us = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--bandwidth") {
      settings->rig.bandwidth = std::strtoull(value.c_str(), nullptr, 10);
    } else if (key == "--rounds") {
      settings->rounds = std::max(1, std::atoi(value.c_str()));
    } else if (key == "--window") {
      settings->window_max = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (key == "--engine") {
      settings->engine = value;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

int Run(const Settings& settings) {
  std::string why;
  const auto rig = pfs_sim::Rig::Start(settings.rig, &why);
  if (rig == nullptr || !pfs_sim::MakeTree(rig->backing(), settings.tree, &why)) {
    std::fprintf(stderr, "source_copy: %s\n", why.c_str());
    return 77;
  }
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < settings.tree.files; ++i) paths.push_back(pfs_sim::TreePath(settings.tree, i));

  const SystemClock clock;
  source::SourceOptions options;
  options.window_max = settings.window_max;
  if (settings.engine != "auto") {
    options.engine = settings.engine == "io_uring" ? io::EngineKind::kUring : io::EngineKind::kThreads;
  }
  std::vector<double> ours;
  std::vector<double> theirs;
  std::vector<double> ratios;
  double our_cpu = 0;
  double their_cpu = 0;
  std::string report;
  auto opened = source::Source::Open(rig->mount());
  if (!opened.ok()) {
    std::fprintf(stderr, "source_copy: %s\n", opened.status().ToString().c_str());
    return 1;
  }
  for (int round = 0; round < settings.rounds; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    their_cpu -= CpuSeconds();
    theirs.push_back(CopyWithThreads(rig->mount(), paths));
    their_cpu += CpuSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    // A new reader each round: the ramp-up of a first epoch is part of it.
    auto reader = source::SourceReader::Create(opened.value(), io::MakeEngine, clock, options);
    if (!reader.ok()) {
      std::fprintf(stderr, "source_copy: %s\n", reader.status().ToString().c_str());
      return 1;
    }
    our_cpu -= CpuSeconds();
    ours.push_back(ReadThroughReader(reader.value().get(), clock, paths));
    our_cpu += CpuSeconds();
    ratios.push_back(ours.back() / theirs.back());
    report = reader.value()->Report();
    reader.value()->Stop(1000);
  }
  const double us_each = 1e6 / static_cast<double>(paths.size()) / settings.rounds;
  Print("source_reader", ours, our_cpu * us_each);
  Print("64 threads", theirs, their_cpu * us_each);
  std::sort(ratios.begin(), ratios.end());
  std::printf("ratio          %10.2f          (min %.2f, max %.2f)\n%s\n", ratios[ratios.size() / 2], ratios.front(), ratios.back(),
              report.c_str());
  return ours.front() > 0 && theirs.front() > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!Parse(argc, argv, &settings)) {
    std::fprintf(stderr, "usage: source_copy [--files N] [--size MEAN[:SIGMA]] [--latency-us N] [--bandwidth BYTES] [--rounds N] "
                         "[--window MAX] [--engine auto|threads|io_uring]\n");
    return 64;
  }
  return Run(settings);
}
