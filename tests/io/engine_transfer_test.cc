// Transfers on open descriptors.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class Transfer : public BothEngines {
 protected:
  UniqueFd Open(const std::string& name, int flags) const {
    return UniqueFd(::open(Path(name).c_str(), flags | O_CLOEXEC, 0600));
  }
  static iovec Vector(std::string& bytes) { return {bytes.data(), bytes.size()}; }
};

TEST_P(Transfer, WritesAndReadsVectors) {
  MAKE_ENGINE();
  const UniqueFd file = Open("file", O_CREAT | O_RDWR);
  std::string one = Content("one", 10'000);
  std::string two = Content("two", 1);
  std::string three = Content("three", 70'000);
  const iovec out[] = {Vector(one), Vector(two), Vector(three)};
  EXPECT_EQ(Writev(file.get(), out, 5000).bytes, 80'001U);

  std::string first(40'000, 'x');
  std::string second(40'001, 'x');
  const iovec in[] = {Vector(first), Vector(second)};
  const IoResult read = Readv(file.get(), in, 5000);
  EXPECT_EQ(read.error, 0);
  EXPECT_EQ(read.bytes, 80'001U);
  EXPECT_TRUE(first + second == one + two + three);
}

TEST_P(Transfer, EveryVectorAllowed) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 8000);
  const UniqueFd file = Open("file", O_RDONLY);
  std::vector<std::string> parts(IoEngine::kMaxIov, std::string(1000, 'x'));
  std::vector<iovec> in;
  for (std::string& part : parts) in.push_back(Vector(part));
  EXPECT_EQ(Readv(file.get(), in, 0).bytes, 8000U);
  std::string all;
  for (const std::string& part : parts) all += part;
  EXPECT_TRUE(all == bytes);
}

TEST_P(Transfer, EmptyVectorsAndEmptyRequests) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 100);
  const UniqueFd file = Open("file", O_RDWR);
  std::string part(50, 'x');
  const iovec in[] = {{nullptr, 0}, Vector(part), {nullptr, 0}};
  EXPECT_EQ(Readv(file.get(), in, 0).bytes, 50U);
  EXPECT_TRUE(part == bytes.substr(0, 50));
  const IoResult nothing = Readv(file.get(), {}, 0);
  EXPECT_EQ(nothing.error, 0);
  EXPECT_EQ(nothing.bytes, 0U);
  EXPECT_EQ(Writev(file.get(), {}, 0).error, 0);
}

TEST_P(Transfer, EndOfFileIsAShortCountWithoutError) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 5000);
  const UniqueFd file = Open("file", O_RDONLY);
  std::string first(3000, 'x');
  std::string second(3000, 'x');
  const iovec in[] = {Vector(first), Vector(second)};
  const IoResult read = Readv(file.get(), in, 0);
  EXPECT_EQ(read.error, 0);
  EXPECT_EQ(read.bytes, 5000U);
  EXPECT_TRUE(second.substr(0, 2000) == bytes.substr(3000));
  EXPECT_EQ(Readv(file.get(), in, 5000).bytes, 0U);
}

TEST_P(Transfer, DirectEndsAtTheEndOfFile) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 10'000);
  const UniqueFd file = Open("file", O_RDONLY | O_DIRECT);
  if (!file.valid()) GTEST_SKIP() << "no O_DIRECT here";
  const AlignedBuffer buffer(1 << 16);
  const iovec in[] = {{buffer.data(), 4096}, {buffer.data() + 4096, buffer.size() - 4096}};
  const IoResult read = Readv(file.get(), in, 0);
  EXPECT_EQ(read.error, 0);
  EXPECT_EQ(read.bytes, 10'000U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer.data()), 10'000), bytes);
}

TEST_P(Transfer, DirectWritesAndReadsBack) {
  MAKE_ENGINE();
  const UniqueFd file = Open("file", O_CREAT | O_RDWR | O_DIRECT);
  if (!file.valid()) GTEST_SKIP() << "no O_DIRECT here";
  const AlignedBuffer out(1 << 20);
  const AlignedBuffer in(1 << 20);
  const std::string bytes = Content("direct", out.size());
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), out.data());
  const iovec write{out.data(), out.size()};
  const iovec read{in.data(), in.size()};
  EXPECT_EQ(Writev(file.get(), {&write, 1}, 1 << 20).bytes, out.size());
  EXPECT_EQ(Readv(file.get(), {&read, 1}, 1 << 20).bytes, in.size());
  EXPECT_TRUE(std::equal(in.data(), in.data() + in.size(), out.data()));
  // Unaligned by a caller's mistake: an error, not an end of file.
  const iovec odd{in.data() + 1, 4096};
  const IoResult refused = Readv(file.get(), {&odd, 1}, 0);
  EXPECT_TRUE(refused.error == EINVAL || refused.bytes == 4096) << refused.error;
}

TEST_P(Transfer, BadDescriptorIsAnError) {
  MAKE_ENGINE();
  std::string bytes(10, 'x');
  const iovec iov = Vector(bytes);
  WriteContent("file", 10);
  const UniqueFd file = Open("file", O_RDONLY);
  EXPECT_EQ(Readv(-1, {&iov, 1}, 0).error, EBADF);
  EXPECT_EQ(Writev(file.get(), {&iov, 1}, 0).error, EBADF);
}

TEST_P(Transfer, NoSpaceIsAnErrorWithTheBytesBefore) {
  MAKE_ENGINE();
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full.valid()) GTEST_SKIP() << "no /dev/full";
  std::string bytes(10, 'x');
  const iovec iov = Vector(bytes);
  EXPECT_EQ(Writev(full.get(), {&iov, 1}, 0).error, ENOSPC);
}

TEST_P(Transfer, ManyAtOnceKeepTheirPlaces) {
  MAKE_ENGINE({.depth = 64});
  const std::string bytes = WriteContent("file", 4 << 20);
  const UniqueFd file = Open("file", O_RDONLY);
  constexpr std::size_t kPart = 4096;
  std::string seen(bytes.size(), 'x');
  std::size_t done = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPart) {
    const iovec iov{seen.data() + at, kPart};
    engine_->SubmitReadv(file.get(), {&iov, 1}, at, [&done](IoResult result) { done += result.bytes == kPart; });
  }
  EXPECT_EQ(done, 0U) << "completed inside Submit";
  Drain();
  EXPECT_EQ(done, bytes.size() / kPart);
  EXPECT_TRUE(seen == bytes);
}

INSTANTIATE_FOR_BOTH_ENGINES(Transfer);

}  // namespace
}  // namespace tierd::io
