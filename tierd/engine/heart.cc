#include "tierd/engine/heart.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

namespace tierd::engine {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSoon{20};   // a handler was running: it beats when it ends
constexpr std::chrono::milliseconds kLate{250};  // by which the loop may come late

}  // namespace

Status Heart::Start() {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Status(Code::kNoSpace, std::string("no thread for the heartbeat: ") + error.code().message() + "; raise the limit of processes (ulimit -u)");
  }
  ::pthread_setname_np(thread_.native_handle(), "tierd-heart");
  return Status::Ok();
}

void Heart::Stop() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    lent_ = resting_ = false;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Heart::Lend(Time until, bool rest) {
  const Time now = Steady::now();
  bool earlier;
  {
    const std::lock_guard lock(mutex_);
    until_ = until;
    earlier = !lent_ || NextBeat(now) < next_;
    if (earlier) next_ = NextBeat(now);
    lent_ = true;
    resting_ = rest;
    due_ = false;
  }
  // An idle loop that comes when it was to come changes nothing: nobody is woken.
  if (earlier) changed_.notify_all();
}

void Heart::TakeBack() {
  if (!lent_) return;
  const std::lock_guard lock(mutex_);
  lent_ = resting_ = false;
}

void Heart::SetResting(bool resting) {
  const std::lock_guard lock(mutex_);
  resting_ = resting;
  if (resting && due_) BeatAt(Steady::now());
}

// Under the mutex.
void Heart::BeatAt(Time now) {
  beat_();
  due_ = false;
  next_ = NextBeat(now);
}

// The loop beats at `until_`: where that is no more than a period away (and some, by which both come late), nobody else has to.
Heart::Time Heart::NextBeat(Time now) const { return now + period_ + period_ / 16 < until_ ? now + period_ : std::max(now, until_) + period_; }

void Heart::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (!lent_) {
      changed_.wait(lock, [this] { return ended_ || lent_; });
      continue;
    }
    const Time next = next_;
    const bool called = changed_.wait_until(lock, next, [&] { return ended_ || !lent_ || next_ != next; });
    if (called) continue;
    const Time now = Steady::now();
    if (now >= until_ + kLate) {  // it hangs, or waits for a processor
      due_ = false;
      next_ = now + kSoon;
    } else if (resting_) {
      BeatAt(now);
    } else {
      due_ = true;
      next_ = now + kSoon;
    }
  }
}

}  // namespace tierd::engine
