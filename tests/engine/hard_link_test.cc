// A file changes by all its names at once (HAZARDS 2.12).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class HardLinkTest : public EngineTest {
 protected:
  HardLinkTest() { source_options().ttl_ms = 60'000; }
  // In place: the inode stays.
  void Rewrite(const std::string& name, const std::string& bytes) { std::ofstream(tree_ / name, std::ios::binary | std::ios::trunc) << bytes; }
  void Link(const std::string& name, const std::string& to) { std::filesystem::create_hard_link(tree_ / name, tree_ / to); }
  void Tell(const std::string& name, bool recursive = false) {
    std::optional<int> said;
    engine().Advise(unit(), abi::AdviseOp::kInvalidate, name, recursive, [&](int error, std::uint64_t) { said = error; });
    ASSERT_TRUE(RunUntil([&] { return said.has_value(); })) << name;
    EXPECT_EQ(*said, 0) << name;
  }
  static std::string Version(int version) { return Bytes("file", 5000, version); }
};

TEST_F(HardLinkTest, OurOwnWriteByOneNameIsSeenAtOnceByTheOthers) {
  Write("d/file", Version(1));
  for (const char* name : {"other", "unread"}) Link("d/file", name);
  StartEngine();
  for (const char* name : {"d/file", "other"}) ASSERT_EQ(Fetch(name).bytes, Version(1));
  int version = 1;
  for (const char* name : {"other", "other", "unread", "d/file"}) {  // known; told of before; not known; told of by another name
    Rewrite(name, Version(++version));
    Tell(name);
    EXPECT_FALSE(InRam("d/file")) << name;
    EXPECT_EQ(Fetch("d/file").bytes, Version(version)) << name;
  }
}

TEST_F(HardLinkTest, AlsoWhereATreeIsToldOf) {
  Write("d/file", Version(1));
  Write("e/new", Version(1));
  for (const char* name : {"other", "e/unread"}) Link("d/file", name);
  StartEngine();
  for (const char* name : {"d/file", "other"}) ASSERT_EQ(Fetch(name).bytes, Version(1));
  int version = 1;
  for (const char* told : {"d", "d/file", "e/unread"}) {
    Rewrite("d/file", Version(++version));
    Tell(told, true);
    EXPECT_EQ(Fetch("other").bytes, Version(version)) << told;
    EXPECT_EQ(Fetch("d/file").bytes, Version(version)) << told;
  }
}

// Not only regular files have several names.
TEST_F(HardLinkTest, WhatIsChangedByOneNameOfAFifoASocketOrALinkIsSeenByTheOthers) {
  ASSERT_EQ(::mkfifo((tree_ / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mknod((tree_ / "socket").c_str(), S_IFSOCK | 0600, 0), 0);
  tree_.Link("nowhere", "link");
  StartEngine();
  for (const std::string name : {"fifo", "socket", "link"}) {
    const auto stat_of = [&](const std::string& path) { return Fetch(path, abi::FetchOp::kStat).reply; };
    const auto stat_itself = [&](const std::string& path) {
      const std::uint64_t id = Ask(path, abi::FetchOp::kStat, 0, kReader, abi::kFetchNoFollow);
      EXPECT_TRUE(RunUntil([&] { return answers().contains(id); }));
      return answers()[id].reply;
    };
    const auto facts = [&](const std::string& path) { return name == "link" ? stat_itself(path) : stat_of(path); };
    Link(name, name + "2");
    for (const std::string& path : {name, name + "2"}) ASSERT_EQ(facts(path).nlink, 2u) << path;
    // Mode and owner, by one name; told by that name.
    const bool has_mode = name != "link";
    if (has_mode) {
      ASSERT_EQ(::chmod((tree_ / name).c_str(), 0640), 0);
    }
    ASSERT_EQ(::utimensat(AT_FDCWD, (tree_ / name).c_str(), std::array<timespec, 2>{{{7, 0}, {7, 0}}}.data(), AT_SYMLINK_NOFOLLOW), 0);
    Tell(name);
    EXPECT_EQ(facts(name + "2").mtime_ns, 7'000'000'000) << name;
    EXPECT_EQ(facts(name + "2").mode & 0777u, has_mode ? 0640u : 0777u) << name;
    // A name that goes.
    ASSERT_EQ(::unlink((tree_ / (name + "2")).c_str()), 0);
    Tell(name + "2");
    EXPECT_EQ(facts(name).nlink, 1u) << name;
  }
}

// It had one name when it was read.
TEST_F(HardLinkTest, ALinkThatWasMadeSince) {
  Write("file", Version(1));
  StartEngine();
  ASSERT_EQ(Fetch("file").bytes, Version(1));
  Link("file", "other");
  ASSERT_EQ(Fetch("other").bytes, Version(1));
  Rewrite("file", Version(2));
  Tell("file");
  EXPECT_EQ(Fetch("other").bytes, Version(2));
}

// Who has written waits for the answer: the source has less than half a second to say which file it was.
TEST_F(HardLinkTest, WhereTheSourceDoesNotSayWhichFileAllWithSeveralNamesGo) {
  source_options().requests_per_s = 2;
  Write("file", Version(1));
  Write("single", Version(1));
  for (const char* name : {"other", "unread"}) Link("file", name);
  StartEngine();
  for (const char* name : {"single", "file", "other"}) ASSERT_EQ(Fetch(name).bytes, Version(1));
  for (int i = 0; i < 20; ++i) (void)Ask("missing" + std::to_string(i));  // the source has no time for the resolver
  (void)HandlersIn(20);
  Rewrite("unread", Version(2));
  const auto begin = std::chrono::steady_clock::now();
  Tell("unread");
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::milliseconds(300)) << "it has said";
  EXPECT_LT(took, std::chrono::milliseconds(900));
  EXPECT_FALSE(InRam("file"));
  EXPECT_FALSE(InRam("other"));
  EXPECT_TRUE(InRam("single"));
}

// What is told of a file with several names concerns its names alone, be they on their way for the first time.
TEST_F(HardLinkTest, ChangesOfOneCostOthersNoRead) {
  constexpr int kFiles = 60;
  const std::vector<std::string> names = MakeFiles(kFiles, 5000);
  Write("file", Version(1));
  Link("file", "unread");
  StartEngine();
  ASSERT_EQ(Fetch("file").bytes, Version(1));
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  source_io_.Hold(io::Step::kStatAfter);
  std::vector<std::uint64_t> asked{Ask("unread")};
  for (const std::string& name : names) asked.push_back(Ask(name));
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting > 0; }));
  for (int version = 2; version < 10; ++version) {
    Rewrite("file", Version(version));
    Tell("file");
  }
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return std::all_of(asked.begin(), asked.end(), [&](std::uint64_t id) { return answers().contains(id); }); }));
  EXPECT_TRUE(answers()[asked[0]].bytes == Version(9));
  EXPECT_LE(source_io_.count(io::Step::kOpen) - opens, std::uint64_t{kFiles} + 1 + 3) << "once each, and once more what has changed";
}

}  // namespace
}  // namespace tierd::engine
