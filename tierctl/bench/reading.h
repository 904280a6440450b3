// Reads a sample in the ways that `tierctl bench` compares, with several readers at a time, and times each read.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tierctl/bench/sample.h"

namespace tierctl::bench {

// Where bytes came from, and how. The order is that of the rows.
enum class Way : std::uint8_t {
  kFileCold,   // open, read, close, after the file was dropped from the page cache
  kFileHot,    // the same, from the page cache
  kSource,     // libtier; tierd read the source
  kBypass,     // libtier; the reader read the source itself
  kSsd,        // libtier
  kRam,        // libtier, copied to a buffer of the reader's as read() does
  kRamInPlace, // libtier, in place; one byte of each cache line was looked at
};
inline constexpr std::size_t kWays = 7;
const char* NameOf(Way way);   // "ram", of JSON
const char* WordsOf(Way way);  // "tierd, from RAM", for people

struct Timed {
  std::uint64_t reads = 0;
  std::uint64_t bytes = 0;
  std::vector<float> seconds;  // of each read
  double cpu_seconds = 0;      // of all
  // How long `readers` at a time on `processors` took for all of them: who waits does so side by side, who works needs a processor.
  double Elapsed(unsigned readers, unsigned processors) const;
  double Quantile(double q) const;  // seconds; 0 without reads. Sorted by then.
  void Sort();
};

struct Readings {
  std::array<Timed, kWays> of;
  std::uint64_t differing = 0;  // reads through tierd that gave other bytes than the file
  std::uint64_t failed = 0;     // reads that gave an error
  Timed& at(Way way) { return of[static_cast<std::size_t>(way)]; }
};

class Reading {
 public:
  // `socket`: of the daemon's clients.
  Reading(std::string socket, unsigned readers, double seconds) : socket_(std::move(socket)), readers_(readers), seconds_(seconds) {}

  // Each reads the pieces from `begin` to before `end` once, dealt out among the readers, for at most so many seconds. A pass through libtier is counted under where
  // its bytes came from. `cold`: the files are dropped from the page cache first, so that what reads the source does read it.
  enum class Pass : std::uint8_t { kFileCold, kFileHot, kTier, kTierCold, kTierInPlace };
  void Run(Pass pass, const std::vector<Piece>& pieces, std::size_t begin, std::size_t end);

  Readings& readings() { return readings_; }

 private:
  struct Reader;
  std::string socket_;
  const unsigned readers_;
  const double seconds_;
  Readings readings_;
  std::map<std::string, std::uint32_t> sums_;  // of what the files hold, by path, from the first pass over them
};

}  // namespace tierctl::bench
