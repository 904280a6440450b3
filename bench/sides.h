// The two sides that most comparisons are made of: files read through libtier, and by open + fstat + read + close.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/harness.h"

namespace bench {

struct FileSideOptions {
  const std::vector<std::string>* paths = nullptr;  // absolute
  std::size_t buffer_bytes = 1 << 20;  // at least the largest file
  int epochs = 1;                      // passes over all files in Run, each in an order of its own
  bool warm = true;                    // long-lived process: Prepare makes one pass, so that Run touches nothing for the first time
  bool timed = true;                   // p50 and p99 of single reads, at the price of a clock between any two of them
};

// How long single reads took, if that is asked for. Between two reads the clock waits for all of the first and lets nothing of the second begin: beside a hit of 4 KiB
// that is a sixth of the time, which no training program spends.
class Latencies {
 public:
  Latencies(bool timed, std::size_t reads) : timed_(timed) {
    if (timed) ns_.reserve(reads);
  }
  void Begin() {
    if (timed_) last_ = Now();
  }
  // A read has ended, and the next one begins.
  void Note() {
    if (!timed_) return;
    const double now = Now();
    ns_.push_back(static_cast<std::uint32_t>((now - last_) * 1e9));
    last_ = now;
  }
  // 0 if not timed.
  void Fill(ReaderResult* result) {
    if (!timed_) return;
    result->p50_ns = Percentile(&ns_, 0.50);
    result->p99_ns = Percentile(&ns_, 0.99);
  }

 private:
  const bool timed_;
  double last_ = 0;
  std::vector<std::uint32_t> ns_;
};

// Reads whole files into one buffer. Not RAM hits are counted as errors when `ram_only`.
class TierSide final : public Side {
 public:
  TierSide(const FileSideOptions& options, bool ram_only) : options_(options), ram_only_(ram_only) {}
  void Prepare(int reader) override;
  ReaderResult Run(int reader) override;

 private:
  const FileSideOptions options_;
  const bool ram_only_;
  std::vector<std::vector<std::uint32_t>> orders_;
  std::vector<char> buffer_;
};

// What the machine allows: copies each file's bytes straight out of the mappings that this process has of the cache, found once before. kKnown looks
// nothing up; kByPath does what nobody who is given a path gets around: it hashes the text of the path and reads the cache line, of a table of two lines a
// file, that the hash leads to and that says where the bytes are. The files must be in RAM and stay where they are.
class BareSide final : public Side {
 public:
  enum class Find { kKnown, kByPath };
  BareSide(const FileSideOptions& options, Find find) : options_(options), find_(find) {}
  // Finds where each file lies, in the reader itself: a child has no use of what its parent has mapped. Touches no byte of them unless `warm`.
  void Prepare(int reader) override;
  ReaderResult Run(int reader) override;

 private:
  struct alignas(64) Place {
    const void* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t hash = 0;  // of the path; 0: free
  };
  static std::uint64_t HashOf(const char* path);
  // Where the file lies, or the first free place behind the one that the hash leads to.
  Place& FindByHash(std::uint64_t hash);
  const FileSideOptions options_;
  const Find find_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> place_of_;  // by file
  std::vector<std::vector<std::uint32_t>> orders_;
  std::vector<char> buffer_;
};

class PosixSide final : public Side {
 public:
  explicit PosixSide(const FileSideOptions& options) : options_(options) {}
  void Prepare(int reader) override;
  ReaderResult Run(int reader) override;

 private:
  const FileSideOptions options_;
  std::vector<std::vector<std::uint32_t>> orders_;
  std::vector<char> buffer_;
};

// Reads every file once through tier (in a child) until a whole pass came from RAM, 6 passes at most, and compares the bytes of the first
// one with what pfs_sim::MakeTree wrote. False when bytes were wrong or RAM never served a whole pass.
bool WarmAndVerify(const std::vector<std::string>& paths, const std::string& root, const pfs_sim::TreeOptions& tree);

// Reads every file once by POSIX calls, so that the page cache has them.
void HeatPageCache(const std::vector<std::string>& paths);

}  // namespace bench
