#include "tests/pfs_sim/faults.h"

#include <errno.h>
#include <gtest/gtest.h>

namespace pfs_sim {
namespace {

FaultRule Parse(const std::vector<KeyValue>& words) {
  std::string why;
  const auto rule = ParseFaultRule(words, &why);
  EXPECT_TRUE(rule) << why;
  return rule.value_or(FaultRule{});
}

std::string Refusal(const std::vector<KeyValue>& words) {
  std::string why;
  EXPECT_FALSE(ParseFaultRule(words, &why));
  return why;
}

// Which of ten matching requests the rule fires on, as a string of 0 and 1.
std::string Firings(const std::vector<KeyValue>& words) {
  FaultTable table;
  table.Add(Parse(words));
  std::string out;
  for (int i = 0; i < 10; ++i) out += table.Match(Op::kRead, "a") != nullptr ? '1' : '0';
  return out;
}

TEST(FaultRule, FiresOnTheRequestsAskedFor) {
  EXPECT_EQ(Firings({{"errno", "EIO"}}), "1111111111");
  EXPECT_EQ(Firings({{"errno", "EIO"}, {"nth", "3"}}), "0010000000");
  EXPECT_EQ(Firings({{"errno", "EIO"}, {"every", "3"}}), "1001001001");
  EXPECT_EQ(Firings({{"errno", "EIO"}, {"nth", "2"}, {"every", "4"}}), "0100010001");
  EXPECT_EQ(Firings({{"errno", "EIO"}, {"count", "2"}}), "1100000000");
  EXPECT_EQ(Firings({{"errno", "EIO"}, {"nth", "5"}, {"count", "3"}}), "0000111000");
}

TEST(FaultRule, MatchesOperationAndPath) {
  FaultTable table;
  table.Add(Parse({{"op", "open"}, {"path", "/d1/*.bin"}, {"errno", "ESTALE"}}));
  EXPECT_EQ(table.Match(Op::kRead, "d1/a.bin"), nullptr);
  EXPECT_EQ(table.Match(Op::kOpen, "d2/a.bin"), nullptr);
  const FaultRule* rule = table.Match(Op::kOpen, "d1/x/a.bin");  // '*' matches '/'
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->error, ESTALE);
  EXPECT_EQ(rule->seen, 1u);
}

TEST(FaultRule, WithoutOperationLeavesTheFreeOnesAlone) {
  FaultTable table;
  table.Add(Parse({{"errno", "EIO"}}));
  EXPECT_EQ(table.Match(Op::kRelease, "a"), nullptr);
  EXPECT_EQ(table.Match(Op::kOpendir, "a"), nullptr);
  EXPECT_NE(table.Match(Op::kLookup, "a"), nullptr);
}

TEST(FaultTable, FirstRuleThatFiresWinsAndRulesCanGo) {
  FaultTable table;
  const uint64_t first = table.Add(Parse({{"errno", "EIO"}, {"count", "1"}}));
  table.Add(Parse({{"errno", "ENOMEM"}}));
  EXPECT_EQ(table.Match(Op::kRead, "a")->error, EIO);
  EXPECT_EQ(table.Match(Op::kRead, "a")->error, ENOMEM);
  EXPECT_TRUE(table.Remove(first));
  EXPECT_FALSE(table.Remove(first));
  table.Clear();
  EXPECT_TRUE(table.empty());
}

TEST(FaultRule, RefusalsNameTheWord) {
  EXPECT_EQ(Refusal({{"op", "read"}}), "errno= is missing");
  EXPECT_EQ(Refusal({{"op", "raed"}, {"errno", "EIO"}}), "unknown operation 'raed'");
  EXPECT_EQ(Refusal({{"errno", "EIO"}, {"nth", "0"}}), "nth=0 is not a positive number");
  EXPECT_EQ(Refusal({{"errno", "EIO"}, {"every", "-1"}}), "every=-1 is not a positive number");
  EXPECT_EQ(Refusal({{"errno", "EIO"}, {"bit", "x"}}), "bit=x is not a number");
  EXPECT_EQ(Refusal({{"op", "open"}, {"errno", "short"}}), "short and flip need op=read");
  EXPECT_EQ(Refusal({{"op", "read"}, {"errno", "stale_attr"}}),
            "stale_attr needs op=lookup, op=getattr or no op");
  EXPECT_EQ(Refusal({{"errno", "delay"}}), "delay needs usec=N");
  EXPECT_EQ(Refusal({{"op", "release"}, {"errno", "EIO"}}), "op=release cannot fail");
  EXPECT_EQ(Refusal({{"errno", "EOOPS"}}),
            "errno=EOOPS is neither an errno name nor hang, short, flip, stale_attr, delay");
}

}  // namespace
}  // namespace pfs_sim
