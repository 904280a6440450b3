// Memory that runs out while a part is asked for: its frame comes back, and the reader has an answer.
#include "tests/engine/parts_fixture.h"
#include "tests/support/failing_memory.h"

namespace tierd::engine {
namespace {

TEST_F(PartsTest, WhateverCannotBeAllocatedNoFrameIsLost) {
  Start();
  const std::thread::id loop = std::this_thread::get_id();
  static std::thread::id counted;
  counted = loop;
  test::allocations_count_here = [] { return std::this_thread::get_id() == counted; };
  (void)engine().ram().ReclaimLimbo(4096);
  const std::uint64_t free = engine().ram().free_bytes();
  for (long nth = 1; nth < 12; ++nth) {
    FetchRequest request;
    request.session = kReader;
    request.path = name_;
    request.entry.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
    request.entry.flags = abi::kFetchPart;
    request.entry.chunk = out_[0];
    request.entry.request_id = 5'000'000 + static_cast<std::uint64_t>(nth);
    request.part = {static_cast<std::uint32_t>(nth) * 200'000, 1000};
    bool asked = false;
    {
      const test::FailingMemory failing(nth);
      asked = Survives([&] { engine().Fetch(unit(), request); });
    }
    if (!asked) engine().NoteLost();  // as the server does
    engine().EndTurn();
    ASSERT_TRUE(RunUntil([&] { return !asked || answers().contains(request.entry.request_id); })) << nth;
    ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); })) << nth;
    (void)engine().ram().ReclaimLimbo(4096);
    EXPECT_EQ(engine().ram().free_bytes(), free) << nth;
    EXPECT_FALSE(engine().placement().TransitInUse()) << nth;
    EXPECT_TRUE(engine().placement().OnSsd(ObjectOf(name_, out_[0]))) << "taken for unreadable: " << nth;
  }
  // The device may be taken for slow by now: some readers are sent to the source until it has shown better (F08).
  Answer answer = FetchPart(out_[1], 3'000'000, 1000);
  for (int i = 0; i < 200 && answer.status() != abi::FetchStatus::kFrame; ++i) answer = FetchPart(out_[1], 3'000'000, 1000);
  ExpectHas(answer, out_[1], 3'000'000, 1000);
}

}  // namespace
}  // namespace tierd::engine
