// What cached descriptors are handed to, other preloads and signals (processes.c): as it is bare, and with no more conversions than that takes.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadProcessesTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    StartDaemon();
  }
  JobResult Run(const std::string& check) {
    const JobResult bare = RunJob({PRELOAD_PROCESSES, Twin("numbers"), check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_PROCESSES, Of("numbers"), check}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }
};

TEST_F(PreloadProcessesTest, AreGivenWhatTheyWouldBeGivenBare) {
  const struct {
    const char* check;
    const char* reason;  // of all conversions that there are
    unsigned conversions;
    unsigned opened;
  } cases[] = {{"exec", "exec", 1, 2},        {"fexec", "exec", 1, 1},  {"set_to_stay", "exec", 1, 1}, {"spawn", "spawn", 2, 3}, {"actions", "spawn", 3, 4}, {"vfork", "spawn", 1, 1},
               {"system", "spawn", 1, 2},     {"popen", "spawn", 1, 2},
               {"sent", "scm_rights", 4, 5},  {"aio", "aio", 2, 2},
#ifdef WITH_CUFILE
               {"cufile", "io_uring", 1, 1},
#endif
#ifdef WITH_GO
               {"go", "io_uring", 1, 1},
#endif
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.check);
    const JobResult served = Run(c.check);
    EXPECT_EQ(served.Of("conversions", c.reason), c.conversions) << served.report.dump();
    EXPECT_EQ(served.Sum("conversions"), c.conversions) << served.report.dump();
    EXPECT_EQ(served.report.value("opened", 0u), c.opened) << served.report.dump();
  }
}

TEST_F(PreloadProcessesTest, SeeAtOnceWhatTheirCommandsHaveWritten) {
  Both("numbers.lines", "l1\n");
  daemon_.Prefetch(source_);
  const JobResult served = Run("command");
  EXPECT_EQ(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

// Loops of a shell start one for each file: what every one of them pays is counted.
TEST_F(PreloadProcessesTest, StartWithoutTouchingTheTables) {
  const auto faults = [](const char* preload, std::string command) {
    std::string variable = std::string("LD_PRELOAD=") + preload, program = "/bin/bash", option = "-c";
    char* arguments[] = {program.data(), option.data(), command.data(), nullptr};
    char* environment[] = {variable.data(), nullptr};
    pid_t child = 0;
    int status = -1;
    rusage used{};
    EXPECT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment), 0);
    EXPECT_EQ(::wait4(child, &status, 0, &used), child);
    EXPECT_EQ(status, 0);
    return used.ru_minflt;
  };
  EXPECT_LT(faults(TIERD_PRELOAD_LIBRARY, ":"), faults("", ":") + 250);
  const std::string loop = "for i in 1 2 3 4 5 6 7 8; do /bin/true; done";
  EXPECT_LT(faults(TIERD_PRELOAD_LIBRARY, loop), faults("", loop) + 9 * 150) << "each of them a fork";
}

TEST_F(PreloadProcessesTest, SeeWhatTheyAreToldHasChanged) {
  Both("numbers.lines", "l1\n");
  daemon_.Prefetch(source_);
  const JobResult served = Run("watched");
  EXPECT_EQ(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

// What the cache has mapped is as much as they leave themselves.
TEST_F(PreloadProcessesTest, HaveWhatTheyLeaveThemselvesOfTheAddressSpace) {
  daemon_.Prefetch(source_);
  const JobResult served = Run("space");
  EXPECT_EQ(served.report.value("opened", 0u), 2u) << served.report.dump();
}

// Under a limit of file sizes, which counts for memory, too (limited.c).
TEST_F(PreloadProcessesTest, WriteNothingPastTheirLimit) {
  Both("old", Words(0, 100'000));
  Both("old.large", Words(0, (std::size_t{4} << 20) + 128));
  const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Of("old").c_str(), long_ago, 0), 0);
  daemon_.Prefetch(source_);
  const struct {
    const char* check;
    unsigned opened, maps, source_maps, memory_copies, forked;
  } cases[] = {{"none", 3, 0, 3, 0, 0}, {"some", 3, 1, 2, 0, 0},      {"enough", 3, 3, 0, 0, 0}, {"forked", 1, 0, 0, 0, 1}, {"forked_enough", 1, 0, 0, 1, 1},
               {"ends", 0, 0, 0, 0, 0}, {"ends_near", 0, 0, 0, 0, 0}, {"ends_enough", 1, 0, 0, 0, 0}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.check);
    const JobResult bare = RunJob({PRELOAD_LIMITED, Twin("old"), c.check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_LIMITED, Of("old"), c.check}, job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.report.value("opened", 0u), c.opened) << served.report.dump();
    EXPECT_EQ(served.report.value("maps", 0u), c.maps) << served.report.dump();
    EXPECT_EQ(served.Of("source_uses", "mmap"), c.source_maps) << served.report.dump();
    EXPECT_EQ(served.report.value("memory_copies", 0u), c.memory_copies) << served.report.dump();
    EXPECT_EQ(served.Of("conversions", "fork"), c.forked) << served.report.dump();
    EXPECT_EQ(served.Sum("conversions"), c.forked) << served.report.dump();
  }
}

// By every name that the library exports (rare.c).
TEST_F(PreloadProcessesTest, MayMakeRareCalls) {
  Both("numbers.words", "12 34\n");
  daemon_.Prefetch(source_);
  const struct {
    const char* check;
    std::vector<std::pair<const char*, unsigned>> conversions;
    unsigned opened;
  } cases[] = {{"asked", {}, 1},
               {"looped", {{"ioctl", 3}}, 3},
               {"refused", {{"syscall", 1}}, 1},
               {"used", {}, 0},
               {"looked_at", {}, 0},
               {"real_first", {{"attributes", 10}}, 10},
               {"changes", {}, 0},
               {"wide", {{"stdio", 9}}, 9},
               {"executed", {{"exec", 6}}, 6},
               {"other_names", {{"reopened", 2}, {"fcntl", 1}, {"aio", 2}, {"fork", 3}}, 9},
               {"counted", {{"fork", 2}}, 4},
               {"shared_numbers", {{"fork", 1}}, 1}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.check);
    const JobResult bare = RunJob({PRELOAD_RARE, Twin("numbers"), c.check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_RARE, Of("numbers"), c.check}, job_);
    EXPECT_EQ(served.code, 0) << served.output;
    unsigned all = 0;
    for (const auto& [reason, count] : c.conversions) {
      EXPECT_EQ(served.Of("conversions", reason), count) << served.report.dump();
      all += count;
    }
    EXPECT_EQ(served.Sum("conversions"), all) << served.report.dump();
    EXPECT_EQ(served.report.value("opened", 0u), c.opened) << served.report.dump();
    EXPECT_EQ(std::string(c.check) == "looked_at" ? served.Sum("real_opens") : 0, 0u) << served.report.dump();
  }
}

// The source decides what a process may read whose rights are others by now (credentials.c): a hit asks nobody.
TEST_F(PreloadProcessesTest, ThatChangeTheirRightsReadTheSource) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  Both("secret", "of 1234");
  for (const std::string& folder : {source_, plain_}) {
    ASSERT_EQ(::chmod((folder + "/secret").c_str(), 0600), 0);
    if (::chown((folder + "/secret").c_str(), 1234, 1234) != 0) GTEST_SKIP() << "there is no other user here";
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  }
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0755), 0);
  daemon_.Prefetch(source_);
  for (const char* way : {"setuid", "seteuid", "setreuid", "setresuid", "setfsuid", "setgid", "setegid", "setregid", "setresgid", "setfsgid", "setgroups", "initgroups", "capset",
                          "by_hand_setresuid", "by_hand_setfsuid", "by_hand_setgroups", "by_hand_capset"}) {
    SCOPED_TRACE(way);
    const JobResult bare = RunJob({PRELOAD_CREDENTIALS, Twin("numbers"), Twin("secret"), way}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_CREDENTIALS, Of("numbers"), Of("secret"), way}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    // A daemon under the unit has no right to read what is secret, and has not cached it.
    const std::uint64_t refused = served.Of("fallback", "permission");
    EXPECT_EQ(served.report.value("opened", 0u) + refused, 2u) << served.report.dump();
    EXPECT_TRUE(refused == 0 || std::getenv("TIERD_UNDER") != nullptr) << served.report.dump();
    EXPECT_EQ(served.Of("conversions", "changed"), 1u) << served.report.dump();
  }
}

TEST_F(PreloadProcessesTest, ThatKeepTheirRightsAreServedOn) {
  const JobResult bare = RunJob({PRELOAD_CREDENTIALS, Twin("numbers"), Twin("numbers"), "same"}, bare_);
  EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
  const JobResult served = RunJob({PRELOAD_CREDENTIALS, Of("numbers"), Of("numbers"), "same"}, job_);
  EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
  EXPECT_EQ(served.report.value("opened", 0u), 3u) << served.report.dump();
  EXPECT_LE(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

// What a fork made a copy in memory is the file for whoever does not read it (copied.c).
TEST_F(PreloadProcessesTest, HaveTheFileBehindACopy) {
  const char* const checks[] = {"mode", "times", "owner", "attribute", "file_system", "flags", "name", "run", "sent", "cloned", "written", "renamed", "gone", "started", "spawned", "asked"};
  for (const char* check : checks) {
    for (const std::string& path : {Of("program."), Twin("program.")}) {
      std::filesystem::copy_file("/bin/true", path + check);
      ASSERT_EQ(::chmod((path + check).c_str(), 0755), 0);
      const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
      ASSERT_EQ(::utimensat(AT_FDCWD, (path + check).c_str(), long_ago, 0), 0);
    }
  }
  daemon_.Prefetch(source_);
  for (const char* check : checks) {
    SCOPED_TRACE(check);
    const JobResult bare = RunJob({PRELOAD_COPIED, Twin("program"), check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_COPIED, Of("program"), check}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    EXPECT_GT(served.report.value("memory_copies", 0u), 0u) << served.report.dump();
  }
}

// Names that are found by dlsym alone (exports.c; exports_test.py sees to it that no exported name is without a call).
TEST_F(PreloadProcessesTest, MayLookUpWhatTheyCall) {
  Both("numbers.words", "12 34\n");
  for (int i = 0; i < 20; ++i) Both("names/n" + std::to_string(i), "x");
  daemon_.Prefetch(source_);
  const unsigned c23 = ::dlsym(RTLD_DEFAULT, "__isoc23_fwscanf") != nullptr ? 2 : 0;
  const struct {
    const char* check;
    const char* reason;
    unsigned conversions;
    unsigned opened;
  } cases[] = {{"listed", "", 0, 0}, {"named", "fcntl", 1, 1}, {"wide", "stdio", 5, 5}, {"wide_c23", "stdio", c23, c23}, {"received", "", 0, 1},
               {"loaded", "", 0, 0}, {"entered", "io_uring", 5, 5}, {"viewed", "changed", 5, 6}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.check);
    const JobResult bare = RunJob({PRELOAD_EXPORTS, Twin("numbers"), Twin("names"), c.check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_EXPORTS, Of("numbers"), Of("names"), c.check}, job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.Of("conversions", c.reason), c.conversions) << served.report.dump();
    EXPECT_EQ(served.Sum("conversions"), c.conversions) << served.report.dump();
    EXPECT_EQ(served.report.value("opened", 0u), c.opened) << served.report.dump();
  }
}

TEST_F(PreloadProcessesTest, AppendToFilesThatAreReal) {
  const JobResult served = Run("append");
  EXPECT_EQ(served.Of("real_opens", "flags"), 1u) << served.report.dump();
  EXPECT_EQ(served.Sum("conversions"), 0u) << served.report.dump();
}

TEST_F(PreloadProcessesTest, FollowLinksToDirectories) {
  const JobResult served = Run("links");
  EXPECT_EQ(served.Sum("conversions"), 0u) << served.report.dump();
  EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
}

TEST_F(PreloadProcessesTest, FollowLinksToWhereTheyLeadByNow) {
  const JobResult served = Run("relinked");
  EXPECT_EQ(served.Sum("conversions"), 0u) << served.report.dump();
  EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
}

// Cold files, so that there are questions to be interrupted.
TEST_F(PreloadProcessesTest, AreInterruptedByNoCallThatIsNotInterruptedBare) {
  for (int i = 0; i < 24; ++i) Both("cold" + std::to_string(i), Words(0, 1'000'000));
  const JobResult served = Run("storm");
  EXPECT_EQ(served.Of("conversions", "dup"), 24u) << served.report.dump();
  EXPECT_GT(served.report.value("opened", 0u), 24u) << served.report.dump();
}

#ifdef TIERD_JEMALLOC
// Another allocator, loaded before us or behind us.
TEST_F(PreloadProcessesTest, HaveOtherAllocators) {
  for (int i = 0; i < 20; ++i) Write(source_ + "/names/n" + (i < 10 ? "0" : "") + std::to_string(i), "x");
  Both("large", Content("large", 9'000'000));
  Both("file", Content("file", 100'000));
  daemon_.Prefetch(source_);
  for (const std::string& preloads : {std::string(TIERD_PRELOAD_LIBRARY ":" TIERD_JEMALLOC), std::string(TIERD_JEMALLOC ":" TIERD_PRELOAD_LIBRARY)}) {
    SCOPED_TRACE(preloads);
    job_.environment = {{"LD_PRELOAD", preloads}};
    for (const char* name : {"file", "large"}) {
      SCOPED_TRACE(name);
      const JobResult symbols = RunJob({PRELOAD_SYMBOLS, Of(name), Twin(name), Of("names")}, job_);
      EXPECT_EQ(symbols.code, 0) << symbols.output;
      // The ten up to the lock, whose other side opens the file for writing: for a moment after that a large file is the source's.
      EXPECT_GE(symbols.report.value("opened", 0u), 10u) << symbols.report.dump();
    }
    const JobResult python = RunJob({"/usr/bin/python3", "-c",
                                     "import mmap,os,sys\n"
                                     "assert 'libjemalloc' in open('/proc/self/maps').read()\n"
                                     "want=open(sys.argv[2],'rb').read()\n"
                                     "for i in range(50):\n"
                                     "  with open(sys.argv[1],'rb') as f:\n"
                                     "    m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); assert f.read()==want and m[:]==want; m.close()\n"
                                     "p=os.fork()\n"
                                     "if p==0: os._exit(open(sys.argv[1],'rb').read()!=want)\n"
                                     "assert os.waitpid(p,0)[1]==0\n",
                                     Of("large"), Twin("large")},
                                    job_);
    EXPECT_EQ(python.code, 0) << python.output;
    EXPECT_EQ(python.report.value("maps", 0u), 50u) << python.report.dump();
    EXPECT_EQ(python.Of("bytes", "bypass"), 0u) << python.report.dump();
  }
}
#endif

}  // namespace
}  // namespace tierd::e2e
