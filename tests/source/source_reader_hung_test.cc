// A source that gives no answer: deadlines, buffers held by late I/O, the cap, probes, recovery.
#include "tests/source/reader_fixture.h"

namespace tierd::source {
namespace {

class ReaderHung : public ReaderTest {
 protected:
  void OpenCapped(std::uint32_t cap) {
    SourceOptions options = Threads();
    options.window_start = 64;
    options.hung_cap = cap;
    Open(options);
  }
  // `count` demand reads that run into their deadline.
  void Hang(int count) {
    for (int i = 0; i < count; ++i) Read("h" + std::to_string(i), Priority::kDemand, In(kSecond));
    reader_->Flush();
    Advance(kSecond);
  }
};

TEST_F(ReaderTest, AShortageOfOursIsTriedAgainLaterWithFewerInFlight) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 8;
  Open(options);
  const auto name = [](int i) { return "p" + std::to_string(i); };
  std::vector<RequestId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(Read(name(i), Priority::kPrefetch));
  reader_->Flush();
  EXPECT_EQ(engine().order.size(), 8u);
  for (int i = 0; i < 8; ++i) End(name(i), Failed(EMFILE));
  EXPECT_TRUE(heard_.empty());
  EXPECT_EQ(engine().order.size(), 8u);
  EXPECT_EQ(reader_->counters().window, 4u) << "halved once for all of them";
  EXPECT_EQ(reader_->counters().window_cuts, 1u);
  EXPECT_EQ(reader_->next_tick_ns(), In(10 * kMs));
  EXPECT_FALSE(reader_->Cancel(ids[0])) << "it has been sent: its buffer may be the caller's memory";
  Advance(10 * kMs);
  EXPECT_EQ(engine().reads.size(), 4u);
  while (!engine().reads.empty()) End(engine().reads.front().request.path, Good(File(1)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(heard_[name(i)].result.error, ReadError::kNone) << i;
  EXPECT_EQ(reader_->counters().queued[2], 0u);
}

TEST_F(ReaderTest, AShortageOfOursIsNeverTheSourcesWord) {
  Open(Threads());
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    const std::string path = "f" + std::to_string(error);
    Read(path);
    StatReply reply;
    int told = 0;
    StatQuery query;
    query.path = path;
    query.done = [&](const StatReply& got) {
      reply = got;
      ++told;
    };
    reader_->Stat(std::move(query));
    int attempts = 0;
    for (; attempts < 20 && (heard_[path].done == 0 || told == 0); ++attempts) {
      reader_->Flush();
      while (engine().EndRead(path, Failed(error))) {
      }
      io::StatResult failed;
      failed.error = error;
      while (engine().EndStat(path, failed)) {
      }
      reader_->Poll(1000);
      Advance(kSecond);
    }
    EXPECT_EQ(attempts, 5);
    EXPECT_EQ(heard_[path].result.error, ReadError::kNoBuffer);
    EXPECT_EQ(heard_[path].result.buffer, buffer_);
    EXPECT_EQ(reply.error, ReadError::kNoBuffer);
    EXPECT_EQ(reply.sys_errno, 0);
  }
}

// A server that has no memory for one file is asked for the others as before.
TEST_F(ReaderTest, AFileThatTakesTooMuchMemoryKeepsNobodyFromTheOthers) {
  Open(Threads());
  const std::uint64_t cuts = reader_->counters().window_cuts;
  for (int i = 0; i < 3; ++i) {
    const std::string other = "other" + std::to_string(i);
    Read("big");
    for (int attempts = 0; attempts < 20 && heard_["big"].done == i; ++attempts) {
      reader_->Flush();
      while (engine().EndRead("big", Failed(ENOMEM))) {
      }
      reader_->Poll(1000);
    }
    EXPECT_EQ(heard_["big"].result.error, ReadError::kNoBuffer);
    Read(other);
    reader_->Flush();
    End(other, Good(File(1)));
    EXPECT_EQ(heard_[other].result.error, ReadError::kNone);
  }
  EXPECT_EQ(reader_->counters().window_cuts, cuts);
  // Of several it is said of us.
  for (const char* name : {"one", "two"}) {
    Read(name);
    reader_->Flush();
    while (engine().EndRead(name, Failed(ENOMEM))) {
    }
    reader_->Poll(1000);
  }
  EXPECT_GT(reader_->counters().window_cuts, cuts);
}

TEST_F(ReaderHung, DeadlineAnswersTheWaiterAndKeepsTheBuffer) {
  Open(Threads());
  Read("a", Priority::kDemand, In(kSecond));
  reader_->Flush();
  EXPECT_EQ(reader_->next_tick_ns(), In(kSecond));
  Advance(999 * kMs);
  EXPECT_EQ(heard_["a"].done, 0);
  Advance(kMs);
  EXPECT_EQ(heard_["a"].done, 1);
  EXPECT_EQ(heard_["a"].result.error, ReadError::kTimeout);
  EXPECT_TRUE(heard_["a"].result.buffer_held);
  EXPECT_EQ(heard_["a"].freed, 0);
  EXPECT_EQ(engine().compensated, 1u);
  EXPECT_EQ(reader_->counters().hung, 1u);
  EXPECT_EQ(reader_->counters().in_flight, 0u);
  EXPECT_EQ(reader_->state(), SourceState::kSlow);
  Advance(100 * kSecond);
  End("a", Good(File(100)));
  EXPECT_EQ(heard_["a"].done, 1);
  EXPECT_EQ(heard_["a"].freed, 1);
  EXPECT_EQ(heard_["a"].late.error, ReadError::kNone);
  EXPECT_EQ(heard_["a"].late.bytes, 100u);
  EXPECT_EQ(heard_["a"].late.buffer, buffer_);
  EXPECT_EQ(reader_->state(), SourceState::kUp);
  EXPECT_EQ(reader_->counters().late_completions, 1u);
  EXPECT_EQ(reader_->counters().hung, 0u);
}

TEST_F(ReaderHung, ALateCompletionIsNotRetried) {
  Open(Threads());
  Read("a", Priority::kDemand, In(kSecond));
  reader_->Flush();
  Advance(kSecond);
  End("a", Failed(ESTALE));
  EXPECT_EQ(heard_["a"].freed, 1);
  EXPECT_EQ(heard_["a"].late.error, ReadError::kTimeout);
  EXPECT_EQ(engine().order.size(), 1u);
}

TEST_F(ReaderHung, ARequestThatWasNeverSentGivesItsBufferBackAtOnce) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  options.demand_reserve = 1;
  Open(options);
  for (int i = 0; i < 5; ++i) Read("p" + std::to_string(i));
  Read("a", Priority::kDemand, In(kSecond));
  reader_->Flush();
  Advance(kSecond);
  EXPECT_EQ(heard_["a"].result.error, ReadError::kTimeout);
  EXPECT_FALSE(heard_["a"].result.buffer_held);
  EXPECT_EQ(reader_->counters().hung, 0u);
}

TEST_F(ReaderHung, HungRequestsTakeNoSlotFromOthers) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  options.demand_reserve = 1;
  Open(options);
  Hang(5);
  EXPECT_EQ(heard_["h4"].result.error, ReadError::kTimeout);
  for (int i = 0; i < 5; ++i) Read("d" + std::to_string(i), Priority::kDemand, In(kSecond));
  reader_->Flush();
  EXPECT_EQ(engine().reads.size(), 10u);
  End("d0", Good(File(1)));
  EXPECT_EQ(heard_["d0"].result.error, ReadError::kNone);
}

TEST_F(ReaderHung, AFullWindowBesideAHungRequestAsksForNoTick) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  options.demand_reserve = 1;
  Open(options);
  Read("h", Priority::kDemand, In(kSecond));
  reader_->Flush();
  Advance(kSecond);
  Read("d");
  reader_->Flush();
  End("d", Good(File(1)));  // the others are well
  for (int i = 0; i < 20; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  EXPECT_EQ(reader_->state(), SourceState::kSlow);
  EXPECT_GT(reader_->next_tick_ns(), In(9 * kSecond));  // nothing but hung_after: a loop must not spin on us
}

TEST_F(ReaderHung, PrefetchesWithoutDeadlineAreDeclaredHungAndEndNormally) {
  Open(Threads());
  Read("p", Priority::kPrefetch);
  reader_->Flush();
  Advance(10 * kSecond);
  EXPECT_EQ(reader_->counters().hung, 1u);
  EXPECT_EQ(engine().compensated, 1u);
  EXPECT_EQ(heard_["p"].done, 0);
  End("p", Good(File(1)));
  EXPECT_EQ(heard_["p"].result.error, ReadError::kNone);
  EXPECT_FALSE(heard_["p"].result.buffer_held);
  EXPECT_EQ(heard_["p"].freed, 0);
}

TEST_F(ReaderHung, AWaiterThatJoinsAHungPrefetchStillHasItsDeadline) {
  Open(Threads());
  const RequestId id = Read("p", Priority::kPrefetch);
  reader_->Flush();
  Advance(10 * kSecond);
  reader_->Promote(id, Priority::kDemand, In(kSecond));
  Advance(kSecond);
  EXPECT_EQ(heard_["p"].result.error, ReadError::kTimeout);
  EXPECT_TRUE(heard_["p"].result.buffer_held);
  EXPECT_EQ(reader_->counters().hung_total, 1u);
  End("p", Good(File(1)));
  EXPECT_EQ(heard_["p"].done, 1);
  EXPECT_EQ(heard_["p"].freed, 1);
}

TEST_F(ReaderHung, PastTheCapDemandIsRefusedAtOnceButForProbes) {
  OpenCapped(8);
  Hang(8);
  EXPECT_EQ(reader_->state(), SourceState::kHung);
  Read("probe", Priority::kDemand, In(kSecond));  // the interval has passed: one may try
  reader_->Flush();
  EXPECT_EQ(engine().order.back(), "probe");
  Read("a", Priority::kDemand, In(kSecond));
  EXPECT_TRUE(Readable());
  reader_->Poll(10);
  EXPECT_EQ(heard_["a"].result.error, ReadError::kHung);
  EXPECT_FALSE(heard_["a"].result.buffer_held);
  EXPECT_EQ(reader_->counters().refused_hung, 1u);
  Advance(kSecond);  // the probe hangs as well
  EXPECT_EQ(reader_->counters().hung, 9u);
  EXPECT_EQ(heard_["probe"].result.error, ReadError::kTimeout);
}

TEST_F(ReaderHung, QueuedDemandIsRefusedWhenTheCapIsReached) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  options.demand_reserve = 1;
  options.hung_cap = 5;
  Open(options);
  for (int i = 0; i < 5; ++i) Read("h" + std::to_string(i), Priority::kDemand, In(kSecond));
  for (int i = 0; i < 5; ++i) Read("q" + std::to_string(i), Priority::kDemand, In(2 * kSecond));
  reader_->Flush();
  Advance(kSecond);
  reader_->Poll(100);
  EXPECT_EQ(heard_["q0"].result.error, ReadError::kHung);
  EXPECT_EQ(heard_["q4"].done, 1);
  Advance(2 * kSecond);
  EXPECT_EQ(heard_["q4"].done, 1);
}

TEST_F(ReaderHung, ProbesThatHangComeMoreAndMoreSeldom) {
  OpenCapped(4);
  Hang(4);
  int probes = 0;
  for (int second = 0; second < 300; ++second) {
    const std::size_t before = engine().order.size();
    Read("probe" + std::to_string(second), Priority::kDemand, In(500 * kMs));
    reader_->Flush();
    probes += static_cast<int>(engine().order.size() - before);
    Advance(kSecond);
    reader_->Poll(100);
  }
  EXPECT_GE(probes, 6);
  EXPECT_LE(probes, 16);
  EXPECT_LE(reader_->counters().hung, 20u);
}

TEST_F(ReaderHung, ComesBackWhenTheHungOnesReturn) {
  OpenCapped(4);
  Hang(4);
  for (int i = 0; i < 3; ++i) End("h" + std::to_string(i), Failed(EIO));
  EXPECT_EQ(reader_->state(), SourceState::kSlow);
  Read("a", Priority::kDemand, In(kSecond));
  reader_->Flush();
  End("a", Good(File(1)));
  EXPECT_EQ(heard_["a"].result.error, ReadError::kNone);
  End("h3", Good(File(1)));
  EXPECT_EQ(reader_->state(), SourceState::kUp);
}

TEST_F(ReaderHung, PrefetchesStayAwayFromASilentSource) {
  OpenCapped(64);
  Hang(2);
  for (int i = 0; i < 1000; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  Advance(10 * kSecond);
  EXPECT_LE(engine().order.size(), 4u);  // probes only
  EXPECT_LT(reader_->next_tick_ns(), In(2 * kSecond));
  End("h0", Good(File(1)));  // a sign of life
  EXPECT_GE(engine().order.size(), 60u);
}

TEST_F(ReaderHung, PrefetchesFillHalfTheCapAtMost) {
  OpenCapped(8);
  for (int i = 0; i < 1000; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  for (int round = 0; round < 30; ++round) {
    Advance(10 * kSecond);
    if (!engine().reads.empty()) End(engine().reads.back().request.path, Good(File(1)));
  }
  Read("d", Priority::kDemand, In(kSecond));
  reader_->Flush();
  Advance(0);
  // All of the first window hung, which is more than the cap: demand is refused then, and only then.
  EXPECT_GE(reader_->counters().hung_total, 60u);
  EXPECT_LE(engine().order.size(), 64u + 30u + 2u);
}

TEST_F(ReaderHung, StatsHaveDeadlinesToo) {
  Open(Threads());
  int answers = 0;
  StatReply last;
  StatQuery query;
  query.path = "s";
  query.deadline_ns = In(kSecond);
  query.done = [&](const StatReply& reply) {
    ++answers;
    last = reply;
  };
  reader_->Stat(std::move(query));
  reader_->Flush();
  Advance(kSecond);
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(last.error, ReadError::kTimeout);
  engine().EndStat("s", io::StatResult());
  reader_->Poll(10);
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(reader_->counters().hung, 0u);
}

}  // namespace
}  // namespace tierd::source
