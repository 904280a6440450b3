#include "tests/pfs_sim/tree.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace pfs_sim {
namespace {

namespace fs = std::filesystem;

class TreeTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "tree_test.XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string dir_;
};

TEST(SizeRule, ParsesFixedAndLogNormal) {
  EXPECT_EQ(ParseSizeRule("4096")->mean, 4096);
  EXPECT_EQ(ParseSizeRule("4096")->sigma, 0);
  EXPECT_EQ(ParseSizeRule("lognormal:108000:0.5")->mean, 108000);
  EXPECT_EQ(ParseSizeRule("lognormal:108000:0.5")->sigma, 0.5);
  for (const char* bad : {"", "x", "4096k", "lognormal:", "lognormal:1", "lognormal:0:1", "lognormal:1:-1"}) {
    EXPECT_FALSE(ParseSizeRule(bad)) << bad;
  }
}

TEST(TreeSizes, LogNormalHasTheMeanAndSpreadAskedFor) {
  TreeOptions tree;
  tree.files = 20000;
  tree.size = {108000, 0.5};
  const double mean = static_cast<double>(TreeBytes(tree)) / 20000;
  EXPECT_NEAR(mean, 108000, 2500);
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < tree.files; ++i) {
    const double log_size = std::log(static_cast<double>(TreeSize(tree, i)));
    sum += log_size;
    squares += log_size * log_size;
  }
  EXPECT_NEAR(std::sqrt(squares / 20000 - std::pow(sum / 20000, 2)), 0.5, 0.02);
}

TEST_F(TreeTest, WhatWasMadeChecksOut) {
  TreeOptions tree;
  tree.files = 100;
  tree.dirs = 7;
  tree.size = {3000, 1.0};
  std::string why;
  ASSERT_TRUE(MakeTree(dir_, tree, &why)) << why;
  const TreeCheck check = CheckTree(dir_, tree);
  EXPECT_EQ(check.files_right, 100u) << check.first_wrong;
  EXPECT_EQ(check.files_wrong, 0u);
  EXPECT_EQ(check.bytes, TreeBytes(tree));
}

TEST_F(TreeTest, CheckFindsWrongByteLengthVersionAndAbsence) {
  TreeOptions tree;
  tree.files = 4;
  tree.size.mean = 5000;
  std::string why;
  ASSERT_TRUE(MakeTree(dir_, tree, &why)) << why;
  {
    std::fstream file(dir_ + "/" + TreePath(tree, 0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(4321);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(4321);
    file.put(byte);
  }
  TreeCheck check = CheckTree(dir_, tree, 1);
  EXPECT_EQ(check.files_wrong, 1u);
  EXPECT_EQ(check.first_wrong, "f00000000.bin: wrong byte at offset 4321");
  fs::resize_file(dir_ + "/" + TreePath(tree, 1), 4999);
  fs::remove(dir_ + "/" + TreePath(tree, 2));
  EXPECT_EQ(CheckTree(dir_, tree).files_wrong, 3u);
  tree.version = 2;
  EXPECT_EQ(CheckTree(dir_, tree).files_wrong, 4u);
}

TEST_F(TreeTest, FailuresAreOneSentence) {
  TreeOptions tree;
  std::string why;
  EXPECT_FALSE(MakeTree(dir_ + "/none", tree, &why));
  EXPECT_NE(why.find("No such file"), std::string::npos) << why;
  EXPECT_EQ(CheckTree(dir_ + "/none", tree).files_wrong, tree.files);
}

}  // namespace
}  // namespace pfs_sim
