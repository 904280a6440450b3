// Many threads on one client, with eviction, recycling, growth and new versions going on: never a wrong byte, never a lost lease.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class ThreadTest : public ClientRig {
 protected:
  static constexpr int kFiles = 24;
  static std::string Name(int i) { return "f" + std::to_string(i); }
  static std::size_t Size(int i) { return 500 + static_cast<std::size_t>(i) * 3331; }
};

TEST_F(ThreadTest, ReadersAgainstEvictionAndGrowth) {
  std::vector<std::string> contents;
  for (int i = 0; i < kFiles; ++i) {
    contents.push_back(ContentOf(Name(i), Size(i)));
    Write(Name(i), contents.back());
  }
  options_.segment_bytes = 4 << 20;
  StartDaemon();
  Client();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      std::string buffer(200'000, '\0');
      std::uint64_t x = t + 1;
      while (!stop) {
        x = abi::Mix64(x + 0x9e3779b97f4a7c15ull);
        const int i = static_cast<int>(x % kFiles);
        const std::string path = Path(Name(i));
        if (x % 3 == 0) {
          const ssize_t got = tier_read_file(client_, path.c_str(), buffer.data(), buffer.size(), nullptr, 0);
          if (got != static_cast<ssize_t>(Size(i)) || std::memcmp(buffer.data(), contents[static_cast<std::size_t>(i)].data(), Size(i)) != 0) ++wrong;
        } else {
          tier_view view;
          if (tier_get(client_, path.c_str(), &view, 0) != 0 || view.size != Size(i)) {
            ++wrong;
            continue;
          }
          for (int look = 0; look < 3; ++look) {
            if (std::memcmp(view.data, contents[static_cast<std::size_t>(i)].data(), view.size) != 0) ++wrong;
          }
          tier_release(&view);
        }
        ++reads;
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  for (int round = 0; std::chrono::steady_clock::now() < end; ++round) {
    daemon_->Evict(Name(round % kFiles));
    daemon_->Recycle();
    if (round % 400 == 399) daemon_->Grow();
    std::this_thread::yield();  // the daemon's loop needs its lock too
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(0u, wrong);
  EXPECT_GT(reads, 100u);
  // A large table of the fake daemon may be made by a forked child: what this process had leased then is frozen.
  EXPECT_TRUE(daemon_->Leases() == 0 || Stats().frozen_leases != 0);
  const tier_statistics s = Stats();
  EXPECT_EQ(reads.load(), s.reads[0] + s.reads[1] + s.reads[2] + s.reads[3]);
  EXPECT_TRUE(Disturbed() || s.reads[TIER_FROM_RAM] > 0);
  EXPECT_TRUE(Disturbed() || s.reads[TIER_FROM_SOURCE] > 0);
}

TEST_F(ThreadTest, SessionsComeAndGoUnderReaders) {
  std::vector<std::string> contents;
  for (int i = 0; i < kFiles; ++i) {
    contents.push_back(ContentOf(Name(i), Size(i)));
    Write(Name(i), contents.back());
  }
  StartDaemon();
  daemon_->CacheAll();
  Client();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::uint64_t x = t + 1;
      std::string buffer(200'000, '\0');
      while (!stop) {
        x = abi::Mix64(x + 0x9e3779b97f4a7c15ull);
        const int i = static_cast<int>(x % kFiles);
        const ssize_t got = tier_read_file(client_, Path(Name(i)).c_str(), buffer.data(), buffer.size(), nullptr, 0);
        if (got != static_cast<ssize_t>(Size(i)) || buffer.compare(0, Size(i), contents[static_cast<std::size_t>(i)]) != 0) ++wrong;
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    daemon_->CloseAllSockets(true);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(0u, wrong);
  EXPECT_EQ(0u, daemon_->Leases());
  EXPECT_GT(Stats().sessions, 1u);
}

TEST_F(ThreadTest, OpenFilesWithoutADaemon) {
  for (int i = 0; i < 8; ++i) Write(Name(i), ContentOf(Name(i), 300 + static_cast<std::size_t>(i)));
  Client();
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      char buffer[1000];
      for (int round = 0; round < 300; ++round) {
        tier_file* files[2] = {};  // two at once, one of which may be the one that needs no malloc
        for (int i = 0; i < 2; ++i) wrong += tier_open(client_, Path(Name(2 * t + i)).c_str(), &files[i], 0) != 0 ? 1 : 0;
        for (int i = 0; i < 2; ++i) {
          const ssize_t got = tier_file_pread(files[i], buffer, sizeof buffer, 0);
          const std::string expected = ContentOf(Name(2 * t + i), 300 + static_cast<std::size_t>(2 * t + i));
          if (got != static_cast<ssize_t>(expected.size()) || expected.compare(0, expected.size(), buffer, expected.size()) != 0) ++wrong;
          tier_close(files[i]);
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(0u, wrong);
  EXPECT_EQ(2400u, Stats().reads[TIER_FROM_BYPASS]);
}

TEST_F(ThreadTest, MissesShareOneSocket) {
  for (int i = 0; i < 400; ++i) Write(Name(i), ContentOf(Name(i), 700));
  StartDaemon();
  Client();
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<int> next{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 8; ++t) {
    readers.emplace_back([&] {
      for (int i = next++; i < 400; i = next++) {
        tier_view view;
        if (tier_get(client_, Path(Name(i)).c_str(), &view, 0) != 0 || std::string(static_cast<const char*>(view.data), view.size) != ContentOf(Name(i), 700)) ++wrong;
        tier_release(&view);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(0u, wrong);
  EXPECT_TRUE(Disturbed() || daemon_->fetches == 400u);
  EXPECT_TRUE(Disturbed() || Stats().reads[TIER_FROM_SOURCE] == 400u);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(ThreadTest, ForksWhileOthersRead) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "GCC 12's AddressSanitizer leaves its allocator locked in the child of a process whose other threads allocate";
#endif
  for (int i = 0; i < kFiles; ++i) Write(Name(i), ContentOf(Name(i), Size(i)));
  StartDaemon();
  daemon_->CacheAll();
  Client();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      std::uint64_t x = t + 1;
      while (!stop) {
        x = abi::Mix64(x + 0x9e3779b97f4a7c15ull);
        const int i = static_cast<int>(x % kFiles);
        if (x % 5 == 0) daemon_->Evict(Name(i));
        tier_view view;
        if (tier_get(client_, Path(Name(i)).c_str(), &view, 0) != 0 || view.size != Size(i)) ++wrong;
        tier_release(&view);
      }
    });
  }
  for (int round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      tier_view view;
      const int i = round % kFiles;
      const int error = tier_get(client_, Path(Name(i)).c_str(), &view, 0);
      ::_exit(error == 0 && view.size == Size(i) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, ::waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(0u, wrong);
}

}  // namespace
}  // namespace tierd::testing
