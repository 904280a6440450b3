// What the engine tests share: both engines behind one parameter, a temporary directory, and calls that wait.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tierd/base/unique_fd.h"
#include "tierd/io/aligned_buffer.h"
#include "tierd/io/engine_faults.h"
#include "tierd/io/io_engine.h"

namespace tierd::io {

// Long enough for a loaded machine under a sanitizer; reached only by a test that fails.
inline constexpr int kPatienceMs = 60'000;

// A function that decides, for each step, what becomes of its result.
class ScriptedFaults final : public EngineFaults {
 public:
  using Script = std::function<long(Step, long)>;
  explicit ScriptedFaults(Script script) : script_(std::move(script)) {}

  long Outcome(Step step, long result) override {
    std::lock_guard lock(mutex_);
    return script_ ? script_(step, result) : result;
  }
  unsigned SubmitLimit(unsigned pending) override { return submit_limit ? submit_limit(pending) : pending; }
  unsigned CompletionEntries() override { return completion_entries; }

  std::function<unsigned(unsigned)> submit_limit;
  unsigned completion_entries = 0;

 private:
  std::mutex mutex_;
  Script script_;  // guarded by mutex_
};

// Stops a step of the thread pool until told otherwise: a hung source without a file system.
class Gate {
 public:
  void Close() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --waiting_;
  }
  void AwaitWaiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, count] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest();
  ~EngineTest() override;

  // Skips the test where this kind of engine cannot be had.
  void MakeEngineOrSkip(EngineKind kind, const EngineOptions& options = {});

  int root() const { return root_.get(); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  // Text that tells its place: byte i of file `name`.
  static std::string Content(const std::string& name, std::size_t size);
  void Write(const std::string& name, const std::string& bytes) const;
  std::string WriteContent(const std::string& name, std::size_t size) const;

  // Waits until nothing is in flight.
  void Drain();
  struct FileOutcome {
    FileReadResult result;
    std::string bytes;
  };
  // Waits for one file read; capacity 0: 1 MiB. `prepare` may change the request.
  FileOutcome Read(const std::string& name, std::size_t capacity = 0, std::uint64_t offset = 0,
                   const std::function<void(FileReadRequest*)>& prepare = nullptr);
  StatResult Stat(const std::string& name);
  IoResult Readv(int fd, std::span<const iovec> iov, std::uint64_t offset);
  IoResult Writev(int fd, std::span<const iovec> iov, std::uint64_t offset);
  // Whether event_fd is readable.
  bool Readable() const;
  static std::size_t OpenDescriptors();
  static std::size_t Threads();  // of this process, without those of the kernel
  // Waits for what threads do in their own time. False: it has not come.
  static bool Becomes(const std::function<bool()>& condition);

  std::unique_ptr<IoEngine> engine_;

 private:
  std::size_t threads_ = 0;  // running before
  std::string directory_;
  UniqueFd root_;
};

// Runs for both kinds.
class BothEngines : public EngineTest, public testing::WithParamInterface<EngineKind> {
 protected:
  void Make(const EngineOptions& options = {}) { MakeEngineOrSkip(GetParam(), options); }
};

// Counts the steps of requests.
class CountingEngines : public BothEngines {
 protected:
  ~CountingEngines() override { engine_.reset(); }
  // `shorten` may give a read another result.
  void MakeCounting(std::function<long(long)> shorten = nullptr) {
    faults_ = std::make_unique<ScriptedFaults>([this, shorten](Step step, long result) {
      ++steps_[static_cast<std::size_t>(step)];
      return step == Step::kRead && shorten ? shorten(result) : result;
    });
    EngineOptions options;
    options.faults = faults_.get();
    Make(options);
  }
  // A file read as it is by default, one that leaves the page cache as it makes it, and one that goes around it.
  static std::array<std::function<void(FileReadRequest*)>, 3> Ways() {
    return {[](FileReadRequest*) {}, [](FileReadRequest* request) { request->drop_cache = false; }, [](FileReadRequest* request) { request->direct = true; }};
  }
  std::uint64_t steps(Step step) const { return steps_[static_cast<std::size_t>(step)]; }

 private:
  std::unique_ptr<ScriptedFaults> faults_;
  std::array<std::atomic<std::uint64_t>, 9> steps_{};
};

std::string KindName(const testing::TestParamInfo<EngineKind>& info);

#define INSTANTIATE_FOR_BOTH_ENGINES(suite) \
  INSTANTIATE_TEST_SUITE_P(Engine, suite, testing::Values(EngineKind::kUring, EngineKind::kThreads), KindName)

// Make() may have skipped.
#define MAKE_ENGINE(...)    \
  do {                      \
    Make(__VA_ARGS__);      \
    if (IsSkipped()) return; \
  } while (0)

}  // namespace tierd::io
