// Visits every behaviour of a Model: all of them, or all with at most n preemptions. States that were seen are not entered again, so that
// the number of schedules covered (every one counted, exactly while below 2^63) is far above the number of steps done.
//
// A preemption is a switch away from a thread that could have gone on. That a buffered store becomes visible is the machine's doing: it
// costs no preemption and may happen at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/model/machine.h"

namespace tierd::model {

struct Limits {
  int preemptions = -1;                     // -1: any number
  std::uint64_t states = 30'000'000;        // more: given up, `complete` is false
};

struct Outcome {
  bool violated = false;
  bool complete = false;                    // nothing was left out; not when violated: the search ends there
  std::uint64_t states = 0;                 // distinct ones (with the running thread and preemptions left, when those are limited)
  std::uint64_t schedules = 0;              // distinct complete ones; saturates
  int preemptions = -1;                     // limit under which the violation was found
  std::string text;                         // what was violated and the schedule, one step a line
};

Outcome Explore(const Model& model, Order order, const Limits& limits);

// For a model that must fail: raises the number of preemptions from 0 to `max_preemptions`, so that the counterexample has the fewest.
Outcome FindViolation(const Model& model, Order order, int max_preemptions);

}  // namespace tierd::model
