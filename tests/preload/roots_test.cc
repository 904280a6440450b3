// A source whose path leads elsewhere by now, changed by the very job (HAZARDS 2.14): from then on it is read bare, from the next open on; once the path leads back, served again.
#include <gtest/gtest.h>

#include "tests/preload/preload_fixture.h"

namespace tierd::e2e {
namespace {

namespace fs = std::filesystem;

// SCRATCH/{top/set/{a,d/b},link -> top}; the source is top/set, or link/set.
class PreloadRootsTest : public PreloadTest {
 protected:
  void Start(const std::string& source) {
    PreloadTest::SetUp();
    Write(scratch_.path() + "/top/set/a", "first");
    Write(scratch_.path() + "/top/set/d/b", "second");
    fs::create_directory_symlink("top", scratch_.path() + "/link");
    source_ = scratch_.path() + "/" + source;
    job_.source = source_;
    job_.directory = scratch_.path();
    StartDaemon();
  }
  void SetUp() override {}

  // `steps`, with `there` and `gone` for what the source's path shows.
  JobResult Run(const std::string& steps) {
    const JobResult result = RunJob({"/usr/bin/python3", "-c",
                                     "import os\n"
                                     "S='" + source_ + "'\n"
                                     "def read(name):\n"
                                     "  with open(name) as file: return file.read()\n"
                                     "def there(a='first'):\n"
                                     "  assert read(S+'/a')==a and os.stat(S+'/a').st_size==len(a) and 'a' in os.listdir(S)\n"
                                     "def gone():\n"
                                     "  for look in (read,os.stat,os.listdir,lambda name: os.access(name,os.R_OK) or os.stat(name)):\n"
                                     "    for name in ('/a','/d/b','/d',''):\n"
                                     "      try: look(S+name); assert False,(look,name)\n"
                                     "      except FileNotFoundError: pass\n"
                                     "there()\n" + steps},
                                    job_);
    EXPECT_EQ(result.code, 0) << result.output << result.report.dump();
    EXPECT_GE(result.report.value("opened", 0u), 1u) << result.report.dump();
    return result;
  }
};

TEST_F(PreloadRootsTest, ARootThatIsRenamedIsGone) {
  Start("top/set");
  const JobResult result = Run("os.rename(S,S+'.old'); gone(); os.mkdir(S); open(S+'/a','w').write('another'); there('another')\n"
                               "os.rename(S,S+'.new'); gone(); os.rename(S+'.old',S); there()\n");
  EXPECT_EQ(result.report.value("opened", 0u), 2u) << "served before and afterwards: " << result.report.dump();
}

TEST_F(PreloadRootsTest, ADirectoryAboveThatIsRenamedTakesItAlong) {
  Start("top/set");
  Run("os.rename('top','up'); gone(); assert read('up/set/a')=='first'; os.rename('./up/','top/'); there()\n"
      "d=os.open('.',os.O_RDONLY); os.rename('top','up',src_dir_fd=d,dst_dir_fd=d); gone(); os.rename('up','top'); there()\n");
}

TEST_F(PreloadRootsTest, ALinkInItsPathThatIsChangedLeadsElsewhere) {
  Start("link/set");
  Write(scratch_.path() + "/other/set/a", "another");
  Run("os.unlink('link'); gone(); os.symlink('other','link'); there('another')\n"
      "os.symlink('top','next'); os.rename('next','link'); there(); os.rename('top','up'); gone(); os.rename('up','top'); there()\n");
}

}  // namespace
}  // namespace tierd::e2e
