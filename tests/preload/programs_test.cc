// Programs that the library cannot or must not serve: uncached, and correct.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadProgramsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    StartDaemon();
  }
  // Accesses that the daemon has heard of.
  long long Heard() {
    const std::string text = daemon_.Metrics(), name = "\ntierd_ring_entries_total ";
    const std::size_t at = text.find(name);
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size()));
  }
};

TEST_F(PreloadProgramsTest, ThoseThatCallTheKernelByHandReadTheSource) {
  for (const char* program : {PRELOAD_RAW_CALLS, PRELOAD_RAW_CALLS_STATIC}) {
    const JobResult bare = RunJob({program, Twin("numbers")}, bare_);
    const JobResult served = RunJob({program, Of("numbers")}, job_);
    EXPECT_EQ(bare.code, 0);
    EXPECT_EQ(served.code, 0);
    EXPECT_EQ(served.output, bare.output);
    EXPECT_EQ(served.report.value("opened", 0u), 0u);
  }
}

TEST_F(PreloadProgramsTest, ThoseThatMakeLibcsCallsOfSyscallAreServed) {
  const JobResult served = BareThenServed({PRELOAD_OWN_CALLS, Of("numbers")});
  EXPECT_EQ(served.report.value("opened", 0u), 1u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "fork"), 1u) << served.report.dump();
}

// One that somebody has stat-ed is opened, and waits for who writes to it.
TEST_F(PreloadProgramsTest, ThoseThatReadAFifoGetWhatIsWrittenToIt) {
  const std::string fifo = Of("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0644), 0);
  std::thread other([&] {
    int fd = -1;
    ASSERT_TRUE(Eventually(20'000, [&] { return (fd = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0; }));
    EXPECT_EQ(::write(fd, "through", 7), 7);
    ::close(fd);
  });
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "assert os.stat(sys.argv[1]).st_size==0\n"
                                   "b=open(sys.argv[1]).read()\n"
                                   "assert b=='through',b\n",
                                   fifo},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  if (served.code != 0) ::close(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  other.join();
}

// What follows the file as it grows sees it grow; bare it does.
TEST_F(PreloadProgramsTest, ThoseThatFollowAFileSeeItGrow) {
  const std::string ready = scratch_.path() + "/ready";
  std::thread other([&] {
    if (!Eventually(20'000, [&] { return std::filesystem::exists(ready); })) return;
    std::ofstream(Of("numbers"), std::ios::app) << "more";
  });
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys,time\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY)\n"
                                   "while os.read(fd,1<<20): pass\n"
                                   "os.close(os.open(sys.argv[2],os.O_CREAT|os.O_WRONLY))\n"
                                   "for i in range(100):\n"
                                   "  b=os.read(fd,100)\n"
                                   "  if b: break\n"
                                   "  time.sleep(0.1)\n"
                                   "assert b==b'more' and os.fstat(fd).st_size==100004,(b,os.fstat(fd))\n",
                                   Of("numbers"), ready},
                                  job_);
  other.join();
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.Of("conversions", "changed"), 1u) << served.report.dump();
}

// By whatever call it asks for the end.
TEST_F(PreloadProgramsTest, ThoseThatAskForTheEndOfAFileSeeItGrow) {
  const std::string ready = scratch_.path() + "/ready";
  std::thread other([&] {
    if (!Eventually(20'000, [&] { return std::filesystem::exists(ready); })) return;
    std::ofstream(Of("numbers"), std::ios::app) << "more";
  });
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import array,fcntl,os,sys,termios,time\n"
                                   "n=100000; to=os.open(sys.argv[2]+'.copy',os.O_CREAT|os.O_RDWR)\n"
                                   "def left(fd):\n"
                                   "  a=array.array('i',[0]); fcntl.ioctl(fd,termios.FIONREAD,a); return a[0]-n\n"
                                   "def copied(fd):\n"
                                   "  return os.copy_file_range(fd,to,10,n,0)\n"
                                   "asks=[lambda fd: len(os.pread(fd,10,n)), lambda fd: os.preadv(fd,[bytearray(10)],n), lambda fd: os.lseek(fd,0,os.SEEK_END)-n, left,\n"
                                   "      lambda fd: os.sendfile(to,fd,n,10), copied]\n"
                                   "fds=[os.open(sys.argv[1],os.O_RDONLY) for a in asks]\n"
                                   "assert [a(fd) for a,fd in zip(asks,fds)]==[0]*6 and os.lseek(fds[3],0,0)==0\n"
                                   "os.close(os.open(sys.argv[2],os.O_CREAT|os.O_WRONLY))\n"
                                   "for i in range(100):\n"
                                   "  time.sleep(0.1); seen=[a(fd) for a,fd in zip(asks,fds)]\n"
                                   "  if seen==[4]*6: break\n"
                                   "assert seen==[4]*6,seen\n",
                                   Of("numbers"), ready},
                                  job_);
  other.join();
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.Of("conversions", "changed"), 6u) << served.report.dump();
}

// The source answers with an error nobody thought of: what a child inherits are the leased bytes, and it still looks like the file.
TEST_F(PreloadProgramsTest, ThoseThatForkBesideABrokenSourceKeepTheirBytes) {
  Write(Of("deep/file"), Words(7, 50'000));
  daemon_.Prefetch(Of("deep"));
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,subprocess,sys\n"
                                   "d=os.path.dirname(sys.argv[1])\n"
                                   "other=subprocess.Popen(['sh','-c','read x; mv $0 $0.old; ln -s $0 $0',d],stdin=-1,env={'PATH':os.environ['PATH']})\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY); s=os.fstat(fd); a=os.read(fd,1000)\n"
                                   "other.communicate(b'\\n')\n"
                                   "p=os.fork()\n"
                                   "if p==0:\n"
                                   "  t=os.fstat(fd); b=os.read(fd,100000)\n"
                                   "  os._exit(not (len(b)==49000 and b[:4]==(7<<24|250).to_bytes(4,'little') and (t.st_ino,t.st_size,t.st_mtime_ns,t.st_mode)==(s.st_ino,s.st_size,s.st_mtime_ns,s.st_mode)))\n"
                                   "assert os.waitpid(p,0)[1]==0\n",
                                   Of("deep/file")},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("memory_copies", 0u), 1u) << served.report.dump();
}

// A fork asks nothing of a source, which may hang: bare it does not either. What a program that is started inherits is the file itself.
TEST_F(PreloadProgramsTest, ThoseThatForkAskNoSource) {
  Write(Of("old"), Words(7, 50'000));
  const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Of("old").c_str(), long_ago, 0), 0);
  daemon_.Prefetch(Of("old"));
  const char* const program =
      "import os,sys\n"
      "fd=os.open(sys.argv[1],os.O_RDONLY); os.set_inheritable(fd,sys.argv[2]=='1'); s=os.fstat(fd); os.read(fd,1000)\n"
      "p=os.fork()\n"
      "if p==0:\n"
      "  t=os.fstat(fd); b=os.read(fd,40000)\n"
      "  os._exit(not (len(b)==40000 and b[:4]==(7<<24|250).to_bytes(4,'little') and (t.st_ino,t.st_size,t.st_mtime_ns,t.st_mode)==(s.st_ino,s.st_size,s.st_mtime_ns,s.st_mode)))\n"
      "assert os.waitpid(p,0)[1]==0\n"
      "b=os.read(fd,100000); assert len(b)==9000 and b[:4]==(7<<24|10250).to_bytes(4,'little')\n";
  const JobResult private_one = RunJob({"/usr/bin/python3", "-c", program, Of("old"), "0"}, job_);
  EXPECT_EQ(private_one.code, 0) << private_one.output;
  EXPECT_EQ(private_one.report.value("memory_copies", 0u), 1u) << private_one.report.dump();
  const JobResult inherited = RunJob({"/usr/bin/python3", "-c", program, Of("old"), "1"}, job_);
  EXPECT_EQ(inherited.code, 0) << inherited.output;
  EXPECT_EQ(inherited.report.value("memory_copies", 0u), 0u) << inherited.report.dump();
}

// A lock is on the file, for everybody, though the fork made its descriptor a copy in memory: the copy is the file again, where the program had come to.
TEST_F(PreloadProgramsTest, ThoseThatLockAfterAForkLockTheFile) {
  Write(Of("old"), Words(7, 50'000));
  const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Of("old").c_str(), long_ago, 0), 0);
  daemon_.Prefetch(Of("old"));
  for (const char* lock : {"fcntl.flock(fd,fcntl.LOCK_EX)", "fcntl.lockf(fd,fcntl.LOCK_SH)", "fcntl.fcntl(fd,fcntl.F_OFD_SETLK,struct.pack('hhqqi4x',fcntl.F_RDLCK,0,0,0,0))"}) {
    SCOPED_TRACE(lock);
    const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                     "import fcntl,os,struct,subprocess,sys\n"
                                     "fd=os.open(sys.argv[1],os.O_RDONLY); copy=os.dup(fd); os.read(fd,1000)\n"
                                     "p=os.fork()\n"
                                     "if p==0: os._exit(os.fstat(fd).st_size!=50000)\n"
                                     "assert os.waitpid(p,0)[1]==0\n"
                                     + std::string(lock) +
                                     "\nassert os.read(fd,4)==(7<<24|250).to_bytes(4,'little') and os.lseek(copy,0,1)==1004 and not os.get_inheritable(fd)\n"
                                     "assert os.fstat(fd).st_ino==os.stat(sys.argv[1]).st_ino\n"
                                     "other='import fcntl,sys\\nf=open(sys.argv[1],\"r+\")\\n'\\\n"
                                     "  'for lock in (fcntl.flock,fcntl.lockf):\\n try: lock(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\\n except OSError: sys.exit(9)\\n'\n"
                                     "bare={k:v for k,v in os.environ.items() if k!='LD_PRELOAD'}\n"
                                     "taken=lambda: subprocess.run([sys.executable,'-c',other,sys.argv[1]],env=bare).returncode==9\n"
                                     "assert taken()\n"
                                     "os.close(copy); os.close(fd); assert not taken()\n",
                                     Of("old")},
                                    job_);
    EXPECT_EQ(served.code, 0) << served.output;
    EXPECT_EQ(served.report.value("memory_copies", 0u), 1u) << served.report.dump();
  }
}

// Parent and child have one open file, however late they ask for its lock: they do not exclude one another, others are excluded until both have let go.
TEST_F(PreloadProgramsTest, ThoseThatShareALockAcrossAForkShareIt) {
  for (const std::string& path : {Of("old"), Twin("old")}) {
    Write(path, Words(7, 50'000));
    const timespec long_ago[2] = {{1'500'000'000, 0}, {1'500'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), long_ago, 0), 0);
  }
  daemon_.Prefetch(Of("old"));
  const std::string program =
      "import fcntl,os,subprocess,sys\n"
      "path=sys.argv[1]; EX=fcntl.LOCK_EX|fcntl.LOCK_NB\n"
      "bare={k:v for k,v in os.environ.items() if k!='LD_PRELOAD'}\n"
      "other='import fcntl,sys\\ntry: fcntl.flock(open(sys.argv[1]),fcntl.LOCK_EX|fcntl.LOCK_NB)\\nexcept OSError: sys.exit(9)\\n'\n"
      "taken=lambda: subprocess.run([sys.executable,'-c',other,path],env=bare).returncode==9\n"
      "fd=os.open(path,os.O_RDONLY); os.read(fd,1000)\n"
      "class Child:\n"
      "  def __init__(self):\n"
      "    (orders,self.orders),(self.answers,answers)=os.pipe(),os.pipe(); self.pid=os.fork()\n"
      "    if self.pid: os.close(orders); os.close(answers); return\n"
      "    copy=os.dup(fd); answer={b'l':lambda: fcntl.flock(copy,EX),b'u':lambda: fcntl.flock(fd,fcntl.LOCK_UN),b'c':lambda: (os.close(fd),os.close(copy)),b's':lambda: os.lseek(fd,0,1)!=1000 and 1/0}\n"
      "    os.close(self.orders)\n"
      "    while order:=os.read(orders,1):\n"
      "      try: answer[order](); os.write(answers,b'y')\n"
      "      except BaseException: os.write(answers,b'n')\n"
      "    os._exit(0)\n"
      "  def does(self,order): os.write(self.orders,order); return os.read(self.answers,1)==b'y'\n"
      "  def ends(self): os.close(self.orders); return os.waitpid(self.pid,0)[1]==0\n"
      "one=Child(); two=Child()\n"
      "assert not taken() and one.does(b'l') and taken()\n"
      "fcntl.flock(fd,EX); assert two.does(b'l') and two.does(b's') and os.lseek(fd,0,1)==1000\n"  // nobody waits for his own lock
      "assert two.does(b'u') and not taken()\n"                     // one ends it for all
      "fcntl.flock(fd,EX); os.close(fd); assert taken() and one.does(b'c') and taken()\n"
      "assert two.ends() and not taken() and one.ends()\n"          // the last who has it ends it
      // Who has never asked for the lock keeps the file open, and the lock, until he closes it.
      "fd=os.open(path,os.O_RDONLY); one=Child(); fcntl.flock(fd,EX); os.close(fd); assert taken()\n"
      "assert one.does(b'c') and not taken() and one.ends()\n"
      "fd=os.open(path,os.O_RDONLY); one=Child(); assert one.does(b'l') and one.does(b'c') and taken()\n"
      "copy=os.dup(fd); os.close(fd); assert taken(); os.dup2(os.open('/dev/null',os.O_RDONLY),copy); assert not taken() and one.ends()\n";
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, Twin("old")}, bare_);
  EXPECT_EQ(bare.code, 0) << bare.output;
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, Of("old")}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("memory_copies", 0u), 3u) << served.report.dump();
}

// What the daemon predicts from are the accesses it hears of: of a large file each chunk that the reading comes to, in whatever pieces.
TEST_F(PreloadProgramsTest, ThoseThatReadLargeFilesAreHeardOf) {
  Write(Of("large"), Words(3, 10'000'000));
  daemon_.Prefetch(Of("large"));
  const long long before = Heard();
  ASSERT_GE(before, 0);
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY)\n"
                                   "while os.read(fd,10000): pass\n"
                                   "os.pread(fd,10,5); os.pread(fd,10,6)\n",
                                   Of("large")},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_TRUE(Eventually(10'000, [&] { return Heard() == before + 4; })) << before << " then " << Heard();
}

// What had to be fetched at the open counts as that, once; then as memory.
TEST_F(PreloadProgramsTest, ThoseThatReadLargeFilesAreToldWhereTheirBytesWere) {
  Write(Of("cold"), Words(3, 10'000'000));
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "fd=os.open(sys.argv[1],os.O_RDONLY)\n"
                                   "for i in range(3): assert len(os.pread(fd,1<<20,i<<20))==1<<20\n"
                                   "os.pread(fd,1<<20,0)\n",
                                   Of("cold")},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.Of("reads", "source"), 1u) << served.report.dump();
  EXPECT_EQ(served.Of("bytes", "source"), 1u << 20) << served.report.dump();
  EXPECT_EQ(served.Of("reads", "ram"), 3u) << served.report.dump();
}

// Whatever the bytes leave by: a small file is heard of once for each time it is opened, and counted as coming from where it came from.
TEST_F(PreloadProgramsTest, ThoseThatSendSmallFilesAreHeardOf) {
  for (const char* name : {"sent", "copied"}) Write(Of(name), Words(3, 50'000));
  const long long before = Heard();
  ASSERT_GE(before, 0);
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "out=os.open(sys.argv[3],os.O_CREAT|os.O_RDWR,0o600)\n"
                                   "for i in range(2):\n"
                                   "  fd=os.open(sys.argv[1],os.O_RDONLY)\n"
                                   "  for at in (0,20000,40000): assert os.sendfile(out,fd,at,20000)==min(20000,50000-at)\n"
                                   "  fd=os.open(sys.argv[2],os.O_RDONLY)\n"
                                   "  assert os.copy_file_range(fd,out,60000)==50000\n",
                                   Of("sent"), Of("copied"), scratch_.path() + "/out"},
                                  job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_TRUE(Eventually(10'000, [&] { return Heard() == before + 4; })) << before << " then " << Heard();
  EXPECT_EQ(served.Of("reads", "source"), 2u) << served.report.dump();
  EXPECT_EQ(served.Of("reads", "ram"), 6u) << served.report.dump();
}

// exec closes what was being written, and the next program reads it.
TEST_F(PreloadProgramsTest, ThoseThatExecHaveWrittenWhatTheyWrote) {
  const JobResult served = RunJob({"/usr/bin/python3", "-c",
                                   "import os,subprocess,sys\n"
                                   "fd=os.open(sys.argv[1],os.O_WRONLY|os.O_TRUNC); os.write(fd,b'one')\n"
                                   "assert subprocess.run(['cat',sys.argv[1]],capture_output=True).stdout==b'one'\n"
                                   "os.write(fd,b'two'); os.execvp('cat',['cat',sys.argv[1]])\n",
                                   Of("numbers")},
                                  job_);
  EXPECT_EQ(served.output, "onetwo");
}

#ifdef PRELOAD_RINGS
TEST_F(PreloadProgramsTest, ThoseWithRingsHaveRealDescriptors) {
  if (!IoUringIsAllowed()) GTEST_SKIP() << "no io_uring here";
  const JobResult linked = BareThenServed({PRELOAD_RINGS, Of("numbers"), "now"});
  EXPECT_EQ(linked.report.value("opened", 0u), 0u) << linked.report.dump();
  const JobResult late = BareThenServed({PRELOAD_RINGS_LATE, Of("numbers"), "late"});
  EXPECT_EQ(late.report.value("opened", 0u), 1u) << late.report.dump();
  EXPECT_EQ(late.Of("conversions", "io_uring"), 1u) << late.report.dump();
}
#endif

// FAULTS T13: the environment counts for nothing in a program that has more rights than its caller.
TEST_F(PreloadProgramsTest, ThoseWithMoreRightsThanTheirCallerAreLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a set-user-id program";
  const std::string program = scratch_.path() + "/secure";
  std::filesystem::copy_file(PRELOAD_SECURE, program);
  const auto run = [&](bool as_another) {
    JobOptions options = job_;
    options.preload = false;
    return RunJob(as_another ? std::vector<std::string>{"setpriv", "--reuid=65534", "--clear-groups", program, Of("numbers")} : std::vector<std::string>{program, Of("numbers")}, options);
  };
  const JobResult plain = run(false);
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_EQ(plain.report.value("opened", 0u), 1u) << plain.output << plain.report.dump();
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  for (std::filesystem::path at = scratch_.path(); at != at.root_path(); at = at.parent_path()) {
    struct stat st;
    if (::stat(at.c_str(), &st) == 0 && (st.st_mode & 1) == 0 && at == scratch_.path()) ::chmod(at.c_str(), 0711);
  }
  const JobResult secure = run(true);
  if (secure.output.find(" 1\n") == std::string::npos) GTEST_SKIP() << "no set-user-id programs here: " << secure.output;
  EXPECT_EQ(secure.code, 0) << secure.output;
  EXPECT_EQ(secure.report.size(), 0u) << secure.report.dump();
  EXPECT_LT(std::stoi(secure.output), 100) << secure.output;
}

}  // namespace
}  // namespace tierd::e2e
