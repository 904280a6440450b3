#include "bench/harness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <numeric>

#include "tests/pfs_sim/content.h"

namespace bench {
namespace {

using nlohmann::json;

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string LineAfter(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string Hardware() {
  static const std::string text = [] {
    utsname kernel{};
    ::uname(&kernel);
    const long gib = ::sysconf(_SC_PHYS_PAGES) / 1024 * ::sysconf(_SC_PAGESIZE) / (1 << 20);
    return std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + " x " + LineAfter("/proc/cpuinfo", "model name") + ", " + std::to_string(gib) +
           " GiB, Linux " + kernel.release;
  }();
  return text;
}

std::string BarText(Bar kind, double bar) {
  char text[64];
  std::snprintf(text, sizeof text, "%s %g", kind == Bar::kAtLeast ? ">=" : "<=", bar);
  return text;
}

json Numbers(const Samples& samples) { return {{"median", samples.median()}, {"min", samples.min()}, {"max", samples.max()}}; }

json EmptyRow(const RowText& text) {
  return {{"id", text.id}, {"what", text.what}, {"unit", text.unit}, {"note", text.note}, {"ours", nullptr}, {"baseline", nullptr},
          {"ratio", nullptr}, {"bar", nullptr}, {"met", nullptr}, {"runs", 0}};
}

}  // namespace

double Samples::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
double Samples::min() const { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }
double Samples::max() const { return values.empty() ? 0 : *std::max_element(values.begin(), values.end()); }

json RatioRow(const RowText& text, const Comparison& measured, Bar kind, double bar) {
  if (measured.ratio.values.empty()) return SkippedRow(text, "a side failed");
  json row = EmptyRow(text);
  row["ours"] = Numbers(measured.ours);
  row["baseline"] = Numbers(measured.baseline);
  row["ratio"] = Numbers(measured.ratio);
  row["bar"] = BarText(kind, bar);
  row["met"] = kind == Bar::kAtLeast ? measured.ratio.median() >= bar : measured.ratio.median() <= bar;
  row["runs"] = measured.ratio.values.size();
  return row;
}

json ValueRow(const RowText& text, const Samples& measured, Bar kind, double bar) {
  if (measured.values.empty()) return SkippedRow(text, "nothing was measured");
  json row = EmptyRow(text);
  row["ours"] = Numbers(measured);
  row["bar"] = BarText(kind, bar);
  row["met"] = kind == Bar::kAtLeast ? measured.median() >= bar : measured.median() <= bar;
  row["runs"] = measured.values.size();
  return row;
}

json SkippedRow(const RowText& text, const std::string& why) {
  json row = EmptyRow(text);
  row["note"] = text.note.empty() ? why : why + "; " + text.note;
  return row;
}

Comparison Interleave(int rounds, const std::function<std::optional<double>()>& ours,
                      const std::function<std::optional<double>()>& baseline) {
  Comparison all;
  for (int round = 0; round < rounds; ++round) {
    std::optional<double> a;
    std::optional<double> b;
    if (round % 2 == 0) {
      a = ours();
      b = baseline();
    } else {
      b = baseline();
      a = ours();
    }
    if (!a || !b || *b == 0) return {};
    all.ours.values.push_back(*a);
    all.baseline.values.push_back(*b);
    all.ratio.values.push_back(*a / *b);
  }
  return all;
}

Bench::Bench(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--only" && i + 1 < argc) {
      only_ = SplitList(argv[++i]);
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds_ = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: %s [--only ID,ID...] [--rounds N]\n", argv[0]);
      std::exit(64);
    }
  }
  const char* base = std::getenv("TIERD_BENCH_DIR");
  std::string pattern = std::string(base != nullptr ? base : "/var/tmp") + "/tierd-bench.XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    std::fprintf(stderr, "%s: %s\n", pattern.c_str(), std::strerror(errno));
    std::exit(1);
  }
  directory_ = pattern;
}

Bench::~Bench() { RemoveTree(directory_); }

bool Bench::Wants(const std::string& id) const {
  if (only_.empty()) return true;
  for (const std::string& wanted : only_) {
    if (id == wanted || id.rfind(wanted + ".", 0) == 0 || wanted.rfind(id + ".", 0) == 0) return true;
  }
  return false;
}

bool Bench::WantsAny(const std::vector<std::string>& ids) const {
  return std::any_of(ids.begin(), ids.end(), [this](const std::string& id) { return Wants(id); });
}

bool Bench::rig_usable() const {
  const char* state = std::getenv("TIERD_BENCH_RIG");
  return state == nullptr || std::strcmp(state, "slow") != 0;
}

void Bench::Emit(json row) {
  const std::string id = row["id"];
  const bool skipped = row["met"].is_null();  // in place of all rows below it
  const auto asked = [&](const std::string& wanted) { return id == wanted || id.rfind(wanted + ".", 0) == 0 || (skipped && wanted.rfind(id + ".", 0) == 0); };
  // Measured together with another row, not asked for by itself.
  if (!only_.empty() && std::none_of(only_.begin(), only_.end(), asked)) return;
  row["pages"] = pages_;
  row["hardware"] = Hardware();
  std::cout << row.dump() << std::endl;
}

void Bench::Fail(const std::string& sentence) {
  Note("FAILED: " + sentence);
  failed_ = true;
}

void Note(const std::string& line) { std::fprintf(stderr, "bench: %s\n", line.c_str()); }

std::string MakeTreeIn(const Bench& bench, const std::string& name, const pfs_sim::TreeOptions& tree) {
  const std::string root = bench.directory() + "/" + name;
  std::string why = "mkdir";
  Note("writing " + std::to_string(tree.files) + " files, " + std::to_string(pfs_sim::TreeBytes(tree) >> 20) + " MiB");
  if (::mkdir(root.c_str(), 0755) != 0 || !pfs_sim::MakeTree(root, tree, &why)) {
    Note(root + ": " + why);
    return "";
  }
  // On the disk, too: writing it back would else fall among the measurements.
  if (const int fd = ::open(root.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    (void)::syncfs(fd);
    ::close(fd);
  }
  ::sleep(11);  // the window is 10 s
  return root;
}

std::vector<std::string> TreePaths(const std::string& root, const pfs_sim::TreeOptions& tree) {
  std::vector<std::string> paths(tree.files);
  for (std::uint64_t i = 0; i < tree.files; ++i) paths[i] = root + "/" + pfs_sim::TreePath(tree, i);
  return paths;
}

void RemoveTree(const std::string& directory) { Shell("rm -rf '" + directory + "'"); }

int Shell(const std::string& command) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

double Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<std::uint32_t> Permutation(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[pfs_sim::MixWord(seed * 0x9e3779b97f4a7c15ULL + i) % i]);
  }
  return order;
}

std::uint32_t Percentile(std::vector<std::uint32_t>* latencies, double share) {
  if (latencies->empty()) return 0;
  const auto at = latencies->begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(latencies->size() - 1));
  std::nth_element(latencies->begin(), at, latencies->end());
  return *at;
}

ssize_t PosixReadFile(const char* path, void* buffer, std::size_t capacity) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat st {};
  ssize_t got = -1;
  if (::fstat(fd, &st) == 0) {
    const std::size_t wanted = std::min(capacity, static_cast<std::size_t>(st.st_size));
    got = 0;
    while (static_cast<std::size_t>(got) < wanted) {
      const ssize_t part = ::read(fd, static_cast<char*>(buffer) + got, wanted - static_cast<std::size_t>(got));
      if (part <= 0) break;
      got += part;
    }
  }
  ::close(fd);
  return got;
}

}  // namespace bench
