// mmap of cached files: as of any file, also while the cache has no room (mappings.c).
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cstdio>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadMappingsTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Write(Of("small"), Words(1, 30'000));
    Write(Of("middle"), Words(2, 1'000'000));
    for (std::uint32_t i = 0; i < 6; ++i) Write(Of("big" + std::to_string(i)), Words(10 + i, 10'000'000));
  }
  // In which what is read takes the place of what was.
  void StartSmallDaemon() {
    DaemonProcess::Options options;
    options.source = source_;
    options.ssd = "off";
    options.ram = "48 MiB";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--policy", "lru"});
    ASSERT_TRUE(daemon_.Start(options)) << daemon_.output();
  }
};

TEST_F(PreloadMappingsTest, BehaveAsThoseOfAnyFile) {
  StartDaemon();
  for (const char* check : {"dropped", "protection", "replaced", "resized", "grown", "grown_parts", "holes"}) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, check});
    EXPECT_GT(served.report.value("maps", 0u), 0u) << served.report.dump();
  }
}

// The source has another version by now: neither its bytes nor another file's.
TEST_F(PreloadMappingsTest, ShowWhatTheyShowedWhenTheFileHasBeenTouched) {
  StartDaemon();
  const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, "touched"});
  EXPECT_EQ(served.report.value("maps", 0u), 1u) << served.report.dump();
}

// Before this process changes a file its mappings become the source's. (The daemon is told of nothing that is written bare.)
TEST_F(PreloadMappingsTest, ShowWhatThisProcessWrites) {
  const JobResult bare = RunJob({PRELOAD_MAPPINGS, source_, "written"}, bare_);
  EXPECT_EQ(bare.code, 0) << bare.output;
  StartDaemon();
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "written"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  const std::uint64_t maps = served.report.value("maps", 0u);  // of 24: what was written a moment ago is not always in the cache
  EXPECT_GE(maps, 12u) << served.report.dump();
  EXPECT_EQ(served.Of("source_uses", "mmap"), maps) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "failed"), 0u) << served.report.dump();
}
TEST_F(PreloadMappingsTest, ShowWhatThisProcessWritesByAnotherName) {
  std::filesystem::create_directories(Of("from"));
  Write(Of("from/big"), Words(16, 10'000'000));
  const JobResult bare = RunJob({PRELOAD_MAPPINGS, source_, "written_elsewhere"}, bare_);
  EXPECT_EQ(bare.code, 0) << bare.output;
  StartDaemon();
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "written_elsewhere"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("maps", 0u), 1u) << served.report.dump();
}
TEST_F(PreloadMappingsTest, AreSnapshotsOfWhatOtherProcessesWrite) {
  StartDaemon();
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "snapshot"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("maps", 0u), 1u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "failed"), 1u) << served.report.dump();
}

// LMDB with locks shares its mapping with writers; without (lock=False) it is of the cache.
TEST_F(PreloadMappingsTest, OfDatabasesWithALockFileAreTheSources) {
  for (const char* name : {"one", "three", "four", "five"}) {
    std::filesystem::create_directories(Of(name));
    Write(Of(std::string(name) + "/data.mdb"), Words(17, 1'000'000));
  }
  Write(Of("two.lmdb"), Words(18, 1'000'000));
  StartDaemon();
  JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, "locked"});
  EXPECT_EQ(served.report.value("maps", 0u), 0u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "changed"), 2u) << served.report.dump();
  EXPECT_EQ(served.Of("real_opens", "writer"), 2u) << served.report.dump();
  served = RunJob({PRELOAD_MAPPINGS, source_, "without_lock"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.report.value("maps", 0u), 1u) << served.report.dump();
}

// The database was made by one transaction: of its two first pages the one that the next transaction writes is empty in a snapshot.
TEST_F(PreloadMappingsTest, LmdbWithALockIsNeverWrong) {
  if (RunJob({"/usr/bin/python3", "-c", "import lmdb"}, bare_).code != 0) GTEST_SKIP() << "no lmdb";
  std::filesystem::create_directories(Of("database"));
  const char* const program =
      "import lmdb, os, subprocess, sys\n"
      "os.chdir(sys.argv[1])\n"
      "def other(code): subprocess.run([sys.executable, '-c', \"import lmdb; e = lmdb.open('database', map_size=1 << 24)\\nwith e.begin(write=True) as t: \" + code], check=True)\n"
      "for name in os.listdir('database'): os.unlink('database/' + name)\n"
      "other(\"[t.put(b'k%05d' % i, b'z' * 1000) for i in range(8000)]\")\n"
      "os.truncate('database/data.mdb', 1 << 24)  # what is mapped lies within the file, so it is mapped from the cache, were there no lock\n"
      "e = lmdb.open('database', readonly=True, map_size=1 << 24)\n"
      "with e.begin() as t: print(t.stat()['entries'], len(t.get(b'k00500')))\n"
      "other(\"t.put(b'k00500', b'new')\")\n"
      "with e.begin() as t: print(t.stat()['entries'], t.get(b'k00500'))\n";
  StartDaemon();
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, source_}, bare_);
  ASSERT_EQ(bare.output, "8000 1000\n8000 b'new'\n");
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, source_}, job_);
  EXPECT_EQ(served.output, bare.output) << served.report.dump();
}

// A mapping of frames that was unmapped is kept, where the kernel can be asked what it shows (6.11 and later).
TEST_F(PreloadMappingsTest, AreThereAgain) {
  StartDaemon();
  const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, "again"});
  utsname kernel{};
  int major = 0, minor = 0;
  ASSERT_EQ(::uname(&kernel), 0);
  ASSERT_EQ(std::sscanf(kernel.release, "%d.%d", &major, &minor), 2);
  if (major > 6 || (major == 6 && minor >= 11)) {
    EXPECT_NE(served.output.find("at the same place"), std::string::npos) << served.output;
    EXPECT_EQ(served.output.find("\n0 pages"), std::string::npos) << served.output;
    EXPECT_NE(served.output.rfind("0 pages", 0), 0u) << served.output;
  }
}

TEST_F(PreloadMappingsTest, KeepTheirBytesWhileTheCacheIsTooSmall) {
  StartDaemon("48 MiB");
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "churn"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GT(served.report.value("maps", 0u), 10u) << served.report.dump();
}

// HAZARDS 2.9: the kernel keeps no hold on a frame of the cache.
TEST_F(PreloadMappingsTest, WhatIsSentStaysWhatItWasWhileTheCacheIsTooSmall) {
  StartDaemon("48 MiB");
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "sent"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_GE(served.report.value("opened", 0u), 6u) << served.report.dump();
}

TEST_F(PreloadMappingsTest, WhatTheKernelWasGivenStaysWhatItWasWhileTheCacheIsTooSmall) {
  StartSmallDaemon();
  const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, "given"});
  EXPECT_EQ(served.report.value("maps", 0u), 6u) << served.report.dump();
}

// HAZARDS 2.6.
TEST_F(PreloadMappingsTest, WhatAChildInheritsStaysWhatItWasWhileTheCacheIsTooSmall) {
  StartSmallDaemon();
  for (const char* check : {"inherited_bare_fork", "inherited_clone", "inherited_fork"}) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, check});
    EXPECT_EQ(served.report.value("maps", 0u), 1u) << served.report.dump();
  }
}

// Of a file of several chunks the last one may be short, as of an .npy with a round number of bytes behind its header.
TEST_F(PreloadMappingsTest, OfFilesWithAShortEndAreOfTheCache) {
  std::vector<std::string> job{"/usr/bin/python3", "-c",
                               "import mmap, sys\n"
                               "for path in sys.argv[1:]:\n"
                               "    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as shown:\n"
                               "        print(hash(bytes(shown)) == hash(file.read()), path in open('/proc/self/maps').read())\n"};
  for (const std::size_t end : {1, 128, 1000, 4096, 5000, 10'000, 50'000}) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      job.push_back(Of("end" + std::to_string(end) + "." + std::to_string(i)));
      Write(job.back(), Words(20 + i, (std::size_t{4} << 20) + end));
    }
  }
  StartDaemon("256 MiB");
  const JobResult served = RunJob(job, job_);
  EXPECT_EQ(served.code, 0) << served.output;
  EXPECT_EQ(served.output.find("True True"), std::string::npos) << "the source's own: " << served.output;
  EXPECT_EQ(served.output.find("False False"), std::string::npos) << "other bytes: " << served.output;
  EXPECT_EQ(served.report.value("maps", 0u), 21u) << served.report.dump();
}

// More than 64 chunks, or more bytes than the pin cap (here 32 MiB): the source's file is mapped, and what the opening reads, a chunk and one ahead, is all that is read.
TEST_F(PreloadMappingsTest, OfWhatCannotBeHeldReadNothing) {
  struct Case {
    const char* check;
    std::uint64_t chunk_kib;
    std::uint64_t maps;  // of the two
  };
  Write(Of("huge"), Words(20, 64'000'000));
  for (const Case& c : {Case{"huge", 4096, 0}, Case{"too_many", 64, 0}, Case{"just_enough", 64, 1}}) {
    SCOPED_TRACE(c.check);
    DaemonProcess::Options options;
    options.source = source_;
    options.ssd = "off";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.chunk_size=" + std::to_string(c.chunk_kib) + " KiB", "--set", "source.warm=off"});
    ASSERT_TRUE(daemon_.Start(options)) << daemon_.output();
    const JobResult served = BareThenServed({PRELOAD_MAPPINGS, source_, c.check});
    EXPECT_EQ(served.report.value("maps", 0u), c.maps) << served.report.dump();
    EXPECT_EQ(served.Of("source_uses", "mmap"), 2 - c.maps) << served.report.dump();
    EXPECT_EQ(served.Sum("bytes"), c.maps * ((64 << 16) - 3 * 4096)) << served.report.dump();
    if (c.maps == 0) {
      EXPECT_LE(daemon_.Status()["sources"][0]["read_bytes"], 2 * c.chunk_kib << 10);
    }
    EXPECT_EQ(daemon_.Stop(), 0);
  }
}

TEST_F(PreloadMappingsTest, AreOfTheirFileWhileOthersFork) {
  StartDaemon();
  const JobResult served = RunJob({PRELOAD_MAPPINGS, source_, "forks"}, job_);
  EXPECT_EQ(served.code, 0) << served.output;
}

}  // namespace
}  // namespace tierd::e2e
