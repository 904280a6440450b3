#include "policies/sim/trace.h"

#include <algorithm>
#include <fstream>

#include "tierd/base/crc32c.h"

namespace tierd::sim {
namespace {

constexpr std::string_view kMagic = "TIERTRC\n";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kBlockHeaderBytes = 8;
constexpr std::size_t kBlockBytes = 64 << 10;       // a block is ended when it has so many
constexpr std::size_t kMaxBlockBytes = 128 << 10;

// Low two bits of a record's first number. Values are stored: never renumber.
enum : std::uint64_t { kObject = 0, kAccess = 1, kConsumer = 2, kMark = 3 };
enum : std::uint64_t { kEpochMark = 0, kLostMark = 1 };

void PutWord(std::string* out, std::uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) *out += static_cast<char>(word >> shift & 0xff);
}
std::uint32_t GetWord(std::string_view bytes) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  return word;
}
std::uint32_t Checksum(std::string_view bytes) { return Crc32c(bytes.data(), bytes.size()); }

// Numbers of a block, LEB128. After the end or a number of more than 64 bits, ok() is false.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}
  bool more() const { return ok_ && at_ < bytes_.size(); }
  bool ok() const { return ok_; }
  std::uint64_t Take() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

struct Decoder {
  Trace trace;
  std::uint32_t consumer = 0;
  std::uint64_t time_us = 0;

  bool Record(Numbers& numbers) {
    const std::uint64_t first = numbers.Take();
    const std::uint64_t value = first >> 2;
    switch (first & 3) {
      case kObject: {
        const TraceObject object{.bytes = numbers.Take(), .file = static_cast<std::uint32_t>(numbers.Take()), .chunk = static_cast<std::uint32_t>(numbers.Take())};
        if (!numbers.ok() || value > trace.objects.size() || value >= kMaxTraceObjects) return false;  // ids are given in order
        if (value == trace.objects.size()) trace.objects.emplace_back();
        trace.objects[value] = object;
        return true;
      }
      case kAccess:
        time_us += numbers.Take();
        if (!numbers.ok() || value >= trace.objects.size()) return false;
        trace.accesses.push_back({static_cast<std::uint32_t>(value), consumer, time_us});
        return true;
      case kConsumer: consumer = static_cast<std::uint32_t>(value); return numbers.ok() && value <= UINT32_MAX;
      default:
        if (value == kLostMark) trace.lost += numbers.Take();
        if (value == kEpochMark) trace.epochs.push_back(trace.accesses.size());
        return numbers.ok() && value <= kLostMark;
    }
  }
};

}  // namespace

TraceWriter::TraceWriter(std::string* out) : out_(out) {
  *out_ += kMagic;
  PutWord(out_, kFormat);
  PutWord(out_, 0);
}

void TraceWriter::Number(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) block_ += static_cast<char>(value | 0x80);
  block_ += static_cast<char>(value);
}

void TraceWriter::EndRecord() {
  if (block_.size() >= kBlockBytes) Flush();
}

void TraceWriter::Object(std::uint32_t id, const TraceObject& object) {
  Number(std::uint64_t{id} << 2 | kObject);
  Number(object.bytes);
  Number(object.file);
  Number(object.chunk);
  EndRecord();
}

void TraceWriter::Access(const TraceAccess& access) {
  if (access.consumer != consumer_) Number(std::uint64_t{access.consumer} << 2 | kConsumer);
  consumer_ = access.consumer;
  Number(std::uint64_t{access.id} << 2 | kAccess);
  Number(access.time_us - time_us_);
  time_us_ = access.time_us;
  EndRecord();
}

void TraceWriter::Epoch() {
  Number(kEpochMark << 2 | kMark);
  EndRecord();
}

void TraceWriter::Lost(std::uint64_t accesses) {
  Number(kLostMark << 2 | kMark);
  Number(accesses);
  EndRecord();
}

void TraceWriter::Flush() {
  if (block_.empty()) return;
  PutWord(out_, static_cast<std::uint32_t>(block_.size()));
  PutWord(out_, Checksum(block_));
  *out_ += block_;
  block_.clear();
}

Result<Trace> ParseTrace(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMagic)) return Status(Code::kCorrupt, "trace: does not begin as one");
  if (const std::uint32_t format = GetWord(bytes.substr(8)); format != kFormat) return Status(Code::kUnsupported, "trace: of format " + std::to_string(format));
  Decoder decoder;
  for (std::size_t at = kHeaderBytes; at < bytes.size();) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t size = rest.size() < kBlockHeaderBytes ? 0 : GetWord(rest);
    if (size == 0 || size > kMaxBlockBytes || size > rest.size() - kBlockHeaderBytes || Checksum(rest.substr(kBlockHeaderBytes, size)) != GetWord(rest.substr(4))) {
      decoder.trace.cut = true;
      break;
    }
    Numbers numbers(rest.substr(kBlockHeaderBytes, size));
    while (numbers.more()) {
      if (!decoder.Record(numbers)) return Status(Code::kCorrupt, "trace: a record that cannot be, in the block at byte " + std::to_string(at));
    }
    at += kBlockHeaderBytes + size;
  }
  return std::move(decoder.trace);
}

Result<Trace> ReadTrace(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status(Code::kNotFound, path + ": cannot be opened");
  // read() keeps to itself what an iterator would throw: of a directory, of a disk that fails.
  std::string bytes;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0) bytes.append(block, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) return Status(Code::kIo, path + ": cannot be read");
  Result<Trace> trace = bytes.starts_with(kMagic) ? ParseTrace(bytes) : ParseCsv(bytes);
  if (!trace.ok()) return Status(trace.status().code(), path + ": " + trace.status().message());
  return trace;
}

}  // namespace tierd::sim
