// A SourceReader over a FakeEngine and a clock that stands still: everything happens when the test says so.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/source/fake_engine.h"
#include "tests/source/temp_tree.h"
#include "tierd/source/source_reader.h"

namespace tierd::source {

inline constexpr std::int64_t kMs = 1'000'000;
inline constexpr std::int64_t kSecond = 1'000'000'000;

class ReaderTest : public testing::Test {
 protected:
  void Open(SourceOptions options) {
    source_ = OpenSource(tree_.path());
    ASSERT_NE(source_, nullptr);
    const EngineFactory factory = [this](io::EngineKind kind, const io::EngineOptions&) -> Result<std::unique_ptr<io::IoEngine>> {
      if (refused_ == kind) return Status(Code::kUnsupported, "refused by the test");
      auto engine = std::make_unique<FakeEngine>(kind == io::EngineKind::kUring ? "io_uring" : "threads");
      engines_[kind] = engine.get();
      engine->on_destroy = [this, kind] { engines_.erase(kind); };
      return std::unique_ptr<io::IoEngine>(std::move(engine));
    };
    Result<std::unique_ptr<SourceReader>> reader = SourceReader::Create(source_, factory, clock_, options);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    reader_ = std::move(reader).value();
  }
  static SourceOptions Threads() {
    SourceOptions options;
    options.engine = io::EngineKind::kThreads;
    return options;
  }
  FakeEngine& engine(io::EngineKind kind = io::EngineKind::kThreads) { return *engines_.at(kind); }

  struct Heard {
    int done = 0;
    int freed = 0;
    ReadResult result;
    ReadResult late;
  };

  ReadRequest Request(const std::string& path, Priority priority = Priority::kDemand, std::int64_t deadline_ns = 0) {
    ReadRequest request;
    request.path = path;
    request.capacity = 4096;
    request.buffer = buffer_;
    request.priority = priority;
    request.deadline_ns = deadline_ns;
    request.done = [this, path](const ReadResult& result) {
      ++heard_[path].done;
      heard_[path].result = result;
    };
    request.on_buffer_free = [this, path](const ReadResult& result) {
      ++heard_[path].freed;
      heard_[path].late = result;
    };
    return request;
  }
  RequestId Read(const std::string& path, Priority priority = Priority::kDemand, std::int64_t deadline_ns = 0) {
    return reader_->Read(Request(path, priority, deadline_ns));
  }

  // A regular file of `size` bytes, old enough not to be racy.
  io::FileStat File(std::uint64_t size, std::int64_t stamp = 5) const {
    io::FileStat stat;
    stat.dev = source_->root_stat().dev;
    stat.ino = 7;
    stat.size = size;
    stat.mtime_ns = stamp;
    stat.ctime_ns = stamp;
    stat.mode = S_IFREG | 0644;
    return stat;
  }
  static io::FileReadResult Good(const io::FileStat& stat) { return Seen(stat, stat); }
  static io::FileReadResult Seen(const io::FileStat& before, const io::FileStat& after) {
    io::FileReadResult result;
    result.opened = true;
    result.before = before;
    result.after = after;
    result.bytes = static_cast<std::size_t>(std::min<std::uint64_t>(after.size, 4096));
    result.stat_sent_ns = 77;
    return result;
  }
  static io::FileReadResult Failed(int error) {
    io::FileReadResult result;
    result.error = error;
    return result;
  }
  // Ends the pending read of `path` and runs its completion.
  void End(const std::string& path, const io::FileReadResult& result) {
    ASSERT_TRUE(engine().EndRead(path, result)) << "not pending: " << path;
    EXPECT_TRUE(Readable());
    reader_->Poll(1000);
  }
  bool Readable() const {
    pollfd fd{reader_->event_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  void Advance(std::int64_t ns) {
    clock_.Advance(ns);
    reader_->Tick(clock_.MonotonicNs());
  }
  std::int64_t In(std::int64_t ns) const { return clock_.MonotonicNs() + ns; }

  TempTree tree_;
  ManualClock clock_;
  std::shared_ptr<const Source> source_;
  std::map<io::EngineKind, FakeEngine*> engines_;
  std::optional<io::EngineKind> refused_;
  std::byte buffer_[4096] = {};
  std::map<std::string, Heard> heard_;
  std::unique_ptr<SourceReader> reader_;
};

}  // namespace tierd::source
