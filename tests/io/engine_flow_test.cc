// Many requests, their order, when completions run, and what happens when some never end.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Flow : public BothEngines {
 protected:
  void Submit(const std::string& name, std::byte* buffer, std::size_t capacity, FileReadCallback done) {
    FileReadRequest request;
    request.root_fd = root();
    request.path = name;
    request.buffer = buffer;
    request.capacity = capacity;
    engine_->SubmitFileRead(std::move(request), std::move(done));
  }
};

TEST_P(Flow, TenThousandSmallFiles) {
  MAKE_ENGINE({.depth = 256, .workers = 64});
  constexpr std::size_t kNames = 100;
  constexpr std::size_t kReads = 10'000;
  constexpr std::size_t kSize = 512;
  std::vector<std::string> contents;
  for (std::size_t i = 0; i < kNames; ++i) contents.push_back(WriteContent("f" + std::to_string(i), kSize));
  AlignedBuffer memory(kReads * kSize);
  const std::size_t descriptors = OpenDescriptors();
  std::size_t good = 0;
  for (std::size_t i = 0; i < kReads; ++i) {
    std::byte* buffer = memory.data() + i * kSize;
    Submit("f" + std::to_string(i % kNames), buffer, kSize, [&, i, buffer](const FileReadResult& result) {
      const std::string_view seen(reinterpret_cast<const char*>(buffer), result.bytes);
      good += result.error == 0 && seen == contents[i % kNames] ? 1 : 0;
    });
  }
  EXPECT_EQ(engine_->in_flight(), kReads);
  Drain();
  EXPECT_EQ(good, kReads);
  EXPECT_EQ(engine_->counters().submitted, kReads);
  EXPECT_EQ(engine_->counters().completed, kReads);
  EXPECT_GT(engine_->counters().system_calls, 0U);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(Flow, OneAtATimeKeepsTheOrder) {
  MAKE_ENGINE({.depth = 1, .workers = 1});
  WriteContent("file", 100);
  std::byte buffer[100];
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) Submit("file", buffer, sizeof buffer, [&order, i](const FileReadResult&) { order.push_back(i); });
  Drain();
  ASSERT_EQ(order.size(), 50U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(Flow, CallbacksMaySubmit) {
  MAKE_ENGINE({.depth = 4, .workers = 4});
  WriteContent("file", 100);
  std::byte buffer[100];
  int left = 200;
  std::function<void(const FileReadResult&)> again = [&](const FileReadResult& result) {
    EXPECT_EQ(result.error, 0);
    if (left-- > 0) {
      Submit("file", buffer, sizeof buffer, again);
      if (left % 2 == 0) engine_->Flush();
    }
  };
  for (int i = 0; i < 8; ++i) Submit("file", buffer, sizeof buffer, again);
  Drain();
  EXPECT_EQ(engine_->counters().completed, 208U);
}

TEST_P(Flow, PollRunsAtMostItsBudgetAndTheEventStaysUntilNoneIsLeft) {
  MAKE_ENGINE();
  WriteContent("file", 100);
  std::byte buffer[100];
  std::size_t done = 0;
  EXPECT_FALSE(Readable());
  EXPECT_EQ(engine_->Poll(10), 0U);
  for (int i = 0; i < 10; ++i) Submit("file", buffer, sizeof buffer, [&done](const FileReadResult&) { ++done; });
  EXPECT_EQ(done, 0U);
  engine_->Flush();
  EXPECT_EQ(done, 0U) << "completed inside Flush";
  while (done < 10) {
    pollfd ask{engine_->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ask, 1, kPatienceMs), 1) << "completions wait but the event does not say so";
    const std::size_t before = done;
    EXPECT_LE(engine_->Poll(3), 3U);
    EXPECT_LE(done - before, 3U);
  }
  // One more turn may be announced for nothing; then there is silence.
  engine_->Poll(100);
  EXPECT_FALSE(Readable());
}

TEST_P(Flow, WaitEndsByItself) {
  MAKE_ENGINE();
  EXPECT_EQ(engine_->Wait(0, 10), 0U);
  EXPECT_EQ(engine_->Wait(kPatienceMs, 10), 0U) << "nothing in flight: no reason to wait";
}

TEST_P(Flow, WhatWasNeverFlushedDiesWithTheEngine) {
  MAKE_ENGINE();
  WriteContent("file", 100);
  std::byte buffer[100];
  const auto alive = std::make_shared<int>(0);
  for (int i = 0; i < 1000; ++i) Submit("file", buffer, sizeof buffer, [alive](const FileReadResult&) { ADD_FAILURE(); });
  EXPECT_EQ(alive.use_count(), 1001);
  engine_.reset();
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_P(Flow, RequestsInFlightEndWithTheEngineAndLeaveNoDescriptor) {
  const std::size_t before = OpenDescriptors();
  MAKE_ENGINE({.depth = 8, .workers = 8});
  WriteContent("file", 4096);
  AlignedBuffer memory(8 * 4096);
  for (std::size_t i = 0; i < 8; ++i) {
    Submit("file", memory.data() + i * 4096, 4096, [](const FileReadResult&) { ADD_FAILURE(); });
  }
  engine_->Flush();
  engine_.reset();
  // A worker that the machine kept waiting past the engine's grace closes its file a little later.
  EXPECT_TRUE(Becomes([&] { return OpenDescriptors() == before; }));
}

TEST_P(Flow, OptionsOutOfRangeAreRefused) {
  for (const EngineOptions& options : {EngineOptions{.depth = 0}, EngineOptions{.depth = 4097}, EngineOptions{.workers = 0},
                                       EngineOptions{.workers = 513}, EngineOptions{.max_replacements = 513}}) {
    const auto engine = MakeEngine(GetParam(), options);
    EXPECT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), Code::kInvalid);
  }
}

TEST_P(Flow, ExtremeOptionsWork) {
  WriteContent("file", 100);
  for (const EngineOptions& options : {EngineOptions{.depth = 1, .workers = 1, .max_replacements = 0},
                                       EngineOptions{.depth = 4096, .workers = 512, .max_replacements = 512}}) {
    MAKE_ENGINE(options);
    std::byte buffer[100];
    int good = 0;
    for (int i = 0; i < 2000; ++i) {
      Submit("file", buffer, sizeof buffer, [&good](const FileReadResult& result) { good += result.error == 0; });
    }
    Drain();
    EXPECT_EQ(good, 2000);
  }
}

INSTANTIATE_FOR_BOTH_ENGINES(Flow);

// Hung requests, made by a step that stops a worker of the pool. (With a real file system: engine_hang_test.cc.)
class HungWorkers : public EngineTest {
 protected:
  // Outlives the workers, which outlive the engine: kept until the process ends.
  struct Source {
    Gate gate;
    std::atomic<int> to_stop{0};
    std::atomic<int> through{0};
    std::unique_ptr<EngineFaults> faults;
  };
  class Stopper final : public EngineFaults {
   public:
    explicit Stopper(Source& source) : source_(source) {}
    long Outcome(Step step, long result) override {
      if (step == Step::kRead) {
        if (source_.to_stop.fetch_sub(1) > 0) source_.gate.Pass();
        source_.through.fetch_add(1);
      }
      return result;
    }
    unsigned SubmitLimit(unsigned pending) override { return pending; }
    unsigned CompletionEntries() override { return 0; }

   private:
    Source& source_;
  };

  void SetUp() override {
    static auto* const kept = new std::vector<std::unique_ptr<Source>>;
    source_ = kept->emplace_back(std::make_unique<Source>()).get();
    source_->faults = std::make_unique<Stopper>(*source_);
    WriteContent("file", 100);
  }
  void Hang(int count) {
    source_->to_stop = count;
    for (int i = 0; i < count; ++i) Submit();
    engine_->Flush();
    source_->gate.AwaitWaiting(count);
    source_->to_stop = 0;
  }
  void Submit() {
    FileReadRequest request;
    request.root_fd = root();
    request.path = "file";
    request.buffer = buffer_;
    request.capacity = sizeof buffer_;
    engine_->SubmitFileRead(std::move(request), [this](const FileReadResult&) { ++done_; });
  }
  bool Await(int done) {
    engine_->Flush();
    while (done_ < done) {
      if (engine_->Wait(kPatienceMs, 100) == 0) return false;
    }
    return true;
  }

  Source* source_ = nullptr;
  std::byte buffer_[100];
  int done_ = 0;
};

TEST_F(HungWorkers, ReplacementsRestoreTheThroughputAndLeaveWhenTheHungReturn) {
  MakeEngineOrSkip(EngineKind::kThreads, {.workers = 4, .max_replacements = 3, .faults = source_->faults.get()});
  Hang(4);
  for (int i = 0; i < 100; ++i) Submit();
  engine_->Flush();
  EXPECT_EQ(engine_->Wait(50, 100), 0U) << "no worker is free";
  // The first turn of the coarse clock after the four began.
  while (engine_->OlderThan(1) < 4) std::this_thread::yield();
  EXPECT_EQ(engine_->OlderThan(1), 4U) << "those that wait are not counted";
  EXPECT_EQ(engine_->OlderThan(3'600'000'000'000), 0U);

  engine_->CompensateHung(1);
  EXPECT_TRUE(Await(100));
  EXPECT_EQ(engine_->in_flight(), 4U);
  engine_->CompensateHung(3);
  for (int i = 0; i < 100; ++i) Submit();
  EXPECT_TRUE(Await(200));

  source_->gate.Open();
  EXPECT_TRUE(Await(204));
  EXPECT_EQ(engine_->OlderThan(0), 0U);
  for (int i = 0; i < 100; ++i) Submit();
  EXPECT_TRUE(Await(304));
}

TEST_F(HungWorkers, ReplacementsAreBounded) {
  MakeEngineOrSkip(EngineKind::kThreads, {.workers = 2, .max_replacements = 1, .faults = source_->faults.get()});
  Hang(2);
  engine_->CompensateHung(2);
  source_->to_stop = 1;
  Submit();
  engine_->Flush();
  source_->gate.AwaitWaiting(3);
  engine_->CompensateHung(1);
  Submit();
  engine_->Flush();
  EXPECT_EQ(engine_->Wait(50, 100), 0U);
  source_->gate.Open();
  EXPECT_TRUE(Await(4));
}

TEST_F(HungWorkers, DestructionWaitsForNobodyAndNothingDangles) {
  MakeEngineOrSkip(EngineKind::kThreads, {.workers = 8, .faults = source_->faults.get()});
  Hang(8);
  const auto captured = std::make_shared<int>(0);
  engine_->SubmitStat({root(), "file"}, [captured](const StatResult&) { ADD_FAILURE(); });
  engine_->Flush();
  const auto start = std::chrono::steady_clock::now();
  engine_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(captured.use_count(), 1);
  source_->gate.Open();
  while (source_->through < 8) std::this_thread::yield();
  EXPECT_EQ(done_, 0);
}

}  // namespace
}  // namespace tierd::io
