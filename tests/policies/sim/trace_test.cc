#include "policies/sim/trace.h"

#include <gtest/gtest.h>

#include <random>

#include "policies/builtin.h"
#include "policies/sim/simulate.h"

namespace tierd::sim {
namespace {

std::string Example() {
  std::string bytes;
  TraceWriter writer(&bytes);
  writer.Object(0, {.bytes = 4096, .file = 0, .chunk = 0});
  writer.Access({.id = 0, .consumer = 3, .time_us = 10});
  writer.Flush();
  return bytes;
}

TEST(Trace, TheExampleOfTheFormat) {
  const std::string bytes = Example();
  ASSERT_EQ(bytes.size(), 16u + 8 + 8);
  EXPECT_EQ(bytes.substr(0, 16), std::string("TIERTRC\n\1\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(bytes.substr(16, 4), std::string("\x8\0\0\0", 4));
  EXPECT_EQ(bytes.substr(24), std::string("\x00\x80\x20\x00\x00\x0e\x01\x0a", 8));
}

TEST(Trace, WhatIsWrittenIsReadBack) {
  std::mt19937_64 random(1);
  std::string bytes;
  TraceWriter writer(&bytes);
  std::vector<TraceAccess> accesses;
  std::vector<TraceObject> objects;
  std::uint64_t now = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (objects.size() < 5000 && random() % 4 == 0) {
      objects.push_back({.bytes = random() % (1ull << (random() % 60)), .file = static_cast<std::uint32_t>(random()), .chunk = static_cast<std::uint32_t>(random() % 9)});
      writer.Object(static_cast<std::uint32_t>(objects.size() - 1), objects.back());
    }
    if (objects.empty()) continue;
    now += random() % 1000;
    accesses.push_back({static_cast<std::uint32_t>(random() % objects.size()), static_cast<std::uint32_t>(random() % 3), now});
    writer.Access(accesses.back());
    if (i == 50'000) writer.Epoch(), writer.Lost(7);
  }
  writer.Object(0, {.bytes = 1, .file = 2, .chunk = 3});
  writer.Flush();
  const Result<Trace> trace = ParseTrace(bytes);
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_FALSE(trace->cut);
  EXPECT_EQ(trace->lost, 7u);
  ASSERT_EQ(trace->epochs.size(), 1u);
  ASSERT_EQ(trace->accesses.size(), accesses.size());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    ASSERT_EQ(trace->accesses[i].id, accesses[i].id);
    ASSERT_EQ(trace->accesses[i].consumer, accesses[i].consumer);
    ASSERT_EQ(trace->accesses[i].time_us, accesses[i].time_us);
  }
  EXPECT_EQ(trace->objects[0].bytes, 1u);
  EXPECT_EQ(trace->objects[1].bytes, objects[1].bytes);
  EXPECT_LT(bytes.size(), 8 * accesses.size());
}

TEST(Trace, ATornBlockEndsIt) {
  std::string bytes = Example();
  const std::size_t whole = bytes.size();
  bytes += Example().substr(16);
  for (std::size_t cut = whole; cut <= bytes.size(); ++cut) {
    const Result<Trace> trace = ParseTrace(std::string_view(bytes).substr(0, cut));
    ASSERT_TRUE(trace.ok());
    EXPECT_EQ(trace->accesses.size(), cut == bytes.size() ? 2u : 1u);
    EXPECT_EQ(trace->cut, cut != whole && cut != bytes.size());
  }
  bytes[whole + 10] ^= 1;
  EXPECT_TRUE(ParseTrace(bytes)->cut);
}

TEST(Trace, EveryByteMayBeWrong) {
  const std::string good = Example();
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const Result<Trace> trace = ParseTrace(bad);
      const bool reserved = i >= 12 && i < 16;
      EXPECT_TRUE(!trace.ok() || trace->cut || reserved) << i;
    }
  }
  EXPECT_EQ(ParseTrace("").status().code(), Code::kCorrupt);
  std::string newer = good;
  newer[8] = 2;
  EXPECT_EQ(ParseTrace(newer).status().code(), Code::kUnsupported);
}

TEST(Trace, Csv) {
  const Result<Trace> trace = ParseCsv("bytes,object,note,consumer,time_us\n10,a,x,w1,5\r\n20,b,x,w2,6\n\n10,a,x,w1,6\n");
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  ASSERT_EQ(trace->accesses.size(), 3u);
  EXPECT_EQ(trace->objects.size(), 2u);
  EXPECT_EQ(trace->accesses[2].id, 0u);
  EXPECT_EQ(trace->accesses[1].consumer, 1u);
  EXPECT_EQ(trace->accesses[2].time_us, 6u);
  for (const auto& [text, line] : {std::pair{"object\na\n", "line 1"}, {"object,bytes\na\n", "line 2"}, {"object,bytes\na,1\nb,x\n", "line 3"},
                                   {"object,bytes,time_us\na,1,5\na,1,4\n", "line 3"}}) {
    const Result<Trace> bad = ParseCsv(text);
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.status().message().find(line), std::string::npos) << bad.status().message();
  }
}

TEST(Trace, IsReplayed) {
  Trace trace;
  for (std::uint32_t id = 0; id < 10; ++id) trace.objects.push_back({.bytes = 10, .file = id, .chunk = 0});
  for (std::uint32_t i = 0; i < 30; ++i) trace.accesses.push_back({i % 10, 0, i});
  trace.epochs = {10, 20};
  RunOptions options;
  options.cache.capacity_bytes[TIERD_TIER_RAM] = 50;
  const Result<RunResult> lru = RunTrace(*policies::LruPolicy(), trace, options);
  const Result<RunResult> belady = RunTrace(*policies::BeladyPolicy(), trace, options);
  ASSERT_TRUE(lru.ok() && belady.ok());
  EXPECT_EQ(lru->total.reads[0], 0u);
  EXPECT_EQ(belady->total.reads[0], 10u);
  EXPECT_EQ(belady->epochs.size(), 3u);
}

}  // namespace
}  // namespace tierd::sim
