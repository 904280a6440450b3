// Memory that runs out on the loop thread, inside the tier: the turn is given up, and whatever it was at comes off in a later one (FAULTS F16).
#include <gtest/gtest.h>

#include "tests/ssd/tier_fixture.h"
#include "tests/support/failing_memory.h"

namespace tierd::ssd {
namespace {

constexpr std::size_t kBytes = 20'000;

thread_local bool in_tier = false;

// As the loop does.
template <typename Work>
void Survive(Work&& work) {
  in_tier = true;
  try {
    work();
  } catch (const std::bad_alloc&) {
  }
  in_tier = false;
}

class LoopMemory : public testing::Test {
 protected:
  LoopMemory() {
    test::allocations_count_here = [] { return in_tier; };
  }
  void Append(Life& life, const std::string& path) {
    const RecordIdentity id = life.IdentityOf(path, 1, kBytes);
    const std::vector<std::byte> content = ContentOf(path, 1, 0, kBytes);
    Result<SsdLocation> placed = Status(Code::kBusy, "not asked yet");
    Survive([&] { placed = life.tier->Append(id, path, content); });
    if (placed.ok()) life.Remember(id, *placed, path);
  }
  static void ForgetSome(Life& life, int one_in) {
    std::vector<Life::Name> some;
    int i = 0;
    for (const auto& [name, item] : life.items) {
      if (++i % one_in == 0) some.push_back(name);
    }
    for (const Life::Name& name : some) {
      life.tier->Forget(life.items.at(name).location);
      life.items.erase(name);
    }
  }
  static int Fill(Life& life, const std::string& prefix) {
    int i = 0;
    while (life.Put(prefix + std::to_string(i), 1, kBytes).ok()) ++i;
    return i;
  }
  // A full tier with holes: regions are moved, written, given back and allocated; until the allocation has failed.
  void Bustle(Life& life, long nth) {
    for (int i = 0; i < 32 && (nth == 0 || test::allocations <= nth); ++i) {
      if (i == 10 || i == 20) ForgetSome(life, 4);
      if (i == 20) life.tier->SetCapacity(5 * region_bytes);
      if (i == 26) life.tier->SetCapacity(8 * region_bytes);
      Append(life, "b" + std::to_string(i));
      if (i % 8 == 0) Survive([&] { life.tier->Sync([](Status) {}); });
      for (int turn = 0; turn < 6; ++turn) Survive([&] { life.Turn(); });
      Survive([&] { life.Pass(200'000'000); });
    }
  }
  void Work(long nth) {
    const TempDirectory dir;
    SsdOptions options = SmallOptions(dir.path() + "/c");
    options.capacity_bytes = 8 * options.region_bytes;
    region_bytes = options.region_bytes;
    std::map<Life::Name, Item> left;
    {
      Life life(options);
      ASSERT_TRUE(life.Start().status.ok());
      for (const SsdGone why : {SsdGone::kReclaimed, SsdGone::kNoRoom, SsdGone::kWriteFailed, SsdGone::kDamaged}) life.gone[why] = 0;
      Fill(life, "a");
      ForgetSome(life, 2);
      {
        const test::FailingMemory failing(nth);
        Bustle(life, nth);
      }
      life.tier->SetCapacity(options.capacity_bytes);
      life.Settle();
      life.ExpectAllReadable();
      EXPECT_EQ(life.tier->status().live_records, life.items.size());
      EXPECT_EQ(life.gone[SsdGone::kDamaged] + life.gone[SsdGone::kWriteFailed], 0);
      // Nothing is stuck: it fills up to the last region, and what is forgotten comes back.
      Fill(life, "c");
      EXPECT_EQ(life.tier->status().allocated_bytes, options.capacity_bytes);
      ForgetSome(life, 2);
      int more = 0;
      EXPECT_TRUE(life.RunUntil([&] {
        while (life.Put("d" + std::to_string(more), 1, kBytes).ok()) ++more;
        return more > 20;
      })) << more;
      life.Settle();
      EXPECT_EQ(life.tier->status().live_records, life.items.size());
      left = life.items;
      life.Stop();
    }
    if (nth % 8 != 0) return;  // it takes its time
    Life life(options);
    ASSERT_TRUE(life.Start().status.ok());
    for (const auto& [name, item] : left) EXPECT_TRUE(life.items.contains(name)) << name.first;
  }
  std::uint64_t region_bytes = 0;
};

TEST_F(LoopMemory, EachAllocationFailsOnce) {
  Work(0);
  const long count = test::allocations;
  ASSERT_GT(count, 100);
  for (long n = 1; n <= count; ++n) {
    Work(n);
    ASSERT_FALSE(HasFailure()) << "allocation " << n << " of " << count;
  }
}

// Each of many that wait, so that the line of those that go first grows.
TEST_F(LoopMemory, AReadThatIsHastenedEnds) {
  const TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  options.device_reads = options.background_reads = 1;
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  ASSERT_GT(Fill(life, "a"), 100);
  life.Settle();
  std::vector<io::AlignedBuffer> frames;
  std::size_t asked = 0;
  std::size_t done = 0;
  for (const auto& [name, item] : life.items) {
    io::AlignedBuffer& frame = frames.emplace_back(32'768);
    const Status accepted = life.tier->Read(item.location, item.identity, frame.span(), [&](const ReadResult&) { ++done; }, ReadClass::kBackground);
    ASSERT_TRUE(accepted.ok()) << accepted.ToString();
    ++asked;
  }
  int failed = 0;
  for (const auto& [name, item] : life.items) {
    const test::FailingMemory failing(1);
    Survive([&] { life.tier->Hasten(item.location); });
    failed += test::allocations > 0 ? 1 : 0;
  }
  EXPECT_GT(failed, 0);
  EXPECT_TRUE(life.RunUntil([&] { return done == asked; })) << done << " of " << asked;
  EXPECT_EQ(life.tier->status().reads_in_flight, 0u);
  life.Stop();
}

}  // namespace
}  // namespace tierd::ssd
