// Mapping shared memory beside threads that map things of their own.
#include "tierd/ram/shared_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace tierd::ram {
namespace {

constexpr std::uint64_t kBytes = 16 << 20;

TEST(MapSharedTest, LiesOnABoundaryOfHugePages) {
  Result<UniqueFd> file = MakeMemfd("test", kBytes);
  ASSERT_TRUE(file.ok());
  Result<std::byte*> data = MapShared(file->get(), kBytes);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(0u, reinterpret_cast<std::uintptr_t>(*data) % (2 << 20));
  (*data)[kBytes - 1] = std::byte{1};
  ::munmap(*data, kBytes);
}

// The kernel refuses a mapping of huge pages that it does not have, and may have cleared the place by then: what other threads have put there since stays theirs.
TEST(MapSharedTest, ARefusedMappingTakesNothingOfOtherThreadsAway) {
  Result<UniqueFd> file = MakeMemfd("test", kBytes, true);
  if (!file.ok()) GTEST_SKIP() << file.status().message();
  std::atomic<bool> stop = false;
  std::atomic<unsigned> refused = 0;
  std::thread maps([&] {
    while (!stop) {
      Result<std::byte*> data = MapShared(file->get(), kBytes);
      if (data.ok()) ::munmap(*data, kBytes);
      else ++refused;
    }
  });
  constexpr std::size_t kOurs = 512 << 10;
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      std::array<void*, 16> ours{};
      for (int round = 0; round < 1000; ++round) {
        for (void*& one : ours) one = ::mmap(nullptr, kOurs, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        std::this_thread::yield();
        for (void* const one : ours) {
          if (one == MAP_FAILED) continue;
          // A segmentation fault, were it gone.
          static_cast<volatile char*>(one)[0] = 1;
          static_cast<volatile char*>(one)[kOurs - 1] = 1;
          ::munmap(one, kOurs);
        }
      }
    });
  }
  for (std::thread& other : others) other.join();
  stop = true;
  maps.join();
  if (refused == 0) GTEST_SKIP() << "the machine has huge pages to give";
}

}  // namespace
}  // namespace tierd::ram
