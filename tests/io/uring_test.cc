// What only the io_uring engine can meet.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <random>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Uring : public EngineTest {
 protected:
  void Make(EngineOptions options = {}) {
    options.faults = &faults_;
    MakeEngineOrSkip(EngineKind::kUring, options);
  }
  // Reads `count` files of different content and checks every byte.
  void ReadMany(std::size_t count) {
    constexpr std::size_t kNames = 50;
    constexpr std::size_t kSize = 3000;
    for (std::size_t i = 0; i < kNames; ++i) WriteContent("f" + std::to_string(i), kSize);
    AlignedBuffer memory(count * kSize);
    std::size_t good = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "f" + std::to_string(i % kNames);
      FileReadRequest request;
      request.root_fd = root();
      request.path = name;
      request.buffer = memory.data() + i * kSize;
      request.capacity = kSize;
      std::byte* buffer = request.buffer;
      engine_->SubmitFileRead(std::move(request), [&good, name, buffer](const FileReadResult& result) {
        EXPECT_EQ(result.error, 0);
        EXPECT_TRUE(result.before.SameVersion(result.after));
        const std::string_view seen(reinterpret_cast<const char*>(buffer), result.bytes);
        good += seen == Content(name, kSize) ? 1 : 0;
      });
    }
    Drain();
    EXPECT_EQ(good, count);
  }
  ScriptedFaults faults_{nullptr};
};

TEST_F(Uring, SubmissionsThatStopAnywhereBreakNothing) {
  Make({.depth = 64, .workers = 64});
  if (IsSkipped()) return;
  const std::size_t before = OpenDescriptors();
  std::mt19937 random(7);
  std::size_t partial = 0;
  faults_.submit_limit = [&](unsigned pending) {
    const unsigned limit = 1 + random() % std::max(1U, pending);
    partial += limit < pending;
    return limit;
  };
  ReadMany(2000);
  EXPECT_GT(partial, 10U);
  EXPECT_GT(engine_->counters().completed, 0U);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(Uring, KernelThatTakesNothingForAWhile) {
  Make({.depth = 256, .workers = 256});
  if (IsSkipped()) return;
  std::size_t refused = 0;
  faults_.submit_limit = [&refused](unsigned pending) { return ++refused % 3 == 0 ? (pending + 1) / 2 : 0; };
  ReadMany(1500);
  EXPECT_GT(refused, 10U);
}

TEST_F(Uring, OneEntryPerSubmissionLeavesNoChainWhole) {
  Make({.depth = 8, .workers = 8});
  if (IsSkipped()) return;
  faults_.submit_limit = [](unsigned) { return 1U; };
  const std::size_t before = OpenDescriptors();
  ReadMany(100);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(Uring, MoreRequestsThanTheRingAndThanItsCompletions) {
  faults_.completion_entries = 8;
  Make({.depth = 1000, .workers = 200});
  if (IsSkipped()) return;
  ReadMany(3000);
  const std::string bytes = WriteContent("file", 1 << 20);
  const UniqueFd file(::open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  std::string seen(bytes.size(), 'x');
  for (std::size_t at = 0; at < bytes.size(); at += 512) {
    const iovec iov{seen.data() + at, 512};
    engine_->SubmitReadv(file.get(), {&iov, 1}, at, [](IoResult result) { EXPECT_EQ(result.bytes, 512U); });
  }
  Drain();
  EXPECT_TRUE(seen == bytes);
}

TEST_F(Uring, CancelledLinksAreDoneAgain) {
  Make();
  if (IsSkipped()) return;
  const std::string bytes = WriteContent("file", 5000);
  const std::size_t before = OpenDescriptors();
  for (const Step cancelled : {Step::kStatBefore, Step::kRead, Step::kStatAfter}) {
    int left = 0;
    ScriptedFaults faults([&](Step step, long result) { return step == cancelled && left-- > 0 ? -ECANCELED : result; });
    MakeEngineOrSkip(EngineKind::kUring, {.faults = &faults});
    EXPECT_TRUE(Read("file").bytes == bytes) << "the first goes step by step";
    left = 1;
    EXPECT_TRUE(Read("file").bytes == bytes) << static_cast<int>(cancelled);
    EXPECT_LT(left, 1);
    engine_.reset();
  }
  ScriptedFaults always([](Step step, long result) { return step == Step::kRead ? -ECANCELED : result; });
  MakeEngineOrSkip(EngineKind::kUring, {.faults = &always});
  EXPECT_EQ(Read("file").result.error, ECANCELED);
  engine_.reset();
  EXPECT_LE(OpenDescriptors(), before);
}

// At the first read, which goes step by step, and at the second, which is a chain.
TEST_F(Uring, DontcacheRefusedFallsBackToAdvice) {
  for (const int refused : {1, 2}) {
    for (const long refusal : {-EOPNOTSUPP, -EINVAL}) {
      int reads = 0;
      int advices = 0;
      ScriptedFaults faults([&](Step step, long result) {
        advices += step == Step::kAdvise;
        return step == Step::kRead && ++reads == refused ? refusal : result;
      });
      MakeEngineOrSkip(EngineKind::kUring, {.faults = &faults});
      if (IsSkipped()) return;
      const std::string bytes = WriteContent("file", 5000);
      EXPECT_TRUE(Read("file").bytes == bytes);
      const bool here = advices == 0;  // taken by this kernel and file system
      EXPECT_TRUE(Read("file").bytes == bytes);
      if (refused == 1 || here) {
        EXPECT_EQ(reads, 3);
        EXPECT_EQ(advices, refused == 1 ? 2 : 1);
      }
      engine_.reset();
    }
  }
}

// Reads that io-wq does come back as deferred task work, which the kernel runs in pieces without announcing each.
TEST_F(Uring, CompletionsOfWorkersAreAllAnnounced) {
  Make({.depth = 512, .workers = 64});
  if (IsSkipped()) return;
  const std::string bytes = WriteContent("file", 512 * 1024);
  const UniqueFd file(::open(Path("file").c_str(), O_RDWR | O_CLOEXEC));
  std::string copy = bytes;
  for (int round = 0; round < 20; ++round) {
    // Appending writes to a file that must grow cannot be done inline.
    for (std::size_t at = 0; at < bytes.size(); at += 1024) {
      const iovec iov{copy.data() + at, 1024};
      engine_->SubmitWritev(file.get(), {&iov, 1}, at + static_cast<std::size_t>(round + 1) * bytes.size(),
                            [](IoResult result) { EXPECT_EQ(result.bytes, 1024U); });
    }
    Drain();
  }
}

TEST_F(Uring, EnginesOfOneThreadLiveSideBySide) {
  Make();
  if (IsSkipped()) return;
  std::unique_ptr<IoEngine> first = std::move(engine_);
  Make({.workers = 8});
  ReadMany(100);
  first.reset();
  ReadMany(100);
}

TEST_F(Uring, TransfersCostLittleMoreThanOneEnterPerBatch) {
  Make({.depth = 64});
  if (IsSkipped()) return;
  WriteContent("file", 4096);
  const UniqueFd file(::open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  std::string seen(64 * 64, 'x');
  const std::uint64_t before = engine_->counters().system_calls;
  for (std::size_t i = 0; i < 64; ++i) {
    const iovec iov{seen.data() + i * 64, 64};
    engine_->SubmitReadv(file.get(), {&iov, 1}, i * 64, [](IoResult) {});
  }
  Drain();
  EXPECT_LE(engine_->counters().system_calls - before, 4U);
}

// An answer that the kernel puts off until the ring is entered (as those of devices) is announced once, not once more when it is taken.
TEST_F(Uring, AnAnswerWakesTheLoopOnce) {
  Make();
  if (IsSkipped()) return;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd from(ends[0]), to(ends[1]);
  for (int i = 0; i < 100; ++i) {
    char seen = 0;
    const iovec iov{&seen, 1};
    int done = 0;
    engine_->SubmitReadv(from.get(), {&iov, 1}, 0, [&done](IoResult result) { done += result.error == 0 && result.bytes == 1; });
    engine_->Flush();
    EXPECT_EQ(engine_->Poll(10), 0U);
    ASSERT_EQ(::write(to.get(), "x", 1), 1);
    pollfd event{engine_->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&event, 1, 10'000), 1);
    EXPECT_EQ(engine_->Poll(10), 1U);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(::poll(&event, 1, 0), 0) << "of " << i;
  }
}

// As the loop meets it when memory runs out: nothing that was taken from the ring with it is lost, and the event says that there is more.
TEST_F(Uring, ACallbackThatThrowsCostsNoOther) {
  Make();
  if (IsSkipped()) return;
  const std::string content = WriteContent("file", 100);
  const UniqueFd file(::open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kEach = 40;
  std::string seen(2 * kEach * 100, 'x');
  std::size_t done = 0;
  const auto end = [&done] {
    if (++done % 3 == 1) throw std::bad_alloc();
  };
  for (std::size_t i = 0; i < kEach; ++i) {
    const iovec iov{seen.data() + i * 100, 100};
    engine_->SubmitReadv(file.get(), {&iov, 1}, 0, [end](IoResult) { end(); });
    FileReadRequest request;
    request.root_fd = root();
    request.path = "file";
    request.buffer = reinterpret_cast<std::byte*>(seen.data()) + (kEach + i) * 100;
    request.capacity = 100;
    engine_->SubmitFileRead(std::move(request), [end](const FileReadResult&) { end(); });
  }
  engine_->Flush();
  while (engine_->in_flight() > 0) {
    pollfd ask{engine_->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ask, 1, kPatienceMs), 1) << engine_->in_flight() << " requests never ended, " << done << " did";
    try {
      engine_->Poll(64);
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_EQ(done, 2 * kEach);
  for (std::size_t i = 0; i < 2 * kEach; ++i) EXPECT_EQ(seen.substr(i * 100, 100), content) << i;
}

}  // namespace
}  // namespace tierd::io
