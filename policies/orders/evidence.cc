#include "policies/orders/evidence.h"

#include <cmath>
#include <map>
#include <numbers>
#include <vector>

namespace tierd::orders {

// Stirling's series: within 10^-4 from 2 on. (lgamma writes a global.)
double LogFactorial(double n) {
  if (n < 2) return 0;
  return n * std::log(n) - n + std::log(2 * std::numbers::pi * n) / 2 + 1 / (12 * n) - 1 / (360 * n * n * n);
}

double LogChoose(double n, double k) { return LogFactorial(n) - LogFactorial(k) - LogFactorial(n - k); }

double MostEvidence(const Observation& observation) {
  std::vector<bool> seen(observation.samples);
  std::map<std::uint32_t, std::uint32_t> of_stream;
  std::uint32_t count = 0;
  for (const SampleAccess& access : observation.accesses) {
    if (access.index >= seen.size() || seen[access.index]) continue;
    seen[access.index] = true;
    ++of_stream[access.stream];
    ++count;
  }
  double most = LogChoose(observation.samples, count);
  for (const auto& [stream, accesses] : of_stream) most += LogFactorial(accesses);
  return most;
}

std::uint32_t LeastSamples(double log_tried) {
  std::uint32_t samples = 1;
  while (LogFactorial(samples) < log_tried + kMargin) ++samples;
  return samples;
}

}  // namespace tierd::orders
