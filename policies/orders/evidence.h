// How much a look at an epoch can say about its order, before anybody pays for one.
//
// A wrong permutation puts the samples that were read anywhere: k accesses of a set of n, m_s of them by stream s, and nothing known of how streams interleave, are
// in accordance with it to the last with the probability
//
//   1 / (C(n, k) * m_1! * ... * m_S!)       (one stream: (n - k)! / n!;  the whole set: 1 / n!)
//
// So the evidence for a permutation (order_fit.h), the logarithm of a likelihood ratio against "any samples in any order", is never more than
//
//   ln C(n, k) + ln m_1! + ... + ln m_S!
//
// Of `tried` wrong permutations one has evidence of ln(tried) + kMargin or more with a probability below e^-kMargin, less than one in a million: what cannot reach that
// cannot be told. Hence the least set: ln n! >= ln(tried) + kMargin, which is 15 samples for 3 * 2^16 permutations (seeds below 2^16 in three recipes) and 18 for 2^32.
//
// Workers that run ahead of one another take from it: k accesses among the first k + w entries, by S workers in turn, say ln C(n, k) - ln C(k + w, k) + S ln (k/S)!.
// 42 of 168 files by two workers (w = 28): 47 + 91 where 26 are needed for seeds below 2^16; 16 of them would do (24 + 21). Of 40 files in one stream 10 do (35).
//
// Pure functions, no thread rule.
#pragma once

#include <cstdint>

#include "policies/orders/observation.h"

namespace tierd::orders {

inline constexpr double kMargin = 14;  // e^-14: one false alarm in a million searches

// ln n!, and ln of n over k; k <= n.
double LogFactorial(double n);
double LogChoose(double n, double k);

// The most that an observation can say; 0 of nothing. Repeated accesses say nothing.
double MostEvidence(const Observation& observation);
// Whether one of e^log_tried permutations can be told at all.
inline bool MayTell(const Observation& observation, double log_tried) { return MostEvidence(observation) >= log_tried + kMargin; }
// Of smaller sets not even a whole epoch tells it.
std::uint32_t LeastSamples(double log_tried);

}  // namespace tierd::orders
