// `tierctl run`: the command behaves as without it, the daemon comes and goes with the job, runs do not meet, and nothing is left behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "tests/preload/run_fixture.h"

namespace tierd::e2e {
namespace {

namespace fs = std::filesystem;

// Becomes the command that follows, under a filter that answers faccessat2 (439) with EPERM as old filters answer what they do not know. 77: there can be none.
constexpr const char* kRefuseFaccessat2 = R"(
import ctypes, os, struct, sys
steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in [(0x20, 0, 0, 0), (0x15, 0, 1, 439), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(steps)))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0: sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
)";

TEST_F(RunTest, ServesACommandAndLeavesNothing) {
  const std::string report = scratch_.path() + "/report.json";
  const JobResult result = RunIt({"--report", report}, {"/usr/bin/python3", "-c", "import sys\nfor i in range(3): print(len(open(sys.argv[1],'rb').read()))", source_ + "/file"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "100000\n100000\n100000\n");
  const auto document = ReadJson(report);
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["exit_code"], 0);
  EXPECT_EQ(document["opened"], 3);
  EXPECT_EQ(document["reads"]["source"]["count"], 1);
  EXPECT_EQ(document["reads"]["ram"]["count"], 2);
  EXPECT_EQ(document["source_read_bytes"], 100'000);
  EXPECT_EQ(document["source_saved_bytes"], 200'000);
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, ServesBothNamesOfASourceThatIsALink) {
  const std::string report = scratch_.path() + "/report.json", link = scratch_.path() + "/link";
  fs::create_directory_symlink(source_, link);
  const auto opened = [&](const std::string& command) {
    const JobResult result = RunJob({TIERCTL_BINARY, "run", "--source", link, "--report", report, "--", "/bin/sh", "-c", "for i in 1 2 3; do " + command + " | wc -c; done"}, job_);
    EXPECT_EQ(result.output, "100000\n100000\n100000\n") << command;
    return ReadJson(report).value("opened", 0);  // one or two may be answered too late on a busy machine
  };
  EXPECT_GE(opened("cat " + source_ + "/file"), 1);
  EXPECT_GE(opened("cd " + link + "; cat file"), 1);
  EXPECT_GE(opened("cat " + link + "/file"), 1);
}

TEST_F(RunTest, SaysSixLinesOnStderr) {
  const JobResult result = RunShell(std::string(TIERCTL_BINARY) + " run --source " + source_ + " -- cat " + source_ + "/file 2>&1 >/dev/null", job_);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 6) << result.output;
}

// Three epochs, each read by processes of its own, in another order.
TEST_F(RunTest, SaysWhatEachEpochWasServedFrom) {
  for (int i = 0; i < 40; ++i) Write(source_ + "/set/" + std::to_string(i), Content("set", 5'000));
  const std::string report = scratch_.path() + "/report.json";
  const std::string epoch = "ls " + source_ + "/set/* | shuf | xargs -n 20 cat > /dev/null";
  EXPECT_EQ(RunIt({"--report", report}, {"/bin/sh", "-c", epoch + ";" + epoch + ";" + epoch}).code, 0);
  const auto document = ReadJson(report);
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  ASSERT_EQ(document["epochs"].size(), 3u) << document["epochs"];
  for (int i = 0; i < 3; ++i) {
    const auto& one = document["epochs"][i];
    EXPECT_EQ(one["files"], 40);
    EXPECT_EQ(one["reads"]["ram"].get<int>() + one["reads"]["ssd"].get<int>() + one["reads"]["source"].get<int>(), 40) << one;
    EXPECT_TRUE(i == 0 || one["reads"]["ram"] == 40) << one;
  }
}

TEST_F(RunTest, TheOptionsAreTheDaemons) {
  const std::string second = scratch_.path() + "/second";
  Write(second + "/file", Content("file", 100));
  const std::string report = scratch_.path() + "/report.json";
  job_.directory = scratch_.path();
  const JobResult result = RunIt({"--source", "second", "--ssd", "tmp/own-ssd", "--policy", "lru", "--report", "report.json"}, {"cat", source_ + "/file", second + "/file"});
  EXPECT_EQ(result.code, 0) << result.output;
  const auto daemon = ReadJson(report)["daemon"];
  ASSERT_EQ(daemon["sources"].size(), 2u);
  EXPECT_EQ(daemon["sources"][0]["path"], source_);
  EXPECT_EQ(daemon["sources"][1]["path"], second);
  EXPECT_EQ(daemon["sources"][0]["policy"], "lru");
  EXPECT_EQ(daemon["tiers"]["ram"]["capacity_bytes"], 64 << 20);
  EXPECT_EQ(daemon["tiers"]["ssd"]["directory"], base_ + "/own-ssd");
  EXPECT_EQ(ReadJson(report)["opened"], 2);
}

// Memory is no place for an SSD tier, and many nodes have nothing else: then there is a RAM tier.
TEST_F(RunTest, LocalScratchInMemoryWillDo) {
  job_.environment.front().second = "/dev/shm";
  const std::string report = scratch_.path() + "/report.json";
  const JobResult result = RunIt({"--report", report}, {"/bin/sh", "-c", "cat " + source_ + "/file " + source_ + "/file | wc -c"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.output, "200000\n");
  EXPECT_EQ(ReadJson(report)["opened"], 2);
  EXPECT_EQ(ReadJson(report)["daemon"]["tiers"]["ssd"]["state"], "off");
}

TEST_F(RunTest, AReportThatCannotBeWrittenChangesNothingElse) {
  const JobResult result = RunIt({"--report", "/dev/full"}, {"/bin/sh", "-c", "exit 4"});
  EXPECT_EQ(result.code, 4);
  EXPECT_NE(result.output.find("cannot write /dev/full: No space left on device"), std::string::npos) << result.output;
}

// LD_PRELOAD parts names at blanks and colons.
TEST_F(RunTest, TheLibraryMayLieBelowABlankOrAColon) {
  for (const std::string name : {"/my tools", "/v1:2"}) {
    std::filesystem::create_directories(scratch_.path() + name);
    const std::string library = scratch_.path() + name + "/libtier_preload.so", report = scratch_.path() + "/report.json";
    std::filesystem::copy_file(TIERD_PRELOAD_LIBRARY, library);
    JobOptions job = job_;
    job.environment.emplace_back("TIERD_PRELOAD", library);
    const JobResult result = RunJob(Run({"--report", report}, {"/bin/sh", "-c", "cat " + source_ + "/file " + source_ + "/file | wc -c"}), job);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.output, "200000\n");
    EXPECT_EQ(ReadJson(report)["opened"], 2);
    EXPECT_TRUE(LeftOver().empty());
    // No link has a better name where the scratch directory's has a blank, too.
    std::filesystem::create_directories(base_ + "/my tmp");
    job.environment.front().second = base_ + "/my tmp";
    const JobResult without = RunJob(Run({}, {"/bin/cat", source_ + "/none"}), job);
    EXPECT_NE(without.output.find("without a cache: the dynamic linker cannot preload " + library), std::string::npos) << without.output;
    EXPECT_EQ(without.output.find("ERROR: ld.so"), std::string::npos) << without.output;
  }
}

TEST_F(RunTest, TimesOutsideOfTheCachesRangeAreTheSources) {
  const std::string far = source_ + "/far", directory = source_ + "/directory";
  Write(far, Content("far", 5'000));
  Write(directory + "/name", "x");
  for (const std::string& path : {far, directory}) {
    const timespec times[2] = {{13'569'465'600, 0}, {13'569'465'600, 0}};  // the year 2400
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    struct stat st;
    ASSERT_EQ(::stat(path.c_str(), &st), 0);
    if (st.st_mtim.tv_sec != times[1].tv_sec) GTEST_SKIP() << "no such times on this file system";
  }
  const std::string report = scratch_.path() + "/report.json";
  const std::string script = "for i in 1 2; do TZ=UTC stat -c %y " + far + " " + directory + "; TZ=UTC stat -c %y - < " + far + "; cat " + far + " | cksum; ls " + directory + "; done";
  const JobResult bare = RunJob({"/bin/sh", "-c", script}, job_), served = RunIt({"--report", report}, {"/bin/sh", "-c", script});
  EXPECT_NE(bare.output.find("2400-01-01"), std::string::npos) << bare.output;
  EXPECT_EQ(served.output, bare.output);
  EXPECT_GT(ReadJson(report)["fallback"].value("too_large", 0), 0) << ReadJson(report)["fallback"];
}

TEST_F(RunTest, AFifoChangedByOneNameIsAnotherByAllItsNames) {
  const std::string one = source_ + "/fifo", other = source_ + "/fifo2";
  ASSERT_EQ(::mkfifo(one.c_str(), 0600), 0);
  std::filesystem::create_hard_link(one, other);
  const std::string look = "stat -c '%a %h' " + one + "; stat -c '%a %h' " + other + "; ";
  const JobResult served = RunIt({"-q"}, {"/bin/sh", "-c", look + "chmod 644 " + one + "; " + look + "ln " + one + " " + source_ + "/third; " + look + "rm " + other + "; stat -c '%a %h' " + one});
  EXPECT_EQ(served.output, "600 2\n600 2\n644 2\n644 2\n644 3\n644 3\n644 2\n");
}

TEST_F(RunTest, AFilterThatDoesNotKnowFaccessat2LeavesTheCacheUsable) {
  const std::string report = scratch_.path() + "/report.json";
  std::vector<std::string> arguments = Run({"--report", report}, {"/bin/sh", "-c", "cat " + source_ + "/file " + source_ + "/file | wc -c"});
  arguments.insert(arguments.begin(), {"/usr/bin/python3", "-c", kRefuseFaccessat2});
  const JobResult result = RunJob(arguments, job_);
  if (result.code == 77) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(result.output, "200000\n");
  EXPECT_EQ(ReadJson(report)["opened"], 2) << ReadJson(report)["advice"];
}

TEST_F(RunTest, SaysWhyTheDaemonBesideItCannotBeUsed) {
  const std::string alone = scratch_.path() + "/bin/tierctl";
  std::filesystem::create_directories(scratch_.path() + "/bin");
  std::filesystem::copy_file(TIERCTL_BINARY, alone);
  const auto run = [&] { return RunJob({alone, "run", "--source", source_, "--", "/bin/true"}, job_).output; };
  EXPECT_NE(run().find("there is no tierd beside this tierctl: looked for " + scratch_.path() + "/bin/tierd, "), std::string::npos) << run();
  std::filesystem::create_symlink("tierd", scratch_.path() + "/bin/tierd");
  EXPECT_NE(run().find(scratch_.path() + "/bin/tierd: Too many levels of symbolic links"), std::string::npos) << run();
  std::filesystem::remove(scratch_.path() + "/bin/tierd");
  Write(scratch_.path() + "/bin/tierd", "#!/bin/sh\nkill -SYS $$\n");
  std::filesystem::permissions(scratch_.path() + "/bin/tierd", std::filesystem::perms::owner_all);
  EXPECT_NE(run().find("was ended by signal 31 (Bad system call)"), std::string::npos) << run();
}

TEST_F(RunTest, ADaemonThatDiesUnderTheJobIsSaid) {
  const std::string report = scratch_.path() + "/report.json";
  const std::string kill = "kill -9 $(" TIERCTL_BINARY " status --json | grep '\"pid\"' | tr -dc 0-9)";
  const JobResult result = RunIt({"--report", report}, {"/bin/sh", "-c", "cat " + source_ + "/file > /dev/null; " + kill + "; cmp " + source_ + "/file " + source_ + "/file && exit 6"});
  EXPECT_EQ(result.code, 6) << result.output;
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  EXPECT_TRUE(ReadJson(report)["daemon"].is_null());
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, PassesExitCodesAndSignalsThrough) {
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "kill -USR1 $$"}).code, 128 + SIGUSR1);
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", "kill -KILL $$"}).code, 128 + SIGKILL);
  EXPECT_EQ(RunIt({"-q"}, {"/no/such/program"}).code, 127);
  EXPECT_EQ(RunIt({"-q"}, {source_ + "/file"}).code, 126);
  EXPECT_EQ(RunJob({TIERCTL_BINARY, "run"}, job_).code, 64);
  EXPECT_EQ(RunJob({TIERCTL_BINARY, "run", "--sauce", "x", "--", "true"}, job_).code, 64);
  // What reaches only the wrapper is passed on.
  const JobResult passed = RunIt({"-q"}, {"/bin/sh", "-c", "trap 'exit 9' TERM; (kill -TERM $PPID; exit) & while :; do sleep 0.05; done"});
  EXPECT_EQ(passed.code, 9) << passed.output;
  EXPECT_TRUE(LeftOver().empty());
}

// The wrapper is no parent of its own: a launcher that waits for its worker's word gets it.
TEST_F(RunTest, WhatTheCommandSendsToItsParentReachesTheLauncher) {
  const std::string launcher = R"(trap 'echo heard; exit 5' USR1; ")" TIERCTL_BINARY R"(" run --source ")" + source_ + R"(" -q -- sh -c 'trap "echo hit itself" USR1; kill -USR1 $PPID; sleep 1' & while :; do sleep 0.05; done)";
  const JobResult result = RunJob({"/bin/sh", "-c", launcher}, job_);
  EXPECT_EQ(result.output, "heard\n");
  EXPECT_EQ(result.code, 5);
}

// The summary is for whoever reads it; a pipe that nobody reads any more is no failure of the command.
TEST_F(RunTest, AClosedPipeForTheSummaryChangesNothing) {
  const std::string run = R"(")" TIERCTL_BINARY R"(" run --source ")" + source_ + R"(" )";
  const std::string pipe = run + R"(-- sh -c 'echo ready; exec >&- 2>&-; sleep 1; exit 3' 2>&1 | head -1; echo ${PIPESTATUS[0]})";
  EXPECT_EQ(RunJob({"/bin/bash", "-c", pipe}, job_).output, "ready\n3\n");
  EXPECT_TRUE(LeftOver().empty());
  // The command's own writes end it as ever.
  const std::string writer = run + R"(-q -- sh -c 'while :; do echo y; done' | head -1; echo ${PIPESTATUS[0]})";
  EXPECT_EQ(RunJob({"/bin/bash", "-c", writer}, job_).output, "y\n141\n");
}

TEST_F(RunTest, DisabledIsAsIfItWereNotThere) {
  job_.environment.emplace_back("TIERD_DISABLE", "1");
  const JobResult result = RunIt({}, {"/bin/sh", "-c", "echo [$LD_PRELOAD$TIERD_SOCKET]; exit 3"});
  EXPECT_EQ(result.output, "[]\n");
  EXPECT_EQ(result.code, 3);
}

TEST_F(RunTest, WithoutPreloadInsideARunWithIt) {
  const std::string inner = R"(")" TIERCTL_BINARY R"(" run -q --no-preload -- sh -c 'echo [$LD_PRELOAD$TIERD_REPORT]; test -S $TIERD_SOCKET')";
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", inner}).output, "[]\n");
  job_.environment.emplace_back("LD_PRELOAD", "libc.so.6");
  EXPECT_EQ(RunIt({"-q"}, {"/bin/sh", "-c", inner}).output, "[libc.so.6]\n");
}

TEST_F(RunTest, WithoutPreloadOnlySetsTheEnvironment) {
  const JobResult result = RunIt({"-q", "--no-preload"}, {"/bin/sh", "-c", "echo [$LD_PRELOAD]; test -S $TIERD_SOCKET"});
  EXPECT_EQ(result.output, "[]\n");
  EXPECT_EQ(result.code, 0);
}

// What is opened of a warm file has a number far from the lowest, but with --real-fds.
TEST_F(RunTest, RealDescriptorsForWhoWantsThem) {
  const std::vector<std::string> second_number{"/usr/bin/python3", "-c", "import os,sys\nos.pread(os.open(sys.argv[1], 0), 9, 0); print(os.open(sys.argv[1], 0) < 100)", source_ + "/file"};
  EXPECT_EQ(RunIt({"-q"}, second_number).output, "False\n");
  EXPECT_EQ(RunIt({"-q", "--real-fds"}, second_number).output, "True\n");
}

TEST_F(RunTest, ARunThatCannotStartADaemonRunsTheCommand) {
  job_.environment.emplace_back("TIERD_BINARY", "/bin/false");
  const JobResult result = RunIt({"-q"}, {"cmp", source_ + "/file", source_ + "/file"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.output.find("without a cache"), std::string::npos) << result.output;
}

// The daemon starts in "/", and the command goes where it likes.
TEST_F(RunTest, NamesOfTheDaemonAndTheLibraryMayBeRelative) {
  const std::string library = std::filesystem::path(TIERD_PRELOAD_LIBRARY).parent_path(), report = scratch_.path() + "/report.json";
  const std::string daemon = std::filesystem::relative(TIERD_BINARY_PATH, library);
  const std::string script = "cd " + library + " && TIERD_PRELOAD=./" + std::filesystem::path(TIERD_PRELOAD_LIBRARY).filename().string() + " TIERD_BINARY=" + daemon + " " TIERCTL_BINARY " run --source " +
                             source_ + " --ram 64M --ssd off --report " + report + " -- sh -c 'cd / && cat " + source_ + "/file " + source_ + "/file >/dev/null'";
  const JobResult result = RunJob({"/bin/sh", "-c", script}, job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.output.find("without a cache"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("ld.so"), std::string::npos) << result.output;
  EXPECT_GT(ReadJson(report).value("opened", 0u), 0u) << result.output;
}

// They are opened at the source, and what is read of them is in every share.
TEST_F(RunTest, SaysThatFilesFoundNoRoom) {
  for (int i = 0; i < 24; ++i) Write(source_ + "/full/" + std::to_string(i), Content("full", 1'000'000));
  for (int i = 0; i < 60; ++i) Write(source_ + "/set/" + std::to_string(i), Content("set", 20'000));
  const std::string report = scratch_.path() + "/report.json", script = "cat $0/full/* $0/set/* $0/set/* > /dev/null; " TIERCTL_BINARY " status; " TIERCTL_BINARY " explain $0/full/9";
  const JobResult result = RunJob({TIERCTL_BINARY, "run", "--source", source_, "--ram", "16M", "--ssd", "off", "--policy", "freeze", "--report", report, "--", "/bin/sh", "-c", script, source_}, job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("bypass, by reason: "), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("not among these"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("In RAM: no; a reader has asked for it, "), std::string::npos) << result.output;
  const auto document = ReadJson(report);
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  const std::string advice = document["advice"];
  EXPECT_NE(advice.find(" opens found no room in the cache: "), std::string::npos) << advice;
  std::uint64_t bytes = 0;
  for (const auto& [origin, read] : document["reads"].items()) bytes += read["bytes"].get<std::uint64_t>();
  EXPECT_EQ(bytes, 24'000'000u + 2 * 60 * 20'000) << document["reads"];
  EXPECT_EQ(document["real_reads"]["bytes"], document["reads"]["bypass"]["bytes"]);
}

// Of a daemon that others use too: what is known is what that one has counted.
TEST_F(RunTest, ProcessesThatAreKilledAreSaidToBe) {
  const std::string report = scratch_.path() + "/report.json", killed = "import os,sys\nfor i in range(5): open(sys.argv[1],'rb').read()\nos.kill(os.getpid(), 9)";
  const std::string inner = TIERCTL_BINARY " run --source $0 --report $1 -- /usr/bin/python3 -c \"$2\" $0/file; echo code $?; " TIERCTL_BINARY " run --source $0 -- /bin/sh -c '/usr/bin/python3 -c \"$1\" $0/file; exit 143' $0 \"$2\"";
  const JobResult shared = RunIt({"-q"}, {"/bin/sh", "-c", inner, source_, report, killed});
  EXPECT_NE(shared.output.find("code 137\n"), std::string::npos) << shared.output;
  const auto document = ReadJson(report);
  EXPECT_TRUE(IsAsTheSchemaSays(report));
  EXPECT_EQ(document["processes"], 0);
  EXPECT_EQ(document["all_jobs"], true);
  EXPECT_EQ(document["reads"]["ram"]["count"].get<int>() + document["reads"]["source"]["count"].get<int>(), 5) << document["reads"];
  EXPECT_NE(document["advice"].get<std::string>().find("killed before they could report"), std::string::npos) << document["advice"];
  EXPECT_NE(shared.output.find("5 reads of all jobs of this daemon"), std::string::npos) << shared.output;
  const JobResult own = RunIt({}, {"/usr/bin/python3", "-c", killed, source_ + "/file"});
  EXPECT_NE(own.output.find("5 reads of processes that were killed before they could report"), std::string::npos) << own.output;
  EXPECT_EQ(own.output.find("is --source right?"), std::string::npos) << own.output;
}

TEST_F(RunTest, ANewlineInTmpdirCostsNoCache) {
  const std::string odd = base_ + "/a\nb", report = scratch_.path() + "/report.json";
  fs::create_directories(odd);
  job_.environment.front().second = odd;
  job_.environment.emplace_back("SLURM_TMPDIR", base_);
  const JobResult result = RunIt({"--report", report}, {"cat", source_ + "/file"});
  EXPECT_EQ(result.code, 0);
  const std::size_t said = result.output.find("tierctl: run: $TMPDIR passed over: a control character (a newline?) in the name\n");
  ASSERT_NE(said, std::string::npos) << result.output.substr(0, 1000);
  EXPECT_EQ(result.output.find("run: ", said + 10), std::string::npos) << "nothing else went wrong";
  EXPECT_EQ(ReadJson(report)["opened"], 1);
  EXPECT_TRUE(LeftOver().empty());
}

// Whatever the daemon's threads leave of a limit of processes (ulimit -u): none, one, or enough.
TEST_F(RunTest, WhereThereMayBeNoSecondProcessTheCommandStillRuns) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become a user who has no other process";
  const std::string as_other = "setpriv --reuid=65531 --clear-groups prlimit --nproc=";
  if (RunShell(as_other + "64 test -x " + TIERCTL_BINARY, job_).code != 0) GTEST_SKIP() << "the build is not open to other users";
  std::filesystem::permissions(scratch_.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(base_, std::filesystem::perms(01777));
  for (const int most : {3, 4, 6, 8, 9, 10, 11}) {
    const JobResult result = RunShell(as_other + std::to_string(most) + " " + TIERCTL_BINARY + " run -q --source " + source_ + " -- echo done", job_);
    EXPECT_EQ(result.code, 0) << most << result.output;
    EXPECT_NE(result.output.find("done\n"), std::string::npos) << most << result.output;
    EXPECT_EQ(result.output.find("not ready"), std::string::npos) << most << result.output;
    if (most < 8) {
      EXPECT_NE(result.output.find("raise the limit of processes (ulimit -u)"), std::string::npos) << most << result.output;
    }
    RunShell("for i in $(seq 100); do pgrep -u 65531 >/dev/null || break; sleep 0.1; done", job_);  // the daemon ends after the job
  }
}

// What is said goes through a pipe: a file would have the limit, too.
TEST_F(RunTest, UnderALimitOfFileSizesTheCommandRuns) {
  const auto under_none = [&](const std::string& before, const std::string& options, const std::string& command) {
    const std::string line = before + TIERCTL_BINARY + " run --source " + source_ + " --ram '64 MiB' " + options + " -- sh -c '" + command + "'";
    return RunShell("(ulimit -f 0; " + line + "; echo code $?) 2>&1 | cat", job_).output;
  };
  const std::string plain = under_none("", "", "cat " + source_ + "/file | wc -c");
  EXPECT_NE(plain.find("100000\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("code 0\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("(see ulimit -f); all was read from the source"), std::string::npos) << plain;
  const std::string killed = under_none("", "-q", "kill -XFSZ $$; exit 9");
  EXPECT_NE(killed.find("code 153\n"), std::string::npos) << killed;
  const std::string ignored = under_none("trap \"\" XFSZ; ", "-q", "kill -XFSZ $$; exit 9");
  EXPECT_NE(ignored.find("code 9\n"), std::string::npos) << ignored;
  EXPECT_TRUE(LeftOver().empty());
}

TEST_F(RunTest, WhatAProcessMayNotReportIsMissing) {
  const std::string report = scratch_.path() + "/report.json", read = "cat " + source_ + "/file > /dev/null";
  const JobResult result = RunIt({"--report", report}, {"/bin/bash", "-c", read + "; ulimit -f 0; " + read});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(ReadJson(report)["opened"], 1);
}

TEST_F(RunTest, TooFewDescriptorsAreSaidToBe) {
  const JobResult result = RunShell(std::string("ulimit -n 16; ") + TIERCTL_BINARY + " run --source " + source_ + " --ram '64 MiB' -- echo worked", job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("worked\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("the limit of open files (ulimit -n) is 16"), std::string::npos) << result.output;
}

// The line at the start has scrolled away by the end of the job.
TEST_F(RunTest, TheSummarySaysWhyThereWasNoCache) {
  const std::string typo = scratch_.path() + "/typo";
  const JobResult result = RunJob({TIERCTL_BINARY, "run", "--source", typo, "--ram", "64 MiB", "--", "echo", "worked"}, job_);
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.output.find("worked\n"), std::string::npos) << result.output;
  const std::size_t said = result.output.rfind("tierd: without a cache: ");
  ASSERT_NE(said, std::string::npos) << result.output;
  EXPECT_NE(result.output.find(typo, said), std::string::npos) << result.output;
}

// With no option that asks for tiers of its own: either would take a daemon of the user's, and none is.
TEST_F(RunTest, TwoRunsDoNotMeet) {
  Write(scratch_.path() + "/config/tierd/tierd.toml", "[ram]\ncapacity = \"64 MiB\"\n");
  const std::string script = "echo $TIERD_SOCKET; cat " + source_ + "/file > /dev/null; sleep 0.3";
  const std::string one = std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " -- sh -c '" + script + "'";
  const JobResult both = RunShell(one + " & " + one + " & wait", job_);
  std::istringstream lines(both.output);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_NE(first, second) << both.output;
  EXPECT_TRUE(first.starts_with(base_) && second.starts_with(base_));
  EXPECT_TRUE(LeftOver().empty());
}

// The file is the user's for daemons of long standing; two jobs at a time cannot have one socket.
TEST_F(RunTest, SocketsThatTheConfigurationNamesAreNotAJobs) {
  Write(scratch_.path() + "/config/tierd/tierd.toml", "[daemon]\ncontrol_socket = \"" + base_ + "/one.sock\"\n");
  const JobResult result = RunIt({}, {"/bin/sh", "-c", "test ! -e " + base_ + "/one.sock && cat " + source_ + "/file | wc -c"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("100000\n"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("without a cache"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("there was no daemon"), std::string::npos) << result.output;
}

TEST_F(RunTest, ARunInsideARunUsesItsDaemon) {
  const JobResult nested = RunShell(std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " --ram '64 MiB' -- sh -c 'echo $TIERD_SOCKET; " + TIERCTL_BINARY + " run -q --source " + source_ + " -- sh -c \"echo \\$TIERD_SOCKET\"'", job_);
  std::istringstream lines(nested.output);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(first, second) << nested.output;
}

// The daemon goes with the last process of the job, not with the wrapper.
TEST_F(RunTest, TheDaemonEndsAfterTheLastProcessAlsoWhenTheWrapperIsKilled) {
  const std::string sleeper = scratch_.path() + "/sleeper";
  const std::string line = std::string(TIERCTL_BINARY) + " run -q --source " + source_ + " --ram '64 MiB' -- sh -c 'echo $$ > " + sleeper + ".tmp; mv " + sleeper + ".tmp " + sleeper + "; exec sleep 60' & echo $!";
  const JobResult started = RunShell(line + " > " + scratch_.path() + "/wrapper; disown", job_);
  ASSERT_EQ(started.code, 0);
  ASSERT_TRUE(Eventually(10'000, [&] { return fs::exists(sleeper); }));
  pid_t wrapper = 0, command = 0;
  std::ifstream(scratch_.path() + "/wrapper") >> wrapper;
  std::ifstream(sleeper) >> command;
  ASSERT_GT(wrapper, 0);
  ASSERT_GT(command, 0);
  ::kill(wrapper, SIGKILL);
  ASSERT_EQ(LeftOver().size(), 1u);
  const pid_t daemon = DaemonOf(LeftOver()[0]);
  ASSERT_GT(daemon, 0);
  SleepMs(700);
  EXPECT_TRUE(IsThere(daemon)) << "the command is still there";
  ::kill(command, SIGKILL);
  EXPECT_TRUE(Eventually(5'000, [&] { return !IsThere(daemon); }));
  // The next start that finds its lock free removes the directory.
  EXPECT_TRUE(Eventually(3'000, [&] { return RunIt({"-q"}, {"true"}).code == 0 && LeftOver().empty(); }));
}

// What the command leaves behind in the background is of the job too.
TEST_F(RunTest, TheDaemonStaysForABackgroundProcess) {
  const std::string sleeper = scratch_.path() + "/sleeper";
  const JobResult result = RunIt({"-q"}, {"/bin/sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $! > " + sleeper});
  EXPECT_EQ(result.code, 0);
  ASSERT_EQ(LeftOver().size(), 1u);
  const pid_t daemon = DaemonOf(LeftOver()[0]);
  ASSERT_GT(daemon, 0);
  pid_t background = 0;
  std::ifstream(sleeper) >> background;
  ASSERT_GT(background, 0);
  EXPECT_EQ(RunIt({"-q"}, {"true"}).code, 0);
  EXPECT_EQ(DaemonOf(LeftOver()[0]), daemon) << "another start must not take it away";
  ::kill(background, SIGKILL);
  EXPECT_TRUE(Eventually(5'000, [&] { return !IsThere(daemon); }));
  EXPECT_TRUE(Eventually(3'000, [&] { return RunIt({"-q"}, {"true"}).code == 0 && LeftOver().empty(); }));
}

// A harness that waits for the end of a descriptor it gave us, or wants to unmount the working directory, does not wait for the daemon.
TEST_F(RunTest, TheDaemonHoldsNothingOfOurs) {
  const std::string marker = scratch_.path() + "/marker";
  job_.directory = source_;
  const std::string look = "p=$(" TIERCTL_BINARY " status --json | grep \\\"pid\\\" | tr -dc 0-9); readlink /proc/$p/cwd; ls -l /proc/$p/fd 2>/dev/null | grep -c marker";
  const JobResult result = RunShell("exec 9>" + marker + "; " TIERCTL_BINARY " run -q --source " + source_ + " --ram '64 MiB' -- bash -c '" + look + "'", job_);
  EXPECT_EQ(result.output, "/\n0\n");
}

// Two that want the same SSD directory: one has it, the other its own.
TEST_F(RunTest, TwoRunsDoNotFightForAnSsdDirectory) {
  const std::string ssd = base_ + "/own-ssd", first = scratch_.path() + "/first", go = scratch_.path() + "/go";
  const std::string run = TIERCTL_BINARY " run -q --source " + source_ + " --ram '64 MiB' --ssd " + ssd + " -- sh -c ";
  const std::string one = run + "'cat " + source_ + "/file > /dev/null; touch " + first + "; while [ ! -e " + go + " ]; do sleep 0.02; done; echo one'";
  const std::string two = run + "'cmp " + source_ + "/file " + source_ + "/file && echo two; touch " + go + "'";
  const JobResult both = RunShell(one + " & while [ ! -e " + first + " ]; do sleep 0.02; done; " + two + "; wait", job_);
  EXPECT_NE(both.output.find("one\n"), std::string::npos) << both.output;
  EXPECT_NE(both.output.find("two\n"), std::string::npos) << both.output;
  EXPECT_NE(both.output.find("run: without " + ssd), std::string::npos) << both.output;
  EXPECT_EQ(both.output.find("without a cache"), std::string::npos) << both.output;
}

TEST_F(RunTest, AnSsdDirectoryIsNotBlamedForWhatElseIsWrong) {
  const JobResult result = RunShell("TIERD_BINARY=/bin/false " TIERCTL_BINARY " run -q --source " + source_ + " --ssd " + base_ + "/own-ssd -- true", job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find("run: without a cache: "), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("run: without " + base_), std::string::npos) << result.output;
}

// Cron jobs and daemons start commands so. The daemon's pipe and locks must not get these numbers, and the command finds them closed.
TEST_F(RunTest, StandardStreamsMayBeClosed) {
  const std::string seen = scratch_.path() + "/seen";
  const std::string look = "cmp " + source_ + "/file " + source_ + "/file; echo $? > " + seen + "; for i in 0 1 2; do [ ! -e /proc/$$/fd/$i ] && echo $i >> " + seen + "; done; true";
  for (const auto& [closed, numbers] : std::vector<std::pair<std::string, std::string>>{{"<&-", "0\n0\n"}, {">&-", "0\n1\n"}, {"2>&-", "0\n2\n"}, {"<&- >&- 2>&-", "0\n0\n1\n2\n"}}) {
    const std::string line = TIERCTL_BINARY " run -q --source " + source_ + " --ram '64 MiB' -- bash -c '" + look + "' " + closed;
    const JobResult result = RunShell(line, job_);
    EXPECT_EQ(result.code, 0) << closed << ": " << result.output;
    EXPECT_EQ(RunShell("cat " + seen, job_).output, numbers) << closed;
    EXPECT_TRUE(LeftOver().empty()) << closed << ": the daemon is still there";
  }
}

// A file of the system's: what was written to a moment ago may still change unseen, and is not kept.
TEST_F(RunTest, KeepsTheSsdTierForTheNextRun) {
  const std::string report = scratch_.path() + "/report.json", directory = "/usr/share/common-licenses";
  const std::vector<std::string> read{"/usr/bin/python3", "-c", "import sys,time; open(sys.argv[1],'rb').read(); time.sleep(1)", directory + "/GPL-3"};
  EXPECT_EQ(RunIt({"-q", "--keep", "--source", directory}, read).code, 0);
  ASSERT_EQ(LeftOver().size(), 1u);
  EXPECT_EQ(RunIt({"--report", report, "--keep", "--source", directory}, read).code, 0);
  EXPECT_EQ(LeftOver().size(), 1u);
  const auto second = ReadJson(report);
  ASSERT_TRUE(second.is_object());
  EXPECT_EQ(second["reads"]["ssd"]["count"], 1) << second["reads"];
  EXPECT_EQ(second["source_read_bytes"], 0);
}

}  // namespace
}  // namespace tierd::e2e
