// How fast the rig itself is: the bar that benchmarks on top of it rest on.
#pragma once

namespace pfs_sim {

struct SelfTestOptions {
  int threads = 256;
  int files = 12000;  // per round, each opened once
  int rounds = 5;     // the best one counts: others use the machine too
  int latency_us = 1000;
  double bar = 20000;  // files/s
};

// Runs open+fstat+read+close over cold small files of one directory through a rig of its own, prints
// each round's rate, and returns the exit code: 0 when the best round reaches the bar, 3 when not, 77
// when FUSE is not available.
int SelfTest(const SelfTestOptions& options);

}  // namespace pfs_sim
