// Neighbouring pieces of a file, each into a place of its own: one open, one pass over the bytes.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

constexpr std::size_t kPiece = 16384;

class FilePieces : public CountingEngines {
 protected:
  // What was read of `name` into `pieces` places, which lie one page apart, last first.
  std::string ReadAll(const std::string& name, std::size_t pieces, const std::function<void(FileReadRequest*)>& prepare = nullptr) {
    const std::size_t stride = kPiece + AlignedBuffer::kAlignment;
    const AlignedBuffer memory(pieces * stride);
    std::memset(memory.data(), 0x5A, memory.size());
    const auto place = [&](std::size_t piece) { return memory.data() + (pieces - 1 - piece) * stride; };
    outcome_ = Read(name, 0, 0, [&](FileReadRequest* request) {
      request->buffer = place(0);
      request->capacity = kPiece;
      for (std::size_t piece = 1; piece < pieces; ++piece) request->further.push_back({place(piece), kPiece});
      if (prepare) prepare(request);
    });
    std::string bytes;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      bytes.append(reinterpret_cast<const char*>(place(piece)), kPiece);
      for (std::size_t i = kPiece; i < stride; ++i) EXPECT_EQ(place(piece)[i], std::byte{0x5A}) << "behind piece " << piece;
    }
    bytes.resize(outcome_.result.error == 0 ? outcome_.result.bytes : 0);
    return bytes;
  }

  FileOutcome outcome_;
};

TEST_P(FilePieces, AreReadWithOneOpen) {
  MakeCounting();
  if (IsSkipped()) return;
  const auto ways = Ways();
  std::uint64_t opens = 0;
  for (const std::size_t pieces : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{1} + FileReadRequest::kMaxFurther}) {
    for (const std::size_t size : {std::size_t{0}, kPiece - 1, kPiece, kPiece + 1, pieces * kPiece - 1, pieces * kPiece, pieces * kPiece + 1}) {
      const std::string name = "file" + std::to_string(size);
      const std::string bytes = WriteContent(name, size);
      for (std::size_t way = 0; way < ways.size(); ++way) {
        EXPECT_TRUE(ReadAll(name, pieces, ways[way]) == bytes.substr(0, pieces * kPiece)) << size << " in " << pieces << " pieces, way " << way;
        EXPECT_EQ(outcome_.result.bytes, std::min(size, pieces * kPiece)) << size << " in " << pieces << " pieces, way " << way;
        EXPECT_TRUE(outcome_.result.before.SameVersion(outcome_.result.after));
        EXPECT_EQ(steps(Step::kOpen), ++opens);
      }
    }
  }
}

TEST_P(FilePieces, BeginBehindTheOffset) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 200'000);
  EXPECT_TRUE(ReadAll("file", 3, [](FileReadRequest* request) { request->offset = 150'001; }) == bytes.substr(150'001, 3 * kPiece));
  EXPECT_TRUE(ReadAll("file", 3, [](FileReadRequest* request) { request->offset = 180'000; }) == bytes.substr(180'000));
  EXPECT_EQ(ReadAll("file", 3, [](FileReadRequest* request) { request->offset = 300'000; }), "");
}

TEST_P(FilePieces, ShortReadsAreContinuedAcrossThem) {
  MakeCounting([](long result) { return std::min(result, 7000L); });
  if (IsSkipped()) return;
  const std::string bytes = WriteContent("file", 3 * kPiece - 5);
  for (const bool direct : {false, true}) {
    EXPECT_TRUE(ReadAll("file", 3, [&](FileReadRequest* request) { request->direct = direct; }) == bytes) << direct;
  }
  EXPECT_EQ(steps(Step::kOpen), 2U);
  EXPECT_GE(engine_->counters().short_continued, 2 * (3 * kPiece / 7000));
}

TEST_P(FilePieces, AnErrorInTheLastIsTheRequests) {
  std::atomic<int> reads = 0;
  MakeCounting([&](long result) { return ++reads < 3 ? std::min<long>(result, kPiece) : -EIO; });
  if (IsSkipped()) return;
  WriteContent("file", 3 * kPiece);
  const std::size_t descriptors = OpenDescriptors();
  EXPECT_EQ(ReadAll("file", 3), "");
  EXPECT_EQ(outcome_.result.error, EIO);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

INSTANTIATE_FOR_BOTH_ENGINES(FilePieces);

}  // namespace
}  // namespace tierd::io
