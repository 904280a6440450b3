// Names that go through symbolic links: within a source, out of it, and into it from outside. What they lead to is served where that can be known, and is right always.
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

namespace fs = std::filesystem;

// source/{data/{a,b,c},current -> data,file -> data/a,absolute -> SOURCE/data/b,chain -> file,out -> plain/data/a,away -> plain/data}
// links/{data -> SOURCE/data,above -> SCRATCH,file -> SOURCE/data/c,chain -> next,next -> SOURCE/data,inner -> SOURCE/current}
class PreloadLinksTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    for (std::uint32_t i = 0; i < 3; ++i) Both(std::string("data/") + "abc"[i], Words(i + 1, 40'000));
    Both("other/a", Words(9, 20'000));
    links_ = scratch_.path() + "/links";
    fs::create_directory(links_);
    Link("data", Of("current"));
    Link("data/a", Of("file"));
    Link(Of("data/b"), Of("absolute"));
    Link("file", Of("chain"));
    Link(Twin("data/a"), Of("out"));
    Link(Twin("data"), Of("away"));
    Link(Of("data"), links_ + "/data");
    Link("..", links_ + "/above");
    Link(Of("data/c"), links_ + "/file");
    Link("next", links_ + "/chain");
    Link(Of("data"), links_ + "/next");
    Link(Of("current"), links_ + "/inner");
    job_.directory = scratch_.path();
    bare_.directory = scratch_.path();
  }
  static void Link(const std::string& text, const std::string& name) { fs::create_symlink(text, name); }

  // `names` are opened, read and looked at, in that order, as often as it says; then `more`. The results are compared with those of the files themselves, bare.
  JobResult Read(const std::vector<std::pair<std::string, std::string>>& names, int times, const std::string& more = "") {
    std::string pairs;
    for (const auto& [name, file] : names) pairs += "('" + name + "','" + file + "'),";
    const std::string program =
        "import os,sys\n"
        "def read(name):\n"
        "  fd=os.open(name,os.O_RDONLY)\n"
        "  try: return os.read(fd,1<<20)+os.read(fd,1)\n"
        "  finally: os.close(fd)\n"
        "want={f:open(f,'rb').read() for f in [" +
        [&] {
          std::string files;
          for (const auto& [name, file] : names) files += "'" + Twin(file) + "',";
          return files;
        }() +
        "]}\n"
        "for i in range(" + std::to_string(times) + "):\n"
        "  for name,file in [" + pairs + "]:\n"
        "    assert read(name)==want['" + plain_ + "/'+file],name\n" + more;
    const JobResult result = RunJob({"/usr/bin/python3", "-c", program}, job_);
    EXPECT_EQ(result.code, 0) << result.output << result.report.dump();
    return result;
  }
  static void ExpectServed(const JobResult& result, std::uint64_t opened) {
    EXPECT_EQ(result.report.value("opened", 0u), opened) << result.report.dump();
    EXPECT_EQ(result.Sum("conversions"), 0u) << result.report.dump();
    EXPECT_EQ(result.Sum("real_opens"), 0u) << result.report.dump();
    EXPECT_EQ(result.Sum("fallback"), 0u) << result.report.dump();
  }

  std::string links_;
};

TEST_F(PreloadLinksTest, WithinASourceAreServed) {
  StartDaemon();
  ExpectServed(Read({{Of("file"), "data/a"}, {Of("absolute"), "data/b"}, {Of("chain"), "data/a"}, {Of("current/c"), "data/c"}}, 3), 12);
}

// ls, find and the daemon's own walks know links as links; that keeps nobody from following them.
TEST_F(PreloadLinksTest, WithinASourceAreServedAfterSomebodyHasLookedAtTheLinksThemselves) {
  StartDaemon();
  const std::string look = "    assert os.path.islink('" + Of("file") + "') and os.stat('" + Of("file") + "').st_size==40000 and os.lstat('" + Of("current") + "').st_size==4\n"
                           "    assert sorted(os.listdir('" + Of("current") + "'))==['a','b','c']\n";
  const JobResult looked = RunJob({"/usr/bin/python3", "-c", "import os\nfor i in range(2):\n  for k in [0]:\n" + look}, job_);
  EXPECT_EQ(looked.code, 0) << looked.output;
  ExpectServed(Read({{Of("file"), "data/a"}, {Of("absolute"), "data/b"}, {Of("chain"), "data/a"}, {Of("current/c"), "data/c"}}, 3, look), 12);
}

TEST_F(PreloadLinksTest, OutOfASourceAreTheSourcesAndCounted) {
  StartDaemon();
  const JobResult result = Read({{Of("out"), "data/a"}, {Of("away/b"), "data/b"}}, 2);
  EXPECT_EQ(result.report.value("opened", 0u), 0u) << result.report.dump();
  EXPECT_EQ(result.Of("fallback", "path"), 4u) << result.report.dump();
}

TEST_F(PreloadLinksTest, FromOutsideAreServed) {
  StartDaemon();
  const auto names = std::vector<std::pair<std::string, std::string>>{{links_ + "/data/a", "data/a"}, {links_ + "/data/b", "data/b"}, {links_ + "/above/source/data/c", "data/c"},
                                                                      {links_ + "/chain/a", "data/a"}, {"links/data/c", "data/c"}, {links_ + "/inner/b", "data/b"}};
  const JobResult result = Read(names, 5);
  ExpectServed(result, 30);  // the first through each link was opened for real, too
  EXPECT_GE(result.report.value("links", 0u), 30u) << result.report.dump();
}

// Named from a working directory: below which there is a source, or only the link.
TEST_F(PreloadLinksTest, FromOutsideAreServedByRelativeNames) {
  StartDaemon();
  ExpectServed(Read({{"links/data/c", "data/c"}}, 5), 5);
  job_.directory = links_;
  ExpectServed(Read({{"data/c", "data/c"}, {"./chain/a", "data/a"}, {"file", "data/c"}}, 5), 15);
}

TEST_F(PreloadLinksTest, FromOutsideToOneFileAreServed) {
  StartDaemon();
  ExpectServed(Read({{links_ + "/file", "data/c"}}, 5), 5);
}

// What is asked of the names: contents, attributes and lists from the cache, the links themselves from the kernel.
TEST_F(PreloadLinksTest, FromOutsideAreStillLinks) {
  StartDaemon();
  const JobResult result = Read({{links_ + "/data/a", "data/a"}, {links_ + "/file", "data/c"}}, 2,
                                "L='" + links_ + "'; S='" + source_ + "'\n"
                                "assert os.readlink(L+'/data')==S+'/data' and os.path.realpath(L+'/data/a')==S+'/data/a' and os.path.islink(L+'/data') and os.path.islink(L+'/file')\n"
                                "assert os.stat(L+'/data/b').st_ino==os.stat(S+'/data/b').st_ino and os.lstat(L+'/data/b').st_size==40000\n"
                                "assert sorted(os.listdir(L+'/data'))==['a','b','c'] and os.access(L+'/data/c',os.R_OK)\n"
                                "for name,error in (('/data',40),('/file',40)):\n"
                                "  try: os.open(L+name,os.O_RDONLY|os.O_NOFOLLOW); assert False\n"
                                "  except OSError as e: assert e.errno==error,e\n"
                                "fd=os.open(L+'/data/b',os.O_RDONLY|os.O_NOFOLLOW); assert os.fstat(fd).st_size==40000\n"
                                "d=os.open(L,os.O_RDONLY); e=os.open('data/c',os.O_RDONLY,dir_fd=d); assert len(os.pread(e,1<<20,0))==40000\n"
                                "assert os.readlink('/proc/self/fd/%d'%e)==S+'/data/c'\n"
                                "try: os.open(L+'/data/none',os.O_RDONLY); assert False\n"
                                "except FileNotFoundError: pass\n"
                                "assert read(L+'/data/../data/a')==want['" + Twin("data/a") + "']\n");
  EXPECT_EQ(result.report.value("opened", 0u), 6u) << result.report.dump();  // 4, O_NOFOLLOW, by directory
  EXPECT_GE(result.report.value("listings", 0u), 1u) << result.report.dump();
  EXPECT_GE(result.report.value("stats", 0u), 3u) << result.report.dump();
}

// Whoever changes the link, here or in another process, and whatever it leads through: the next open is of the file that it would be bare.
TEST_F(PreloadLinksTest, FromOutsideThatAreChangedLeadElsewhereAtOnce) {
  StartDaemon();
  const JobResult result = Read({{links_ + "/data/a", "data/a"}, {links_ + "/chain/a", "data/a"}}, 3,
                                "import subprocess\n"
                                "L='" + links_ + "'; S='" + source_ + "'; other=open('" + Twin("other/a") + "','rb').read()\n"
                                "bare={k:v for k,v in os.environ.items() if k!='LD_PRELOAD'}\n"
                                "subprocess.run(['ln','-sfn',S+'/other',L+'/data'],env=bare,check=True)\n"
                                "assert read(L+'/data/a')==other and os.stat(L+'/data/a').st_size==20000\n"
                                "os.unlink(L+'/next'); os.symlink(S+'/other',L+'/next')\n"  // ours: behind the link that is known
                                "assert read(L+'/chain/a')==other and read(L+'/chain/a')==other\n"
                                "os.rename(L+'/data',L+'/gone'); os.mkdir(L+'/data'); open(L+'/data/a','w').write('mine')\n"
                                "assert read(L+'/data/a')==b'mine' and os.stat(L+'/data/a').st_size==4\n");
  EXPECT_EQ(result.report.value("opened", 0u), 9u) << result.report.dump();
  EXPECT_EQ(result.Sum("conversions"), 0u) << result.report.dump();
}

// Behind the link that is known, by others: within the ttl.
TEST_F(PreloadLinksTest, FromOutsideAreLookedAtAgainAfterTheTtl) {
  DaemonProcess::Options options;
  options.source = source_;
  options.ssd = "off";
  options.more = kTrustStamps;
  options.more.insert(options.more.end(), {"--set", "source.ttl=300ms"});
  ASSERT_TRUE(daemon_.Start(options)) << daemon_.output();
  Read({{links_ + "/chain/a", "data/a"}}, 2,
       "import subprocess,time\n"
       "L='" + links_ + "'; S='" + source_ + "'; other=open('" + Twin("other/a") + "','rb').read()\n"
       "bare={k:v for k,v in os.environ.items() if k!='LD_PRELOAD'}\n"
       "subprocess.run(['ln','-sfn',S+'/other',L+'/next'],env=bare,check=True)\n"
       "time.sleep(0.4)\n"
       "assert read(L+'/chain/a')==other\n");
}

// A source that is named through a link: the kernel calls it something else, and what is written there is seen all the same.
TEST_F(PreloadLinksTest, ToASourceAreWrittenThrough) {
  const std::string real = source_;
  source_ = scratch_.path() + "/named";
  Link("source", source_);
  job_.source = source_;
  StartDaemon();
  const JobResult result = RunJob({"/usr/bin/python3", "-c",
                                   "import os,sys\n"
                                   "S,R=sys.argv[1:]; p=S+'/data/a'\n"
                                   "read=lambda q=p: open(q,'rb').read()\n"
                                   "assert len(read())==40000\n"
                                   "for i,q in enumerate((p,R+'/data/a')):\n"
                                   "  open(q,'wb').write(b'%d'%i); assert read()==b'%d'%i and os.stat(p).st_size==1\n"
                                   "os.chdir(S+'/data'); open('a','wb').write(b'two'); assert read()==b'two'\n"
                                   "f=os.open('a',os.O_RDONLY); os.fchmod(f,0o600); assert os.stat(p).st_mode&0o777==0o600\n"
                                   "assert sorted(os.listdir(S+'/data'))==['a','b','c'] and len(read(S+'/data/b'))==40000\n"
                                   "os.rename('b','d'); assert not os.path.exists(S+'/data/b') and sorted(os.listdir(S+'/data'))==['a','c','d'] and len(read(S+'/data/d'))==40000\n"
                                   "os.unlink(R+'/data/a'); assert not os.path.exists(p)\n",
                                   source_, real},
                                  job_);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_GE(result.report.value("opened", 0u), 1u) << result.report.dump();
}

// A directory full of links to single files leaves room for a link to a directory, which is found by one of 64 opens then.
TEST_F(PreloadLinksTest, ToManyFilesDoNotUseUpWhatIsKnown) {
  for (int i = 0; i < 40; ++i) Link(Of("data/b"), links_ + "/picked" + std::to_string(i));
  StartDaemon();
  const JobResult result = Read({{links_ + "/data/a", "data/a"}}, 1, "want=want['" + Twin("data/a") + "']\nb=open('" + Twin("data/b") +
                                "','rb').read()\nfor i in range(40): assert read('" + links_ + "/picked%d'%i)==b\nfor i in range(200): assert read('" + links_ + "/next/a')==want\n");
  EXPECT_GE(result.report.value("opened", 0u), 1u + 8u + 130u) << result.report.dump();
}

}  // namespace
}  // namespace tierd::e2e
