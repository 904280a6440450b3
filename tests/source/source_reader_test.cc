// Queueing, priorities, window, budgets, cancelling, engines.
#include <gmock/gmock.h>

#include <limits>

#include "tests/source/reader_fixture.h"

namespace tierd::source {
namespace {

using testing::ElementsAre;

TEST_F(ReaderTest, ReadsAndReportsVersionAndTime) {
  Open(Threads());
  Read("a");
  EXPECT_TRUE(engine().reads.empty());  // nothing is sent before Flush
  reader_->Flush();
  ASSERT_EQ(engine().reads.size(), 1u);
  const io::FileReadRequest& sent = engine().reads.front().request;
  EXPECT_EQ(sent.path, "a");
  EXPECT_EQ(sent.buffer, buffer_);
  EXPECT_EQ(sent.capacity, 4096u);
  EXPECT_EQ(sent.root_fd, source_->root_fd());
  EXPECT_FALSE(sent.follow_symlinks);
  End("a", Good(File(100)));
  const Heard& heard = heard_["a"];
  EXPECT_EQ(heard.done, 1);
  EXPECT_EQ(heard.result.error, ReadError::kNone);
  EXPECT_EQ(heard.result.bytes, 100u);
  EXPECT_EQ(heard.result.buffer, buffer_);
  EXPECT_TRUE(heard.result.version.SameVersion(File(100)));
  EXPECT_EQ(heard.result.stat_sent_ns, 77);
  EXPECT_FALSE(heard.result.racy);
  EXPECT_FALSE(heard.result.buffer_held);
  EXPECT_EQ(heard.freed, 0);
  const SourceCounters counters = reader_->counters();
  EXPECT_EQ(counters.reads[0], 1u);
  EXPECT_EQ(counters.bytes_read, 100u);
  EXPECT_EQ(counters.in_flight, 0u);
}

TEST_F(ReaderTest, AStatThatOpensIsSentAsAReadOfNothing) {
  Open(Threads());
  StatReply reply;
  const auto ask = [&] {
    reply = {};
    StatQuery query;
    query.path = "a";
    query.open = true;
    query.done = [&reply](const StatReply& said) { reply = said; };
    reader_->Stat(std::move(query));
    reader_->Flush();
  };
  ask();
  ASSERT_EQ(engine().reads.size(), 1u);
  EXPECT_EQ(engine().reads.front().request.capacity, 0u);
  const std::int64_t sent_ns = clock_.PreciseNs();
  Advance(kMs);
  End("a", Good(File(100)));
  EXPECT_TRUE(reply.opened);
  EXPECT_TRUE(reply.stat.SameVersion(File(100)));
  EXPECT_EQ(reply.stat_sent_ns, sent_ns);
  EXPECT_EQ(reader_->counters().stats[0], 1u);
  EXPECT_EQ(reader_->counters().reads[0], 0u);

  ask();
  End("a", Failed(EACCES));
  EXPECT_EQ(reply.error, ReadError::kErrno);
  EXPECT_EQ(reply.sys_errno, EACCES);
  EXPECT_FALSE(reply.opened);
}

TEST_F(ReaderTest, AStatThatCannotOpenWhatIsNoFileSaysWhatItIs) {
  Open(Threads());
  StatReply reply;
  StatQuery query;
  query.path = "a";
  query.open = true;
  query.done = [&reply](const StatReply& said) { reply = said; };
  reader_->Stat(std::move(query));
  reader_->Flush();
  End("a", Failed(EINVAL));
  ASSERT_EQ(engine().stats.size(), 1u);
  io::StatResult directory;
  directory.stat = File(0);
  directory.stat.mode = S_IFDIR | 0755;
  ASSERT_TRUE(engine().EndStat("a", directory));
  reader_->Poll(1000);
  EXPECT_EQ(reply.error, ReadError::kNone);
  EXPECT_EQ(reply.stat.mode, S_IFDIR | 0755u);
  EXPECT_FALSE(reply.opened);
}

TEST_F(ReaderTest, DemandOvertakesTenThousandQueuedPrefetches) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 64;
  Open(options);
  for (int i = 0; i < 10'000; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  const std::size_t sent = engine().order.size();
  EXPECT_EQ(sent, 64u);
  Read("ahead", Priority::kReadAhead);
  Read("demand");
  reader_->Flush();
  ASSERT_EQ(engine().order.size(), sent + 1);  // the reserve takes it at once
  EXPECT_EQ(engine().order.back(), "demand");
  End("demand", Good(File(1)));
  End("p0", Good(File(1)));
  End("p1", Good(File(1)));
  ASSERT_GE(engine().order.size(), sent + 3);
  EXPECT_EQ(engine().order[sent + 1], "ahead");
  EXPECT_EQ(engine().order[sent + 2], "p64");
}

TEST_F(ReaderTest, BuffersAreAcquiredWhenSentOnly) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  Open(options);
  int acquired = 0;
  for (int i = 0; i < 100; ++i) {
    ReadRequest request = Request("p" + std::to_string(i), Priority::kPrefetch);
    request.buffer = nullptr;
    request.acquire = [this, &acquired](ReadRequest& sent) {
      sent.buffer = ++acquired > 5 ? nullptr : buffer_;
      return sent.buffer != nullptr;
    };
    reader_->Read(std::move(request));
  }
  reader_->Flush();
  EXPECT_EQ(acquired, 4);
  End("p0", Good(File(1)));
  EXPECT_EQ(heard_["p0"].result.buffer, buffer_);
  End("p1", Good(File(1)));  // the sixth gets none, and so do all that follow
  while (Readable()) reader_->Poll(1000);
  EXPECT_EQ(heard_["p5"].result.error, ReadError::kNoBuffer);
  EXPECT_EQ(heard_["p5"].result.buffer, nullptr);
  EXPECT_EQ(heard_["p99"].done, 1);
}

TEST_F(ReaderTest, OneTurnRefusesAFewOnly) {
  constexpr int kRequests = 1000;
  Open(Threads());
  int asked = 0;
  for (int i = 0; i < kRequests; ++i) {
    ReadRequest request = Request("p", Priority::kPrefetch);
    request.buffer = nullptr;
    request.acquire = [&asked](ReadRequest&) { return ++asked > kRequests; };
    reader_->Read(std::move(request));
  }
  reader_->Flush();
  int most = asked;
  while (Readable()) {
    const int before = asked;
    reader_->Poll(1000);
    most = std::max(most, asked - before);
  }
  EXPECT_LE(most, 16);
  EXPECT_EQ(asked, kRequests);
  EXPECT_EQ(heard_["p"].done, kRequests);
}

TEST_F(ReaderTest, WhatARequestIsForMayBeSettledWhenItIsSent) {
  Open(Threads());
  ReadRequest request = Request("file", Priority::kPrefetch);
  request.buffer = nullptr;
  request.acquire = [this](ReadRequest& sent) {
    sent.buffer = buffer_;
    sent.offset = 8192;
    sent.capacity = 2048;
    sent.further = {{buffer_ + 3072, 1024}, {buffer_ + 2048, 1024}};
    reader_->Read(Request("other"));  // may be asked for here
    return true;
  };
  reader_->Read(std::move(request));
  reader_->Flush();
  ASSERT_EQ(engine().order, (std::vector<std::string>{"file", "other"}));
  const io::FileReadRequest& sent = engine().reads.front().request;
  EXPECT_EQ(sent.offset, 8192u);
  EXPECT_EQ(sent.capacity, 2048u);
  ASSERT_EQ(sent.further.size(), 2u);
  EXPECT_EQ(sent.further[0].iov_base, buffer_ + 3072);
  // Less than the file has in all pieces together is no answer: it is read again.
  const auto of_size = [this](std::uint64_t size, std::size_t bytes) {
    io::FileReadResult result = Good(File(1));
    result.before.size = result.after.size = size;
    result.bytes = bytes;
    return result;
  };
  End("file", of_size(20'000, 4000));
  EXPECT_EQ(heard_["file"].done, 0);
  End("file", of_size(20'000, 4096));
  EXPECT_EQ(heard_["file"].result.bytes, 4096u);
  EXPECT_EQ(heard_["file"].result.error, ReadError::kNone);
}

TEST_F(ReaderTest, PromoteMovesAQueuedRequestToTheFront) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  Open(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(Read("p" + std::to_string(i), Priority::kPrefetch));
  reader_->Flush();
  reader_->Promote(ids[50], Priority::kDemand, In(kSecond));
  reader_->Promote(ids[60], Priority::kReadAhead, 0);
  reader_->Promote(ids[0], Priority::kDemand, 0);  // already sent
  reader_->Promote(ids[50], Priority::kPrefetch, 0);  // never lowered
  reader_->Flush();
  EXPECT_EQ(engine().order.back(), "p50");
  End("p50", Good(File(1)));
  End("p0", Good(File(1)));
  EXPECT_EQ(engine().order.back(), "p60");
  EXPECT_EQ(reader_->counters().queued[2], 94u);
}

TEST_F(ReaderTest, CancelRemovesOnlyWhatIsNotSent) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  Open(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 10; ++i) ids.push_back(Read("p" + std::to_string(i), Priority::kPrefetch, In(kSecond)));
  reader_->Flush();
  EXPECT_FALSE(reader_->Cancel(ids[0]));
  EXPECT_TRUE(reader_->Cancel(ids[4]));
  EXPECT_FALSE(reader_->Cancel(ids[4]));
  EXPECT_FALSE(reader_->Cancel(RequestId{999}));
  End("p0", Good(File(1)));
  EXPECT_EQ(engine().order.back(), "p5");
  Advance(2 * kSecond);
  EXPECT_EQ(heard_["p4"].done, 0);
}

TEST_F(ReaderTest, RequestBudgetIsHeldAndDemandGoesFirst) {
  SourceOptions options = Threads();
  options.requests_per_second = 100;
  Open(options);
  reader_->Flush();
  for (int i = 0; i < 10'000; ++i) Read("p", Priority::kPrefetch);
  int demand_sent = 0;
  for (int step = 0; step < 1000; ++step) {  // ten seconds
    if (step % 100 == 0) Read("d" + std::to_string(step));
    Advance(10 * kMs);
    while (engine().EndRead("p", Good(File(1)))) {
    }
    if (step % 100 == 0 && engine().EndRead("d" + std::to_string(step), Good(File(1)))) ++demand_sent;
    reader_->Poll(1000);
  }
  EXPECT_NEAR(static_cast<double>(engine().order.size()), 1000, 15);
  EXPECT_EQ(demand_sent, 10);
}

TEST_F(ReaderTest, WhatOthersTakeFromTheRequestBudgetIsNotThere) {
  SourceOptions options = Threads();
  options.requests_per_second = 10;
  Open(options);
  reader_->Flush();
  Advance(kSecond);
  RequestBudget& budget = *reader_->request_budget();
  EXPECT_EQ(budget.TakeIfAllowed(clock_.PreciseNs(), true), clock_.PreciseNs());
  Read("a");
  reader_->Flush();
  EXPECT_TRUE(engine().order.empty());
  // Another one looks when the token is there, and leaves it: the reader must not forget that it waits for it.
  clock_.Advance(101 * kMs);
  EXPECT_EQ(budget.AllowedAt(clock_.PreciseNs(), false), clock_.PreciseNs());
  EXPECT_LE(reader_->next_tick_ns(), clock_.PreciseNs());
  reader_->Tick(clock_.PreciseNs());
  EXPECT_EQ(engine().order.size(), 1u);
}

TEST_F(ReaderTest, ByteBudgetCountsWhatWasRead) {
  SourceOptions options = Threads();
  options.bytes_per_second = 100'000;
  Open(options);
  reader_->Flush();
  for (int i = 0; i < 10'000; ++i) Read("p", Priority::kPrefetch);
  for (int step = 0; step < 1000; ++step) {
    Advance(10 * kMs);
    while (engine().EndRead("p", Good(File(1000)))) {
    }
    reader_->Poll(1000);
  }
  EXPECT_NEAR(static_cast<double>(reader_->counters().bytes_read), 1e6, 0.03e6);
  reader_->SetBudgets(0, 0);
  reader_->Flush();
  EXPECT_GE(engine().reads.size(), 8u);
}

TEST_F(ReaderTest, TellsWhenTheBudgetAllowsTheNextRequest) {
  SourceOptions options = Threads();
  options.requests_per_second = 10;
  Open(options);
  EXPECT_EQ(reader_->next_tick_ns(), std::numeric_limits<std::int64_t>::max());
  reader_->Flush();
  Read("a");
  reader_->Flush();
  EXPECT_TRUE(engine().reads.empty());
  const std::int64_t next = reader_->next_tick_ns();
  EXPECT_GT(next, clock_.MonotonicNs());
  EXPECT_LE(next, In(110 * kMs));
  Advance(next - clock_.MonotonicNs());
  EXPECT_EQ(engine().reads.size(), 1u);
}

TEST_F(ReaderTest, QueueIsBounded) {
  SourceOptions options = Threads();
  options.queue_max = 10;
  Open(options);
  for (int i = 0; i < 20; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  Read("d");
  EXPECT_EQ(heard_["p10"].done, 0);  // never inside Read()
  EXPECT_TRUE(Readable());
  reader_->Poll(1000);
  EXPECT_EQ(heard_["p9"].done, 0);
  EXPECT_EQ(heard_["p10"].result.error, ReadError::kNoBuffer);
  EXPECT_EQ(heard_["d"].result.error, ReadError::kHung);
}

TEST_F(ReaderTest, PollKeepsItsBudget) {
  Open(Threads());
  for (int i = 0; i < 10; ++i) Read("p" + std::to_string(i));
  reader_->Flush();
  for (int i = 0; i < 10; ++i) engine().EndRead("p" + std::to_string(i), Good(File(1)));
  EXPECT_EQ(reader_->Poll(3), 3u);
  EXPECT_TRUE(Readable());
  EXPECT_EQ(reader_->Poll(100), 7u);
  EXPECT_FALSE(Readable());
}

TEST_F(ReaderTest, CallbacksMaySubmitAndCancel) {
  Open(Threads());
  ReadRequest request = Request("a");
  request.done = [this](const ReadResult&) {
    Read("b");
    EXPECT_TRUE(reader_->Cancel(Read("c")));
    reader_->Flush();
  };
  reader_->Read(std::move(request));
  reader_->Flush();
  End("a", Good(File(1)));
  EXPECT_THAT(engine().order, ElementsAre("a", "b"));
}

TEST_F(ReaderTest, StatGivesAnyTypeAndRefusesOtherMounts) {
  Open(Threads());
  std::map<std::string, StatReply> replies;
  for (const char* path : {"a", "b", "c", "d"}) {
    StatQuery query;
    query.path = path;
    query.done = [&replies, path](const StatReply& reply) { replies[path] = reply; };
    reader_->Stat(std::move(query));
  }
  reader_->Flush();
  io::StatResult directory;
  directory.stat = File(10);
  directory.stat.mode = S_IFDIR | 0755;
  directory.stat_sent_ns = 5;
  io::StatResult elsewhere = directory;
  ++elsewhere.stat.dev;
  io::StatResult missing;
  missing.error = ENOENT;
  io::StatResult above;
  above.error = EXDEV;
  engine().EndStat("a", directory);
  engine().EndStat("b", elsewhere);
  engine().EndStat("c", missing);
  engine().EndStat("d", above);
  reader_->Poll(10);
  EXPECT_EQ(replies["a"].error, ReadError::kNone);
  EXPECT_EQ(replies["a"].stat.mode, static_cast<std::uint32_t>(S_IFDIR | 0755));
  EXPECT_EQ(replies["a"].stat_sent_ns, 5);
  EXPECT_EQ(replies["b"].error, ReadError::kOutside);
  EXPECT_EQ(replies["c"].error, ReadError::kErrno);
  EXPECT_EQ(replies["c"].sys_errno, ENOENT);
  EXPECT_EQ(replies["d"].error, ReadError::kOutside);
  EXPECT_EQ(reader_->counters().stats[0], 1u);
}

TEST_F(ReaderTest, StopEndsEverythingOnce) {
  SourceOptions options = Threads();
  options.window_start = options.window_max = 4;
  options.demand_reserve = 1;
  Open(options);
  for (int i = 0; i < 10; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  engine().EndRead("p0", Good(File(1)));
  EXPECT_EQ(reader_->Stop(0), 3u);
  EXPECT_EQ(heard_["p0"].result.error, ReadError::kNone);
  EXPECT_EQ(heard_["p1"].result.error, ReadError::kStopped);
  EXPECT_TRUE(heard_["p1"].result.buffer_held);
  EXPECT_EQ(heard_["p9"].result.error, ReadError::kStopped);
  EXPECT_FALSE(heard_["p9"].result.buffer_held);
  Read("later");
  End("p1", Good(File(1)));
  EXPECT_EQ(heard_["p1"].done, 1);
  EXPECT_EQ(heard_["p1"].freed, 1);
  EXPECT_EQ(heard_["later"].result.error, ReadError::kStopped);
}

TEST_F(ReaderTest, TellsOfAnEngineThatBecameThreads) {
  SourceOptions options;
  options.engine = io::EngineKind::kUring;
  Open(options);
  EXPECT_STREQ(reader_->counters().engine, "io_uring");
  engine(io::EngineKind::kUring).label = "threads";
  EXPECT_STREQ(reader_->counters().engine, "threads");
  EXPECT_TRUE(reader_->Report().starts_with(std::string("engine threads (") + io::kNoWorkers)) << reader_->Report();
}

TEST_F(ReaderTest, TakesThreadsWhereUringIsRefused) {
  refused_ = io::EngineKind::kUring;
  Open(SourceOptions());
  EXPECT_STREQ(reader_->counters().engine, "threads");
  if (!source_->fs().is_network) {
    EXPECT_NE(reader_->Report().find("io_uring cannot be used: refused by the test"), std::string::npos) << reader_->Report();
  }
}

TEST_F(ReaderTest, FailsWhereTheForcedEngineCannotBeMade) {
  refused_ = io::EngineKind::kUring;
  SourceOptions options;
  options.engine = io::EngineKind::kUring;
  const EngineFactory factory = [](io::EngineKind, const io::EngineOptions&) -> Result<std::unique_ptr<io::IoEngine>> {
    return Status(Code::kUnsupported, "no");
  };
  EXPECT_FALSE(SourceReader::Create(OpenSource(tree_.path()), factory, clock_, options).ok());
}

TEST_F(ReaderTest, MeasuresBothEnginesOnRealRequestsAndKeepsTheFaster) {
  Open(SourceOptions());
  const bool network = source_->fs().is_network;
  const io::EngineKind preferred = network ? io::EngineKind::kThreads : io::EngineKind::kUring;
  const io::EngineKind other = network ? io::EngineKind::kUring : io::EngineKind::kThreads;
  std::map<std::string, int> read;
  const std::string before = preferred == io::EngineKind::kThreads ? "threads" : "io_uring";
  int changes = 0;  // of what people are told
  std::string told = before;
  for (int i = 0; i < 5000; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  for (int turn = 0; turn < 20'000 && reader_->counters().reads[0] < 5000; ++turn) {
    // The preferred engine needs three times as long.
    for (const auto& [kind, fake] : engines_) {
      if (kind == preferred && turn % 3 != 0) continue;
      if (fake->reads.empty()) continue;
      const std::string path = fake->reads.front().request.path;
      ++read[path];
      fake->EndRead(path, Good(File(1)));
    }
    clock_.Advance(kMs);
    reader_->Poll(1000);
    const std::string now = reader_->counters().engine;
    EXPECT_EQ(reader_->Report().find("engine " + now + (now == before ? " (not measured yet)" : " (measured: ")), 0u) << reader_->Report();
    if (now != told) ++changes;
    told = now;
  }
  EXPECT_EQ(changes, 1) << "the turns of the trial are no changes";
  EXPECT_EQ(reader_->counters().reads[0], 5000u);
  EXPECT_STREQ(reader_->counters().engine, other == io::EngineKind::kThreads ? "threads" : "io_uring");
  EXPECT_FALSE(engines_.contains(preferred));  // retired
  for (const auto& [path, times] : read) EXPECT_EQ(times, 1) << path;
}

TEST_F(ReaderTest, KeepsThePreferredEngineWhereBothAreAlikeThoughTheWindowGrows) {
  SourceOptions options;
  options.window_max = 448;
  Open(options);
  const std::string preferred = reader_->counters().engine;
  for (int i = 0; i < 20'000; ++i) Read("p" + std::to_string(i), Priority::kPrefetch);
  reader_->Flush();
  // Each request takes a millisecond, however many there are: the window is the limit.
  for (int turn = 0; turn < 5000 && reader_->counters().reads[0] < 20'000; ++turn) {
    clock_.Advance(kMs);
    for (const auto& [kind, fake] : engines_) {
      while (!fake->reads.empty()) fake->EndRead(std::string(fake->reads.front().request.path), Good(File(1)));
    }
    reader_->Poll(1000);
  }
  EXPECT_EQ(reader_->counters().reads[0], 20'000u);
  EXPECT_EQ(reader_->counters().window, 448u);
  EXPECT_EQ(reader_->Report().find("engine " + preferred + " (measured: "), 0u) << reader_->Report();
}

TEST_F(ReaderTest, LatencyHistogramCounts) {
  Open(Threads());
  Read("fast");
  Read("slow");
  reader_->Flush();
  clock_.Advance(50'000);
  End("fast", Good(File(1)));
  clock_.Advance(kSecond);
  End("slow", Good(File(1)));
  const SourceCounters counters = reader_->counters();
  EXPECT_EQ(counters.latency[0], 1u);
  EXPECT_EQ(counters.latency[14], 1u);  // 100 us * 2^13 = 0.82 s < 1 s <= 1.64 s
  EXPECT_EQ(counters.latency_ns_sum, 50'000u + 50'000u + 1'000'000'000u);
  EXPECT_EQ(counters.stat_latency_ns_sum, 0u);
}

}  // namespace
}  // namespace tierd::source
