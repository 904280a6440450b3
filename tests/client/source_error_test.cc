// The source fails in the middle of a file: an error, never a short file that looks whole.
#include <errno.h>
#include <sys/syscall.h>

#include <cstdint>

#include "tests/client/client_rig.h"

namespace {

// Of reads by this thread: from here on the source gives EIO.
thread_local std::int64_t broken_from = INT64_MAX;

}  // namespace

extern "C" ssize_t pread(int fd, void* buffer, std::size_t count, off_t offset) {
  if (offset >= broken_from) {
    errno = EIO;
    return -1;
  }
  if (static_cast<std::int64_t>(count) > broken_from - offset) count = static_cast<std::size_t>(broken_from - offset);
  return ::syscall(SYS_pread64, fd, buffer, count, offset);
}

namespace tierd::testing {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::size_t kBytes = 340'000;      // 6 chunks
constexpr std::int64_t kBrokenFrom = 100'000;  // in the second

class SourceErrorTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    options_.chunk_bytes = kChunk;
    Write("f", ContentOf("f", kBytes));
  }
  void TearDown() override {
    broken_from = INT64_MAX;
    ClientRig::TearDown();
  }
  void ExpectErrors() {
    broken_from = kBrokenFrom;
    std::string buffer(kBytes, '\0');
    tier_view view;
    EXPECT_EQ(-EIO, tier_get(client_, Path("f").c_str(), &view, 0));
    EXPECT_EQ(-EIO, tier_get(client_, Path("f").c_str(), &view, TIER_COPY));
    EXPECT_EQ(-EIO, tier_read_file(client_, Path("f").c_str(), buffer.data(), kBytes, nullptr, 0));
    EXPECT_EQ(-EIO, tier_pread(client_, Path("f").c_str(), buffer.data(), kBytes, 0, 0));
    tier_file* file = nullptr;
    ASSERT_EQ(0, tier_open(client_, Path("f").c_str(), &file, 0));
    EXPECT_EQ(-EIO, tier_file_pread(file, buffer.data(), kBytes, 0));
    // What can be had is had by those who ask for no more.
    EXPECT_EQ(kBrokenFrom, tier_file_pread(file, buffer.data(), kBrokenFrom, 0));
    EXPECT_TRUE(ContentOf("f", kBytes).substr(0, kBrokenFrom) == buffer.substr(0, kBrokenFrom));
    tier_close(file);
    broken_from = INT64_MAX;
    EXPECT_TRUE(ContentOf("f", kBytes) == Get(Path("f")));
  }
};

TEST_F(SourceErrorTest, IsToldWithoutADaemon) {
  Client();
  ExpectErrors();
}

TEST_F(SourceErrorTest, IsToldBehindACachedChunk) {
  StartDaemon();
  Client();
  char byte;
  ASSERT_EQ(1, tier_pread(client_, Path("f").c_str(), &byte, 1, 0, 0));
  daemon_.reset();  // what is mapped is served on
  ExpectErrors();
}

}  // namespace
}  // namespace tierd::testing
