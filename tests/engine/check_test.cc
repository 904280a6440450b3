// Reads that are made twice (SourceOptions::check_reads).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class CheckTest : public EngineTest {
 protected:
  CheckTest() { source_options().check_reads = 1; }
};

TEST_F(CheckTest, WhatIsTheSameTwiceIsServed) {
  UseSsd();
  source_options().chunk_bytes = 64 << 10;
  const std::string small = Write("small", Bytes("small", 5000));
  const std::string large = Write("large", Bytes("large", 200'000));
  StartEngine();
  EXPECT_TRUE(Fetch(small).bytes == Bytes(small, 5000));
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) EXPECT_TRUE(Fetch(large, abi::FetchOp::kChunk, chunk).bytes == Bytes(large, 200'000).substr(chunk << 16, 64 << 10));
  EXPECT_TRUE(InRam(small) && OnSsd(small));
  EXPECT_EQ(engine().counters().integrity_source, 0u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 10u);
}

TEST_F(CheckTest, EverySoManyth) {
  source_options().check_reads = 4;
  const auto names = MakeFiles(8, 5000);
  StartEngine();
  for (const std::string& name : names) EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 10u);
}

// Bytes that differ though the version is the same: here by a store through a mapping that is dirty already.
TEST_F(CheckTest, WhatDiffersIsNeitherServedNorKept) {
  const std::string name = Write("file", Bytes("file", 4096));
  const int fd = ::open((tree_ / name).c_str(), O_RDWR | O_CLOEXEC);
  auto* const mapped = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  mapped[7] = 0;
  StartEngine();
  std::string line;
  engine().fetcher().on_mismatch = [&](const std::string& text) { line = text; };
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  source_io_.Hold(io::Step::kOpen);  // of the second read
  ASSERT_TRUE(RunUntil([&] { return source_io_.count(io::Step::kOpen) == 2; }));
  mapped[7] = 1;
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
  EXPECT_FALSE(InRam(name));
  EXPECT_EQ(engine().counters().integrity_source, 1u);
  EXPECT_EQ(line, "integrity source=data path=\"file\" chunk=0 of=4096 first=7 differing=1 zeros=1");
  ::munmap(mapped, 4096);
  ::close(fd);
}

}  // namespace
}  // namespace tierd::engine
