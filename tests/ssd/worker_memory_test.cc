// Memory that runs out on the tier's own threads: what they owe the loop comes all the same, the process lives, and what is read is right (FAULTS F16).
#include <gtest/gtest.h>
#include <pthread.h>

#include <string_view>

#include "tests/ssd/tier_fixture.h"
#include "tests/support/failing_memory.h"
#include "tierd/ssd/worker.h"

namespace tierd::ssd {
namespace {

// Not where LevelDB works, which may hold a lock for ever after a lack of memory: what is done about that is in index_queue.cc.
bool OnTierThreads() {
  thread_local int known = -1;
  if (known >= 0) return known == 1;
  char name[16] = "";
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  const bool ours = std::string_view(name).starts_with("tierd-ssd") || std::string_view(name).starts_with("tierd-crc");
  if (ours) known = 1;  // a new thread has its creator's name until it has been given its own
  return ours;
}

class WorkerMemory : public testing::Test {
 protected:
  static constexpr int kRecords = 60;
  WorkerMemory() { test::allocations_count_here = &OnTierThreads; }
  static void Fill(Life& life, const std::string& dir) {
    for (int i = 0; i < kRecords; ++i) {
      const Status put = life.Put(dir + "/f" + std::to_string(i), 1, i % 3 == 0 ? 30'000 : 700 + static_cast<std::size_t>(i));
      ASSERT_TRUE(put.ok()) << put.ToString();
    }
    life.Settle();
  }
  // One life that finds what another has left, with a lack of memory in it, and one that finds what that has left.
  static void Work(long nth) {
    const TempDirectory dir;
    SsdOptions options = SmallOptions(dir.path() + "/c");
    options.inline_checksum_bytes = 1000;
    {
      Life life(options);
      life.Start();
      Fill(life, "a");
      life.Stop();
    }
    {
      Life life(options);
      const test::FailingMemory failing(nth);
      life.Start();
      Fill(life, "b");
      life.ExpectAllReadable();
      bool voided = false;
      life.tier->InvalidateDataset(77, [&](const Status& status) { voided = status.ok(); });
      EXPECT_TRUE(life.RunUntil([&] { return voided; }));
      life.Stop();
    }
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_TRUE(report.status.ok()) << report.status.ToString();
    EXPECT_EQ(life.items.size(), 2u * kRecords);
    life.ExpectAllReadable();
  }
};

TEST_F(WorkerMemory, EachAllocationFailsOnce) {
  Work(0);
  const long count = test::allocations;
  ASSERT_GT(count, 20);
  for (long n = 1; n <= count; ++n) {
    Work(n);
    ASSERT_FALSE(HasFailure()) << "allocation " << n << " of " << count;
  }
}

TEST(WorkerThread, AJobIsRunAgainWhenMemoryRanOut) {
  Worker worker("tierd-test", 1);
  std::atomic<int> runs = 0;
  std::atomic<bool> next = false;
  worker.Post([&] {
    if (++runs < 3) throw std::bad_alloc();
  });
  worker.Post([&] { next = true; });
  for (int i = 0; i < 5000 && !next; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(next);
  EXPECT_EQ(runs, 3);
  // And the end of the tier does not wait for it.
  worker.Post([] { throw std::bad_alloc(); });
  worker.Stop();
}

}  // namespace
}  // namespace tierd::ssd
