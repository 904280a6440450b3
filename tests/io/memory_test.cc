#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "tierd/io/aligned_buffer.h"
#include "tierd/io/buffer_pool.h"
#include "tierd/io/completion_event.h"
#include "tierd/io/file_access.h"
#include "tierd/io/request_pool.h"

namespace tierd::io {
namespace {

TEST(AlignedBuffer, RoundsUpAndAligns) {
  const AlignedBuffer buffer(5000);
  EXPECT_EQ(buffer.size(), 8192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0U);
  EXPECT_EQ(buffer.span()[8191], std::byte{0});
  EXPECT_TRUE(AlignedBuffer(0).empty());
  EXPECT_TRUE(AlignedBuffer().empty());
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer one(4096);
  std::byte* data = one.data();
  AlignedBuffer two(std::move(one));
  EXPECT_EQ(two.data(), data);
  one = AlignedBuffer(4096);
  one = std::move(two);
  EXPECT_EQ(one.data(), data);
}

// A read with O_DIRECT that is under way while the process forks would write to whichever of the two has the old page.
TEST(AlignedBuffer, IsNotInAChild) {
  const AlignedBuffer buffer(4096);
  buffer.data()[0] = std::byte{7};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int pipe[2];
    if (::pipe(pipe) != 0) ::_exit(2);
    ::_exit(::write(pipe[1], buffer.data(), 1) < 0 && errno == EFAULT ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(buffer.data()[0], std::byte{7});
}

TEST(BufferPool, KeepsWhatItLentAndHoldsTheLimit) {
  BufferPool pool(64 << 10);
  AlignedBuffer one = pool.Take(5000);
  EXPECT_EQ(one.size(), 8192U);
  std::byte* data = one.data();
  pool.Give(std::move(one));
  EXPECT_EQ(pool.held_bytes(), 8192U);
  one = pool.Take(8192);
  EXPECT_EQ(one.data(), data);
  AlignedBuffer two = pool.Take(32 << 10);
  EXPECT_FALSE(two.empty());
  EXPECT_TRUE(pool.Take(32 << 10).empty()) << "beyond the limit";
  pool.Give(std::move(two));
  EXPECT_FALSE(pool.Take(20 << 10).empty());
  pool.Give(std::move(one));
  EXPECT_TRUE(pool.Take(64 << 10).empty()) << "a lent buffer of 32 KiB has left for good";
  EXPECT_TRUE(pool.Take(std::size_t{1} << 60).empty());
}

TEST(BufferPool, MakesRoomFromWhatItKeeps) {
  BufferPool pool(64 << 10);
  pool.Give(pool.Take(32 << 10));
  EXPECT_EQ(pool.held_bytes(), 32U << 10);
  const AlignedBuffer all = pool.Take(64 << 10);
  EXPECT_EQ(all.size(), 64U << 10);
  EXPECT_EQ(pool.held_bytes(), 64U << 10);
}

TEST(RestBuffer, TakesWhatIsNeededAndGivesItBack) {
  const auto pool = std::make_shared<BufferPool>(64 << 10);
  {
    RestBuffer rest(pool, 60'000);
    EXPECT_TRUE(rest.empty());
    EXPECT_EQ(pool->held_bytes(), 0U);
    ASSERT_TRUE(rest.Hold(5000));
    const std::byte* data = rest.data();
    ASSERT_TRUE(rest.Hold(8000));
    EXPECT_EQ(rest.data(), data) << "it had room already";
    ASSERT_TRUE(rest.Hold(60'000));
    EXPECT_EQ(pool->held_bytes(), 64U << 10) << "in place of what it had";
    RestBuffer other(pool, 100);
    EXPECT_FALSE(other.Hold(100));
    EXPECT_TRUE(other.empty());
  }
  EXPECT_EQ(pool->held_bytes(), 64U << 10);
  EXPECT_FALSE(pool->Take(64 << 10).empty());
}

struct Item {
  int value = 0;
  Item* next = nullptr;
};

TEST(RequestPool, HandsOutEachObjectOnceAndReusesIt) {
  RequestPool<Item> pool;
  std::set<Item*> seen;
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(seen.insert(pool.Take()).second);
  for (Item* item : seen) pool.Give(item);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(seen.count(pool.Take()), 1U);
  std::size_t visited = 0;
  pool.ForEach([&visited](Item&) { ++visited; });
  EXPECT_GE(visited, 200U);
}

TEST(RequestQueue, KeepsTheOrderAcrossAppend) {
  Item items[5];
  for (int i = 0; i < 5; ++i) items[i].value = i;
  RequestQueue<Item> one;
  RequestQueue<Item> two;
  one.Append(&two);
  EXPECT_TRUE(one.empty());
  two.Push(&items[0]);
  one.Append(&two);
  two.Push(&items[1]);
  two.Push(&items[2]);
  one.Append(&two);
  EXPECT_TRUE(two.empty());
  EXPECT_EQ(one.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.Pop()->value, i);
  one.Push(&items[3]);
  EXPECT_EQ(one.front()->value, 3);
  EXPECT_EQ(one.Pop()->value, 3);
  EXPECT_TRUE(one.empty());
}

TEST(SkipBytes, DropsWhatIsDone) {
  char bytes[100];
  iovec iov[3] = {{bytes, 10}, {bytes + 10, 20}, {bytes + 30, 70}};
  std::span<iovec> rest = SkipBytes(iov, 15);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].iov_base, bytes + 15);
  EXPECT_EQ(rest[0].iov_len, 15U);
  rest = SkipBytes(rest, 15);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].iov_len, 70U);
  EXPECT_TRUE(SkipBytes(rest, 70).empty());
}

TEST(CompletionEvent, IsReadableUntilCleared) {
  CompletionEvent event;
  ASSERT_TRUE(event.valid());
  const auto readable = [&event] {
    pollfd ask{event.fd(), POLLIN, 0};
    return ::poll(&ask, 1, 0) == 1;
  };
  EXPECT_FALSE(readable());
  event.Clear();
  event.Signal();
  event.Signal();
  event.Wait(-1);
  EXPECT_TRUE(readable());
  event.Clear();
  EXPECT_FALSE(readable());
}

}  // namespace
}  // namespace tierd::io
