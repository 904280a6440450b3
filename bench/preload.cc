// B1, B2: unmodified programs under `tierctl run`, beside a daemon that is there, against the same programs on files in the page cache, bare. Each measurement is a
// process of its own: bench/preload_reader.c, or Python. B5: what the preload library adds to a call outside of any source; bench/preload_calls.c.
#include <sys/stat.h>
#include <tier/tier.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "bench/harness.h"
#include "bench/sides.h"

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr const char* kOurs = TIERD_BENCH_PRELOAD;
constexpr const char* kForwarder = TIERD_BENCH_PRELOAD_FORWARD;

// The number that a command prints; nothing if it fails.
std::optional<double> Number(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  double number = 0;
  const bool got = std::fscanf(pipe, "%lf", &number) == 1;
  if (::pclose(pipe) != 0 || !got) return std::nullopt;
  return number;
}

// The number that a command prints under `tierctl run`; nothing if it fails, or if more than one read in a hundred was not served from RAM.
std::optional<double> UnderRun(const Bench& bench, const std::string& source, const std::string& command) {
  const std::string report = bench.directory() + "/run.json";
  ::unlink(report.c_str());
  const auto number = Number(TIERD_BENCH_TIERCTL " run --source '" + source + "' --report '" + report + "' -- " + command);
  std::ifstream in(report);
  const auto run = nlohmann::json::parse(in, nullptr, false);
  if (!number || !run.is_object()) return std::nullopt;
  const auto reads = [&](const char* origin) { return run["reads"][origin]["count"].get<std::uint64_t>(); };
  if (reads("ram") > 100 * (reads("ssd") + reads("source") + reads("bypass"))) return number;
  Note("too little came from RAM: " + run["reads"].dump() + " " + run["fallback"].dump());
  return std::nullopt;
}

struct Setting {
  std::string id;
  std::string what;
  pfs_sim::TreeOptions tree;
  int epochs;
  double bars[2];  // C: long-lived, forked
  double python;
};

constexpr const char* kPython = R"(import sys, time, random
paths = [l.strip() for l in open(sys.argv[1])]
epochs = int(sys.argv[2])
def go():
    for p in paths:
        with open(p, 'rb') as f: f.read()
go()
t = 0
for e in range(epochs):
    random.Random(e).shuffle(paths)
    b = time.perf_counter(); go(); t += time.perf_counter() - b
print(len(paths) * epochs / t))";

// Files per second of a loop that does what no way of serving them gets around: it hashes the path, reads the line of a table that this leads to and that says where the
// bytes are, and copies them out of what is mapped.
std::optional<double> Bare(const std::vector<std::string>& paths, int epochs, bool forked) {
  RunResult all;
  for (int repeat = 0; repeat < (forked ? epochs : 1); ++repeat) {
    BareSide side({.paths = &paths, .epochs = forked ? 1 : epochs, .warm = !forked}, BareSide::Find::kByPath);
    const RunResult result = RunReaders(1, side);
    if (!result.good) return std::nullopt;
    all.files += result.files;
    all.seconds += result.seconds;
  }
  return static_cast<double>(all.files) / all.seconds;
}

void MeasureSetting(Bench& bench, const Setting& setting) {
  const std::string root = MakeTreeIn(bench, "tree-" + setting.id, setting.tree);
  const std::vector<std::string> paths = TreePaths(root, setting.tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root});
  if (daemon == nullptr) return bench.Fail(setting.id + ": no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  ::setenv("TIERD_PREFIX", root.c_str(), 1);
  if (!WarmAndVerify(paths, root, setting.tree)) return bench.Fail(setting.id + ": not all files are in RAM");
  HeatPageCache(paths);
  bench.SetPages(daemon->pages());
  const std::string list = bench.directory() + "/paths";
  const std::string script = bench.directory() + "/read.py";
  {
    std::ofstream out(list);
    for (const std::string& path : paths) out << path << "\n";
    std::ofstream(script) << kPython << "\n";
  }
  const auto compare = [&](const std::string& id, const std::string& what, const std::string& command, double bar, bool forked) {
    if (!bench.Wants(id)) return;
    Samples bare;
    const auto baseline = [&]() -> std::optional<double> {
      const auto number = Number(command);
      const auto loop = Bare(paths, setting.epochs, forked);
      if (number && loop) bare.values.push_back(*loop / *number);
      return number;
    };
    RowText text{id, what, "files/s"};
    const Comparison measured = Interleave(bench.rounds(7), [&] { return UnderRun(bench, root, command); }, baseline);
    char note[64];
    std::snprintf(note, sizeof note, "bare mapping, found by path: %.2fx", bare.values.empty() ? 0 : bare.median());
    text.note = note;
    bench.Emit(RatioRow(text, measured, Bar::kAtLeast, bar));
  };
  const std::string reader = std::string(TIERD_BENCH_PRELOAD_READER) + " files " + list + " " + std::to_string(setting.epochs);
  compare("B1." + setting.id, "C program under tierctl run, " + setting.what, reader + " 0", setting.bars[0], false);
  compare("B1." + setting.id + ".fork", "C program under tierctl run, " + setting.what + ", forked per epoch", reader + " 1", setting.bars[1], true);
  compare("B2." + setting.id, "Python open().read() under tierctl run, " + setting.what, "/usr/bin/python3 " + script + " " + list + " " + std::to_string(setting.epochs), setting.python, false);
}

// Rows of what the library adds to one kind of call (bench/preload_calls.c), beside what a library adds that only passes calls on.
class Added {
 public:
  explicit Added(Bench& bench) : bench_(bench) {}

  struct Row {
    std::string id;
    std::string what;
    std::string kind;
    double bar;
    std::string asked{};  // a system call that cannot be done without: its kind
  };
  void Measure(const Row& row, const std::string& directory) {
    if (!bench_.Wants(row.id)) return;
    Samples ns, bare, forwarder, nothing, asked;
    for (int round = 0; round < bench_.rounds(9); ++round) {
      const auto ours = Take(row.kind, directory, kOurs), forwarded = Take(row.kind, directory, kForwarder), alone = Take(row.kind, directory);
      const auto call = row.asked.empty() ? Call{} : Take(row.asked, directory);
      if (!ours || !forwarded || !alone || !call) return bench_.Fail(row.id + ": the program failed");
      ns.values.push_back(ours->added);
      bare.values.push_back(ours->bare);
      forwarder.values.push_back(forwarded->added);
      nothing.values.push_back(alone->added);
      asked.values.push_back(call->bare);
    }
    char note[240];
    const int used = std::snprintf(note, sizeof note, "bare %.0f ns; a library that only passes the calls on adds %.0f (%.0f..%.0f), none %.0f (%.0f..%.0f)", bare.median(),
                                   forwarder.median(), forwarder.min(), forwarder.max(), nothing.median(), nothing.min(), nothing.max());
    if (!row.asked.empty()) std::snprintf(note + used, sizeof note - static_cast<std::size_t>(used), "; one system call that says where it is: %.0f", asked.median());
    bench_.Emit(ValueRow({row.id, row.what, "ns", note}, ns, Bar::kAtMost, row.bar));
  }

 private:
  struct Call {
    double added = 0;
    double bare = 0;
  };
  static std::optional<Call> Take(const std::string& kind, const std::string& directory, const char* library = nullptr) {
    const std::string line = (library != nullptr ? "LD_PRELOAD=" + std::string(library) + " " : std::string()) + TIERD_BENCH_PRELOAD_CALLS " " + kind + " " + directory;
    FILE* const pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) return std::nullopt;
    Call call;
    const bool got = std::fscanf(pipe, "%lf %lf", &call.added, &call.bare) == 2;
    if (::pclose(pipe) != 0 || !got) return std::nullopt;
    return call;
  }

  Bench& bench_;
};

bool MakeOutside(const std::string& directory) { return Shell("mkdir -p " + directory + " && head -c 8192 /dev/zero > " + directory + "/outside") == 0; }

// What changes names or bytes has to be told if it was below a source, whatever the name says: only the kernel knows.
void MeasureChanges(Bench& bench, Added& added, const std::string& same, const std::string& other) {
  const auto measure = [&](const std::string& where, const std::string& said, const std::string& directory) {
    const auto row = [&](const char* kind, const std::string& what, const char* asked) {
      added.Measure({"B5." + std::string(kind) + where, "added to " + what + " outside any source, " + said, kind, 50, asked}, directory);
    };
    row("write", "open for writing and close", "ask-descriptor");
    row("unlink", "unlink", "ask-entry");
    row("rename", "rename", "ask-entry");
  };
  measure(".same", "on its file system", same);
  if (!other.empty()) return measure(".other", "on another file system", other);
  for (const char* kind : {"write", "unlink", "rename"})
    bench.Emit(SkippedRow({"B5." + std::string(kind) + ".other", "outside any source, on another file system", "ns"}, "/dev/shm cannot be written to, or is the work directory's file system"));
}

// A directory of the bench's on another file system than `here`; empty if there is none.
std::string OnOtherFileSystem(const std::string& here) {
  struct stat ours, other;
  char pattern[] = "/dev/shm/tierd-bench-XXXXXX";
  if (::stat(here.c_str(), &ours) != 0 || ::stat("/dev/shm", &other) != 0 || ours.st_dev == other.st_dev) return {};
  return ::mkdtemp(pattern) != nullptr ? pattern : std::string();
}

void MeasureOutside(Bench& bench) {
  const pfs_sim::TreeOptions tree{.files = 10, .size = {.mean = 4096}, .seed = 3};
  const std::string root = MakeTreeIn(bench, "tree-outside", tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ram = "64 MiB"});
  if (daemon == nullptr) return bench.Fail("B5: no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  ::setenv("TIERD_PREFIX", root.c_str(), 1);
  // The work directory is above both this one and the source.
  const std::string elsewhere = bench.directory() + "/elsewhere/outside-of-all";
  if (!MakeOutside(elsewhere)) return bench.Fail("B5: no file");
  Added added(bench);
  for (const char* kind : {"absolute", "relative", "dirfd"})
    added.Measure({"B5." + std::string(kind), std::string("added to open and close outside any source, ") + kind, kind, 50}, elsewhere);
  added.Measure({"B5.above", "added to open and close outside any source, relative to a directory above it", "above", 50}, elsewhere);
  added.Measure({"B5.above.dirfd", "added to open and close outside any source, by a descriptor of a directory above it", "above-dirfd", 50}, elsewhere);
  for (const char* kind : {"stat", "access"}) added.Measure({"B5." + std::string(kind), std::string("added to ") + kind + " outside any source", kind, 50}, elsewhere);
  added.Measure({"B5.fopen", "added to fopen and fclose outside any source", "fopen", 50}, elsewhere);
  added.Measure({"B5.opendir", "added to opendir and closedir outside any source", "opendir", 50}, elsewhere);
  const std::string shared_memory = OnOtherFileSystem(bench.directory());
  const std::string other = shared_memory.empty() ? std::string() : shared_memory + "/elsewhere/outside-of-all";
  if (!other.empty() && !MakeOutside(other)) bench.Fail("B5: no file");
  else MeasureChanges(bench, added, elsewhere, other);
  if (!shared_memory.empty()) RemoveTree(shared_memory);
  for (const char* kind : {"read", "pread", "fstat", "close"})
    added.Measure({"B5." + std::string(kind), std::string("added to ") + kind + " of a foreign descriptor", kind, 10}, elsewhere);
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  ::setenv("XDG_CONFIG_HOME", (bench.directory() + "/config").c_str(), 1);
  ::setenv("TMPDIR", bench.directory().c_str(), 1);
  const Setting settings[] = {
      {"110k", "4,000 files of ~108 KB", {.files = 4000, .dirs = 10, .size = {.mean = 108e3, .sigma = 0.4}, .seed = 1}, 4, {1.5, 1.3}, 1.5},
      {"4k", "100,000 files of 4 KB", {.files = 100'000, .dirs = 10, .size = {.mean = 4096}, .seed = 2}, 1, {3.0, 2.5}, 1.8},
  };
  for (const Setting& setting : settings) {
    if (bench.WantsAny({"B1." + setting.id, "B1." + setting.id + ".fork", "B2." + setting.id})) InChild(bench, [&] { MeasureSetting(bench, setting); });
  }
  if (bench.Wants("B5")) InChild(bench, [&] { MeasureOutside(bench); });
  return bench.Finish();
}
