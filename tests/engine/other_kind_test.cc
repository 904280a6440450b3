// What has no bytes to cache and is no directory either: FIFOs, sockets, devices.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class OtherKindTest : public EngineTest {
 protected:
  void MakeFifo(const std::string& name) const {
    ASSERT_EQ(::mkfifo((tree_ / name).c_str(), 0600), 0);
    ASSERT_EQ(::chmod((tree_ / name).c_str(), 0640), 0);  // whatever the umask
  }
  void ExpectNothingServed(const std::string& name) {
    const Answer read = Fetch(name);
    EXPECT_EQ(read.status(), abi::FetchStatus::kBypass);
    EXPECT_EQ(read.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kNotRegular));
    const Answer stat = Fetch(name, abi::FetchOp::kStat);
    EXPECT_EQ(stat.status(), abi::FetchStatus::kMeta);
    EXPECT_EQ(stat.reply.mode, static_cast<std::uint32_t>(S_IFIFO | 0640));
    EXPECT_EQ(stat.reply.kind, static_cast<std::uint8_t>(abi::SlotKind::kDirectory)) << "no file to those who look by themselves";
    EXPECT_TRUE((engine().catalogue().file(FileOf(name)).flags & kFileOther) != 0);
  }
};

TEST_F(OtherKindTest, KnownByAStat) {
  MakeFifo("fifo");
  StartEngine();
  EXPECT_EQ(Fetch("fifo").status(), abi::FetchStatus::kBypass);
  ASSERT_EQ(Fetch("fifo", abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  ExpectNothingServed("fifo");
}

TEST_F(OtherKindTest, KnownByAWalk) {
  Write("d/file", Bytes("d/file", 100));
  MakeFifo("d/fifo");
  StartEngine();
  (void)WaitForJob(engine().jobs().Walk({{&unit(), "d"}}));
  ASSERT_TRUE(RunUntil([&] { return FileOf("d/file") != kNoFile; }));
  ExpectNothingServed("d/fifo");
}

TEST_F(OtherKindTest, AFileThatBecomesOneAndIsAFileAgain) {
  Write("name", Bytes("name", 5000));
  StartEngine();
  ASSERT_EQ(Fetch("name").status(), abi::FetchStatus::kFrame);
  ASSERT_EQ(::unlink((tree_ / "name").c_str()), 0);
  MakeFifo("name");
  Advise(abi::AdviseOp::kInvalidate, "name");
  ASSERT_TRUE(RunUntil([&] { return Fetch("name", abi::FetchOp::kStat).status() == abi::FetchStatus::kMeta; }));  // the clock of stats stands still for milliseconds
  ExpectNothingServed("name");
  ASSERT_EQ(::unlink((tree_ / "name").c_str()), 0);
  Write("name", Bytes("name", 5000, 2));
  Advise(abi::AdviseOp::kInvalidate, "name");
  EXPECT_TRUE(RunUntil([&] { return Fetch("name").bytes == Bytes("name", 5000, 2); }, 5000));
}

}  // namespace
}  // namespace tierd::engine
