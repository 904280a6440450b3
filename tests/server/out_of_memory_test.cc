// F16: memory runs out in the daemon. Each allocation that the loop thread makes for an operation fails once: the client gets its bytes (from the source if
// need be), the daemon goes on, and nothing stays behind.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tier/tier.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/fuzz/daemon_fixture.h"
#include "tests/support/failing_memory.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/server/control.h"

namespace tierd::server {
namespace {

thread_local bool turns_the_loop = false;

class OutOfMemory : public testing::Test {
 protected:
  // Runs `work` on a thread of its own while the loop turns here, with the n-th allocation failing. Returns how many there were.
  long Run(long nth, const std::function<void()>& work) {
    std::atomic<bool> done = false;
    std::thread client([&] {
      work();
      done = true;
    });
    test::allocations_count_here = [] { return turns_the_loop; };
    const test::FailingMemory failing(nth);
    daemon.loop().restart();
    while (!done) {
      turns_the_loop = true;
      (void)engine::Survives([&] { daemon.loop().run_for(std::chrono::milliseconds(1)); });
      turns_the_loop = false;
      if (daemon.loop().stopped()) daemon.loop().restart();
    }
    client.join();
    return test::allocations;
  }
  bool Settle(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000; ++i) {
      daemon.loop().restart();
      daemon.loop().run_for(std::chrono::milliseconds(1));
      if (condition()) return true;
    }
    return false;
  }
  // For every n up to the count that the work makes, which varies a little.
  void FailEach(const std::function<void()>& work) {
    if (test::handler_is_asked) (void)engine::KeepMemoryReserve();
    for (int i = 0; i < 3; ++i) Run(0, work);  // what is made once in a daemon's life
    const long count = Run(0, work);
    std::printf("%ld allocations\n", count);
    ASSERT_GT(count, 10);
    for (long n = 1; n <= count + 5; ++n) {
      Run(n, work);
      if (test::handler_is_asked) (void)engine::KeepMemoryReserve();
      ASSERT_FALSE(HasFailure()) << "allocation " << n << " of " << count;
    }
    ASSERT_TRUE(Settle([&] { return daemon.engine().fetcher().fills_in_flight() == 0 && daemon.hub().Sessions().sessions == 0; })) << daemon.hub().Sessions().sessions << " sessions";
    EXPECT_EQ(daemon.hub().Sessions().leases, 0u);
    // Cut off between the page and the rest of the greeting: such a client might use its page, for all the daemon knows, until its process (this one) ends.
    EXPECT_LE(daemon.hub().Sessions().lingering, 8u);
  }
  tier_client* Connect() {
    tier_options options{};
    options.size = sizeof options;
    const std::string socket = daemon.socket();
    options.socket = socket.c_str();
    options.timeout_ms = 300;
    tier_client* client = nullptr;
    EXPECT_EQ(tier_connect(&options, &client), 0);
    return client;
  }
  // Where the bytes came from; -1 when they are wrong.
  int Read(tier_client* client, const std::string& name) {
    tier_view view{};
    const int error = tier_get(client, (daemon.data() + name).c_str(), &view, 0);
    EXPECT_EQ(error, 0) << name;
    if (error != 0) return -1;
    const bool right = std::string_view(static_cast<const char*>(view.data), view.size) == std::string(3000, 'x');
    EXPECT_TRUE(right) << name;
    const int origin = static_cast<int>(view.origin);
    tier_release(&view);
    return right ? origin : -1;
  }
  void Advise(std::int64_t (*advice)(tier_client*, const char* const*, std::size_t, unsigned) noexcept, tier_client* client, const char* name, unsigned flags) {
    const std::string path = daemon.data() + name;
    const char* const paths[] = {path.c_str()};
    (void)advice(client, paths, 1, flags);
  }
  void ExpectSound() {
    Run(0, [&] {
      tier_client* client = Connect();
      for (const char* name : {"/a", "/b/c", "/b/d"}) {
        int origin = Read(client, name);
        // What is read within a clock tick of an invalidation is not trusted yet.
        for (int i = 0; i < 200 && origin != TIER_FROM_RAM; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          origin = Read(client, name);
        }
        EXPECT_EQ(origin, TIER_FROM_RAM) << name;
      }
      tier_disconnect(client);
    });
  }

  fuzz::InProcessDaemon daemon;
};

TEST_F(OutOfMemory, AReaderGetsItsBytes) {
  FailEach([&] {
    tier_client* client = Connect();
    for (int round = 0; round < 2; ++round) {
      for (const char* name : {"/a", "/b/c"}) Read(client, name);
    }
    Advise(&tier_evict, client, "/a", 0);
    Advise(&tier_invalidate, client, "/b", TIER_RECURSIVE);
    tier_disconnect(client);
  });
  ExpectSound();
}

TEST_F(OutOfMemory, NamesAndAttributesAreTheSources) {
  FailEach([&] {
    tier_client* client = Connect();
    tier_attr attr{};
    attr.size = sizeof attr;
    EXPECT_EQ(tier_stat(client, (daemon.data() + "/b/d").c_str(), &attr, 0), 0);
    EXPECT_EQ(attr.bytes, 3000u);
    tier_listing* listing = nullptr;
    EXPECT_EQ(tier_list(client, (daemon.data() + "/b").c_str(), &listing, 0), 0);
    int names = 0;
    tier_entry entry{};
    while (listing != nullptr && tier_list_next(listing, &entry) > 0) ++names;
    EXPECT_EQ(names, 2);
    tier_list_close(listing);
    Advise(&tier_invalidate, client, "/b", TIER_RECURSIVE);
    tier_disconnect(client);
  });
  ExpectSound();
}

TEST_F(OutOfMemory, JobsEndAndReadersGoOn) {
  FailEach([&] {
    tier_client* client = Connect();
    Advise(&tier_prefetch, client, "", TIER_RECURSIVE);
    Read(client, "/b/d");
    Advise(&tier_invalidate, client, "", TIER_RECURSIVE);
    tier_disconnect(client);
  });
  ASSERT_TRUE(Settle([&] { return daemon.engine().jobs().idle(); }));
  ExpectSound();
}

// One request on a connection of its own: the answer, or "" when the daemon hung up.
std::string Ask(const std::string& path, const std::string& method, const std::string& target, const std::string& body) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "no connection";
  const std::string request =
      method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = ::recv(fd.get(), part, sizeof part, 0)) > 0;) answer.append(part, static_cast<std::size_t>(n));
  return answer;
}

// The JSON library allocates in destructors: the first failure is made up for by the reserve.
TEST_F(OutOfMemory, TheControlPlaneHangsUpAndComesBack) {
  test::handler_is_asked = true;
  Control control(daemon.loop(), daemon.api(), {.max_connections = 8});
  const std::string path = daemon.socket() + ".control";
  ASSERT_TRUE(control.Listen(path).ok());
  const std::string paths = "{\"paths\": [\"" + daemon.data() + "\"]}";
  FailEach([&] {
    for (const std::string& answer : {Ask(path, "GET", "/v1/status", ""), Ask(path, "GET", "/v1/du?path=" + daemon.data(), ""),
                                      Ask(path, "POST", "/v1/evict", paths)}) {
      EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 200")) << answer;
    }
    // Long enough to be read by a worker.
    const std::string read_aside = Ask(path, "POST", "/v1/evict", paths + std::string(20'000, ' '));
    EXPECT_TRUE(read_aside.empty() || read_aside.starts_with("HTTP/1.1 200") || read_aside.starts_with("HTTP/1.1 429")) << read_aside;
  });
  Run(0, [&] { EXPECT_TRUE(Ask(path, "GET", "/v1/status", "").starts_with("HTTP/1.1 200")); });
  control.Close();
  daemon.Turn();
  test::handler_is_asked = false;
  ExpectSound();
}

TEST_F(OutOfMemory, TheReserveServesOnceAndIsHadAgain) {
  (void)engine::KeepMemoryReserve();
  EXPECT_TRUE(engine::KeepMemoryReserve());
  std::get_new_handler()();
  EXPECT_THROW(std::get_new_handler()(), std::bad_alloc);
  EXPECT_FALSE(engine::KeepMemoryReserve());
  EXPECT_TRUE(engine::KeepMemoryReserve());
}

}  // namespace
}  // namespace tierd::server
