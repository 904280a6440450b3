// The heartbeat of a daemon that has nothing to do, and its eye on the clients' rings. What a wake of a process that sleeps costs is the code that it has to fetch anew: of the
// loop some seventy pages, of this thread's few lines three (bench row A4b.idle). So the loop sleeps for seconds, and lends its heart to this thread meanwhile.
//
// It beats only while the loop rests, that is while no handler runs (LoopLag::Handler): one that hangs is noticed as ever, and a loop that does not come when it
// was to come too (HAZARDS 2.11). `beat` and the loop's handlers exclude each other: it may look at whatever only handlers change.
//
// Owner: Engine. All calls on the loop thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tierd/base/status.h"

namespace tierd::engine {

class Heart {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `beat` runs every `period` on the heart's thread while the loop rests, or on the loop's when a handler ends that was running when it was due.
  Heart(std::chrono::nanoseconds period, std::function<void()> beat) : period_(period), beat_(std::move(beat)) {}
  ~Heart() { Stop(); }
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;

  // kNoSpace: no thread could be made.
  Status Start();
  // Waits for a beat under way. Idempotent.
  void Stop();

  // The loop will come by itself at `until`, and has beaten now. Rests from now on if no handler runs (`rest`), else when it ends.
  void Lend(Time until, bool rest);
  // The loop beats by itself from now on.
  void TakeBack();
  bool lent() const { return lent_; }

  // A handler begins, and ends.
  void Stir() {
    if (resting_) SetResting(false);
  }
  void Rest() {
    if (lent_) SetResting(true);
  }

 private:
  void SetResting(bool resting);
  void Run();
  void BeatAt(Time now);
  Time NextBeat(Time now) const;

  const std::chrono::nanoseconds period_;
  const std::function<void()> beat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Written by the loop thread under the mutex: it reads them without.
  bool lent_ = false;
  bool resting_ = false;
  // Guarded by the mutex.
  bool ended_ = false;
  bool due_ = false;  // a handler was running
  Time until_;
  Time next_;
  std::thread thread_;
};

}  // namespace tierd::engine
