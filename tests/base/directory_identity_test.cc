#include "tierd/base/directory_identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tierd/base/unique_fd.h"

namespace tierd {
namespace {

namespace fs = std::filesystem;

class RootOfTest : public testing::Test {
 protected:
  RootOfTest() {
    std::string pattern = fs::temp_directory_path() / "tierd-identity-XXXXXX";
    top_ = ::mkdtemp(pattern.data());
    for (const char* name : {"/one/deep/er", "/two", "/other"}) fs::create_directories(top_ + name);
    fs::create_directory_symlink("one", top_ + "/link");
    fs::create_directory_symlink("one/deep", top_ + "/inner");
    for (const char* name : {"/link", "/two"}) roots_.push_back(IdentityOf(top_ + name).value());
  }
  ~RootOfTest() override { fs::remove_all(top_); }

  // -1: none, -2: it cannot be told.
  int RootOfPath(const std::string& path) const {
    const auto root = RootOf(path, roots_);
    return !root.ok() ? -2 : root->has_value() ? static_cast<int>(**root) : -1;
  }

  std::string top_;
  std::vector<DirectoryIdentity> roots_;
};

TEST_F(RootOfTest, FindsTheRootByWhateverName) {
  for (const char* name : {"/one", "/link", "/one/deep/er", "/link/deep", "/inner", "/inner/er", "/two/../one"}) EXPECT_EQ(RootOfPath(top_ + name), 0) << name;
  EXPECT_EQ(RootOfPath(top_ + "/two"), 1);
  for (const char* name : {"/other", "", "/one/..", "/inner/../.."}) EXPECT_EQ(RootOfPath(top_ + name), -1) << name;
  EXPECT_EQ(RootOfPath("/"), -1);
}

TEST_F(RootOfTest, WhatIsNotThereYetLiesWhereItWillBeMade) {
  EXPECT_EQ(RootOfPath(top_ + "/inner/new/newer"), 0);
  EXPECT_EQ(RootOfPath(top_ + "/other/new"), -1);
  std::ofstream(top_ + "/two/file") << "x";
  EXPECT_EQ(RootOfPath(top_ + "/two/file"), 1);
}

TEST_F(RootOfTest, OfAnOpenDirectoryItsPresentPlaceCounts) {
  const UniqueFd directory(::open((top_ + "/other").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  fs::rename(top_ + "/other", top_ + "/one/other");
  const auto root = RootOf(directory.get(), roots_);
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(*root, std::optional<std::size_t>(0));
}

TEST_F(RootOfTest, WhatIsNotThereHasNoIdentity) {
  EXPECT_FALSE(IdentityOf(top_ + "/none").has_value());
  EXPECT_EQ(IdentityOf(top_ + "/one"), IdentityOf(top_ + "/link"));
}

}  // namespace
}  // namespace tierd
