// How many requests a source should have in flight, found from the latencies and the throughput it shows: additive (at first
// doubling) increase while latency stays near its base, and where it brings throughput; multiplicative decrease when latency
// rises without more work being done.
//
// Latency alone misleads. Where a cache answers some requests, the lowest latency is far below the usual one, and cutting would
// starve us: a cut that costs throughput is undone, and the base corrected. Where something else than the source is the limit
// (our processors), more in flight does not help: growth beyond a usual size that brings nothing is undone. There throughput is
// noisy, too, as milliseconds pass until a thread has its turn: what a cut costs is judged by a longer time before and after it,
// more than once before the base is corrected, and each cut that costs nothing takes some of that back. And a base can only be
// seen with few requests in flight: the window starts small, and once in a while it is small for a moment.
// Pure; owner: one SourceReader; loop thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tierd::source {

class AimdWindow {
 public:
  // 1 <= min <= start <= max.
  AimdWindow(std::uint32_t min, std::uint32_t start, std::uint32_t max);

  std::uint32_t size() const { return quiet_ > 0 ? std::min(size_, kQuietSize) : size_; }
  std::uint64_t cuts() const { return cuts_; }
  // Neither at its start nor amid a change: what is measured now is measured at the size that it will have.
  bool settled() const { return after_change_ == 0 && quiet_ == 0 && (!doubling_ || size_ == max_); }
  // A request that moved `bytes` ended after `latency_ns`. `backlog`: more requests were waiting, so that the window was what
  // limited us; rounds without a backlog teach base latencies only.
  void OnComplete(std::size_t bytes, std::int64_t latency_ns, std::int64_t now_ns, bool backlog);
  // Halves the window: we ourselves are short of what so many requests take, whatever the latencies say.
  void OnShortage();

 private:
  // In flight while the base is looked for.
  static constexpr std::uint32_t kQuietSize = 2;
  // Requests of like size share a base latency: up to 64 KiB, 512 KiB, 2 MiB, 8 MiB, above.
  static constexpr std::size_t kClasses = 5;
  // Base latency: the lowest of this and the previous epoch, so that it can rise when conditions change.
  struct Base {
    std::int64_t current_ns = 0;  // 0: none yet
    std::int64_t previous_ns = 0;
    std::int64_t Get() const;
  };
  struct Round {
    std::uint32_t completions = 0;
    bool backlog = true;
    std::int64_t started_ns = 0;  // 0: not known yet
    double latency_ns = 0;
    double base_ns = 0;
  };
  // Work done at this size.
  struct Seen {
    double work_ns = 0;  // in base latencies
    std::int64_t span_ns = 0;
    void Add(const Seen& more);
    double rate() const { return span_ns == 0 ? 0 : work_ns / static_cast<double>(span_ns); }
  };
  void BeginEpoch(std::int64_t now_ns, bool backlog);
  void EndRound(std::int64_t now_ns);
  void JudgeChange(const Seen& seen);
  void ChangeTo(std::uint32_t size);

  // Constant after construction.
  std::uint32_t min_;
  std::uint32_t max_;
  // Owned by the loop thread.
  std::uint32_t size_;
  std::array<Base, kClasses> base_;
  double base_factor_ = 1;         // corrects bases that are too low; >= 1
  std::uint32_t wrong_cuts_ = 0;   // in a row
  std::int64_t epoch_started_ns_ = 0;
  std::uint32_t quiet_ = 0;        // completions until the base has been looked for
  Round round_;
  Seen seen_;                      // in whole rounds, the latest counting most
  double ratio_ = 0;               // latency over base, last round
  bool doubling_ = true;
  std::uint32_t hold_ = 0;         // rounds until growing is tried again
  // A change that is not judged yet.
  int after_change_ = 0;           // rounds since: 1 and 2; 0: none
  std::uint32_t size_before_ = 0;
  double rate_before_ = 0;
  double ratio_before_ = 0;
  std::uint64_t cuts_ = 0;
};

}  // namespace tierd::source
