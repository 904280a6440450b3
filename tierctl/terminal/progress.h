// What a verb that takes a while says on stderr meanwhile: one line, on a terminal only, redrawn at most
// four times a second and erased at the end. What is over within half a second draws nothing.
//
// One at a time draws on an Output.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "tierctl/terminal/output.h"

namespace tierctl {

class Progress {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Now = std::function<TimePoint()>;

  explicit Progress(Output& output, Now now = std::chrono::steady_clock::now)
      : output_(output), now_(std::move(now)), next_(now_() + kFirst) {}
  ~Progress() { output_.Progress(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws what `line` returns if it is time; else it is not called.
  template <typename Line>
  void Show(Line line) {
    if (IsDue()) output_.Progress(line());
  }
  // Draws at once: before a step that cannot be looked at meanwhile.
  void ShowNow(const std::string& line) { output_.Progress(line); }

 private:
  static constexpr std::chrono::milliseconds kFirst{500}, kBetween{250};

  bool IsDue() {
    if (!output_.progress()) return false;
    const TimePoint now = now_();
    if (now < next_) return false;
    next_ = now + kBetween;
    return true;
  }

  Output& output_;
  const Now now_;
  TimePoint next_;
};

}  // namespace tierctl
