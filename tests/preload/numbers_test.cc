// Descriptor numbers of cached files, and names that lead to them: what numbers.c and names.c do must come out as it does bare, and convert no more than it has to.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadNumbersTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    Both("others", Words(0x80, 100'000));
    for (int i = 0; i < 20; ++i) Both("names/n" + std::string(i < 10 ? "0" : "") + std::to_string(i), "x");
    StartDaemon();
  }
  // Bare on the twin, then under the library on the cached file.
  JobResult Run(const char* program, const std::string& limit, const char* check) {
    const std::string shell = "ulimit -n " + limit + "; exec " + program + " ";
    const JobResult bare = RunShell(shell + Twin("numbers") + (IsNumbers(program) ? " " + Twin("others") : "") + " " + check, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunShell(shell + Of("numbers") + (IsNumbers(program) ? " " + Of("others") : "") + " " + check, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }
  static bool IsNumbers(const char* program) { return std::string(program) == PRELOAD_NUMBERS; }
};

struct NumberCase {
  const char* check;
  int conversions;  // -1: how many is a matter of time
  const char* limit = "1500";
};

TEST_F(PreloadNumbersTest, AreWhatProgramsMakeOfThem) {
  for (const NumberCase& c : std::initializer_list<NumberCase>{{"lowest", 3}, {"taken", 0}, {"taken", 0, "4096"}, {"refused", 0}, {"unshared", 1}, {"locks", -1}, {"locks_again", -1}, {"locks_ended", -1}, {"locks_many", -1},
                                                               {"limit", -1}, {"lowered", 6}, {"not_lowered", 0}, {"limit_refused", 1}, 
                                                               {"exhausted", 12}, {"given_back", 7, "1024"}, {"given_back", 7}, {"poll", 0}, {"behind", 0}, {"shared_memory", 1}, {"cloned", 0}, {"not_sent", 0}, {"closed", 0}, {"closed", 0, "4096"}}) {
    SCOPED_TRACE(c.check);
    const JobResult served = Run(PRELOAD_NUMBERS, c.limit, c.check);
    EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
    if (c.conversions >= 0) {
      EXPECT_EQ(served.Sum("conversions"), static_cast<std::uint64_t>(c.conversions)) << served.report.dump();
    }
  }
}

// "none 3 59": with no cached file open, 59 descriptors of the third kind.
std::vector<std::pair<std::string, int>> Counts(const std::string& output) {
  std::vector<std::pair<std::string, int>> counts;
  std::istringstream lines(output);
  for (std::string with, kind, count; lines >> with >> kind >> count;) counts.emplace_back(with + " " + kind, std::stoi(count));
  return counts;
}

// socketpair, pipe, pipe2.
bool ComesInPairs(const std::string& kind) { return kind.ends_with(" 15") || kind.ends_with(" 16") || kind.ends_with(" 17"); }

// All that the library keeps is its connection. Two numbers at a time: the last pair may lack one.
TEST_F(PreloadNumbersTest, AreTheProgramsOwnButOneWhereTheyRunOut) {
  for (const char* limit : {"64", "300"}) {
    SCOPED_TRACE(limit);
    const std::string shell = std::string("ulimit -n ") + limit + "; exec " + PRELOAD_SCARCE + " ";
    const JobResult bare = RunShell(shell + Twin("numbers") + " " + Twin("others"), bare_);
    const JobResult served = RunShell(shell + Of("numbers") + " " + Of("others"), job_);
    ASSERT_EQ(bare.code, 0) << bare.output;
    ASSERT_EQ(served.code, 0) << served.output;
    const auto with = Counts(served.output), without = Counts(bare.output);
    ASSERT_EQ(with.size(), without.size()) << served.output;
    ASSERT_GT(without.size(), 60u) << bare.output;
    for (std::size_t i = 0; i < with.size(); ++i) {
      EXPECT_GE(with[i].second, without[i].second - (ComesInPairs(with[i].first) ? 2 : 1)) << with[i].first;
    }
    EXPECT_GT(served.report.value("opened", 0u), 100u) << served.report.dump();
  }
}

// What should have become real and could not is counted.
TEST_F(PreloadNumbersTest, StayWhatTheyAreWhereTheyCannotBecomeReal) {
  const JobResult served = Run(PRELOAD_NUMBERS, "1500", "lowered_behind");
  EXPECT_EQ(served.report.value("opened", 0u), 1u) << served.report.dump();
  EXPECT_GT(served.Of("conversions", "failed"), 0u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "failed"), served.Sum("conversions")) << served.report.dump();
}

// However high they are: an opening and two closings each, and one more of the copy.
TEST_F(PreloadNumbersTest, OfWritersAreToldOfWhenTheyAreClosed) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 8192) GTEST_SKIP() << "no number is so high here";
  const JobResult served = Run(PRELOAD_NUMBERS, "8192", "high_writers");
  EXPECT_EQ(served.report.value("invalidations", 0u), 4u * 3u + 1u + 1u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, OfWritersAreToldOfByAThreadThatLeavesTheOthers) {
  const JobResult served = Run(PRELOAD_NUMBERS, "1500", "unshared_writers");
  EXPECT_EQ(served.report.value("invalidations", 0u), 3u) << "opened, closed, unlinked: " << served.report.dump();
}

// Where a call is a cancellation point, a hit is one.
TEST_F(PreloadNumbersTest, AThreadThatReadsHitsCanBeCancelled) {
  for (const char* check : {"points", "loop"}) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServed({PRELOAD_CANCELLED, Of("numbers"), check});
    EXPECT_GT(served.report.value("opened", 0u), 0u) << served.report.dump();
    EXPECT_EQ(served.Sum("real_opens"), 0u) << served.report.dump();  // whoever was cancelled has kept none of the descriptors that there are
  }
}

// Whatever name a function is called by, a hit converts nothing and opens nothing.
TEST_F(PreloadNumbersTest, AllNamesOfAFunctionAreOurs) {
  const JobResult served = BareThenServed({PRELOAD_ALIASES, Of("numbers"), Of("names")});
  EXPECT_EQ(served.Sum("conversions"), 0u) << served.report.dump();
  EXPECT_EQ(served.Sum("real_opens"), 0u) << served.report.dump();
  EXPECT_EQ(served.report.value("opened", 0u), 13u) << served.report.dump();  // by 8 names of open and openat, openat2, 2 of fopen, and one for reads and stats each
  EXPECT_GT(served.report.value("stats", 0u), 0u) << served.report.dump();
}

// limits.c makes each call on a descriptor of its own, of a small file and of one of 2.2 GB.
TEST_F(PreloadNumbersTest, EveryReadingCallHasTheLimitsOfTheKernel) {
  for (const std::string& root : {source_, plain_}) {
    Write(root + "/huge", "");
    std::filesystem::resize_file(root + "/huge", 2'200'000'000);
  }
  JobOptions bare = bare_, job = job_;
  bare.directory = job.directory = scratch_.path();
  const JobResult expected = RunJob({PRELOAD_LIMITS, Twin("numbers"), Twin("huge")}, bare);
  ASSERT_EQ(expected.code, 0) << expected.output;
  const JobResult served = RunJob({PRELOAD_LIMITS, Of("numbers"), Of("huge")}, job);
  EXPECT_EQ(served.code, 0);
  EXPECT_EQ(served.output, expected.output);
  EXPECT_GT(served.report.value("opened", 0u), 100u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, HitsNeedNoSystemCall) { Run(PRELOAD_NUMBERS, "1500", "no_calls"); }

TEST_F(PreloadNumbersTest, AreSentOnceWhateverOtherThreadsDo) { Run(PRELOAD_NUMBERS, "1500", "sendfile"); }

TEST_F(PreloadNumbersTest, SurviveJumpsOutOfHandlers) { Run(PRELOAD_NUMBERS, "1500", "jumps"); }

TEST_F(PreloadNumbersTest, AreFoundByEveryName) {
  const struct {
    const char* check;
    int conversions;
    const char* counter;  // what must have come from the cache
    unsigned at_least;
  } cases[] = {{"reopened", 20, "opened", 20}, {"placeholder", 1, "opened", 2}, {"escaped", 0, "opened", 1}, {"by_hand", 0, "opened", 2}, {"by_hand_rare", 3, "opened", 3}, {"access", 0, "stats", 4},
               {"links", 0, "opened", 2}, {"listings", 0, "listings", 1}, {"made", 0, "listings", 2}, {"changes_by_hand", -1, "stats", 20}, {"exchanged", 0, "opened", 4}, {"deleted", 0, "opened", 2}, {"fdopen", 0, "opened", 2}, {"streams", 2, "opened", 4}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.check);
    const JobResult served = Run(PRELOAD_NAMES, "1500", c.check);
    EXPECT_GE(served.report.value(c.counter, 0u), c.at_least) << served.report.dump();
    if (c.conversions >= 0) {
      EXPECT_EQ(served.Sum("conversions"), static_cast<std::uint64_t>(c.conversions)) << served.report.dump();
    }
  }
}

TEST_F(PreloadNumbersTest, ThatEndInADotAreDirectories) {
  Both("dots/file", Words(0, 100'000));
  Both("dots/directory/one", "x");
  std::filesystem::create_symlink("file", Of("dots/to_file"));
  std::filesystem::create_symlink("directory", Of("dots/to_directory"));
  daemon_.Prefetch(source_);
  const JobResult served = BareThenServed({PRELOAD_NAMES, Of("dots/file"), "dots"});
  EXPECT_EQ(served.report.value("listings", 0u), 4u) << served.report.dump();
  EXPECT_EQ(served.report.value("opened", 0u), 4u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, TheCallThatLooksForTheDaemonLeavesErrnoAlone) {
  job_.environment.emplace_back("TIERD_PREFIX", "");
  const JobResult served = BareThenServed({PRELOAD_NAMES, Of("numbers"), "errno"});
  EXPECT_EQ(served.report.value("opened", 0u), 2u) << served.report.dump();
  EXPECT_GE(served.report.value("stats", 0u), 2u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, ListingsThatAreBegunAnewNeedNoDaemon) {
  job_.environment.emplace_back("DAEMON", std::to_string(daemon_.pid()));
  const JobResult served = Run(PRELOAD_NAMES, "1500", "rewound");
  daemon_.Kill(SIGCONT);
  EXPECT_EQ(served.report.value("listings", 0u), 1u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, AnswerExactly) {
  for (const std::string& name : {Of("device"), Twin("device")}) (void)::mknod(name.c_str(), S_IFCHR | 0600, makedev(1, 3));  // if we may
  daemon_.Prefetch(source_);
  const JobResult served = Run(PRELOAD_NAMES, "1500", "exact");
  EXPECT_EQ(served.Sum("conversions"), 2u) << served.report.dump();
  EXPECT_EQ(served.report.value("opened", 0u), 2u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, ChangesAreSeenWhereThereIsNoRoom) {
  for (const char* check : {"small_stacks", "changes_without_numbers", "writers", "roots"}) {
    SCOPED_TRACE(check);
    Run(PRELOAD_NAMES, "1500", check);
  }
}

TEST_F(PreloadNumbersTest, AStreamThatWaitsForInputDoesNotKeepAProcess) {
  const JobResult served = Run(PRELOAD_NAMES, "1500", "ends");
  EXPECT_EQ(Plain(Of("numbers.out")).bytes, "kept");
  EXPECT_EQ(RunJob({"cat", Of("numbers.out")}, job_).output, "kept");
}

// A file that is too large to be held, changed in place by somebody else while its chunks go: the reader reads on, as it would have.
TEST_F(PreloadNumbersTest, AFileThatIsTouchedIsReadOn) {
  Write(Of("huge"), Words(3, 72'000'000));
  daemon_.Prefetch(Of("huge"));
  const std::string ready = scratch_.path() + "/ready";
  const std::string go = scratch_.path() + "/go";
  JobOptions aside = bare_;
  aside.work = plain_;
  std::thread other([&] {
    if (!Eventually(20'000, [&] { return std::filesystem::exists(ready); })) return;
    ::chmod(Of("huge").c_str(), 0755);
    EXPECT_EQ(RunJob({TIERCTL_BINARY, "--socket", daemon_.socket(), "evict", "--invalidate", Of("huge")}, aside).code, 0);
    Write(go, "");
  });
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys,time\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY); a=os.read(fd,1000)\n"
                                   "os.close(os.open(sys.argv[2],os.O_CREAT|os.O_WRONLY))\n"
                                   "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
                                   "time.sleep(0.2)\n"
                                   "while True:\n"
                                   "  b=os.read(fd,1<<22)\n"
                                   "  if not b: break\n"
                                   "  a+=b\n"
                                   "assert len(a)==72000000 and a[-4:]==(3<<24|17999999).to_bytes(4,'little')\n"
                                   "import struct\n"
                                   "assert all(struct.unpack_from('<I',a,i)[0]==3<<24|i//4 for i in range(0,72000000,4000))\n",
                                   Of("huge"), ready, go},
                                  job_);
  other.join();
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_LE(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

// What the process itself changes after it has opened a file is what its descriptor shows, by whatever name it is changed; bare it is.
TEST_F(PreloadNumbersTest, OpenBeforeTheProcessChangesTheFileShowTheChange) {
  for (const char* name : {"written", "emptied", "cut", "described", "removed", "moved", "replaced", "in/renamed", "named"}) Both(name, Content(name, 5000));
  Both("large", Content("large", 9'000'000));
  for (const std::string& folder : {source_, plain_}) std::filesystem::create_hard_link(folder + "/named", folder + "/named.too");
  daemon_.Prefetch(source_);
  const char* const program =
      "import mmap,os,sys\n"
      "d=sys.argv[1]+'/'; names='written emptied cut described removed moved replaced in/renamed named large'.split()\n"
      "o={n:os.open(d+n,os.O_RDONLY) for n in names}; is_=lambda n,b: os.pread(o[n],len(b),0)==b\n"
      "before={n:os.pread(o[n],100,0) for n in names}; s=lambda n: os.fstat(o[n])\n"
      "w=os.open(d+'written',os.O_WRONLY); os.pwrite(w,b'NEW!',0); assert is_('written',b'NEW!') and mmap.mmap(o['written'],4,prot=mmap.PROT_READ)[:]==b'NEW!'\n"
      "os.ftruncate(w,2); assert s('written').st_size==2 and os.lseek(o['written'],0,2)==2; os.pwrite(w,b'x',9); os.close(w); assert s('written').st_size==10\n"
      "open(d+'emptied','w').close(); assert s('emptied').st_size==0 and os.read(o['emptied'],10)==b''\n"
      "os.truncate(d+'cut',10); assert s('cut').st_size==10 and os.read(o['cut'],100)==before['cut'][:10]\n"
      "os.chmod(d+'described',0o600); assert s('described').st_mode&0o777==0o600; os.utime(d+'described',(5,6)); assert s('described').st_mtime==6\n"
      "os.link(d+'described',d+'more'); assert s('described').st_nlink==2; os.unlink(d+'more'); assert s('described').st_nlink==1\n"
      "os.unlink(d+'removed'); assert s('removed').st_nlink==0 and is_('removed',before['removed'])\n"
      "os.rename(d+'moved',d+'replaced'); assert s('replaced').st_nlink==0 and is_('replaced',before['replaced']) and is_('moved',before['moved'])\n"
      "open(d+'replaced','r+b').write(b'by the other name'); assert is_('moved',b'by the other name')\n"
      "os.rename(d+'in',d+'out'); open(d+'out/renamed','r+b').write(b'there'); assert is_('in/renamed',b'there')\n"
      "open(d+'named.too','r+b').write(b'too'); assert is_('named',b'too')\n"
      "open(d+'large','r+b').write(b'LARGE'); assert is_('large',b'LARGE'); os.truncate(d+'large',7); assert os.read(o['large'],10)[:5]==b'LARGE' and s('large').st_size==7\n";
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, plain_}, bare_);
  EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, source_}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("opened", 0u), 10u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "changed"), 10u) << served.report.dump();
}

// Flags of a file are the file's, whatever version of it is served, and to change them is a change like another.
TEST_F(PreloadNumbersTest, ShowTheFlagsThatTheFileHas) {
  for (const char* name : {"touched", "flagged"}) Both(name, Content(name, 5000));
  daemon_.Prefetch(source_);
  const char* const program =
      "import fcntl,os,subprocess,sys\n"
      "d=sys.argv[1]+'/'; unseen={k:v for k,v in os.environ.items() if k!='LD_PRELOAD'}; real=lambda n: os.open(d+n,os.O_RDONLY|os.O_DSYNC)\n"
      "flags=lambda fd: int.from_bytes(fcntl.ioctl(fd,0x80086601,bytes(8)),'little')\n"
      "def change(fd,to): fcntl.ioctl(fd,0x40086602,to.to_bytes(8,'little'))\n"
      "try: r=real('flagged'); change(r,flags(r))\n"
      "except OSError: sys.exit(77)\n"
      "o=os.open(d+'touched',os.O_RDONLY); subprocess.run(['touch','-d','@5',d+'touched'],env=unseen,check=True)\n"
      "assert flags(o)==flags(real('touched')); change(o,flags(o)|0x40); assert flags(real('touched'))&0x40\n"
      "f=os.open(d+'flagged',os.O_RDONLY); was=os.stat(d+'flagged').st_ctime_ns; change(f,flags(f)|0x40)\n"
      "assert flags(f)&0x40 and os.stat(d+'flagged').st_ctime_ns!=was and flags(os.open(d+'flagged',os.O_RDONLY))&0x40\n";
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, plain_}, bare_);
  if (bare.code == 77) GTEST_SKIP() << "files here have no flags";
  EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, source_}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GE(served.report.value("opened", 0u), 2u) << served.report.dump();
}

// What is asked for ahead of a large file is all of it, once for each opening, in whatever pieces it is asked for.
TEST_F(PreloadNumbersTest, AreAskedForAheadOnce) {
  const std::size_t before = daemon_.Control("GET", "/v1/jobs")["jobs"].size();
  std::size_t expected = before;
  for (const char* ask : {"os.posix_fadvise(fd,i*4096,4096,os.POSIX_FADV_WILLNEED)", "libc.readahead(fd,ctypes.c_long(i*4096),4096)"}) {
    SCOPED_TRACE(ask);
    const std::string name = "large" + std::to_string(expected);
    Both(name, Content(name, 9'000'000));
    const std::string program = std::string("import ctypes,os,sys\nlibc=ctypes.CDLL(None); fd=os.open(sys.argv[1],os.O_RDONLY); os.read(fd,1)\n") +
                                "for i in range(50): assert not " + ask + "\nos.posix_fadvise(fd,0,0,os.POSIX_FADV_RANDOM)";
    const JobResult served = RunJob({"/usr/bin/python3", "-c", program, Of(name)}, job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.report.value("opened", 0u), 1u) << served.report.dump();
    EXPECT_EQ(daemon_.Control("GET", "/v1/jobs")["jobs"].size(), ++expected);
    // What nobody has read comes all the same.
    EXPECT_TRUE(Eventually(20'000, [&] { return daemon_.Status()["jobs_running"] == 0; }));
    const JobResult all = RunJob({"cmp", Of(name), Twin(name)}, job_);
    EXPECT_EQ(all.code, 0) << all.output;
    EXPECT_EQ(all.Of("bytes", "source"), 0u) << all.report.dump();
  }
}

// A file has changed by all its names, though the daemon hears of one.
TEST_F(PreloadNumbersTest, ChangesByOneNameAreSeenByTheOthers) {
  for (const char* name : {"written", "rewritten", "described", "cut", "numbered", "stamped"}) {
    Both(name, Content(name, 5000));
    for (const std::string& folder : {source_, plain_}) std::filesystem::create_hard_link(folder + "/" + name, folder + "/" + name + ".too");
  }
  Both("linked", Content("linked", 5000));
  daemon_.Prefetch(source_);
  const char* const program =
      "import os,sys\n"
      "d=sys.argv[1]+'/'; read=lambda n: open(d+n+'.too','rb').read(4); s=lambda n: os.stat(d+n+'.too')\n"
      "names=('written','rewritten','described','cut','numbered','stamped'); old=[(read(n),s(n)) for n in names]; os.close(os.open(d+'linked',os.O_RDONLY))\n"
      "open(d+'written','r+b').write(b'WXYZ'); assert read('written')==b'WXYZ'\n"
      "open(d+'rewritten','wb').write(b'new'); assert read('rewritten')==b'new' and s('rewritten').st_size==3\n"
      "os.chmod(d+'described',0o640); assert s('described').st_mode&0o777==0o640\n"
      "os.truncate(d+'cut',3); assert s('cut').st_size==3 and len(read('cut'))==3\n"
      "f=os.open(d+'numbered',os.O_RDONLY); os.fchmod(f,0o604); assert s('numbered').st_mode&0o777==0o604\n"
      "os.utime(d+'stamped',(5,6)); assert s('stamped').st_mtime==6\n"
      "w=os.open(d+'linked',os.O_WRONLY); os.link(d+'linked',d+'linked.too'); assert len(read('linked'))==4; os.write(w,b'more'); os.close(w); assert read('linked')==b'more'\n";
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, plain_}, bare_);
  EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, source_}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GE(served.report.value("opened", 0u), 7u) << served.report.dump();
}

// Who holds a lock reads what the file holds: what somebody wrote before he gave his lock up is seen, however good the cached bytes would be for others.
TEST_F(PreloadNumbersTest, ChangesByOneNameAreSeenByTheOthersInOtherProcesses) {
  Write(Of("named"), Content("named", 5000));
  std::filesystem::create_hard_link(Of("named"), Of("named.too"));
  daemon_.Prefetch(source_);
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,subprocess,sys\n"
                                   "d=sys.argv[1]+'/'; read=lambda n: open(d+n,'rb').read(4); old=read('named'); assert old==read('named.too')\n"
                                   "for by in ('named.too','named.too','named'):\n"
                                   "  new=os.urandom(4); subprocess.run(['dd','of='+d+by,'conv=notrunc','status=none'],input=new,check=True)\n"
                                   "  assert read('named')==new and read('named.too')==new, by\n",
                                   source_},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GE(served.report.value("opened", 0u), 2u) << served.report.dump();
}

TEST_F(PreloadNumbersTest, LocksSeeWhatWasWrittenUnderThem) {
  for (const char* kind : {"flock", "lockf"}) {
    SCOPED_TRACE(kind);
    Write(Of("locked"), "before");
    daemon_.Prefetch(Of("locked"));
    const std::string stem = scratch_.path() + "/" + kind;
    std::thread writer([&] {
      if (!Eventually(20'000, [&] { return std::filesystem::exists(stem + ".opened"); })) return;
      const int fd = ::open(Of("locked").c_str(), O_RDWR | O_CLOEXEC);
      struct flock all = {};
      all.l_type = F_WRLCK;
      EXPECT_EQ(std::string(kind) == "flock" ? ::flock(fd, LOCK_EX) : ::fcntl(fd, F_SETLK, &all), 0);
      EXPECT_EQ(::pwrite(fd, "after!", 6, 0), 6);
      Write(stem + ".locked", "");
      EXPECT_TRUE(Eventually(20'000, [&] { return std::filesystem::exists(stem + ".refused"); }));
      ::close(fd);
    });
    const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                     "import fcntl,os,sys,time\n"
                                     "path,kind,stem=sys.argv[1:]; lock=getattr(fcntl,kind)\n"
                                     "tell=lambda what: os.close(os.open(stem+what,os.O_CREAT|os.O_WRONLY))\n"
                                     "fd=os.open(path,os.O_RDONLY); assert os.pread(fd,9,0)==b'before'\n"
                                     "tell('.opened')\n"
                                     "while not os.path.exists(stem+'.locked'): time.sleep(0.01)\n"
                                     "try: lock(fd,fcntl.LOCK_SH|fcntl.LOCK_NB); refused=False\n"
                                     "except BlockingIOError: refused=True\n"
                                     "tell('.refused'); assert refused\n"
                                     "lock(fd,fcntl.LOCK_SH); assert os.pread(fd,9,0)==b'after!',os.pread(fd,9,0)\n",
                                     Of("locked"), kind, stem},
                                    job_);
    writer.join();
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.Of("conversions", "fcntl"), 1u) << served.report.dump();
  }
}

}  // namespace
}  // namespace tierd::e2e
