// Names that lead elsewhere than below a source: what elsewhere.c does must come out as it does bare, and the kernel is asked about them no more than it has to be.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

class PreloadElsewhereTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Both("numbers", Words(0, 100'000));
    Write(scratch_.path() + "/apart/file", "apart");
    struct stat ours, other;
    char pattern[] = "/dev/shm/tierd-elsewhere-XXXXXX";
    if (::stat(source_.c_str(), &ours) == 0 && ::stat("/dev/shm", &other) == 0 && ours.st_dev != other.st_dev && ::mkdtemp(pattern) != nullptr) other_ = pattern;
    StartDaemon();
  }
  void TearDown() override {
    if (!other_.empty()) std::filesystem::remove_all(other_);
  }
  // Bare on the twin, then under the library on the cached file.
  JobResult Run(const std::string& check) {
    SCOPED_TRACE(check);
    const JobResult bare = RunJob({PRELOAD_ELSEWHERE, Twin("numbers"), other_, check}, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob({PRELOAD_ELSEWHERE, Of("numbers"), other_, check}, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }

  std::string other_;  // a directory on another file system than the source; "": there is none
};

TEST_F(PreloadElsewhereTest, FromADirectoryAboveASourceNobodyIsAsked) { Run("names_above"); }

TEST_F(PreloadElsewhereTest, ChangesOnAnotherFileSystemAskForNoName) { Run("other_file_system"); }

TEST_F(PreloadElsewhereTest, RenamesAskAboutTheirDirectoryOnce) { Run("renames"); }

TEST_F(PreloadElsewhereTest, WhetherAFileMayBeExecutedIsAskedOfTheSource) { Run("executables"); }

TEST_F(PreloadElsewhereTest, ChangesInADirectoryThatIsOpenOpenNone) { Run("open_directories"); }

TEST_F(PreloadElsewhereTest, ChangesAreSeenByWhateverNameTheyAreMade) {
  for (const char* check : {"changes", "moves"}) EXPECT_GT(Run(check).report.value("invalidations", 0u), 0u) << check;
}

TEST_F(PreloadElsewhereTest, ANameOfTheRootIsToldBesideOneThatIsOutside) { EXPECT_EQ(Run("root").report.value("invalidations", 0u), 2u); }

TEST_F(PreloadElsewhereTest, DirectoriesThatAreListedAreThoseThatWereOpened) {
  EXPECT_GE(Run("listings").report.value("listings", 0u), 5u);
  const JobResult kept = Run("kept_listings");  // of private ones, which a daemon under the unit cannot read; what has another root cannot report
  EXPECT_TRUE(std::getenv("TIERD_UNDER") != nullptr || kept.report.value("listings", 0u) >= 2) << kept.report.dump();
}

TEST_F(PreloadElsewhereTest, MountsOfTheProcessAreSeenHoweverItMakesThem) { Run("mounts"); }

TEST_F(PreloadElsewhereTest, FromADirectoryAboveASourceWhatIsInsideIsServed) {
  const JobResult served = Run("from_above");
  EXPECT_EQ(served.report.value("opened", 0u), 12u) << served.report.dump();
  EXPECT_EQ(served.Sum("real_opens"), 0u) << served.report.dump();
}

TEST_F(PreloadElsewhereTest, FromADirectoryAboveASourceNamesWithDotsAreCounted) {
  const JobResult served = Run("dots");
  EXPECT_EQ(served.report.value("opened", 0u), 0u) << served.report.dump();
  EXPECT_EQ(served.Of("real_opens", "path"), 1u) << served.report.dump();
}

}  // namespace
}  // namespace tierd::e2e
