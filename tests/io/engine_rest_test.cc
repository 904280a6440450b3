// Files that are longer than the buffer of a request: one open, one pass over the bytes.
#include <algorithm>
#include <atomic>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

constexpr std::size_t kCapacity = 8192;
constexpr std::size_t kMost = 65536 - kCapacity;

class FileRest : public CountingEngines {
 protected:
  // What was read of `name`, head and rest.
  std::string ReadAll(const std::string& name, const std::function<void(FileReadRequest*)>& prepare = nullptr) {
    rest_ = std::make_shared<RestBuffer>(pool_, kMost);
    std::string bytes;
    outcome_ = Read(name, 0, 0, [&](FileReadRequest* request) {
      request->capacity = kCapacity;
      request->rest = rest_;
      if (prepare) prepare(request);
    });
    const std::size_t count = outcome_.result.error == 0 ? outcome_.result.bytes : 0;
    bytes = outcome_.bytes.substr(0, std::min(count, kCapacity));
    if (count > kCapacity) bytes.append(reinterpret_cast<const char*>(rest_->data()), count - kCapacity);
    return bytes;
  }

  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>(std::size_t{1} << 20);  // owners: the test and its requests
  std::shared_ptr<RestBuffer> rest_;
  FileOutcome outcome_;
};

TEST_P(FileRest, IsReadWithTheSameOpen) {
  MakeCounting();
  if (IsSkipped()) return;
  const auto ways = Ways();
  std::uint64_t opens = 0;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kCapacity - 1, kCapacity, kCapacity + 1, std::size_t{65535}, std::size_t{65536},
                                 std::size_t{65537}, std::size_t{1'000'000}}) {
    const std::string bytes = WriteContent("file" + std::to_string(size), size);
    for (std::size_t way = 0; way < ways.size(); ++way) {
      EXPECT_TRUE(ReadAll("file" + std::to_string(size), ways[way]) == bytes.substr(0, kCapacity + kMost)) << size << " in way " << way;
      EXPECT_EQ(outcome_.result.bytes, std::min(size, kCapacity + kMost)) << size;
      EXPECT_EQ(outcome_.result.before.size, size);
      EXPECT_TRUE(outcome_.result.before.SameVersion(outcome_.result.after));
      EXPECT_EQ(steps(Step::kOpen), ++opens) << size << " in way " << way;
      EXPECT_EQ(rest_->empty(), size <= kCapacity) << size;
    }
  }
  const std::size_t descriptors = OpenDescriptors();
  ReadAll("file1000000");
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(FileRest, BeginsBehindTheOffset) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 200'000);
  EXPECT_TRUE(ReadAll("file", [](FileReadRequest* request) { request->offset = 150'001; }) == bytes.substr(150'001));
  EXPECT_TRUE(ReadAll("file", [](FileReadRequest* request) { request->offset = 100'000; }) == bytes.substr(100'000, 65536));
  EXPECT_EQ(ReadAll("file", [](FileReadRequest* request) { request->offset = 300'000; }), "");
}

TEST_P(FileRest, WithoutRoomTheReadEndsAtTheCapacity) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 50'000);
  const AlignedBuffer taken = pool_->Take(pool_->limit_bytes());
  EXPECT_TRUE(ReadAll("file") == bytes.substr(0, kCapacity));
  EXPECT_EQ(outcome_.result.error, 0);
  EXPECT_EQ(outcome_.result.after.size, 50'000U);
  EXPECT_TRUE(rest_->empty());
}

TEST_P(FileRest, ShortReadsAreContinuedInBoth) {
  MakeCounting([](long result) { return result > 1000 ? 1000 : result; });
  if (IsSkipped()) return;
  const std::string bytes = WriteContent("file", 30'000);
  for (const bool direct : {false, true}) {
    EXPECT_TRUE(ReadAll("file", [&](FileReadRequest* request) { request->direct = direct; }) == bytes);
  }
  EXPECT_EQ(steps(Step::kOpen), 2U);
  EXPECT_GT(engine_->counters().short_continued, 20U);
}

TEST_P(FileRest, AnErrorInTheRestIsTheRequests) {
  std::atomic<bool> second = false;
  MakeCounting([&](long result) { return second.exchange(true) ? -EIO : std::min<long>(result, 5000); });
  if (IsSkipped()) return;
  WriteContent("file", 30'000);
  const std::size_t descriptors = OpenDescriptors();
  ReadAll("file");
  EXPECT_EQ(outcome_.result.error, EIO);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_P(FileRest, GivesItsMemoryBack) {
  MAKE_ENGINE();
  WriteContent("file", 50'000);
  ReadAll("file");
  const std::byte* data = rest_->data();
  rest_.reset();
  const std::size_t held = pool_->held_bytes();
  EXPECT_GE(held, 50'000 - kCapacity);
  ReadAll("file");
  EXPECT_EQ(rest_->data(), data) << "kept for the next";
  EXPECT_EQ(pool_->held_bytes(), held);
}

INSTANTIATE_FOR_BOTH_ENGINES(FileRest);

}  // namespace
}  // namespace tierd::io
