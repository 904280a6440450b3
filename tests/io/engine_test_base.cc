#include "tests/io/engine_test_base.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tierd::io {

EngineTest::EngineTest() {
  std::thread([] {}).join();  // ThreadSanitizer starts one of its own with the first
  threads_ = Threads();
  std::string name = testing::TempDir() + "/tierd_io_XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  directory_ = name;
  root_.Reset(::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

EngineTest::~EngineTest() {
  engine_.reset();
  root_.Reset();
  // The engine's threads end in their own time, and the last one closes the event. The next test may count them, or fork.
  EXPECT_TRUE(Becomes([&] { return Threads() <= threads_; }));
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

void EngineTest::MakeEngineOrSkip(EngineKind kind, const EngineOptions& options) {
  Result<std::unique_ptr<IoEngine>> engine = MakeEngine(kind, options);
  if (!engine.ok() && engine.status().code() == Code::kUnsupported) GTEST_SKIP() << engine.status().ToString();
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  engine_ = std::move(engine).value();
}

std::string EngineTest::Content(const std::string& name, std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = std::hash<std::string>()(name) | 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

void EngineTest::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream(Path(name), std::ios::binary) << bytes;
}

std::string EngineTest::WriteContent(const std::string& name, std::size_t size) const {
  std::string bytes = Content(name, size);
  Write(name, bytes);
  return bytes;
}

void EngineTest::Drain() {
  engine_->Flush();
  while (engine_->in_flight() > 0) {
    if (engine_->Wait(kPatienceMs, 1000) == 0) {
      FAIL() << engine_->in_flight() << " requests do not end";
    }
  }
}

EngineTest::FileOutcome EngineTest::Read(const std::string& name, std::size_t capacity, std::uint64_t offset,
                                         const std::function<void(FileReadRequest*)>& prepare) {
  AlignedBuffer buffer(capacity == 0 ? std::size_t{1} << 20 : capacity);
  FileReadRequest request;
  request.root_fd = root();
  request.path = name;
  request.offset = offset;
  request.buffer = buffer.data();
  request.capacity = capacity == 0 ? buffer.size() : capacity;
  if (prepare) prepare(&request);
  FileOutcome outcome;
  engine_->SubmitFileRead(std::move(request), [&](const FileReadResult& result) { outcome.result = result; });
  outcome.result.error = -1;
  Drain();
  EXPECT_NE(outcome.result.error, -1) << "no completion";
  if (outcome.result.error == 0) outcome.bytes.assign(reinterpret_cast<const char*>(buffer.data()), outcome.result.bytes);
  return outcome;
}

StatResult EngineTest::Stat(const std::string& name) {
  StatResult outcome;
  engine_->SubmitStat({root(), name}, [&outcome](const StatResult& result) { outcome = result; });
  Drain();
  return outcome;
}

IoResult EngineTest::Readv(int fd, std::span<const iovec> iov, std::uint64_t offset) {
  IoResult outcome{-1, 0};
  engine_->SubmitReadv(fd, iov, offset, [&outcome](IoResult result) { outcome = result; });
  Drain();
  return outcome;
}

IoResult EngineTest::Writev(int fd, std::span<const iovec> iov, std::uint64_t offset) {
  IoResult outcome{-1, 0};
  engine_->SubmitWritev(fd, iov, offset, [&outcome](IoResult result) { outcome = result; });
  Drain();
  return outcome;
}

bool EngineTest::Readable() const {
  pollfd ask{engine_->event_fd(), POLLIN, 0};
  return ::poll(&ask, 1, 0) == 1;
}

std::size_t EngineTest::OpenDescriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

std::size_t EngineTest::Threads() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!name.starts_with("iou-")) ++count;  // io_uring's workers are the kernel's, which keeps one for the next ring
  }
  return count;
}

std::string KindName(const testing::TestParamInfo<EngineKind>& info) {
  return info.param == EngineKind::kUring ? "Uring" : "Threads";
}

bool EngineTest::Becomes(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace tierd::io
