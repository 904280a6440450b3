// B4, B5b, B6, B7, B8: what data loaders do, bare and under the preload library or `tierctl run`. The programs are bench/preload_reader.c (mmap) and bench/loaders.py.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

#include "bench/harness.h"
#include "bench/sides.h"
#include "tests/pfs_sim/rig.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr char kPython[] = "/usr/bin/python3 " TIERD_BENCH_LOADERS " ";
constexpr char kPreloaded[] = "LD_PRELOAD=" TIERD_BENCH_PRELOAD " ";

// The numbers that a command prints; empty if it fails.
std::vector<double> Numbers(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::vector<double> numbers;
  double number = 0;
  while (std::fscanf(pipe, "%lf", &number) == 1) numbers.push_back(number);
  return ::pclose(pipe) == 0 ? numbers : std::vector<double>{};
}

std::optional<double> First(const std::string& command) {
  const std::vector<double> numbers = Numbers(command);
  return numbers.empty() ? std::nullopt : std::optional(numbers[0]);
}

void ServeBy(const Daemon& daemon, const std::string& root) {
  ::setenv("TIERD_SOCKET", daemon.socket().c_str(), 1);
  ::setenv("TIERD_PREFIX", root.c_str(), 1);
}

// ---- B4 -------------------------------------------------------------------------------------------------------------------------------

void MeasureMap(Bench& bench, const std::string& id, bool large_pages, double bar) {
  const pfs_sim::TreeOptions tree{.files = 1, .dirs = 1, .size = {.mean = 64 << 20}, .seed = 5};
  const std::string root = MakeTreeIn(bench, "tree-" + id, tree);
  std::vector<std::string> more;
  if (!large_pages) more = {"--set", "ram.pages=4k"};
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ram = "512 MiB", .more = more});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  const std::vector<std::string> paths = TreePaths(root, tree);
  ServeBy(*daemon, root);
  if (!WarmAndVerify(paths, root, tree)) return bench.Fail(id + ": the file is not in RAM");
  HeatPageCache(paths);
  bench.SetPages(daemon->pages());
  RowText text{id, std::string("mmap of a 64 MiB file and its sum, RAM hits, ") + (large_pages ? "2 MiB pages" : "4 KiB pages"), "bytes/s"};
  if (large_pages && daemon->pages() == "4k") return bench.Emit(SkippedRow(text, "no 2 MiB pages can be had here"));
  const std::string reader = std::string(TIERD_BENCH_PRELOAD_READER), command = reader + " map " + paths[0] + " 20";
  // The memory's own pace bounds what any way of mapping can gain: the sum alone, of what is mapped and was looked at before.
  const std::string sum = reader + " mapped " + paths[0] + " 20";
  Samples frames, page_cache, sum_alone;
  const auto baseline = [&]() -> std::optional<double> {
    const auto number = First(command), ours = First(kPreloaded + sum), bare = First(sum);
    if (number && ours && bare) {
      frames.values.push_back(*ours / *number);
      page_cache.values.push_back(*bare / *number);
      sum_alone.values.push_back(*ours);
    }
    return number;
  };
  const Comparison measured = Interleave(bench.rounds(9), [&] { return First(kPreloaded + command); }, baseline);
  if (!frames.values.empty()) {
    char note[200];
    std::snprintf(note, sizeof note, "the sum alone, mapped and touched before: frames %.2fx the baseline, page cache %.2fx; with mmap and munmap ours is %.3f of that of its frames", frames.median(), page_cache.median(),
                  measured.ours.median() / sum_alone.median());
    text.note = note;
  }
  bench.Emit(RatioRow(text, measured, Bar::kAtLeast, bar));
}

// ---- B5b ------------------------------------------------------------------------------------------------------------------------------

struct Pattern {
  const char* kind;
  const char* what;
  int files;
  int epochs;
  const char* environment = "";  // of both sides: "NAME=value"
  const char* id = nullptr;      // of the row, if not the kind's
  const char* least = nullptr;   // kind that does only what must be asked of the source
};

std::string IdOf(const Pattern& pattern) { return std::string("B5b.") + (pattern.id != nullptr ? pattern.id : pattern.kind); }

// System calls of all processes of a command, but for those about memory: an allocator's are no business of a cache.
std::optional<double> Calls(const Bench& bench, bool preloaded, const std::string& command) {
  const std::string out = bench.directory() + "/strace.out";
  const std::string with = preloaded ? "-E LD_PRELOAD=" TIERD_BENCH_PRELOAD " " : "";
  if (Shell("strace -f -qq -c -U calls,name -o " + out + " " + with + command + " >/dev/null") != 0) return std::nullopt;
  std::ifstream in(out);
  double total = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    double calls = 0;
    std::string name;
    if (!(words >> calls >> name) || name == "total") continue;
    if (name != "brk" && name != "mmap" && name != "munmap" && name != "madvise" && name != "mprotect" && name != "mremap") total += calls;
  }
  return total > 0 ? std::optional(total) : std::nullopt;
}

// Those of one sample: what a further epoch costs beyond one that opens nothing, so that neither the start of the program nor the loader's own traffic counts.
std::optional<double> CallsPerSample(const Bench& bench, bool preloaded, const Pattern& pattern, const std::string& directory) {
  const auto further = [&](const char* kind) -> std::optional<double> {
    const std::string command = std::string(kPython) + "patterns " + kind + " " + directory + " ";
    const auto one = Calls(bench, preloaded, command + "1"), three = Calls(bench, preloaded, command + "3");
    return one && three ? std::optional((*three - *one) / (2.0 * pattern.files)) : std::nullopt;
  };
  const auto with = further(pattern.kind), without = further("none");
  return with && without ? std::optional(*with - *without) : std::nullopt;
}

// Everything of `directory` in RAM, shown by a pass that reads all of it from there.
bool WarmByPattern(const Bench& bench, const Pattern& pattern, const std::string& directory) {
  const std::string report = bench.directory() + "/reads";
  for (int i = 0; i < 4; ++i) {
    ::unlink(report.c_str());
    if (Numbers("TIERD_REPORT=" + report + " " + kPreloaded + kPython + "patterns " + pattern.kind + " " + directory + " 1").size() != 2) return false;
    std::ifstream in(report);
    double ram = 0, other = 0;
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json bytes = nlohmann::json::parse(line, nullptr, false).value("bytes", nlohmann::json::object());
      ram += bytes.value("ram", 0.0);
      other += bytes.value("ssd", 0.0) + bytes.value("source", 0.0) + bytes.value("bypass", 0.0);
    }
    if (ram > 0 && other == 0) return true;
  }
  return false;
}

// False after a failure.
bool MeasureSpeed(Bench& bench, const std::string& id, const std::string& what, const std::string& command) {
  Comparison rate, cpu;
  for (int round = 0; round < bench.rounds(5); ++round) {
    std::vector<double> ours, bare;
    if (round % 2 == 0) ours = Numbers(kPreloaded + command);
    bare = Numbers(command);
    if (round % 2 != 0) ours = Numbers(kPreloaded + command);
    if (ours.size() != 2 || bare.size() != 2) return bench.Fail(id + ": the program failed"), false;
    for (const auto& [comparison, i] : {std::pair(&rate, 0u), std::pair(&cpu, 1u)}) {
      comparison->ours.values.push_back(ours[i]);
      comparison->baseline.values.push_back(bare[i]);
      comparison->ratio.values.push_back(ours[i] / bare[i]);
    }
  }
  bench.Emit(RatioRow({id + ".rate", what + "samples/s", "samples/s"}, rate, Bar::kAtLeast, 0.97));
  bench.Emit(RatioRow({id + ".cpu", what + "CPU seconds of a sample", "s"}, cpu, Bar::kAtMost, 1.0));
  return true;
}

void MeasurePattern(Bench& bench, const Pattern& pattern) {
  const std::string id = IdOf(pattern);
  const std::string root = bench.directory() + "/loader-" + id, directory = root + "/files";
  if (Shell(std::string(kPython) + "make " + pattern.kind + " " + directory + " " + std::to_string(pattern.files)) != 0) return bench.Fail(id + ": no files");
  const auto daemon = Daemon::Start(bench, {.source = root, .ram = "2 GiB", .more = {"--set", "source.staleness=immutable", "--set", "source.check_reads=1"}});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  ServeBy(*daemon, root);
  if (*pattern.environment != 0) ::putenv(const_cast<char*>(pattern.environment));  // of this child and its programs alone
  if (!WarmByPattern(bench, pattern, directory)) return bench.Fail(id + ": not all is served from RAM");
  bench.SetPages(daemon->pages());
  const std::string command = std::string(kPython) + "patterns " + pattern.kind + " " + directory + " " + std::to_string(pattern.epochs);
  const std::string what = std::string(pattern.what) + ", DataLoader with 2 forked workers, RAM hits of an immutable set: ";
  if (bench.WantsAny({id + ".rate", id + ".cpu"}) && !MeasureSpeed(bench, id, what, command)) return;
  if (!bench.Wants(id + ".calls")) return;
  const auto calls = [&](bool preloaded) { return [&, preloaded] { return CallsPerSample(bench, preloaded, pattern, directory); }; };
  RowText text{id + ".calls", what + "kernel calls of a sample, but for those about memory", "calls"};
  const Comparison measured = Interleave(bench.rounds(5), calls(true), calls(false));
  if (pattern.least != nullptr && !measured.baseline.values.empty()) {
    Pattern lock = pattern;
    lock.kind = pattern.least;
    char note[120];
    std::snprintf(note, sizeof note, "the lock alone, bare (open, flock and close of the file): %.2f of the baseline", CallsPerSample(bench, false, lock, directory).value_or(0) / measured.baseline.median());
    text.note = note;
  }
  bench.Emit(RatioRow(text, measured, Bar::kAtMost, 0.1));
}

// ---- B6, B7 -----------------------------------------------------------------------------------------------------------------------------

std::string UnderRun(const std::string& source, const std::string& command) {
  return std::string(TIERD_BENCH_TIERCTL) + " run -q --source " + source + " --ram '2 GiB' --ssd off -- " + command;
}

// Each round: two epochs and more under `tierctl run` on the slow source, one bare epoch there, and as many on a local copy.
void MeasureEpochs(Bench& bench, const std::string& id, const std::string& what, const std::string& backing) {
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.backing = backing, .latency_us = 1000, .bandwidth = 200'000'000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow({id, what, "s"}, why));
  Comparison first, later;
  const auto rest = [](const std::vector<double>& epochs) { return std::accumulate(epochs.begin() + 1, epochs.end(), 0.0) / static_cast<double>(epochs.size() - 1); };
  for (int round = 0; round < bench.rounds(5); ++round) {
    std::vector<double> ours, bare, local;
    const auto run = [&] {
      ::usleep(1'200'000);  // the rig's kernel keeps names for a second
      ours = Numbers(UnderRun(rig->mount(), std::string(kPython) + "epochs " + rig->mount() + " 3"));
    };
    if (round % 2 == 0) run();
    ::usleep(1'200'000);
    bare = Numbers(std::string(kPython) + "epochs " + rig->mount() + " 1");
    local = Numbers(std::string(kPython) + "epochs " + backing + " 3");
    if (round % 2 != 0) run();
    if (ours.size() != 3 || bare.size() != 1 || local.size() != 3) return bench.Fail(id + ": the script failed");
    Note(id + ": " + std::to_string(ours[0]) + " " + std::to_string(ours[1]) + " " + std::to_string(ours[2]) + " s, bare " + std::to_string(bare[0]) + " s, local " + std::to_string(rest(local)) + " s");
    first.ours.values.push_back(ours[0]);
    first.baseline.values.push_back(bare[0]);
    first.ratio.values.push_back(bare[0] / ours[0]);
    later.ours.values.push_back(rest(ours));
    later.baseline.values.push_back(rest(local));
    later.ratio.values.push_back(rest(ours) / rest(local));
  }
  bench.Emit(RatioRow({id + ".first", what + ": epoch 1 under tierctl run, as many times as fast as bare", "s"}, first, Bar::kAtLeast, 1.0));
  bench.Emit(RatioRow({id + ".later", what + ": epochs 2 and 3 against a local copy", "s"}, later, Bar::kAtMost, 1.1));
}

// torchvision's ImageFolder lists; with an is_valid_file that looks at the files it also stats every name. The bare source is as slow the first time as the second.
void MeasureListing(Bench& bench, const std::string& id, bool checked, std::uint64_t files) {
  RowText text{id, "second ImageFolder(root) of " + std::to_string(files) + " files" + (checked ? " with a stat of each" : "") + " under tierctl run, as many times as fast as bare on a source of 1 ms",
                     "s"};
  const pfs_sim::TreeOptions tree{.files = files, .dirs = 10, .size = {.mean = 800}, .seed = 9};
  const std::string backing = MakeTreeIn(bench, "source-" + id, tree);
  if (backing.empty() || Shell(std::string(kPython) + "suffix " + backing + " .png") != 0)
    return bench.Fail(id + ": no files");
  std::string why;
  const auto rig = pfs_sim::Rig::Start({.backing = backing, .latency_us = 1000, .bandwidth = 200'000'000}, &why);
  if (rig == nullptr) return bench.Emit(SkippedRow(text, why));
  const std::string command = std::string(kPython) + "listing " + rig->mount() + " ", check = checked ? " 1" : " 0";
  const auto seconds = [&](const std::string& line) -> std::optional<double> {
    ::usleep(1'200'000);  // the rig's kernel keeps names for a second
    const std::vector<double> numbers = Numbers(line);
    return numbers.size() == 3 && numbers[1] == static_cast<double>(files) ? std::optional(numbers[0]) : std::nullopt;
  };
  // What the names cost is little beside what Python does with them.
  Samples local, in_memory;
  const auto bare = [&] {
    const std::vector<double> here = Numbers(std::string(kPython) + "listing " + backing + " 2" + check);
    const auto there = seconds(command + "1" + check);
    if (there && here.size() == 3) {
      local.values.push_back(*there / here[0]);
      in_memory.values.push_back(*there / here[2]);
    }
    return there;
  };
  // The ratio is how many times as fast we are: the sides are given the other way round.
  Comparison measured = Interleave(bench.rounds(5), bare, [&] { return seconds(UnderRun(rig->mount(), command + "2" + check)); });
  std::swap(measured.ours, measured.baseline);
  if (!local.values.empty()) {
    char note[96];
    std::snprintf(note, sizeof note, "the same on a local disk: %.2fx, with the names in Python's memory: %.2fx", local.median(), in_memory.median());
    text.note = note;
  }
  bench.Emit(RatioRow(text, measured, Bar::kAtLeast, 10));
}

void MeasureListings(Bench& bench) {
  if (bench.Wants("B7.names")) MeasureListing(bench, "B7.names", false, 60'000);
  if (bench.Wants("B7.stat")) MeasureListing(bench, "B7.stat", true, 10'000);
}

// Fashion-MNIST as folders of PNG files; empty if it is not installed.
std::string FashionFiles(const Bench& bench, int count) {
  const std::string directory = bench.directory() + "/fashion";
  return Shell("/usr/bin/python3 " TIERD_BENCH_FASHION " " + directory + " --images " + std::to_string(count)) == 0 ? directory : "";
}

void MeasureAllEpochs(Bench& bench) {
  if (bench.Wants("B6.fashion")) {
    const std::string backing = FashionFiles(bench, 8'000);
    if (backing.empty()) bench.Emit(SkippedRow({"B6.fashion", "Fashion-MNIST files", "s"}, "dataset-fashion-mnist or PIL is not installed"));
    else MeasureEpochs(bench, "B6.fashion", "PyTorch DataLoader, 2 workers, source 1 ms / 200 MB/s, 8,000 Fashion-MNIST files", backing);
  }
  if (bench.Wants("B6.large")) {
    const std::string backing = MakeTreeIn(bench, "source-B6", {.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 7});
    if (backing.empty()) return bench.Fail("B6.large: no files");
    MeasureEpochs(bench, "B6.large", "PyTorch DataLoader, 2 workers, source 1 ms / 200 MB/s, 4,000 x 108 KB", backing);
  }
}

// ---- B8 -------------------------------------------------------------------------------------------------------------------------------

std::optional<double> SecondsOf(const std::string& command) {
  const auto start = std::chrono::steady_clock::now();
  if (Numbers(command).size() != 3) return std::nullopt;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A job that gains nothing: the files are in the page cache. What `tierctl run` costs it, start and end included.
void MeasureShortRun(Bench& bench) {
  const pfs_sim::TreeOptions tree{.files = 2000, .dirs = 10, .size = {.mean = 110e3}, .seed = 8};
  const std::string root = MakeTreeIn(bench, "source-B8", tree);
  if (root.empty()) return bench.Fail("B8: no files");
  HeatPageCache(TreePaths(root, tree));
  const std::string command = std::string(kPython) + "epochs " + root + " 3";
  Samples bare;
  const auto allowed = [&]() -> std::optional<double> {
    const auto seconds = SecondsOf(command);
    if (!seconds) return std::nullopt;
    bare.values.push_back(*seconds);
    return 1.05 * *seconds + 1;
  };
  const Comparison measured = Interleave(bench.rounds(7), [&] { return SecondsOf(UnderRun(root, command)); }, allowed);
  RowText text{"B8", "three epochs of 2,000 x 110 KB in the page cache under tierctl run, start and end included, against 1.05 of bare and a second", "s"};
  if (!bare.values.empty()) text.note = "bare " + std::to_string(bare.median()) + " s";
  bench.Emit(RatioRow(text, measured, Bar::kAtMost, 1.0));
}

void OnTheRig(Bench& bench, const std::string& id, void (*measure)(Bench&)) {
  if (!bench.Wants(id)) return;
  if (!bench.rig_usable()) return bench.Emit(SkippedRow({id, "behind the slow file system", "s"}, "the rig's self-test failed: machine too busy"));
  InChild(bench, [&] { measure(bench); });
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  ::setenv("XDG_CONFIG_HOME", (bench.directory() + "/config").c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  ::setenv("TMPDIR", bench.directory().c_str(), 1);
  ::unsetenv("TIERD_SOCKET");
  if (bench.Wants("B4.2m")) InChild(bench, [&] { MeasureMap(bench, "B4.2m", true, 1.3); });
  if (bench.Wants("B4.4k")) InChild(bench, [&] { MeasureMap(bench, "B4.4k", false, 0.95); });
  const Pattern patterns[] = {
      {"npz", "NPZ through zipfile, 16 MB of 8 arrays", 24, 3},
      {.kind = "h5", .what = "h5py, 1 MB", .files = 400, .epochs = 3, .least = "h5lock"},
      {.kind = "h5", .what = "h5py, 1 MB, without locks", .files = 400, .epochs = 3, .environment = "HDF5_USE_FILE_LOCKING=FALSE", .id = "h5free"},
      {"jpg", "PIL, JPEG of 68 KB", 1000, 2}};
  for (const Pattern& pattern : patterns) {
    if (bench.Wants(IdOf(pattern))) InChild(bench, [&] { MeasurePattern(bench, pattern); });
  }
  if (bench.Wants("B8")) InChild(bench, [&] { MeasureShortRun(bench); });
  OnTheRig(bench, "B6", MeasureAllEpochs);
  OnTheRig(bench, "B7", MeasureListings);
  return bench.Finish();
}
