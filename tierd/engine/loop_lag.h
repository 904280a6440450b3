// How long the loop was kept at a time, by whatever kept it: turns of the engine, clients' messages, timers, answers of workers, the control plane. Nothing else runs
// meanwhile, and whoever waits for the daemon waits for it too (HAZARDS 5).
//
// Owner: Engine. Loop thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tierd/base/clock.h"
#include "tierd/engine/heart.h"

namespace tierd::engine {

struct LoopLag {
  static constexpr std::size_t kBuckets = 16;
  static constexpr std::uint64_t kLateNs = 50'000'000;  // the log is told

  explicit LoopLag(const Clock& the_clock) : clock(the_clock) {}

  // Lives as long as a handler of the loop runs. One within another is a part of that one and not counted by itself. Costs two looks at the clock. Names are literals.
  class Handler {
   public:
    Handler(LoopLag& lag, const char* name) : lag_(lag), outer_(lag.running == nullptr), begin_ns_(lag.clock.PreciseNs()) {
      if (!outer_) return;
      lag.running = name;
      if (lag.heart != nullptr) lag.heart->Stir();
    }
    ~Handler() {
      if (!outer_) return;
      lag_.Note(std::exchange(lag_.running, nullptr), static_cast<std::uint64_t>(lag_.clock.PreciseNs() - begin_ns_));
      if (lag_.heart != nullptr) lag_.heart->Rest();
    }
    Handler(const Handler&) = delete;
    Handler& operator=(const Handler&) = delete;
    std::int64_t begin_ns() const { return begin_ns_; }
    // It is a part of this one that takes so long.
    void Blame(const char* name) { lag_.running = name; }

   private:
    LoopLag& lag_;
    const bool outer_;
    const std::int64_t begin_ns_;
  };

  void Note(const char* name, std::uint64_t took_ns) {
    std::size_t bucket = 0;
    while (bucket + 1 < kBuckets && took_ns >= (std::uint64_t{16'000} << bucket)) ++bucket;
    ++buckets[bucket];
    ++count;
    sum_ns += took_ns;
    max_ns = std::max(max_ns, took_ns);
    if (took_ns < kLateNs) return;
    ++late.times;
    if (took_ns <= late.took_ns) return;
    late.took_ns = took_ns;
    late.name = name;
  }

  const Clock& clock;
  std::array<std::uint64_t, kBuckets> buckets{};  // bucket i: less than 2^i * 16 us
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t max_ns = 0;
  const char* running = nullptr;  // the name of the handler that does
  Heart* heart = nullptr;         // which beats only while none does
  struct Late {                   // handlers of kLateNs and more; the longest of them
    const char* name = "";
    std::uint64_t took_ns = 0;
    std::uint64_t times = 0;
  };
  Late late;  // since the log was told of them
};

}  // namespace tierd::engine
