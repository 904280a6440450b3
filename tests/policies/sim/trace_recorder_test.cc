// A live trace: what is noted can be read back, what cannot be noted is counted, and nothing is waited for.
#include "policies/sim/trace_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tierd::sim {
namespace {

TraceRecorder::Read ReadOf(std::uint64_t object, std::uint32_t epoch = 0) {
  return {.key = object, .file_key = object, .chunk = 0, .bytes = 100 + object, .consumer = 7, .time_ns = static_cast<std::int64_t>(object) * 1000, .epoch = epoch};
}

TEST(TraceRecorder, WhatWasNotedIsReadBack) {
  TraceRecorder recorder(1 << 20);
  for (const std::uint64_t object : {5, 3, 5}) recorder.Note(ReadOf(object));
  recorder.NoteLost(4);
  recorder.Note(ReadOf(9, 1));
  EXPECT_TRUE(recorder.Take(false).empty()) << "not worth a write";
  const Result<Trace> trace = ParseTrace(recorder.Take(true));
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_EQ(trace->objects.size(), 3u);
  EXPECT_EQ(trace->objects[0].bytes, 105u);
  ASSERT_EQ(trace->accesses.size(), 4u);
  EXPECT_EQ(trace->accesses[2].id, 0u);
  EXPECT_EQ(trace->accesses[2].consumer, 7u);
  EXPECT_EQ(trace->epochs, std::vector<std::uint64_t>{3});
  EXPECT_EQ(trace->lost, 4u);
  EXPECT_EQ(recorder.progress().accesses, 4u);
}

TEST(TraceRecorder, NothingIsWaitedForAndNothingGrowsWithoutBound) {
  TraceRecorder recorder(64 << 20);
  for (std::uint64_t i = 0; i < 3'000'000; ++i) recorder.Note(ReadOf(i % 1000));  // nobody takes what is noted
  const std::string taken = recorder.Take(true);
  EXPECT_LE(taken.size(), TraceRecorder::kMostWaiting + (256 << 10));
  const Result<Trace> trace = ParseTrace(taken);
  ASSERT_TRUE(trace.ok());
  EXPECT_GT(trace->lost, 1'000'000u);
  EXPECT_EQ(trace->lost + trace->accesses.size(), 3'000'000u);
  EXPECT_EQ(recorder.progress().lost, trace->lost);
}

TEST(TraceRecorder, EndsWhereTheFileIsAsLargeAsItMayBe) {
  TraceRecorder recorder(200 << 10);
  std::size_t bytes = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    recorder.Note(ReadOf(i % 1000));
    bytes += recorder.Take(false).size();
  }
  bytes += recorder.Take(true).size();
  EXPECT_TRUE(recorder.progress().full);
  EXPECT_LT(bytes, (200u << 10) + (200u << 10));
  EXPECT_EQ(recorder.progress().accesses + recorder.progress().lost, 200'000u);
}

TEST(TraceFile, IsNeverOneThatIsThere) {
  const std::string path = ::testing::TempDir() + "trace_file_" + std::to_string(::getpid());
  std::filesystem::remove(path);
  const auto file = TraceFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_TRUE((*file)->Append("abc").ok());
  EXPECT_TRUE((*file)->Append("def").ok());
  EXPECT_TRUE((*file)->Close().ok());
  EXPECT_EQ(std::filesystem::file_size(path), 6u);
  EXPECT_EQ(TraceFile::Create(path).status().code(), Code::kExists);
  std::filesystem::remove(path);
  EXPECT_FALSE(TraceFile::Create("/no/such/directory/t").ok());
}

TEST(TraceFile, AFullDiskIsAnErrorThatIsSaid) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const auto exists = TraceFile::Create("/dev/full");
  EXPECT_FALSE(exists.ok()) << "a device is no new file";
}

}  // namespace
}  // namespace tierd::sim
