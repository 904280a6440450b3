#include "tests/pfs_sim/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/pfs_sim/content.h"

namespace pfs_sim {
namespace {

constexpr size_t kBlock = 1 << 20;

std::optional<double> ParseDouble(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Uniform in (0, 1].
double Unit(uint64_t word) { return (static_cast<double>(word >> 11) + 1) * 0x1p-53; }

// Runs body(index) for all files on `threads` threads; a false answer stops that thread.
template <typename Body>
void ForEachFile(uint64_t files, int threads, const Body& body) {
  std::atomic<uint64_t> next = 0;
  const auto run = [&] {
    for (uint64_t i = next++; i < files; i = next++) {
      if (!body(i)) return;
    }
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(run);
  run();
  for (std::thread& thread : pool) thread.join();
}

std::string WriteFile(int dir_fd, const std::string& path, uint64_t key, uint64_t size) {
  const int fd = openat(dir_fd, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return "create " + path + ": " + strerror(errno);
  std::vector<char> block(std::min<uint64_t>(size, kBlock));
  std::string why;
  for (uint64_t done = 0; done < size && why.empty();) {
    const size_t part = std::min<uint64_t>(block.size(), size - done);
    FillContent(key, done, block.data(), part);
    const ssize_t wrote = write(fd, block.data(), part);
    if (wrote < 0) {
      why = "write " + path + ": " + strerror(errno);
    } else {
      done += static_cast<uint64_t>(wrote);  // a short write is continued from where it ended
    }
  }
  close(fd);
  return why;
}

// Empty when the file holds exactly `size` right bytes.
std::string CheckFile(int dir_fd, const std::string& path, uint64_t key, uint64_t size) {
  const int fd = openat(dir_fd, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "open " + path + ": " + strerror(errno);
  std::vector<char> block(kBlock);
  uint64_t offset = 0;
  std::string why;
  for (;;) {
    const ssize_t got = read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) why = "read " + path + ": " + strerror(errno);
    if (got <= 0) break;
    const auto wrong = CheckContent(key, offset, block.data(), static_cast<size_t>(got));
    if (wrong) {
      why = path + ": wrong byte at offset " + std::to_string(*wrong);
      break;
    }
    offset += static_cast<uint64_t>(got);
  }
  close(fd);
  if (why.empty() && offset != size) {
    why = path + ": " + std::to_string(offset) + " bytes instead of " + std::to_string(size);
  }
  return why;
}

uint64_t KeyOf(const TreeOptions& tree, const std::string& path) {
  return ContentKey({tree.seed, path, tree.version});
}

std::string DirName(uint64_t index) {
  char name[24];
  snprintf(name, sizeof(name), "d%04llu", static_cast<unsigned long long>(index));
  return name;
}

}  // namespace

std::optional<SizeRule> ParseSizeRule(const std::string& text) {
  constexpr std::string_view kPrefix = "lognormal:";
  if (!text.starts_with(kPrefix)) {
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return SizeRule{static_cast<double>(size), 0};
  }
  const std::string_view rest = std::string_view(text).substr(kPrefix.size());
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto mean = ParseDouble(rest.substr(0, colon));
  const auto sigma = ParseDouble(rest.substr(colon + 1));
  if (!mean || !sigma || *mean <= 0 || *sigma < 0) return std::nullopt;
  return SizeRule{*mean, *sigma};
}

std::string TreePath(const TreeOptions& tree, uint64_t index) {
  char name[32];
  snprintf(name, sizeof(name), "f%08llu.bin", static_cast<unsigned long long>(index));
  if (tree.dirs == 0) return name;
  return DirName(index % tree.dirs) + "/" + name;
}

uint64_t TreeSize(const TreeOptions& tree, uint64_t index) {
  if (tree.size.sigma == 0) return static_cast<uint64_t>(tree.size.mean);
  // Box and Muller's normal deviate from two words of a stream of its own.
  const uint64_t key = MixWord(tree.seed ^ 0x73697a65);
  const double radius = std::sqrt(-2 * std::log(Unit(ContentWord(key, 2 * index))));
  const double normal = radius * std::cos(2 * M_PI * Unit(ContentWord(key, 2 * index + 1)));
  const double mu = std::log(tree.size.mean) - tree.size.sigma * tree.size.sigma / 2;
  return static_cast<uint64_t>(std::exp(mu + tree.size.sigma * normal));
}

uint64_t TreeBytes(const TreeOptions& tree) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < tree.files; ++i) sum += TreeSize(tree, i);
  return sum;
}

bool MakeTree(const std::string& dir, const TreeOptions& tree, std::string* why) {
  const int dir_fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd < 0) {
    *why = dir + ": " + strerror(errno);
    return false;
  }
  for (uint64_t i = 0; i < tree.dirs; ++i) {
    if (mkdirat(dir_fd, DirName(i).c_str(), 0755) != 0 && errno != EEXIST) {
      *why = dir + "/" + DirName(i) + ": " + strerror(errno);
      close(dir_fd);
      return false;
    }
  }
  std::mutex mutex;
  std::string failure;
  ForEachFile(tree.files, 2, [&](uint64_t i) {
    const std::string path = TreePath(tree, i);
    const std::string wrong = WriteFile(dir_fd, path, KeyOf(tree, path), TreeSize(tree, i));
    if (wrong.empty()) return true;
    const std::lock_guard lock(mutex);
    failure = wrong;
    return false;
  });
  close(dir_fd);
  *why = failure;
  return failure.empty();
}

TreeCheck CheckTree(const std::string& dir, const TreeOptions& tree, int threads) {
  TreeCheck check;
  const int dir_fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd < 0) {
    check.files_wrong = tree.files;
    check.first_wrong = dir + ": " + strerror(errno);
    return check;
  }
  std::mutex mutex;
  ForEachFile(tree.files, threads, [&](uint64_t i) {
    const std::string path = TreePath(tree, i);
    const uint64_t size = TreeSize(tree, i);
    const std::string wrong = CheckFile(dir_fd, path, KeyOf(tree, path), size);
    const std::lock_guard lock(mutex);
    if (wrong.empty()) {
      ++check.files_right;
      check.bytes += size;
    } else {
      if (check.files_wrong++ == 0) check.first_wrong = wrong;
    }
    return true;
  });
  close(dir_fd);
  return check;
}

}  // namespace pfs_sim
