// SourceReader with a real engine on the rig: fixture of the tests that count at the source.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "tests/pfs_sim/rig_test_base.h"
#include "tests/source/temp_tree.h"
#include "tierd/source/source_reader.h"

namespace tierd::source {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline constexpr std::int64_t kMs = 1'000'000;
inline constexpr std::size_t kCapacity = 256 << 10;

class SourceRig : public pfs_sim::RigTest, public testing::WithParamInterface<io::EngineKind> {
 protected:
  struct Heard {
    int done = 0;
    int freed = 0;
    ReadResult result;
    ReadResult late;
    std::vector<std::byte> buffer;
    steady_clock::time_point at;
    std::string Text() const { return std::string(reinterpret_cast<const char*>(buffer.data()), result.bytes); }
  };

  void SetUp() override {
    RigTest::SetUp();
    if (GetParam() != io::EngineKind::kUring || IsSkipped()) return;
    const auto uring = io::MakeEngine(io::EngineKind::kUring, {});
    if (!uring.ok()) GTEST_SKIP() << uring.status().ToString();  // here: a skip in a helper would not end the test
  }

  void TearDown() override {
    // Whatever hangs must end before its buffers go.
    if (rig_ != nullptr) rig_->Control("release");
    if (reader_ != nullptr) {
      EXPECT_EQ(reader_->Stop(10'000), 0u);
    }
    reader_.reset();
    source_.reset();
    RigTest::TearDown();
  }

  void Open(const std::string& root, SourceOptions options = {}) {
    options.engine = GetParam();
    source_ = OpenSource(root);
    ASSERT_NE(source_, nullptr);
    Result<std::unique_ptr<SourceReader>> reader = SourceReader::Create(source_, io::MakeEngine, clock_, options);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    reader_ = std::move(reader).value();
  }
  // `key` names the answer in heard_.
  RequestId Read(const std::string& path, const std::string& key, Priority priority = Priority::kDemand,
                 std::int64_t deadline_ns = 0) {
    Heard& heard = heard_[key];
    heard.done = 0;
    heard.buffer.assign(kCapacity, std::byte{0x5A});
    ReadRequest request;
    request.path = path;
    request.capacity = kCapacity;
    request.buffer = heard.buffer.data();
    request.priority = priority;
    request.deadline_ns = deadline_ns;
    request.done = [this, &heard](const ReadResult& result) {
      ++heard.done;
      ++done_;
      heard.result = result;
      heard.at = steady_clock::now();
    };
    request.on_buffer_free = [&heard](const ReadResult& result) {
      ++heard.freed;
      heard.late = result;
    };
    return reader_->Read(std::move(request));
  }
  // Turns of the loop until `until` holds. False after 30 s.
  template <typename Condition>
  bool Drive(Condition until) {
    const auto limit = steady_clock::now() + std::chrono::seconds(30);
    reader_->Flush();
    while (!until()) {
      if (steady_clock::now() > limit) return false;
      pollfd fd{reader_->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 2);
      reader_->Poll(256);
      if (clock_.MonotonicNs() >= reader_->next_tick_ns()) reader_->Tick(clock_.MonotonicNs());
    }
    return true;
  }
  const Heard& ReadNow(const std::string& path) {
    Read(path, path);
    EXPECT_TRUE(Drive([&] { return heard_[path].done == 1; })) << path;
    return heard_[path];
  }
  std::int64_t In(milliseconds time) const { return clock_.MonotonicNs() + time.count() * kMs; }

  SystemClock clock_;
  std::shared_ptr<const Source> source_;
  std::unique_ptr<SourceReader> reader_;
  std::map<std::string, Heard> heard_;
  std::size_t done_ = 0;
};

// Each case with each engine.
inline std::string NameOfEngine(const testing::TestParamInfo<io::EngineKind>& tested) { return tested.param == io::EngineKind::kUring ? "Uring" : "Threads"; }

}  // namespace tierd::source
