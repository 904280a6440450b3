#include "tierd/source/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/source/temp_tree.h"

namespace tierd::source {
namespace {

TEST(Source, OpensADirectoryAndKnowsIt) {
  const TempTree tree;
  tree.Write("d/file", "x");
  const auto source = OpenSource(tree.path() + "///");
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->root(), tree.path());
  EXPECT_EQ(source->canonical_root(), tree.path());
  struct stat st {};
  ASSERT_EQ(::stat(tree.path().c_str(), &st), 0);
  EXPECT_EQ(source->root_stat().ino, st.st_ino);
  EXPECT_EQ(source->root_stat().dev, st.st_dev);
  EXPECT_TRUE(source->identity().starts_with(tree.path() + "|" + source->fs().name + "|"));
}

TEST(Source, SeesThroughALinkToTheRoot) {
  const TempTree tree;
  tree.MakeDirectory("real");
  tree.Link("real", "link");
  const auto source = OpenSource(tree / "link");
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->root(), tree / "link");
  EXPECT_EQ(source->canonical_root(), tree / "real");
}

TEST(Source, IdentityDependsOnRootAndFileSystemOnly) {
  const TempTree tree;
  tree.MakeDirectory("a");
  tree.MakeDirectory("b");
  EXPECT_EQ(OpenSource(tree / "a")->identity(), OpenSource(tree / "a/")->identity());
  EXPECT_NE(OpenSource(tree / "a")->identity(), OpenSource(tree / "b")->identity());
}

TEST(Source, RefusesWhatIsNoTree) {
  const TempTree tree;
  tree.Write("file", "x");
  const auto refused = [](const std::string& root) { return Source::Open(root).status(); };
  EXPECT_EQ(refused(tree / "file").code(), Code::kInvalid);
  EXPECT_EQ(refused(tree / "file").message(), "source " + (tree / "file") + " is not a directory");
  EXPECT_EQ(refused(tree / "missing").code(), Code::kNotFound);
  EXPECT_EQ(refused("relative").code(), Code::kInvalid);
  EXPECT_EQ(refused("").code(), Code::kInvalid);
  EXPECT_EQ(refused("/proc").code(), Code::kInvalid);
  EXPECT_EQ(refused("/proc/self").code(), Code::kInvalid);
}

TEST(Source, DirectAlignmentIsAPowerOfTwoOrNone) {
  const TempTree tree;
  EXPECT_EQ(OpenSource(tree.path())->direct_alignment(), 0u);  // no file to ask
  tree.Write("d/e/file", "x");
  const std::uint32_t alignment = OpenSource(tree.path())->direct_alignment();
  EXPECT_EQ(alignment & (alignment - 1), 0u);
}

TEST(Source, RelativeToIsLexicalAndExact) {
  std::string_view relative = "unset";
  EXPECT_TRUE(RelativeTo("/a/b", "/a/b/c/d", &relative));
  EXPECT_EQ(relative, "c/d");
  EXPECT_TRUE(RelativeTo("/a/b", "/a/b", &relative));
  EXPECT_EQ(relative, "");
  EXPECT_TRUE(RelativeTo("/a/b/", "/a/b//c", &relative));
  EXPECT_EQ(relative, "c");
  EXPECT_TRUE(RelativeTo("/", "/etc", &relative));
  EXPECT_EQ(relative, "etc");
  EXPECT_FALSE(RelativeTo("/a/b", "/a/bc", &relative));
  EXPECT_FALSE(RelativeTo("/a/b", "/a", &relative));
}

TEST(Source, StatAtMatchesStat) {
  const TempTree tree;
  tree.Write("file", "12345");
  tree.Link("file", "link");
  const auto source = OpenSource(tree.path());
  struct stat st {};
  ASSERT_EQ(::stat((tree / "file").c_str(), &st), 0);
  io::FileStat stat;
  ASSERT_EQ(StatAt(source->root_fd(), "file", false, &stat), 0);
  EXPECT_EQ(stat.size, 5u);
  EXPECT_EQ(stat.ino, st.st_ino);
  EXPECT_EQ(stat.dev, st.st_dev);
  EXPECT_EQ(stat.mtime_ns, st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec);
  EXPECT_EQ(stat.ctime_ns, st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec);
  EXPECT_EQ(stat.mode, st.st_mode);
  ASSERT_EQ(StatAt(source->root_fd(), "link", false, &stat), 0);
  EXPECT_TRUE(S_ISLNK(stat.mode));
  ASSERT_EQ(StatAt(source->root_fd(), "link", true, &stat), 0);
  EXPECT_TRUE(S_ISREG(stat.mode));
  EXPECT_EQ(StatAt(source->root_fd(), "missing", false, &stat), ENOENT);
}

}  // namespace
}  // namespace tierd::source
