#include "tierd/source/blocking_pool.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace tierd::source {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// A door that tasks wait at: a call that hangs until the test lets it go.
class Door {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitWaiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

class BlockingPoolTest : public testing::Test {
 protected:
  void PollUntil(BlockingPool* pool, const std::function<bool()>& done) {
    for (int i = 0; i < 1000 && !done(); ++i) {
      pollfd fd{pool->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 10);
      pool->Poll(100);
    }
    EXPECT_TRUE(done());
  }
  ManualClock clock_;
  // Outlives the pool: its tasks may still hold it.
  std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

TEST_F(BlockingPoolTest, RunsTasksOnWorkersAndClosuresOnTheCaller) {
  BlockingPool pool(clock_, PoolOptions{.threads = 3});
  const std::thread::id here = std::this_thread::get_id();
  int ran = 0;
  std::atomic<int> elsewhere = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.Submit(1, [&, here](TaskContext& context) {
                      elsewhere += std::this_thread::get_id() != here;
                      context.Post([&, here] { ran += std::this_thread::get_id() == here; });
                    }).ok());
  }
  PollUntil(&pool, [&] { return ran == 100 && pool.pending() == 0; });  // a task ends after what it posts
  EXPECT_EQ(elsewhere, 100);
}

TEST_F(BlockingPoolTest, ReplacesHungWorkersUpToTheLimit) {
  BlockingPool pool(clock_, PoolOptions{.threads = 2, .max_replacements = 2, .hung_after_ns = kSecond});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(pool.Submit(7, [door = door_](TaskContext&) { door->Pass(); }).ok());
  }
  door_->AwaitWaiting(2);
  clock_.Advance(kSecond);
  pool.Tick(clock_.MonotonicNs());
  EXPECT_EQ(pool.CountHung(7), 2u);
  EXPECT_EQ(pool.CountHung(8), 0u);
  door_->AwaitWaiting(4);  // the replacements took the other two
  clock_.Advance(kSecond);
  pool.Tick(clock_.MonotonicNs());
  EXPECT_EQ(pool.hung(), 4u);
  bool late = false;
  ASSERT_TRUE(pool.Submit(8, [&](TaskContext& context) { context.Post([&] { late = true; }); }).ok());
  pool.Poll(10);
  EXPECT_FALSE(late);
  EXPECT_EQ(pool.pending(), 5u);
  door_->Open();
  PollUntil(&pool, [&] { return late; });
  PollUntil(&pool, [&] { return pool.hung() == 0; });
}

TEST_F(BlockingPoolTest, DestructorLeavesAHungWorkerBehind) {
  {
    BlockingPool pool(clock_, PoolOptions{.threads = 2, .hung_after_ns = kSecond});
    ASSERT_TRUE(pool.Submit(1, [door = door_](TaskContext& context) {
                      door->Pass();
                      EXPECT_TRUE(context.stopping());
                      EXPECT_FALSE(context.Post([] { FAIL(); }));
                      context.Submit(1, [](TaskContext&) { FAIL(); });
                    }).ok());
    door_->AwaitWaiting(1);
    clock_.Advance(kSecond);
    pool.Tick(clock_.MonotonicNs());
    EXPECT_EQ(pool.hung(), 1u);
  }
  door_->Open();
  // The task holds a reference until it is over.
  while (door_.use_count() > 1) std::this_thread::yield();
}

TEST_F(BlockingPoolTest, PostPausesWhileTheLoopIsBusy) {
  BlockingPool pool(clock_, PoolOptions{.threads = 1, .hung_after_ns = kSecond, .max_posted = 3});
  std::atomic<int> posted = 0;
  int ran = 0;
  ASSERT_TRUE(pool.Submit(1, [&](TaskContext& context) {
                    for (int i = 0; i < 10; ++i) {
                      context.Post([&] { ++ran; });
                      ++posted;
                    }
                  }).ok());
  while (posted < 3) std::this_thread::yield();
  EXPECT_LE(posted, 3);
  EXPECT_EQ(pool.Poll(2), 2u);
  PollUntil(&pool, [&] { return ran == 10; });
}

TEST_F(BlockingPoolTest, TasksAddTasksNewestFirst) {
  BlockingPool pool(clock_, PoolOptions{.threads = 1, .newest_first = true});
  std::vector<int> order;
  ASSERT_TRUE(pool.Submit(1, [&](TaskContext& context) {
                    for (int i = 0; i < 3; ++i) {
                      context.Submit(1, [&, i](TaskContext& inner) { inner.Post([&, i] { order.push_back(i); }); });
                    }
                  }).ok());
  PollUntil(&pool, [&] { return order.size() == 3; });
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
}

}  // namespace
}  // namespace tierd::source
