// Files that change: while they are read, after they were cached, by others and by ourselves (FAULTS F41, F42, F43, F45).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

class ChangeTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kTtlMs = 200;
  ChangeTest() { source_options().ttl_ms = kTtlMs; }
  // Overwrites in place: same inode.
  void Rewrite(const std::string& name, const std::string& bytes) const {
    const int fd = ::open((tree_ / name).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(bytes.size())), 0);
    ::close(fd);
  }
  // What a reader gets once the bound is over.
  Answer FetchLater(const std::string& name) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kTtlMs + 40));
    return Fetch(name);
  }
};

TEST_F(ChangeTest, RewrittenDuringTheReadIsReadAgain) {  // F41
  const std::string name = Write("file", Bytes("file", 40'000, 1));
  StartEngine();
  source_io_.Hold(io::Step::kStatAfter);  // the bytes of version 1 are in the frame
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Rewrite(name, Bytes(name, 40'000, 2));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  // The held stat may have been made before the write: then version 1 was a moment of the file, and the bound holds.
  const bool first = answers()[id].bytes == Bytes(name, 40'000, 1);
  EXPECT_TRUE(first || answers()[id].bytes == Bytes(name, 40'000, 2)) << "never a mixture";
  EXPECT_TRUE(FetchLater(name).bytes == Bytes(name, 40'000, 2));
}

// Deadlines do not count the time for which the machine was suspended.
TEST_F(ChangeTest, RewrittenWhileTheMachineSleptIsReadAgain) {
  source_options().ttl_ms = 3'600'000;
  const std::string changed = Write("changed", Bytes("changed", 40'000, 1)), same = Write("same", Bytes("same", 40'000, 1));
  StartEngine();
  ASSERT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 1) && Fetch(same).bytes == Bytes(same, 40'000, 1));
  const auto expired = [&](const std::string& name) { return engine().catalogue().DeadlineOf(FileOf(name)) == abi::kDeadlineExpired; };
  ASSERT_FALSE(expired(changed) || expired(same));
  Rewrite(changed, Bytes(changed, 40'000, 2));
  clock_.asleep_ns += 900'000'000;  // no more than a machine stands still for other reasons
  RunUntil([] { return false; }, 1500);
  EXPECT_FALSE(expired(changed));
  clock_.asleep_ns += 100'000'000;
  ASSERT_TRUE(RunUntil([&] { return expired(changed) && expired(same); }));
  EXPECT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 2));
  const std::uint64_t read = unit().reader->counters().bytes_read;
  EXPECT_EQ(Fetch(same).tier(), abi::Tier::kRam) << "asked about, and not read again";
  EXPECT_EQ(unit().reader->counters().bytes_read, read);
  EXPECT_FALSE(expired(same));
}

// A read that had been sent before is nobody's who asks afterwards, though it would still bring what the source has now.
TEST_F(ChangeTest, WhoAsksAfterTheMachineSleptDoesNotJoinAReadFromBefore) {
  source_options().ttl_ms = 3'600'000;
  const std::string name = Write("file", Bytes("file", 40'000));
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  source_io_.Hold(io::Step::kStatAfter);
  const std::uint64_t before = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  clock_.asleep_ns += 1'000'000'000;
  ASSERT_TRUE(RunUntil([&] { return engine().catalogue().DeadlineOf(FileOf(name)) == abi::kDeadlineExpired; }));
  const std::uint64_t after = Ask(name), another = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 2; })) << "read anew, and once";
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(before) && answers().contains(after) && answers().contains(another); }));
  for (const std::uint64_t id : {before, after, another}) EXPECT_TRUE(answers()[id].bytes == Bytes("file", 40'000));
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 2);
}

// Somebody may have changed any of them: what has not changed is confirmed by a stat, and stays in RAM.
TEST_F(ChangeTest, WhatIsDoubtedIsConfirmedAtItsNextUseAndKept) {
  source_options().staleness = abi::Staleness::kImmutable;
  const std::string changed = Write("changed", Bytes("changed", 40'000, 1)), same = Write("same", Bytes("same", 40'000, 1));
  StartEngine();
  ASSERT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 1) && Fetch(same).bytes == Bytes(same, 40'000, 1));
  Rewrite(changed, Bytes(changed, 40'000, 2));
  ASSERT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 1));
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  bool told = false;
  engine().Advise(unit(), abi::AdviseOp::kDoubt, "", true, [&](int error, std::uint64_t files) { told = error == 0 && files >= 2; });
  ASSERT_TRUE(RunUntil([&] { return told; }));
  for (const std::string& name : {changed, same}) EXPECT_EQ(engine().catalogue().DeadlineOf(FileOf(name)), abi::kDeadlineExpired) << name;
  EXPECT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 2));
  const Answer kept = Fetch(same);
  EXPECT_TRUE(kept.bytes == Bytes(same, 40'000, 1));
  EXPECT_EQ(kept.tier(), abi::Tier::kRam);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 1);
}

// The answer was asked for after the change was told of, if only by microseconds: it is believed, and asked for once.
TEST_F(ChangeTest, WhatIsReadJustAfterItWasToldOfIsConfirmed) {
  source_options().ttl_ms = 3'600'000;
  const auto names = MakeFiles(20, 3000);
  StartEngine();
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  const std::uint64_t opens = source_io_.count(io::Step::kOpen), stats = source_io_.count(io::Step::kStat);
  for (const std::string& name : names) {
    EXPECT_EQ(Advise(abi::AdviseOp::kInvalidate, name), 1u);
    EXPECT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
    EXPECT_EQ(Fetch(name).tier(), abi::Tier::kRam);
  }
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + names.size());
  EXPECT_EQ(source_io_.count(io::Step::kStat), stats);
}

// Also a file of a source that never changes by itself.
TEST_F(ChangeTest, RewrittenByWhoCouldTellNobodyIsReadAgain) {
  source_options().staleness = abi::Staleness::kImmutable;
  const std::string changed = Write("changed", Bytes("changed", 40'000, 1)), same = Write("same", Bytes("same", 40'000, 1));
  StartEngine();
  ASSERT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 1) && Fetch(same).bytes == Bytes(same, 40'000, 1));
  const auto expired = [&](const std::string& name) { return engine().catalogue().DeadlineOf(FileOf(name)) == abi::kDeadlineExpired; };
  ASSERT_FALSE(expired(changed) || expired(same));
  Rewrite(changed, Bytes(changed, 40'000, 2));
  engine().NoteUntold();
  ASSERT_TRUE(RunUntil([&] { return expired(changed) && expired(same); }));
  EXPECT_TRUE(Fetch(changed).bytes == Bytes(changed, 40'000, 2));
  const std::uint64_t read = unit().reader->counters().bytes_read;
  EXPECT_EQ(Fetch(same).tier(), abi::Tier::kRam) << "asked about, and not read again";
  EXPECT_EQ(unit().reader->counters().bytes_read, read);
}

// Clients that raise no word of a change they could not tell of (an older libtier) may have changed anything meanwhile.
TEST_F(ChangeTest, AStandOfTheLoopIsADoubtForSilentClientsAlone) {
  source_options().staleness = abi::Staleness::kImmutable;
  const std::string name = Write("file", Bytes("file", 40'000, 1));
  StartEngine();
  ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 40'000, 1));
  const auto expired = [&] { return engine().catalogue().DeadlineOf(FileOf(name)) == abi::kDeadlineExpired; };
  constexpr std::int64_t kTicks = abi::kHeartbeatAheadTicks + abi::kHeartbeatStaleTicks + 4;
  const auto stand = [&] {
    int turns = 0;
    engine().on_timer = [&] {
      if (turns++ == 0) std::this_thread::sleep_for(std::chrono::nanoseconds(kTicks << abi::kTickShift));
    };
    ASSERT_TRUE(RunUntil([&] { return turns > 3; }));
    engine().on_timer = nullptr;
  };
  stand();
  EXPECT_FALSE(expired());
  engine().NoteSilentClient();
  stand();
  EXPECT_TRUE(RunUntil(expired));
}

TEST_F(ChangeTest, RewrittenBetweenStatAndReadIsReadAgain) {  // F41
  const std::string name = Write("file", Bytes("file", 40'000, 1));
  StartEngine();
  source_io_.Hold(io::Step::kStatBefore);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Rewrite(name, Bytes(name, 40'000, 2));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_TRUE(answers()[id].bytes == Bytes(name, 40'000, 2));
  EXPECT_GE(unit().reader->counters().version_retries, 1u);
}

TEST_F(ChangeTest, TruncatedBetweenStatAndReadIsReadAgain) {  // F42
  const std::string name = Write("file", Bytes("file", 40'000, 1));
  StartEngine();
  source_io_.Hold(io::Step::kStatBefore);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Rewrite(name, Bytes(name, 17, 2));
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_EQ(answers()[id].bytes, Bytes(name, 17, 2));
}

TEST_F(ChangeTest, ALargeFileThatChangesIsNeverAMixture) {  // F41, several chunks
  source_options().chunk_bytes = 64 << 10;
  const std::size_t bytes = 3 * (64 << 10);
  const std::string name = Write("large", Bytes("large", bytes, 1));
  StartEngine();
  const Answer first = Fetch(name, abi::FetchOp::kChunk, 0);
  ASSERT_EQ(first.status(), abi::FetchStatus::kFrame);
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));  // chunk 1 is read ahead: if that sees the change, who asked meanwhile is sent to the source
  Rewrite(name, Bytes(name, bytes, 2));
  // Chunk 2 is of the new version: what is known of the file follows, and chunk 0 of the old one is gone.
  const Answer second = Fetch(name, abi::FetchOp::kChunk, 2);
  ASSERT_EQ(second.status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(second.bytes == Bytes(name, bytes, 2).substr(128 << 10, 64 << 10));
  EXPECT_NE(second.reply.ctime_ns, first.reply.ctime_ns) << "the client sees that its two chunks are of two versions";
  EXPECT_TRUE(Fetch(name, abi::FetchOp::kChunk, 0).bytes == Bytes(name, bytes, 2).substr(0, 64 << 10));
}

TEST_F(ChangeTest, ReplacedByRenameWithSameSizeAndMtime) {  // F43
  const std::string name = Write("file", Bytes("file", 5000, 1));
  StartEngine();
  ASSERT_EQ(Fetch(name).bytes, Bytes(name, 5000, 1));
  Write("other", Bytes(name, 5000, 2));
  struct stat before {};
  ASSERT_EQ(::stat((tree_ / name).c_str(), &before), 0);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (tree_ / "other").c_str(), times, 0), 0);
  ASSERT_EQ(::rename((tree_ / "other").c_str(), (tree_ / name).c_str()), 0);
  EXPECT_EQ(FetchLater(name).bytes, Bytes(name, 5000, 2));
  EXPECT_EQ(engine().counters().invalidated_changed, 1u);
}

TEST_F(ChangeTest, DeletedIsAnErrorWhenTheBoundIsOverAndTheCopyIsKept) {  // F45; HAZARDS 2.15
  UseSsd();
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  const std::string hidden = tree_.path() + "-hidden";
  ASSERT_EQ(::rename((tree_ / name).c_str(), hidden.c_str()), 0);
  const Answer answer = FetchLater(name);
  EXPECT_EQ(answer.status(), abi::FetchStatus::kError);
  EXPECT_EQ(answer.reply.sys_errno, ENOENT);
  EXPECT_TRUE(InRam(name)) << "an ENOENT proves nothing";
  ASSERT_EQ(::rename(hidden.c_str(), (tree_ / name).c_str()), 0);  // ctime moves: it is read again
  EXPECT_EQ(Fetch(name).bytes, Bytes(name, 5000));
}

TEST_F(ChangeTest, ModeAndOwnerFollowWithinTheBound) {  // F45
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  ASSERT_EQ(::chmod((tree_ / name).c_str(), 0640), 0);
  EXPECT_EQ(Fetch(name).reply.mode & 07777u, 0640u);
  ASSERT_EQ(::chmod((tree_ / name).c_str(), 0600), 0);
  const Answer answer = FetchLater(name);
  EXPECT_EQ(answer.reply.mode & 07777u, 0600u);
  EXPECT_EQ(answer.bytes, Bytes(name, 5000));
  if (::geteuid() == 0) return;  // may read everything
  ASSERT_EQ(::chmod((tree_ / name).c_str(), 0), 0);
  EXPECT_EQ(FetchLater(name).reply.sys_errno, EACCES);
}

// A read of somebody else moves it, and nothing else of a version.
TEST_F(ChangeTest, TheAtimeFollowsWithinTheBound) {
  const std::string name = Write("file", Bytes("file", 40'000, 1));
  StartEngine();
  ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame);
  struct stat st;
  ASSERT_EQ(::stat((tree_ / name).c_str(), &st), 0);
  io::FileStat known = engine().catalogue().StatOf(FileOf(name));
  EXPECT_EQ(known.atime_ns, st.st_atim.tv_sec * 1'000'000'000 + st.st_atim.tv_nsec);
  known.atime_ns = 17;  // as the source may show it at another time
  engine().catalogue().CompleteAttributes(FileOf(name), known);
  EXPECT_EQ(engine().catalogue().StatOf(FileOf(name)).atime_ns, 17);
  EXPECT_EQ(FetchLater(name).tier(), abi::Tier::kRam);
  EXPECT_EQ(engine().catalogue().StatOf(FileOf(name)).atime_ns, st.st_atim.tv_sec * 1'000'000'000 + st.st_atim.tv_nsec);
}

TEST_F(ChangeTest, ImmutableIsNotAskedAboutAgain) {  // F45
  source_options().staleness = abi::Staleness::kImmutable;
  const std::string name = Write("file", Bytes("file", 5000));
  StartEngine();
  ASSERT_EQ(Fetch(name).reply.deadline, abi::kDeadlineNever);
  ASSERT_EQ(::unlink((tree_ / name).c_str()), 0);
  EXPECT_EQ(FetchLater(name).bytes, Bytes(name, 5000));
  EXPECT_EQ(source_io_.count(io::Step::kStat), 0u);
}

TEST_F(ChangeTest, OurOwnWriteIsSeenAtOnceAlsoByAReadUnderWay) {
  source_options().ttl_ms = 60'000;
  const std::string name = Write("d/file", Bytes("d/file", 9000, 1));
  StartEngine();
  ASSERT_EQ(Fetch(name).bytes, Bytes(name, 9000, 1));
  Write(name, Bytes(name, 7000, 2));
  EXPECT_EQ(Advise(abi::AdviseOp::kInvalidate, name), 1u);
  EXPECT_FALSE(InRam(name));
  EXPECT_EQ(Fetch(name).bytes, Bytes(name, 7000, 2));
  // A read that began before the write must not bring the old bytes back after it.
  Advise(abi::AdviseOp::kInvalidate, name);
  source_io_.Hold(io::Step::kStatAfter);
  const std::uint64_t id = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Write(name, Bytes(name, 7000, 3));
  Advise(abi::AdviseOp::kInvalidate, name);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_NE(answers()[id].bytes, Bytes(name, 7000, 2));
  EXPECT_EQ(Fetch(name).bytes, Bytes(name, 7000, 3));
}

TEST_F(ChangeTest, AnErrorIsPassedOnAndNotRemembered) {  // F40
  StartEngine();
  const Answer missing = Fetch("not/there");
  EXPECT_EQ(missing.status(), abi::FetchStatus::kError);
  EXPECT_EQ(missing.reply.sys_errno, ENOENT);
  Write("not/there", "now it is");
  EXPECT_EQ(Fetch("not/there").bytes, "now it is");
}

// A directory in which subdirectories come has another link count each time.
TEST_F(ChangeTest, FilesOfANewKindAreCachedWhenAttributeClassesHaveRunOut) {
  const std::string name = Write("file", Bytes("file", 1000));
  StartEngine();
  io::FileStat stat;
  stat.dev = unit().source->root_stat().dev;
  stat.mode = S_IFREG | 0644;
  stat.ino = 4711;
  stat.size = 10;
  for (stat.uid = 70'000; stat.uid < 70'000 + abi::kMaxAttrClasses; ++stat.uid) {
    engine().fetcher().Observe(unit(), "known", stat, 1);
    stat.mtime_ns += 1;
    engine().catalogue().file(FileOf("known")).flags &= static_cast<std::uint16_t>(~kFileChecked);
  }
  ASSERT_EQ(::chmod((tree_ / name).c_str(), 0604), 0);
  ASSERT_EQ(Fetch(name).bytes, Bytes(name, 1000));
  EXPECT_EQ(engine().catalogue().StatOf(FileOf(name)).mode, 0u) << "who wants its attributes asks the source";
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  const std::uint64_t changes = engine().counters().invalidated_changed;
  for (int i = 0; i < 3; ++i) {
    const Answer answer = FetchLater(name);
    EXPECT_EQ(answer.tier(), abi::Tier::kRam);
    EXPECT_EQ(answer.bytes, Bytes(name, 1000));
  }
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens) << "it is the same version";
  EXPECT_EQ(engine().counters().invalidated_changed, changes);
}

}  // namespace
}  // namespace tierd::engine
