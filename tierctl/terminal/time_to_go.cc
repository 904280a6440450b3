#include "tierctl/terminal/time_to_go.h"

#include <algorithm>
#include <cmath>

namespace tierctl {
namespace {

constexpr double kShortest = .45;    // seconds of a step: shorter ones are mostly chance
constexpr double kSteps = 4;         // fewer say nothing about two costs
constexpr double kUncertain = .15;   // a fit with a larger standard error is none
constexpr double kLeastNoise = .02;  // of a step's time, however well the steps agree
constexpr double kAlike = 1.5;       // bounds within this factor are an answer

}  // namespace

void TimeToGo::Note(double seconds, const Work& done) {
  const double time = seconds - seconds_;
  const Work step{done.files - done_.files, done.bytes - done_.bytes};
  // Time in which nothing was finished belongs to what comes next.
  if (step.files < 0 || step.bytes < 0 || (step.files == 0 && step.bytes == 0)) return;
  if (time <= 0 || (time < kShortest && count_ > 0)) return;
  const double keep = std::exp(-time / std::max(10.0, seconds / 3));
  for (double* sum : {&count_, &files_, &bytes_, &time_, &ff_, &fb_, &bb_}) *sum *= keep;
  count_ += 1;
  files_ += step.files;
  bytes_ += step.bytes;
  time_ += time;
  ff_ += step.files * step.files / time;
  fb_ += step.files * step.bytes / time;
  bb_ += step.bytes * step.bytes / time;
  seconds_ = seconds;
  done_ = done;
}

// Least squares of time over files and bytes.
std::optional<TimeToGo::Estimate> TimeToGo::Fitted(const Work& left) const {
  const double determinant = ff_ * bb_ - fb_ * fb_;
  if (count_ < kSteps || determinant <= 1e-9 * ff_ * bb_) return std::nullopt;
  const double per_file = (files_ * bb_ - bytes_ * fb_) / determinant;
  const double per_byte = (bytes_ * ff_ - files_ * fb_) / determinant;
  if (per_file < 0 || per_byte < 0) return std::nullopt;
  const double told = per_file * files_ + per_byte * bytes_;  // of the time: the squares make it less
  const double seconds = (per_file * left.files + per_byte * left.bytes) * time_ / told;
  const double unexplained = std::max(time_ - told, 0.0);
  const double noise = std::max(unexplained / std::max(count_ - 2, 1.0), kLeastNoise * kLeastNoise * time_ / count_);
  const double variance = noise * (left.files * left.files * bb_ - 2 * left.files * left.bytes * fb_ + left.bytes * left.bytes * ff_) / determinant;
  if (std::sqrt(std::max(variance, 0.0)) > kUncertain * seconds) return std::nullopt;
  return Estimate{seconds, false};
}

std::optional<TimeToGo::Estimate> TimeToGo::Bounded(const Work& left, bool bytes_known) const {
  const double by_files = files_ > 0 ? left.files * time_ / files_ : 0;
  const double by_bytes = bytes_ > 0 && bytes_known ? left.bytes * time_ / bytes_ : 0;
  const double most = std::max(by_files, by_bytes);
  if (most == 0) return std::nullopt;
  if (bytes_known && left.bytes > 0 && bytes_ == 0) return std::nullopt;  // no byte has come yet
  const bool both = by_files > 0 && by_bytes > 0;
  return Estimate{most, both && most > kAlike * std::min(by_files, by_bytes)};
}

std::optional<TimeToGo::Estimate> TimeToGo::For(const Work& left, bool bytes_known) const {
  if (time_ <= 0) return std::nullopt;
  if (bytes_known) {
    if (const std::optional<Estimate> fitted = Fitted(left)) return fitted;
  }
  return Bounded(left, bytes_known);
}

}  // namespace tierctl
