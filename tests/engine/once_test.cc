// Every file is opened once for each of its chunks, and every byte of it read once: counted at the source.
#include <algorithm>

#include "tests/engine/engine_fixture.h"
#include "tests/pfs_sim/rig.h"
#include "tests/support/io_uring_allowed.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kChunk = 1 << 20;

class OnceTest : public EngineTest, public testing::WithParamInterface<EngineChoice> {
 protected:
  void SetUp() override {
    if (GetParam() == EngineChoice::kUring && !IoUringIsAllowed()) GTEST_SKIP() << "io_uring is refused here";
    std::string why;
    rig_ = pfs_sim::Rig::Start({.backing = tree_.path(), .timeout_ms = 60'000}, &why);
    if (rig_ == nullptr && why.starts_with("unavailable")) GTEST_SKIP() << why;
    ASSERT_NE(rig_, nullptr) << why;
    source_options().path = rig_->mount();
    source_options().engine = GetParam();
    source_options().chunk_bytes = kChunk;
    options_.ram.capacity_bytes = 160 << 20;
  }
  void TearDown() override { StopEngine(); }

  // Starts the engine; what its start has read is not counted.
  void Start() {
    StartEngine();
    rig_->Control("counters reset");
  }
  static std::size_t Chunks(std::size_t size) { return std::max<std::size_t>(1, (size + kChunk - 1) / kChunk); }
  // Fetches all chunks of a file, one after the other or all at a time, and compares them.
  void FetchAll(const std::string& name, std::size_t size, bool together) {
    std::vector<std::uint64_t> asked;
    std::string bytes;
    for (std::size_t chunk = 0; chunk < Chunks(size); ++chunk) {
      if (together) asked.push_back(Ask(name, abi::FetchOp::kChunk, static_cast<std::uint32_t>(chunk)));
      else bytes += Fetch(name, abi::FetchOp::kChunk, static_cast<std::uint32_t>(chunk)).bytes;
    }
    for (const std::uint64_t id : asked) {
      ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
      bytes += answers()[id].bytes;
    }
    EXPECT_TRUE(bytes == Bytes(name, size)) << name << " of " << size;
  }
  // What the source was asked for since Start: exactly this.
  void ExpectCounted(std::uint64_t opens, std::uint64_t bytes) {
    const pfs_sim::RigCounters counters = rig_->Counters();
    EXPECT_EQ(counters.opens, opens);
    EXPECT_EQ(counters.bytes_read, bytes);
    if (!HasFailure()) return;
    for (const auto& [path, of_path] : rig_->PathCounters())
      ADD_FAILURE() << path << ": " << of_path.opens << " opens, " << of_path.reads << " reads, " << of_path.bytes << " bytes";
  }

  std::unique_ptr<pfs_sim::Rig> rig_;
};

INSTANTIATE_TEST_SUITE_P(Engines, OnceTest, testing::Values(EngineChoice::kThreads, EngineChoice::kUring),
                         [](const auto& tested) { return tested.param == EngineChoice::kUring ? "Uring" : "Threads"; });

// The engine reads 128 KiB of a file it knows nothing of.
TEST_P(OnceTest, FilesAroundTheFirstGuess) {
  const std::vector<std::size_t> sizes{1, 4096, 100'000, 131'071, 131'072, 131'073, 140'000, 300'000, 1'000'000, kChunk - 1, kChunk};
  std::uint64_t bytes = 0;
  for (const std::size_t size : sizes) {
    Write("f" + std::to_string(size), Bytes("f" + std::to_string(size), size));
    bytes += size;
  }
  Start();
  for (const std::size_t size : sizes) FetchAll("f" + std::to_string(size), size, false);
  ExpectCounted(sizes.size(), bytes);
}

// RAM is full and nobody leaves: what is not known yet is not read for its size, its reader reads it.
TEST_P(OnceTest, WhatFindsNoFrameIsLeftToItsReader) {
  constexpr std::size_t kSize = 64 << 10;
  constexpr std::size_t kCount = 400;  // 25 MiB
  options_.ram.capacity_bytes = 16 << 20;
  source_options().policy = "freeze";
  for (std::size_t i = 0; i < kCount; ++i) Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kSize));
  Start();
  std::uint64_t frames = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Answer answer = Fetch("f" + std::to_string(i));
    if (answer.status() == abi::FetchStatus::kFrame) ++frames;
    else EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass) << i;
  }
  EXPECT_GT(frames, 200u);
  EXPECT_LT(frames, 257u);
  ExpectCounted(frames, frames * kSize);
}

// Sizes from a hundredth to the hundredfold of the mean, in an order in which every guess is wrong for many.
TEST_P(OnceTest, FilesAroundEveryLaterGuess) {
  std::vector<std::string> names;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t size = std::min<std::size_t>(kChunk, (std::size_t{500} << (i * 7 % 12)) + i);
    names.push_back("d" + std::to_string(i % 4) + "/f" + std::to_string(i));
    Write(names.back(), Bytes(names.back(), size));
    bytes += size;
  }
  Start();
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {});
  engine().EndTurn();
  EXPECT_EQ(WaitForJob(job).verified_files, names.size());
  ExpectCounted(names.size(), bytes);
}

TEST_P(OnceTest, LargeFiles) {
  const std::vector<std::size_t> sizes{kChunk + 1, 2 * kChunk, 9'000'000, 40'000'000};
  Start();
  for (const bool together : {false, true}) {
    std::uint64_t opens = 0, bytes = 0;
    rig_->Control("counters reset");
    for (const std::size_t size : sizes) {
      const std::string name = (together ? "together" : "by_chunks") + std::to_string(size);
      Write(name, Bytes(name, size));
      RunUntil([] { return false; }, 20);  // has the loop stood for all that, what is asked for before it notices is asked for again (HAZARDS 2.11)
      FetchAll(name, size, together);
      opens += Chunks(size);
      bytes += size;
    }
    ExpectCounted(opens, bytes);
  }
}

}  // namespace
}  // namespace tierd::engine
