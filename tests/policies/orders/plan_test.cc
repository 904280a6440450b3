// Plans: documents in and out, and the orders of ORDER.md's golden vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "policies/orders/base64.h"
#include "policies/orders/plan_orders.h"
#include "policies/orders/sha256.h"

namespace tierd::orders {
namespace {

// The plan from each of its epochs on, as a document, gives what the whole gives from there.
void ExpectRests(const Plan& plan) {
  PlanOrders all = PlanOrders::Create(plan).value();
  std::vector<std::uint32_t> expected, found;
  for (std::uint64_t passed = 0; passed < *plan.epochs; ++passed) {
    const Result<Plan> rest = ParsePlan(PlanToJson(all.Rest().value()));
    ASSERT_TRUE(rest.ok());
    EXPECT_EQ(rest->epoch, plan.epoch + passed);
    PlanOrders others = PlanOrders::Create(*rest).value();
    PlanOrders same = all;
    while (same.Next(&expected)) {
      ASSERT_TRUE(others.Next(&found));
      ASSERT_EQ(found, expected) << passed;
    }
    EXPECT_FALSE(others.Next(&found));
    all.Next(&expected);
  }
  EXPECT_FALSE(all.Rest().has_value());
}

TEST(PlanOrders, TheRestIsAPlanOfItsOwn) {
  Plan plan;
  plan.samples = plan.draws = 100;
  plan.epoch = 2;
  plan.epochs = 5;
  plan.position = 7;
  plan.skip_first = 3;
  plan.skip_later = 1;
  for (const bool shared : {false, true}) {
    plan.kind = Kind::kTorchRandom;
    plan.start = GeneratorStart{.seed = 9, .words = std::nullopt};
    plan.shared = shared;
    ExpectRests(plan);
  }
  Plan ranks;
  ranks.kind = Kind::kTorchDistributed;
  ranks.samples = 101;
  ranks.epochs = 5;
  ranks.position = 7;
  ranks.world = 4;
  ranks.rank = 3;
  ExpectRests(ranks);
  ranks.set_epoch = false;
  EXPECT_FALSE(PlanOrders::Create(ranks)->Rest().has_value());
  EXPECT_FALSE(PlanOrders::Create(ParsePlan(R"({"tierd_plan":1,"kind":"torch.sequential","samples":3})").value())->Rest().has_value());
}

// FIPS 180-4's examples, and every length around the end of a block against pieces of it.
TEST(Sha256, IsThat) {
  const auto of = [](const std::string& text) {
    Sha256 sha;
    sha.Add(text);
    return sha.Hex();
  };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (std::size_t size = 50; size < 140; ++size) {
    Sha256 sha;
    for (std::size_t i = 0; i < size; ++i) sha.Add("x");
    EXPECT_EQ(sha.Hex(), of(std::string(size, 'x'))) << size;
  }
}

using Order = std::vector<std::uint32_t>;

std::vector<Order> Orders(const std::string& json, int epochs) {
  const Result<Plan> plan = ParsePlan(json);
  EXPECT_TRUE(plan.ok()) << json << ": " << plan.status().ToString();
  if (!plan.ok()) return {};
  Result<PlanOrders> orders = PlanOrders::Create(*plan);
  EXPECT_TRUE(orders.ok()) << orders.status().ToString();
  std::vector<Order> all;
  Order order;
  for (int i = 0; i < epochs && orders->Next(&order); ++i) all.push_back(order);
  return all;
}

std::string Refusal(const std::string& json) {
  const Result<Plan> plan = ParsePlan(json);
  return plan.ok() ? "" : plan.status().message();
}

TEST(PlanOrders, DistributedSampler) {
  const std::string base = R"({"tierd_plan":1,"kind":"torch.distributed","samples":10,"seed":0,"world":3,"rank":)";
  EXPECT_EQ(Orders(base + "0}", 2), (std::vector<Order>{{4, 5, 0, 2}, {5, 2, 9, 4}}));
  EXPECT_EQ(Orders(base + "1}", 1), (std::vector<Order>{{1, 3, 8, 4}}));
  EXPECT_EQ(Orders(base + "2}", 1), (std::vector<Order>{{7, 9, 6, 1}}));
  EXPECT_EQ(Orders(base + R"(0,"epoch":1,"position":2,"epochs":1})", 9), (std::vector<Order>{{9, 4}}));
  EXPECT_EQ(Orders(base + R"(0,"set_epoch":false})", 2), (std::vector<Order>{{4, 5, 0, 2}, {4, 5, 0, 2}}));
  EXPECT_EQ(Orders(base + R"(1,"drop_last":true})", 1), (std::vector<Order>{{1, 3, 8}}));
}

TEST(PlanOrders, RandomSamplerAndDataLoader) {
  const std::string base = R"({"tierd_plan":1,"kind":"torch.random","samples":10,"draws":10,"start":{"seed":0})";
  EXPECT_EQ(Orders(base + R"(,"shared":true})", 2), (std::vector<Order>{{6, 9, 0, 7, 3, 5, 4, 2, 1, 8}, {6, 7, 1, 4, 2, 0, 9, 8, 3, 5}}));
  EXPECT_EQ(Orders(base + R"(,"shared":true,"skip_first":1,"skip_later":1})", 2), (std::vector<Order>{{6, 7, 1, 4, 2, 0, 9, 8, 3, 5}, {2, 4, 7, 0, 8, 9, 5, 3, 6, 1}}));
  EXPECT_EQ(Orders(base + R"(,"skip_first":1,"skip_later":1})", 2), (std::vector<Order>{{3, 7, 5, 2, 0, 8, 1, 6, 9, 4}, {1, 3, 2, 7, 5, 9, 0, 6, 4, 8}}));
}

// DALI: mt19937(524287 + epoch), epochs counted from 1, std::shuffle of what the last epoch left, a contiguous shard each.
TEST(PlanOrders, DaliFileReader) {
  Order list(11);
  Identity(list);
  std::vector<Order> expected;
  for (unsigned epoch = 1; epoch <= 3; ++epoch) {
    std::mt19937 engine(524287 + epoch);
    std::shuffle(list.begin(), list.end(), engine);
    expected.emplace_back(list.begin() + 11 * 1 / 3, list.begin() + 11 * 2 / 3);
  }
  const std::string base = R"({"tierd_plan":1,"kind":"dali.file","samples":11,"seed":524287,"world":3,"rank":1)";
  EXPECT_EQ(Orders(base + R"(,"rule":"in_place"})", 3), expected);
  EXPECT_EQ(Orders(base + R"(,"rule":"in_place","epoch":2})", 1), (std::vector<Order>{expected[2]}));
  // With checkpointing each epoch starts from the list itself.
  Order fresh(11);
  Identity(fresh);
  std::mt19937 engine(524287 + 2);
  std::shuffle(fresh.begin(), fresh.end(), engine);
  EXPECT_EQ(Orders(base + R"(,"epoch":1})", 1), (std::vector<Order>{Order(fresh.begin() + 3, fresh.begin() + 7)}));
  // Without shuffling and without sticking to it, the shard moves on.
  EXPECT_EQ(Orders(base + R"(,"shuffle":false,"rule":"same","stick":false})", 2), (std::vector<Order>{{3, 4, 5, 6}, {7, 8, 9, 10}}));
}

TEST(PlanOrders, ACopyLooksAheadByItself) {
  const Result<Plan> plan = ParsePlan(R"({"tierd_plan":1,"kind":"python.random","samples":20,"seed":4,"rule":"in_place"})");
  ASSERT_TRUE(plan.ok());
  Result<PlanOrders> orders = PlanOrders::Create(*plan);
  ASSERT_TRUE(orders.ok());
  PlanOrders ahead = *orders;
  Order first, second, again;
  ahead.Next(&first);
  ahead.Next(&second);
  EXPECT_EQ(ahead.epoch(), 2u);
  orders->Next(&again);
  EXPECT_EQ(again, first);
  orders->Next(&again);
  EXPECT_EQ(again, second);
}

TEST(ParsePlan, WhatItReadsItWritesBack) {
  std::string words(4 * Mt19937::kWords, '\0');
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<char>(i * 7);
  const std::string documents[] = {
      R"({"tierd_plan":1,"kind":"torch.distributed","samples":10,"seed":-3,"world":3,"rank":2,"drop_last":true,"epochs":null,"batch_size":4,"batch_drop_last":true})",
      R"({"tierd_plan":1,"kind":"torch.random","samples":9,"draws":12,"replacement":true,"shared":true,"skip_first":2,"skip_later":3,"start":{"words":")" +
          EncodeBase64(words) + R"(","index":17},"epochs":5})",
      R"({"tierd_plan":1,"kind":"dali.file","samples":9,"rule":"in_place","stick":false,"uniform":"divide","shuffle":false,"position":4})",
  };
  for (const std::string& document : documents) {
    const Result<Plan> plan = ParsePlan(document);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const std::string written = PlanToJson(*plan);
    const Result<Plan> again = ParsePlan(written);
    ASSERT_TRUE(again.ok()) << written;
    EXPECT_EQ(PlanToJson(*again), written);
  }
  EXPECT_LT(PlanToJson(*ParsePlan(documents[0])).size(), 200u);
}

TEST(ParsePlan, SaysWhichFieldIsWrong) {
  const auto with = [](const std::string& more) { return R"({"tierd_plan":1,"kind":"torch.distributed","samples":10)" + more + "}"; };
  EXPECT_EQ(Refusal(with("")), "");
  EXPECT_THAT(Refusal("[]"), ::testing::HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal("{"), ::testing::HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":2,"kind":"block","samples":3})"), ::testing::HasSubstr("format 1"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"samples":3})"), ::testing::HasSubstr("kind"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"sorted","samples":3})"), ::testing::HasSubstr("kind"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"block","samples":0})"), ::testing::HasSubstr("samples"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"block","samples":4294967297})"), ::testing::HasSubstr("samples"));
  EXPECT_THAT(Refusal(with(R"(,"world":4,"rank":4)")), ::testing::HasSubstr("rank"));
  EXPECT_THAT(Refusal(with(R"(,"rank":-1)")), ::testing::HasSubstr("rank"));
  EXPECT_THAT(Refusal(with(R"(,"seed":18446744073709551615)")), ::testing::HasSubstr("seed"));
  EXPECT_THAT(Refusal(with(R"(,"seed":"0")")), ::testing::HasSubstr("seed"));
  EXPECT_THAT(Refusal(with(R"(,"drop_last":1)")), ::testing::HasSubstr("drop_last"));
  EXPECT_THAT(Refusal(with(R"(,"list_sha256":"00")")), ::testing::HasSubstr("list_sha256"));
  EXPECT_THAT(Refusal(with(R"(,"epochs":-1)")), ::testing::HasSubstr("epochs"));
  EXPECT_THAT(Refusal(with(R"(,"tiers":2)")), ::testing::HasSubstr("unknown field \"tiers\""));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"torch.random","samples":3,"draws":3})"), ::testing::HasSubstr("start"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"torch.random","samples":3,"draws":3,"start":{"words":"AAAA","index":1}})"), ::testing::HasSubstr("start"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"torch.random","samples":3,"start":{"seed":1}})"), ::testing::HasSubstr("draws"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"python.random","samples":1000000,"rule":"in_place","epoch":5000})"), ::testing::HasSubstr("epoch"));
  EXPECT_THAT(Refusal(R"({"tierd_plan":1,"kind":"dali.file","samples":10,"rule":"continue"})"), ::testing::HasSubstr("rule"));
  EXPECT_THAT(Refusal(std::string(100'000, ' ')), ::testing::HasSubstr("100000 bytes"));
}

TEST(Base64, ThereAndBack) {
  for (std::size_t n = 0; n < 40; ++n) {
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(i * 37 + n);
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes);
  }
  EXPECT_EQ(EncodeBase64("Ma"), "TWE=");
  EXPECT_FALSE(DecodeBase64("TWE"));
  EXPECT_FALSE(DecodeBase64("T=E="));
  EXPECT_FALSE(DecodeBase64("TW!="));
}

}  // namespace
}  // namespace tierd::orders
