// The preload library against a real daemon: every symbol behaves as libc's, the races of HAZARDS 3 lose nothing, and programs on hits convert nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadSymbolsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("file", Content("file", 100'000));
    Both("large", Content("large", 9'000'000));
    for (int i = 0; i < 20; ++i) Write(source_ + "/names/n" + (i < 10 ? "0" : "") + std::to_string(i), "x");
    Write(source_ + "/numbers", Words(0, 100'000));
    Write(source_ + "/others", Words(0x80, 100'000));
    StartDaemon();
  }

  JobResult Symbols(const char* program, const std::string& name, const char* check) {
    return RunJob({program, Of(name), Twin(name), Of("names"), check}, job_);
  }
};

struct SymbolCase {
  const char* check;
  int conversions;  // that it may and must cost, for each of the descriptors it opens below the source
};

// What cannot be emulated converts, and nothing else does.
constexpr SymbolCase kSymbolCases[] = {{"read", 0},     {"seek", 0},  {"dup", 0},    {"dup2", 1},    {"replaced", 0}, {"stat", 0},      {"ioctl", 0},
                                       {"poll", 0},     {"mmap", 0},  {"copy", 0}, {"copy_all", 0}, {"fdopen", 0},  {"fopen", 1},    {"openat", 0},    {"directory", 0},
                                       {"close_range", 0}, {"syscall", 0}, {"rights", 1}, {"lock", 1}};

TEST_F(PreloadSymbolsTest, EverySymbolBehavesAsLibcs) {
  for (const char* program : {PRELOAD_SYMBOLS, PRELOAD_SYMBOLS_FORTIFIED}) {
    for (const char* name : {"file", "large"}) {
      for (const SymbolCase& c : kSymbolCases) {
        SCOPED_TRACE(std::string(program) + " " + name + " " + c.check);
        daemon_.Prefetch(source_);
        const JobResult bare = RunJob({program, Of(name), Twin(name), Of("names"), c.check}, bare_);
        EXPECT_EQ(bare.code, 0) << bare.output;
        const JobResult result = Symbols(program, name, c.check);
        EXPECT_EQ(result.code, 0) << result.output;
        EXPECT_EQ(result.Sum("conversions"), static_cast<std::uint64_t>(c.conversions)) << result.report.dump();
        const bool opens = std::strcmp(c.check, "directory") != 0;
        EXPECT_TRUE(!opens || result.report.value("opened", 0u) > 0u) << result.report.dump();
      }
    }
  }
}

// Nothing is there yet: what has to be asked for behaves alike, and costs no conversion more.
TEST_F(PreloadSymbolsTest, EverySymbolBehavesAsLibcsOnWhatIsNotThereYet) {
  JobOptions aside = bare_;
  aside.work = plain_;
  for (const char* name : {"file", "large"}) {
    for (const SymbolCase& c : kSymbolCases) {
      SCOPED_TRACE(std::string(name) + " " + c.check);
      ASSERT_EQ(RunJob({TIERCTL_BINARY, "--socket", daemon_.socket(), "evict", source_}, aside).code, 0);
      const JobResult result = Symbols(PRELOAD_SYMBOLS, name, c.check);
      EXPECT_EQ(result.code, 0) << result.output;
      EXPECT_EQ(result.Sum("conversions"), static_cast<std::uint64_t>(c.conversions)) << result.report.dump();
      const bool reads = std::strcmp(c.check, "read") == 0;
      EXPECT_TRUE(!reads || result.Of("bytes", "source") > 0u) << result.report.dump();
    }
  }
}

TEST_F(PreloadSymbolsTest, RacesLoseNothing) {
  for (const char* race : {"materialise", "shared", "reopen", "fork", "vfork", "spawn", "system", "clone", "linker", "children", "opening", "closing", "signals", "cancel", "exhausted"}) {
    const JobResult result = RunShell(std::string("ulimit -n 1500; exec ") + PRELOAD_RACES + " " + Of("numbers") + " " + Of("others") + " " + race, job_);
    EXPECT_EQ(result.code, 0) << race << "\n" << result.output;
  }
}

TEST_F(PreloadSymbolsTest, ShellsShareOffsetsWithTheirChildren) {
  Write(Of("lines"), "one\ntwo\nthree\nfour\n");
  const JobResult result = RunShell("{ read a; (read b; echo $b); read c; echo $a $c; } < " + Of("lines") + "; exec 5< " + Of("lines") + "; read -u 5 x; cat <&5; echo $x", job_);
  EXPECT_EQ(result.output, "two\none three\ntwo\nthree\nfour\none\n");
}

TEST_F(PreloadSymbolsTest, AFileThatIsGoneIsConvertedFromMemory) {
  const JobResult result = RunJob({"/usr/bin/python3", "-c",
                                   "import os,subprocess,sys\n"
                                   "other=subprocess.Popen(['sh','-c','read x; rm $0; printf other > $0',sys.argv[1]],stdin=-1,env={'PATH':os.environ['PATH']})\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY); a=os.read(fd,1000)\n"
                                   "other.communicate(b'\\n')\n"
                                   "os.dup2(fd,50)\n"
                                   "b=os.read(50,10**6)\n"
                                   "assert a+b==open(sys.argv[2],'rb').read()\n",
                                   Of("file"), plain_ + "/file"},
                                  job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.report.value("memory_copies", 0u), 1u) << result.report.dump();
}

TEST_F(PreloadSymbolsTest, OwnChangesAreSeenAtOnce) {
  const JobResult result = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "p=sys.argv[1]\n"
                                   "read=lambda q=p: open(q,'rb').read()\n"
                                   "read()\n"
                                   "open(p,'wb').write(b'1'); assert read()==b'1'\n"
                                   "f=open(p,'r+b',buffering=0); f.write(b'2'); assert read()==b'2'; f.write(b'3'); assert read()==b'23'; f.close(); assert read()==b'23'\n"
                                   "os.truncate(p,1); assert read()==b'2' and os.stat(p).st_size==1\n"
                                   "open(p+'.n','wb').write(b'new'); os.rename(p+'.n',p); assert read()==b'new' and not os.path.exists(p+'.n')\n"
                                   "os.link(p,p+'.l'); assert os.stat(p).st_nlink==2; assert read(p+'.l')==b'new'\n"
                                   "os.unlink(p+'.l'); assert os.stat(p).st_nlink==1\n"
                                   "for i in range(40):\n"
                                   "  os.link(p,p+'.l'); assert os.stat(p).st_nlink==2 and read()==b'new'; os.unlink(p+'.l'); assert os.stat(p).st_nlink==1\n"
                                   "os.chmod(p,0o600); assert os.stat(p).st_mode&0o777==0o600\n"
                                   "os.utime(p,(5,6)); assert os.stat(p).st_mtime==6\n"
                                   "d=os.path.dirname(p); os.listdir(d); os.mkdir(d+'/sub'); assert 'sub' in os.listdir(d)\n"
                                   "open(d+'/sub/f','w').write('x'); assert os.listdir(d+'/sub')==['f']; os.rename(d+'/sub',d+'/moved')\n"
                                   "assert open(d+'/moved/f').read()=='x' and not os.path.exists(d+'/sub/f')\n"
                                   "os.symlink(p,'/tmp/tierd-link-%d'%os.getpid()); q='/tmp/tierd-link-%d'%os.getpid()\n"
                                   "open(q,'w').write('through'); assert read()==b'through'; os.unlink(q)\n"
                                   "os.unlink(p); assert not os.path.exists(p)\n",
                                   Of("file")},
                                  job_);
  EXPECT_EQ(result.code, 0) << result.output;
}

// The kernel says of its descriptor for ever that it has no name.
TEST_F(PreloadSymbolsTest, WhatIsWrittenToAFileThatWasMadeWithoutANameIsSeen) {
  const JobResult result = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "d=os.path.dirname(sys.argv[1])\n"
                                   "try: t=os.open(d,os.O_TMPFILE|os.O_RDWR,0o600)\n"
                                   "except OSError: sys.exit(77)\n"
                                   "k=os.open(d,os.O_RDONLY); os.write(t,b'one')\n"  // by a descriptor of the directory CPython calls linkat
                                   "os.link('/proc/self/fd/%d'%t,'made',src_dir_fd=k,dst_dir_fd=k,follow_symlinks=True)\n"
                                   "read=lambda: open(d+'/made','rb').read()\n"
                                   "assert read()==b'one'; os.write(t,b'two'); assert read()==b'onetwo'; os.close(t); assert read()==b'onetwo'\n",
                                   Of("file")},
                                  job_);
  if (result.code == 77) GTEST_SKIP() << "no O_TMPFILE here";
  EXPECT_EQ(result.code, 0) << result.output;
}

// The atime and the mtime, each its own, to the nanosecond: of a path, of the entry, of a descriptor.
TEST_F(PreloadSymbolsTest, TimesAreTheSourcesOwn) {
  const timespec times[2] = {{4'000'000'000, 123'456'789}, {1'700'000'000, 987'654'321}};  // the atime is so late that no read moves it (relatime)
  ASSERT_EQ(::utimensat(AT_FDCWD, Of("file").c_str(), times, 0), 0);
  ASSERT_EQ(RunJob({TIERCTL_BINARY, "--socket", daemon_.socket(), "evict", "--invalidate", source_}, bare_).code, 0);
  daemon_.Prefetch(source_);
  const JobResult result = BareThenServed({"/usr/bin/python3", "-c",
                                           "import os,sys\n"
                                           "p=sys.argv[1]; n=4*10**18+123456789\n"
                                           "for i in range(3):\n"
                                           "  f=open(p,'rb'); assert f.read()\n"
                                           "  for s in (os.stat(p),os.lstat(p),os.fstat(f.fileno())): assert (s.st_atime_ns,s.st_mtime_ns)==(n,17*10**17+987654321),s\n",
                                           Of("file")});
  EXPECT_GT(result.report.value("stats", 0u), 0u) << result.report.dump();
  EXPECT_GT(result.Of("bytes", "ram"), 0u) << result.report.dump();
  EXPECT_EQ(result.Sum("conversions"), 0u) << result.report.dump();
}

TEST_F(PreloadSymbolsTest, WhatIsOffIsOff) {
  job_.environment = {{"TIERD_DISABLE", "1"}};
  EXPECT_EQ(RunJob({"cmp", Of("file"), plain_ + "/file"}, job_).report.size(), 0u);
  for (const char* name : {"TIERD_LOWEST_FD", "TIERD_REAL_FDS"}) {
    job_.environment = {{name, "1"}};
    const JobResult real = RunJob({"/usr/bin/python3", "-c", "import os,sys; assert os.open(sys.argv[1],0)<10", Of("file")}, job_);
    EXPECT_EQ(real.code, 0) << real.output;
    EXPECT_EQ(real.Of("real_opens", "mode"), 1u);
  }
  job_.environment = {};
  // 0 is free: POSIX promises it.
  EXPECT_EQ(RunShell("exec 0<&-; /usr/bin/python3 -c 'import os,sys; assert os.open(sys.argv[1],0)==0' " + Of("file"), job_).code, 0);
}

// The ranks of one job number its files by it, and one of them may be sent to the source.
TEST_F(PreloadSymbolsTest, ListingsHaveTheSourcesOrderFromTheCacheAndWithoutIt) {
  for (int i = 0; i < 100; ++i) Write(Of("many/" + std::to_string(i * 79 % 100)), "x");
  const std::vector<std::string> list{"/usr/bin/python3", "-c", "import os,sys; print(os.listdir(sys.argv[1]))", Of("many")};
  const JobResult bare = RunJob(list, bare_);
  const JobResult hit = RunJob(list, job_);
  EXPECT_EQ(hit.report.value("listings", 0u), 1u) << hit.report.dump();
  EXPECT_EQ(hit.output, bare.output);
  daemon_.Kill(SIGKILL);
  const JobResult fallback = RunJob(list, job_);
  EXPECT_EQ(fallback.report.value("listings", 0u), 0u) << fallback.report.dump();
  EXPECT_EQ(fallback.output, bare.output);
}

TEST_F(PreloadSymbolsTest, NoDaemonIsNoError) {
  daemon_.Kill(SIGKILL);
  const JobResult result = RunJob({"cmp", Of("file"), plain_ + "/file"}, job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.report.value("opened", 0u), 0u);
}

}  // namespace
}  // namespace tierd::e2e
