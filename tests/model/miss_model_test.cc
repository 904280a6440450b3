// The miss path: HAZARDS 1 rows S1a (sound), S1b and S1c (found).
#include <gtest/gtest.h>

#include "tests/model/miss_model.h"
#include "tests/model/report.h"

namespace tierd::model {
namespace {

std::unique_ptr<Model> Make(int acts, MissMutation mutation, int asks) {
  MissConfig config;
  config.acts = acts;
  config.asks = asks;
  config.mutation = mutation;
  return std::make_unique<MissModel>(config);
}

// S1a; an answered request also always gives bytes: nothing can starve it.
TEST(Miss, FrameAndRequestIdInTheReplyAreSound) {
  for (const Order order : {Order::kSc, Order::kTso, Order::kPso}) ExpectSound("S1a", *Make(6, MissMutation::kNone, 3), order);
}

TEST(Miss, S1bLateReplyIsFound) {
  const Outcome outcome = ExpectFound("S1b", [](int acts) { return Make(acts, MissMutation::kS1bLateReply, 2); }, Order::kSc, 5);
  EXPECT_NE(outcome.text.find("bytes of another file"), std::string::npos);
}

// No wrong bytes, but no progress either: every ask is answered, every frame is gone when the reader looks.
TEST(Miss, S1cReplyWithoutAFrameStarves) {
  const Outcome outcome = ExpectFound("S1c", [](int acts) { return Make(acts, MissMutation::kS1cReplyWithoutFrame, 3); }, Order::kSc, 6);
  EXPECT_NE(outcome.text.find("never got bytes"), std::string::npos);
}

TEST(Miss, ALeaseTakenAfterTheReplyIsFound) {
  ExpectFound("lease after the reply", [](int acts) { return Make(acts, MissMutation::kLeaseAfterReply, 1); }, Order::kSc, 5);
}

}  // namespace
}  // namespace tierd::model
