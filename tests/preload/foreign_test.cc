// Programs of the job that change files without the library: static ones, and those of another user.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

constexpr char kWays[] = "system,popen,spawn,spawnp,vfork,execvp,fexecve,syscall,waitid,ignored,chain,exec";
// The command is what the process becomes that the program has made itself.
constexpr char kDirectWays[] = "spawn,spawnp,vfork,execvp,fexecve,syscall,waitid,ignored,exec";

class PreloadForeignTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    std::istringstream ways(kWays);
    for (std::string way; std::getline(ways, way, ',');) {
      for (const char* action : {"rewrite", "replace", "unlink", "create"}) {
        for (const std::string& root : {source_, plain_}) Open(root + "/" + way + "-" + action);
      }
    }
    DaemonProcess::Options options;
    options.source = source_;
    options.ssd = "off";
    options.more = {"--set", "source.ttl=1h", "--set", "source.racy_window=0s"};
    ASSERT_TRUE(daemon_.Start(options)) << daemon_.output();
    daemon_.Prefetch(source_);
  }
  // For everybody: the command may be another user.
  void Open(const std::string& directory) {
    Write(directory + "/file", std::string(1000, 'a'));
    std::filesystem::permissions(directory, std::filesystem::perms::all);
    std::filesystem::permissions(directory + "/file", static_cast<std::filesystem::perms>(0666));
  }
  // As `tierctl run` has it.
  void ShareTable() {
    const std::string table = scratch_.path() + "/children";
    Write(table, std::string(4096, '\0'));
    std::filesystem::permissions(table, static_cast<std::filesystem::perms>(0600));
    job_.environment.emplace_back("TIERD_CHILDREN", table);
  }
  JobResult BareThenServedOn(const std::string& ways, const std::vector<std::string>& command) {
    const auto with = [&](const std::string& root) {
      std::vector<std::string> arguments{PRELOAD_FOREIGN, root, ways};
      arguments.insert(arguments.end(), command.begin(), command.end());
      return arguments;
    };
    const JobResult bare = RunJob(with(plain_), bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob(with(source_), job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }
};

TEST_F(PreloadForeignTest, WhatAStaticProgramChangesIsSeenOnceItsParentHasWaited) {
  ShareTable();
  const JobResult served = BareThenServedOn(kWays, {PRELOAD_FOREIGN_WRITER_STATIC});
  EXPECT_EQ(served.report.value("foreign_ends", 0u), 12u * 4u) << served.report.dump();
  EXPECT_GE(served.report.value("doubts", 0u), 12u * 4u) << served.report.dump();
  EXPECT_GT(served.Of("reads", "ram"), 0u) << served.report.dump();
}

// What a doubt concerns stays cached: each file costs a look at the source, and no more.
TEST_F(PreloadForeignTest, WhatAStaticProgramDoesNotChangeStaysCached) {
  ShareTable();
  const JobResult served = RunShell("cd " + source_ + "; cat chain-create/file > /dev/null; " + PRELOAD_FOREIGN_WRITER_STATIC + " create " + Of("chain-create") +
                                        "; for i in 1 2 3; do cat exec-create/file > /dev/null; done",
                                    job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("foreign_ends", 0u), 1u) << served.report.dump();
  EXPECT_EQ(served.Of("reads", "ram"), 4u) << served.report.dump();
  EXPECT_EQ(served.Of("reads", "source"), 0u) << served.report.dump();
}

TEST_F(PreloadForeignTest, ChildrenThatAProcessHasMadeItselfAreKnownWithoutASharedTable) {
  const JobResult served = BareThenServedOn(kDirectWays, {PRELOAD_FOREIGN_WRITER_STATIC});
  EXPECT_EQ(served.report.value("foreign_ends", 0u), 9u * 4u) << served.report.dump();
}

// Programs that the library sees tell of each change, and cost no doubt.
TEST_F(PreloadForeignTest, ProgramsThatTakeTheLibraryAreNotDoubted) {
  ShareTable();
  const JobResult served = BareThenServedOn(kWays, {PRELOAD_FOREIGN_WRITER});
  EXPECT_EQ(served.report.value("foreign_ends", 0u), 0u) << served.report.dump();
  EXPECT_EQ(served.report.value("doubts", 0u), 0u) << served.report.dump();
  const JobResult script = RunShell("cd " + scratch_.path() + "; printf '#!/bin/sh\\n:\\n' > s; chmod +x s; ./s; /usr/bin/env true; python3 -c 1; (exec true); ls " + source_ + " > /dev/null", job_);
  EXPECT_EQ(script.code, 0) << script.output;
  EXPECT_EQ(script.report.value("foreign_ends", 0u), 0u) << script.report.dump();
}

TEST_F(PreloadForeignTest, AProgramWithoutTheLibraryInItsEnvironmentIsDoubted) {
  ShareTable();
  for (const char* wrap : {"/usr/bin/env -u LD_PRELOAD", "/usr/bin/env TIERD_DISABLE=1"}) {
    SCOPED_TRACE(wrap);
    const std::string directory = Of(wrap[13] == '-' ? "exec-rewrite" : "chain-rewrite");
    const JobResult served =
        RunShell("cat " + directory + "/file > /dev/null; " + wrap + " " + PRELOAD_FOREIGN_WRITER + " rewrite " + directory + "; cat " + directory + "/file | tr -d b", job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.output, "");
    EXPECT_EQ(served.report.value("foreign_ends", 0u), 1u) << served.report.dump();
  }
}

TEST_F(PreloadForeignTest, WhatAnotherUserChangesIsSeenOnceItsParentHasWaited) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const std::string setpriv = "/usr/bin/setpriv";
  if (::access(setpriv.c_str(), X_OK) != 0) GTEST_SKIP() << "no setpriv here";
  ShareTable();
  std::filesystem::permissions(scratch_.path(), static_cast<std::filesystem::perms>(0711));
  for (const char* path : {PRELOAD_FOREIGN_WRITER, TIERD_PRELOAD_LIBRARY}) {
    if (RunJob({setpriv, "--reuid", "65534", "--clear-groups", "/usr/bin/test", "-r", path}, bare_).code != 0) GTEST_SKIP() << path << " is not for everybody";
  }
  const JobResult served = BareThenServedOn(kWays, {setpriv, "--reuid", "65534", "--clear-groups", PRELOAD_FOREIGN_WRITER});
  EXPECT_GE(served.report.value("foreign_ends", 0u), 12u * 4u) << served.report.dump();
}

TEST_F(PreloadForeignTest, WhatBusyboxChangesIsSeenByTheNextCommandOfAShell) {
  if (::access("/bin/busybox", X_OK) != 0) GTEST_SKIP() << "no busybox here";
  ShareTable();
  const std::string file = Of("exec-rewrite") + "/file";
  const JobResult served = RunShell("cat " + file + " > /dev/null; /bin/busybox sh -c 'echo new > " + file + "'; cat " + file + "; /usr/bin/python3 -c '" +
                                        "import subprocess\nread=lambda: open(\"" + file + "\").read()\nread()\n" +
                                        "subprocess.run([\"/bin/busybox\",\"sh\",\"-c\",\"echo newer > " + file + "\"], check=True)\nprint(read(), end=\"\")\n" +
                                        "subprocess.run(\"/bin/busybox sed -i s/newer/newest/ " + file + "\", shell=True, check=True)\nprint(read(), end=\"\")'",
                                    job_);
  EXPECT_EQ(served.code, 0);
  EXPECT_EQ(served.output, "new\nnewer\nnewest\n") << served.report.dump();
}

}  // namespace
}  // namespace tierd::e2e
