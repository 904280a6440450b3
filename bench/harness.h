// What every benchmark program shares: a work directory, a private tierd, reader processes, interleaved comparisons, result rows.
//
//   Bench bench(argc, argv);                       // --only LIST, --rounds N
//   if (bench.Wants("A1.1r")) { ... bench.Emit(RatioRow(...)); }
//   return bench.Finish();
//
// A row is one JSON object per line on stdout; what is going on goes to stderr. tools/bench.sh collects the rows of all programs.
// Thread rule: the main thread only; children of ours die with it (PR_SET_PDEATHSIG).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/pfs_sim/tree.h"

namespace bench {

// ---- rows ---------------------------------------------------------------------------------------------------------------------

struct Samples {
  std::vector<double> values;
  double median() const;
  double min() const;
  double max() const;
};

// One side against the other: ours[i] and baseline[i] were measured one after the other.
struct Comparison {
  Samples ours;
  Samples baseline;
  Samples ratio;  // ours[i] / baseline[i]
};

enum class Bar { kAtLeast, kAtMost };

struct RowText {
  std::string id;
  std::string what;
  std::string unit;
  std::string note{};
};

nlohmann::json RatioRow(const RowText& text, const Comparison& measured, Bar kind, double bar);
nlohmann::json ValueRow(const RowText& text, const Samples& measured, Bar kind, double bar);
// A row that could not be measured, or all rows below it ("B6" for "B6.large"): `met` is null and `note` says why.
nlohmann::json SkippedRow(const RowText& text, const std::string& why);

// Calls the sides in turn, `rounds` times (which one goes first alternates). A side that gives nothing ends the comparison: fewer values.
Comparison Interleave(int rounds, const std::function<std::optional<double>()>& ours, const std::function<std::optional<double>()>& baseline);

// ---- the program ------------------------------------------------------------------------------------------------------------------

class Bench {
 public:
  Bench(int argc, char** argv);
  ~Bench();  // removes the work directory
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // True if the row, or a row below it ("A1" for "A1.1r"), was asked for. Without --only everything is.
  bool Wants(const std::string& id) const;
  // Any of them.
  bool WantsAny(const std::vector<std::string>& ids) const;
  int rounds(int usual) const { return rounds_ > 0 ? rounds_ : usual; }
  // A directory on a local disk, ours alone, removed at the end. $TIERD_BENCH_DIR, else /var/tmp.
  const std::string& directory() const { return directory_; }
  // False when the rig was found too slow for figures on top of it (TIERD_BENCH_RIG=slow, set by tools/bench.sh after the self-test).
  bool rig_usable() const;

  void SetPages(const std::string& pages) { pages_ = pages; }  // of the RAM tier, for all rows that follow
  // Prints the row if it was asked for; a skipped one also where a row below it was.
  void Emit(nlohmann::json row);
  // 0, or 1 when a row is missing because something failed.
  int Finish() const { return failed_ ? 1 : 0; }
  void Fail(const std::string& sentence);
  void ForgetFailures() { failed_ = false; }  // a part in a process of its own answers for itself

 private:
  std::vector<std::string> only_;
  int rounds_ = 0;
  std::string directory_;
  std::string pages_ = "-";
  bool failed_ = false;
};

void Note(const std::string& line);  // to stderr

// Directory `name` in the work directory with the files of `tree`, older than the racy window as datasets are: of younger ones tierd reads each again at its first
// deadline, keeps none over a restart, and compares at its first use what was brought ahead of it. Empty, with a note, when it cannot be written.
std::string MakeTreeIn(const Bench& bench, const std::string& name, const pfs_sim::TreeOptions& tree);
std::vector<std::string> TreePaths(const std::string& root, const pfs_sim::TreeOptions& tree);  // absolute
void RemoveTree(const std::string& directory);
// Exit code of a shell command, its output on our stderr.
int Shell(const std::string& command);

// ---- tierd ------------------------------------------------------------------------------------------------------------------------

struct DaemonOptions {
  std::string source{};
  std::string ram = "1 GiB";
  std::string ssd = "off";  // "off" or a directory
  std::string ssd_capacity = "8 GiB";
  std::string policy{};
  std::vector<std::string> more{};  // further arguments
};

class Daemon {
 public:
  // Null, with a note, when it does not become ready within 60 s. It has a runtime directory of its own below `bench.directory()`.
  static std::unique_ptr<Daemon> Start(const Bench& bench, const DaemonOptions& options);
  ~Daemon();  // SIGTERM, SIGKILL after 10 s
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  void Kill();  // SIGKILL; the runtime directory and the SSD stay
  bool Stop();  // SIGTERM; true if it exited with 0 within 30 s
  // Starts again where this one ended; the time from exec to "ready" in *seconds.
  bool Restart(double* seconds);

  double cpu_seconds() const;        // user and system so far
  std::uint64_t rss_bytes() const;   // VmRSS
  // Anonymous and file pages plus memfds without segments: what it needs beside the cache itself. Shared memory counts once, by its file.
  std::uint64_t overhead_bytes() const;
  std::uint64_t index_bytes() const;  // memfds whose name holds "index"
  // Of CONTROL.md; null when it cannot be had.
  nlohmann::json Get(const std::string& target) const;
  nlohmann::json Post(const std::string& target, const nlohmann::json& body) const;
  std::string GetText(const std::string& target) const;  // the same, whatever it is: /v1/metrics
  std::string pages() const;  // /v1/status: tiers.ram.pages

 private:
  Daemon() = default;
  bool Launch();
  std::string Request(const std::string& method, const std::string& target, const std::string& body) const;

  DaemonOptions options_;
  std::string run_;
  std::string socket_;
  pid_t pid_ = -1;  // -1: not running
  int out_ = -1;    // our end of its stdout
};

// Waits until a job of the control plane is done; false if it ended otherwise, or not within `seconds`.
bool WaitForJob(const Daemon& daemon, int job, double seconds);

// ---- reader processes ---------------------------------------------------------------------------------------------------------------

// What one reader did between start and end.
struct ReaderResult {
  double seconds = 0;       // filled in by RunReaders
  double cpu_seconds = 0;   // filled in by RunReaders
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ram = 0;    // reads that were hits of the RAM tier, when tier was read
  std::uint64_t ssd = 0;
  std::uint64_t ssd_bytes = 0;
  std::uint32_t p50_ns = 0;
  std::uint32_t p99_ns = 0;
  std::uint64_t errors = 0;
};

// All readers together.
struct RunResult {
  double seconds = 0;  // from the common start until the last one was through
  double cpu_seconds = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ram = 0;
  std::uint64_t ssd = 0;
  std::uint64_t ssd_bytes = 0;
  std::uint32_t p50_ns = 0;  // of the slowest reader
  std::uint32_t p99_ns = 0;
  bool good = false;  // nobody reported an error or died
};

class Side {
 public:
  virtual ~Side() = default;
  virtual void Prepare(int /*reader*/) {}     // in the child, before the common start, untimed
  virtual ReaderResult Run(int reader) = 0;   // in the child, timed
};

// Forks `readers` processes and runs the side in each of them.
RunResult RunReaders(int readers, Side& side);

// Runs `part` in a child process (libtier's default client lives as long as its process, so each daemon gets a process of its own) and
// waits; a child that fails or dies fails the bench.
void InChild(Bench& bench, const std::function<void()>& part);

// A page that this process and its later children share, zeroed; lives as long as the process.
void* SharedPage();

// The same for a part that gives something: a plain value of at most a page. Nothing when the part gave nothing.
template <typename Value>
std::optional<Value> FromChild(Bench& bench, const std::function<std::optional<Value>()>& part) {
  struct Given {
    bool any;
    Value value;
  };
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Given) <= 4096);
  auto* const given = static_cast<Given*>(SharedPage());
  InChild(bench, [&] {
    const std::optional<Value> value = part();
    if (!value) return;
    given->value = *value;
    given->any = true;
  });
  return given->any ? std::optional<Value>(given->value) : std::nullopt;
}

// ---- small things -------------------------------------------------------------------------------------------------------------------

double Now();  // monotonic seconds
std::vector<std::uint32_t> Permutation(std::size_t count, std::uint64_t seed);
// Percentile of latencies in nanoseconds; reorders them.
std::uint32_t Percentile(std::vector<std::uint32_t>* latencies, double share);

// open + fstat + read to the end + close into `buffer`: what the page cache is measured with. Bytes read, or -1.
ssize_t PosixReadFile(const char* path, void* buffer, std::size_t capacity);

}  // namespace bench
