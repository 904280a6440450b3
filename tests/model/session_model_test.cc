// The life of a session: HAZARDS 1 rows S3a-S3c, rules 2.5 and 2.6.
#include <gtest/gtest.h>

#include "tests/model/report.h"
#include "tests/model/session_model.h"

namespace tierd::model {
namespace {

constexpr Order kOrders[] = {Order::kSc, Order::kTso, Order::kPso};

std::unique_ptr<Model> Make(int acts, SessionMutation mutation, bool fork, bool zero_copy) {
  SessionConfig config;
  config.acts = acts;
  config.fork = fork;
  config.zero_copy = zero_copy;
  config.mutation = mutation;
  return std::make_unique<SessionModel>(config);
}

TEST(Session, LeasesCountUntilTheProcessEnds) {
  for (const Order order : kOrders) {
    for (const bool zero_copy : {true, false}) {
      ExpectSound(zero_copy ? "2.5 views" : "2.5 copies", *Make(6, SessionMutation::kNone, false, zero_copy), order);
    }
  }
}

TEST(Session, S3aDroppedAtTheEndOfTheSocketIsFound) {
  for (const bool zero_copy : {true, false}) {
    ExpectFound(zero_copy ? "S3a views" : "S3a copies",
                [&](int acts) { return Make(acts, SessionMutation::kS3aDroppedAtEof, false, zero_copy); }, Order::kSc, 5);
  }
}

TEST(Session, S3bRevokedTestedBeforeTheCopyIsFound) {
  for (const bool zero_copy : {true, false}) {
    ExpectFound(zero_copy ? "S3b views" : "S3b copies",
                [&](int acts) { return Make(acts, SessionMutation::kS3bRevokedBeforeCopy, false, zero_copy); }, Order::kSc, 5);
  }
}

// S3c: even if the daemon dropped the session (a restart, a bug), the test after the copy makes copies safe; views are not.
TEST(Session, S3cRevokedTestedAfterTheCopyMakesCopiesSafeOnly) {
  for (const Order order : kOrders) ExpectSound("S3c copies", *Make(6, SessionMutation::kS3cRevokedAfterCopy, false, false), order);
  ExpectFound("S3c views", [](int acts) { return Make(acts, SessionMutation::kS3cRevokedAfterCopy, false, true); }, Order::kSc, 5);
}

TEST(Fork, FrozenLeasesProtectInheritedViews) {
  for (const Order order : kOrders) ExpectSound("2.6", *Make(6, SessionMutation::kNone, true, true), order);
}

TEST(Fork, AParentThatClearsAFrozenLeaseIsFound) {
  ExpectFound("frozen lease cleared", [](int acts) { return Make(acts, SessionMutation::kParentClearsFrozenLease, true, true); }, Order::kSc, 5);
}

TEST(Fork, ASessionThatEndsWithTheParentIsFound) {
  ExpectFound("ends with the parent", [](int acts) { return Make(acts, SessionMutation::kEndsWithTheParent, true, true); }, Order::kSc, 5);
}

TEST(Fork, AChildThatClosesTheInheritedSocketIsFound) {
  ExpectFound("child closes the socket", [](int acts) { return Make(acts, SessionMutation::kChildClosesTheSocket, true, true); }, Order::kSc, 5);
}

}  // namespace
}  // namespace tierd::model
