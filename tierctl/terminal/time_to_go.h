// How long work takes that is done file by file: a file costs so much, and each of its bytes. Both costs
// are fitted to what was done so far, the latest third of the time above all. Pure; one thread's.
#pragma once

#include <optional>

namespace tierctl {

struct Work {
  double files = 0;
  double bytes = 0;
};

class TimeToGo {
 public:
  // `done` of all the work, `seconds` after its beginning. Times and work do not go back.
  void Note(double seconds, const Work& done);

  struct Estimate {
    double seconds = 0;
    // What was done does not tell the cost of a file from that of its bytes, and what is left has other
    // sizes: it takes so long if only the dearer of both counts.
    bool at_most = false;
  };
  // For so much more work; nothing where too little was done. `bytes_known`: those of `left` are right.
  std::optional<Estimate> For(const Work& left, bool bytes_known) const;

 private:
  std::optional<Estimate> Fitted(const Work& left) const;
  std::optional<Estimate> Bounded(const Work& left, bool bytes_known) const;

  double seconds_ = 0;  // of the last note that counted
  Work done_;
  // Sums over the steps between notes, weighted by age; squares are divided by the step's length, so
  // that steps of any length say as much as their time is worth.
  double count_ = 0, files_ = 0, bytes_ = 0, time_ = 0;
  double ff_ = 0, fb_ = 0, bb_ = 0;
};

}  // namespace tierctl
