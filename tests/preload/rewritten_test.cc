// Descriptors of a file that another process of the job writes to in place (rewritten.c), and of
// files that are watched or open to an HDF5 writer.
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadRewrittenTest : public PreloadTest {
 protected:
  // Bare on its own copy of the files; then on the source, where they have been in RAM since
  // before.
  JobResult BareThenServedOnItsOwn(const std::string& check, const std::string& directory = ".") {
    const JobResult bare = RunJob({PRELOAD_REWRITTEN, Twin(directory), check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served =
        RunJob({PRELOAD_REWRITTEN, directory == "." ? source_ : Of(directory), check}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }
  static std::string As(std::size_t bytes = 100'000) { return std::string(bytes, 'a'); }
};

TEST_F(PreloadRewrittenTest, DescriptorsShowTheNewBytesOnceTheNewTimeWasSeen) {
  const char* const checks[] = {"same_size", "longer", "shorter", "offset",
                                "chunked",   "mapped", "forked",  "told"};
  for (const char* check : checks)
    Both(check, As(std::string(check) == "chunked" ? 9'000'000 : 100'000));
  StartDaemon();
  for (const char* check : checks) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServedOnItsOwn(check);
    EXPECT_GE(served.report.value("opened", 0u), 1u) << served.report.dump();
    EXPECT_EQ(served.Of("conversions", "failed"), 0u) << served.report.dump();
  }
}

TEST_F(PreloadRewrittenTest, DescriptorsKeepAFileThatWasReplacedOrUnlinked) {
  for (const char* check : {"replaced", "unlinked"}) Both(check, As());
  StartDaemon();
  for (const char* check : {"replaced", "unlinked"}) {
    SCOPED_TRACE(check);
    const JobResult served = BareThenServedOnItsOwn(check);
    EXPECT_GE(served.report.value("opened", 0u), 1u) << served.report.dump();
  }
}

TEST_F(PreloadRewrittenTest, DescriptorsOfOtherFilesStayTheCaches) {
  Both("beside", As());
  Both("beside.other", As());
  StartDaemon();
  const JobResult served = BareThenServedOnItsOwn("beside");
  EXPECT_EQ(served.report.value("opened", 0u), 1u) << served.report.dump();
  EXPECT_EQ(served.Of("conversions", "changed"), 0u) << served.report.dump();
  EXPECT_EQ(served.Of("reads", "ram"), 11u) << served.report.dump();
}

TEST_F(PreloadRewrittenTest, AWatcherOfADirectoryReadsWhatItWasToldOf) {
  for (const char* check : {"watched", "created"}) {
    for (const std::string& root : {source_, plain_})
      std::filesystem::create_directories(root + "/" + check);
    Both(std::string(check) + "/file", As());
  }
  StartDaemon();
  const JobResult served = BareThenServedOnItsOwn("watched");
  EXPECT_GE(served.Of("real_opens", "writer"), 1u) << served.report.dump();
  const JobResult listed = BareThenServedOnItsOwn("created");
  EXPECT_EQ(listed.report.value("listings", 0u), 1u)
      << "the one before the watch: " << listed.report.dump();
}

// The file was read by others before, so that it is in the cache while it is being written to.
TEST_F(PreloadRewrittenTest, AnHdf5ReaderSeesWhatItsSwmrWriterAppends) {
  if (RunJob({"/usr/bin/python3", "-c", "import h5py"}, bare_).code != 0) GTEST_SKIP() << "no h5py";
  const char* const program =
      "import h5py, subprocess, sys\n"
      "path = sys.argv[1]\n"
      "writer = '''\n"
      "import h5py, sys\n"
      "f = h5py.File(sys.argv[1], 'w', libver='latest')\n"
      "d = f.create_dataset('d', (0,), maxshape=(None,), chunks=(1000,), dtype='i4')\n"
      "f.swmr_mode = True\n"
      "for line in sys.stdin:\n"
      "    d.resize((int(line),)); d[:] = range(int(line)); d.flush(); print('ok', flush=True)\n"
      "'''\n"
      "w = subprocess.Popen([sys.executable, '-c', writer, path], stdin=subprocess.PIPE, "
      "stdout=subprocess.PIPE, text=True)\n"
      "def write(n):\n"
      "    w.stdin.write('%d\\n' % n); w.stdin.flush(); w.stdout.readline()\n"
      "write(1000)\n"
      "subprocess.run([sys.executable, '-c', 'import sys; open(sys.argv[1], \"rb\").read()', "
      "path], check=True)\n"
      "f = h5py.File(path, 'r', libver='latest', swmr=True)\n"
      "d = f['d']\n"
      "print(len(d))\n"
      "for n in (2000, 5000, 20000):\n"
      "    write(n); d.refresh(); print(len(d), list(d[:]) == list(range(len(d))))\n"
      "w.stdin.close(); w.wait()\n";
  Both("swmr.h5", "");
  StartDaemon();
  const JobResult bare = RunJob({"/usr/bin/python3", "-c", program, Twin("swmr.h5")}, bare_);
  ASSERT_EQ(bare.output, "1000\n2000 True\n5000 True\n20000 True\n");
  const JobResult served = RunJob({"/usr/bin/python3", "-c", program, Of("swmr.h5")}, job_);
  EXPECT_EQ(served.output, bare.output) << served.report.dump();
}

// Superblock version 3: the flags are its byte 11.
TEST_F(PreloadRewrittenTest, AFileThatIsOpenToAnHdf5WriterIsTheSources) {
  const std::string signature("\x89HDF\r\n\x1a\n\x03\x08\x08", 11);
  struct Case {
    char flags;
    unsigned opened;
    std::size_t bytes;
  };
  const Case cases[] = {
      {0, 1, 50'000}, {1, 0, 50'000}, {5, 0, 50'000}, {5, 0, 9'000'000}, {0, 1, 9'000'000}};
  const auto directory_of = [&](const Case& c) { return std::to_string(&c - cases); };
  for (const Case& c : cases) {
    for (const std::string& root : {source_, plain_})
      std::filesystem::create_directories(root + "/" + directory_of(c));
    Both(directory_of(c) + "/hdf5", signature + c.flags + std::string(c.bytes, 'x'));
  }
  StartDaemon();
  for (const Case& c : cases) {
    SCOPED_TRACE(directory_of(c));
    const JobResult served = BareThenServedOnItsOwn("hdf5", directory_of(c));
    EXPECT_EQ(served.report.value("opened", 0u), c.opened) << served.report.dump();
    EXPECT_EQ(served.Of("real_opens", "writer"), 1 - c.opened) << served.report.dump();
  }
}

}  // namespace
}  // namespace tierd::e2e
