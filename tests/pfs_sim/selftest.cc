#include "tests/pfs_sim/selftest.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/pfs_sim/rig.h"
#include "tests/pfs_sim/server.h"
#include "tests/pfs_sim/tree.h"

namespace pfs_sim {
namespace {

constexpr int kExitTooSlow = 3;
constexpr size_t kFileBytes = 4096;

bool ReadSmallFile(int dir_fd, const std::string& path) {
  const int fd = openat(dir_fd, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char buffer[kFileBytes];
  struct stat st {};
  const bool ok = fstat(fd, &st) == 0 && read(fd, buffer, sizeof(buffer)) == ssize_t{kFileBytes};
  close(fd);
  return ok;
}

// Files/s over the files [first, first + count); negative when one could not be read.
double Round(int dir_fd, const TreeOptions& tree, uint64_t first, uint64_t count, int threads) {
  std::atomic<uint64_t> next = first;
  std::atomic<bool> failed = false;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> readers;
  for (int t = 0; t < threads; ++t) {
    readers.emplace_back([&] {
      for (uint64_t i = next++; i < first + count; i = next++) {
        if (!ReadSmallFile(dir_fd, TreePath(tree, i))) failed = true;
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return failed ? -1 : static_cast<double>(count) / took.count();
}

}  // namespace

int SelfTest(const SelfTestOptions& options) {
  std::string why;
  RigOptions rig_options;
  rig_options.latency_us = static_cast<uint64_t>(options.latency_us);
  const auto rig = Rig::Start(rig_options, &why);
  if (rig == nullptr) {
    fprintf(stderr, "%s\n", why.c_str());
    return kExitUnavailable;
  }
  TreeOptions tree;
  tree.files = static_cast<uint64_t>(options.files) * static_cast<uint64_t>(options.rounds);
  tree.size.mean = kFileBytes;
  if (!MakeTree(rig->backing(), tree, &why)) {
    fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  const int dir_fd = open(rig->mount().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  double best = 0;
  for (int round = 0; round < options.rounds; ++round) {
    const auto first = static_cast<uint64_t>(round) * static_cast<uint64_t>(options.files);
    const double rate = Round(dir_fd, tree, first, static_cast<uint64_t>(options.files), options.threads);
    const RigCounters counters = rig->Counters();
    printf("round %d: %.0f files/s (%d threads, one directory, %d us per operation; %llu lookup, %llu "
           "getattr, %llu open, %llu read so far)\n",
           round + 1, rate, options.threads, options.latency_us,
           static_cast<unsigned long long>(counters.lookups),
           static_cast<unsigned long long>(counters.getattrs),
           static_cast<unsigned long long>(counters.opens),
           static_cast<unsigned long long>(counters.reads));
    best = std::max(best, rate);
    if (rate < 0) {
      fprintf(stderr, "a file could not be read through the rig\n");
      close(dir_fd);
      return 1;
    }
  }
  close(dir_fd);
  const bool fast = best >= options.bar;
  printf("best %.0f files/s, bar %.0f: %s\n", best, options.bar, fast ? "met" : "NOT met");
  return fast ? 0 : kExitTooSlow;
}

}  // namespace pfs_sim
