// The second rig: real GlusterFS, started, read, broken and stopped.
#include "tests/pfs_sim/gluster.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/pfs_sim/mount.h"
#include "tests/pfs_sim/tree.h"

namespace pfs_sim {
namespace {

namespace fs = std::filesystem;

uint64_t FilesBelow(const std::string& dir) {
  uint64_t files = 0;
  for (auto it = fs::recursive_directory_iterator(dir); it != fs::recursive_directory_iterator(); ++it) {
    if (it->path().filename() == ".glusterfs") {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && it->file_size() > 0) {
      ++files;  // an empty file is a pointer to the other brick
    }
  }
  return files;
}

TEST(GlusterRig, ServesATreeFromTwoBricksAndStopsTwice) {
  std::string why;
  auto rig = GlusterRig::Start(500, &why);
  if (rig == nullptr && why.starts_with("unavailable")) GTEST_SKIP() << why;
  ASSERT_NE(rig, nullptr) << why;
  TreeOptions tree;
  tree.files = 60;
  tree.dirs = 3;
  tree.size = {30000, 1.0};
  ASSERT_TRUE(MakeTree(rig->mount(), tree, &why)) << why;
  TreeCheck check = CheckTree(rig->mount(), tree);
  EXPECT_EQ(check.files_right, 60u) << check.first_wrong;
  EXPECT_GT(FilesBelow(rig->brick(1)), 0u);
  EXPECT_GT(FilesBelow(rig->brick(2)), 0u);
  EXPECT_EQ(FilesBelow(rig->brick(1)) + FilesBelow(rig->brick(2)), 60u);

  ASSERT_TRUE(rig->Stop());
  EXPECT_FALSE(IsMounted(rig->mount()));
  EXPECT_TRUE(rig->Stop());  // nothing to do
  ASSERT_TRUE(rig->Restart(0));
  check = CheckTree(rig->mount(), tree);
  EXPECT_EQ(check.files_right, 60u) << check.first_wrong;

  // A dead brick takes its names with it.
  ASSERT_TRUE(rig->Kill(2));
  EXPECT_LT(CheckTree(rig->mount(), tree).files_right, 60u);
  EXPECT_FALSE(rig->Pause(2));
  const std::string mount = rig->mount();
  rig.reset();
  EXPECT_FALSE(IsMounted(mount));
  EXPECT_FALSE(fs::exists(mount));
}

}  // namespace
}  // namespace pfs_sim
