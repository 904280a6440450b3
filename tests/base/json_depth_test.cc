#include "tierd/base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace tierd {
namespace {

TEST(JsonDepth, CountsWhatLiesInOneAnother) {
  EXPECT_FALSE(IsNestedDeeper("", 0));
  EXPECT_FALSE(IsNestedDeeper("7", 0));
  EXPECT_TRUE(IsNestedDeeper("[]", 0));
  EXPECT_FALSE(IsNestedDeeper(R"([{"a": []}])", 3));
  EXPECT_TRUE(IsNestedDeeper(R"([{"a": []}])", 2));
  EXPECT_FALSE(IsNestedDeeper("[[],[],[],[]]", 2)) << "one after the other";
  EXPECT_TRUE(IsNestedDeeper(std::string(kDeepestJson + 1, '[')));
  EXPECT_FALSE(IsNestedDeeper(std::string(kDeepestJson, '[')));
}

TEST(JsonDepth, TextIsNoStructure) {
  EXPECT_FALSE(IsNestedDeeper(R"({"[[[[{{{{": "[[[["})", 1));
  EXPECT_FALSE(IsNestedDeeper(R"(["\"[[[[", "\\\\"])", 1));
  EXPECT_TRUE(IsNestedDeeper(R"(["\\\\", [[]]])", 2));
}

}  // namespace
}  // namespace tierd
