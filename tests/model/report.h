// What the model tests print and expect.
#pragma once

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <functional>
#include <memory>

#include "tests/model/explorer.h"

namespace tierd::model {

inline void Print(const std::string& name, Order order, const Outcome& outcome) {
  const char* at_least = outcome.schedules >= (std::uint64_t{1} << 62) ? ">= " : "";
  std::printf("[  MODEL   ] %s %s: %s, %" PRIu64 " states, %s%" PRIu64 " schedules\n", name.c_str(), OrderName(order),
              outcome.violated ? "VIOLATED" : (outcome.complete ? "sound" : "not finished"), outcome.states, at_least, outcome.schedules);
}

// Every behaviour within the limits, none of them wrong.
inline Outcome ExpectSound(const std::string& name, const Model& model, Order order, const Limits& limits = {}) {
  const Outcome outcome = Explore(model, order, limits);
  Print(name, order, outcome);
  EXPECT_FALSE(outcome.violated) << outcome.text;
  EXPECT_TRUE(outcome.complete) << name << ": more than " << limits.states << " states";
  return outcome;
}

// A seeded mistake must be seen. `make` gives the model with that many acts of the daemon: the shortest counterexample is looked for and printed.
inline Outcome ExpectFound(const std::string& name, const std::function<std::unique_ptr<Model>(int acts)>& make, Order order, int max_acts) {
  Outcome outcome;
  for (int acts = 1; acts <= max_acts && !outcome.violated; ++acts) outcome = FindViolation(*make(acts), order, 3);
  EXPECT_TRUE(outcome.violated) << name << " under " << OrderName(order) << " is not found: the test proves nothing";
  if (outcome.violated) std::printf("[  FOUND   ] %s, %d preemptions\n%s", name.c_str(), outcome.preemptions, outcome.text.c_str());
  return outcome;
}

}  // namespace tierd::model
