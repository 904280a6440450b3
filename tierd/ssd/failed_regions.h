// Regions that could not be written: is it the region, or the whole device? A region is bad if writes to it failed two times, and another one was taken
// after the first time and written whole before the second. So nothing is while every write fails; health.h judges the device. A bad region is left
// alone for an hour and then tried again: a device that failed now and then for a while has its space back, one bad region costs a write an hour.
//
// A value of the region writer; loop thread only. Time is passed in. It does no I/O and does not know the states of regions.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace tierd::ssd {

class FailedRegions {
 public:
  // The region, taken to be written as the `taken`-th of all, is on the device as a whole.
  void OnWritten(std::uint32_t region, std::uint64_t taken);
  // A write to the region failed; so far `taken` had been taken. True: the region is bad.
  bool OnFailed(std::uint32_t region, std::uint64_t taken);
  // It is left alone from now on.
  void Rest(std::uint32_t region, std::int64_t now_ns);
  // One that may be tried again; each once.
  std::optional<std::uint32_t> NextRested(std::int64_t now_ns);

 private:
  std::map<std::uint32_t, std::uint64_t> failed_;  // how many had been taken at the first failure; until the region is written
  std::uint64_t last_written_ = 0;                 // the greatest `taken` of all
  std::deque<std::pair<std::int64_t, std::uint32_t>> resting_;  // until when
};

}  // namespace tierd::ssd
