// Descriptors of a file that another process of the job writes to in place (rewritten.c), and of files that are watched or open to an HDF5 writer.
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadRewrittenTest : public PreloadTest {
 protected:
  // Bare on its own copy of the files; then on the source, where they have been in RAM since before.
  JobResult BareThenServedOnItsOwn(const std::string& check, const std::string& directory = ".") {
    const JobResult bare = RunJob({PRELOAD_REWRITTEN, Twin(directory), check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_REWRITTEN, directory == "." ? source_ : Of(directory), check}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }
  static std::string As(std::size_t bytes = 100'000) { return std::string(bytes, 'a'); }
};

TEST_F(PreloadRewrittenTest, DescriptorsShowTheNewBytesOnceTheNewTimeWasSeen) {
  const char* const checks[] = {"same_size", "longer", "shorter", "offset", "chunked", "mapped", "forked", "told"};
  for (const char* check : checks) Both(check, As(std::string(check) == "chunked" ? 9'000'000 : 100'000));
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
  for (const std::string& directory : {source_, plain_}) std::filesystem::create_directories(directory + "/watched");
  Both("watched/file", As());
  StartDaemon();
  const JobResult served = BareThenServedOnItsOwn("watched");
  EXPECT_GE(served.Of("real_opens", "writer"), 1u) << served.report.dump();
}

// Superblock version 3: the flags are its byte 11.
TEST_F(PreloadRewrittenTest, AFileThatIsOpenToAnHdf5WriterIsTheSources) {
  const std::string signature("\x89HDF\r\n\x1a\n\x03\x08\x08", 11);
  struct Case {
    char flags;
    unsigned opened;
    std::size_t bytes;
  };
  const Case cases[] = {{0, 1, 50'000}, {1, 0, 50'000}, {5, 0, 50'000}, {5, 0, 9'000'000}, {0, 1, 9'000'000}};
  const auto directory_of = [&](const Case& c) { return std::to_string(&c - cases); };
  for (const Case& c : cases) {
    for (const std::string& root : {source_, plain_}) std::filesystem::create_directories(root + "/" + directory_of(c));
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
