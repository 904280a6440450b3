#include "tierd/base/trusted_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tierd {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kStranger = 12345;

class TrustedPath : public testing::Test {
 protected:
  TrustedPath() {
    std::string pattern = fs::temp_directory_path() / "tierd-trusted-XXXXXX";
    top_ = ::mkdtemp(pattern.data());
    fs::create_directories(top_ + "/a/b");
    file_ = top_ + "/a/b/file";
    std::ofstream(file_) << "text";
    for (const std::string& path : {top_ + "/a", top_ + "/a/b"}) ::chmod(path.c_str(), 0755);
    ::chmod(file_.c_str(), 0644);
  }
  ~TrustedPath() override { fs::remove_all(top_); }

  std::string Why(const std::string& path) {
    const Result<UniqueFd> opened = OpenTrusted(path, O_RDONLY, "configuration");
    if (opened.ok()) return "";
    code_ = opened.status().code();
    return opened.status().message();
  }
  static bool GiveAway(const std::string& path) { return ::lchown(path.c_str(), kStranger, kStranger) == 0; }

  std::string top_, file_;
  Code code_ = Code::kOk;
};

TEST_F(TrustedPath, OpensWhatOnlyWeCanWrite) {
  const Result<UniqueFd> opened = OpenTrusted(file_, O_RDONLY, "configuration");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  char text[8] = {};
  EXPECT_EQ(::read(opened->get(), text, sizeof text), 4);
  EXPECT_EQ(::fcntl(opened->get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(Why(top_ + "/a/../a/./b//file"), "");
  EXPECT_EQ(Why("/"), "");
  EXPECT_TRUE(OpenTrusted(top_ + "/a/", O_RDONLY | O_DIRECTORY, "directory").ok());
}

TEST_F(TrustedPath, RelativePathsAreCheckedFromTheRoot) {
  const fs::path before = fs::current_path();
  fs::current_path(top_ + "/a/b");
  EXPECT_EQ(Why("file"), "");
  ::chmod((top_ + "/a").c_str(), 0777);
  EXPECT_EQ(Why("file"), "configuration file: " + top_ + "/a can be written by everybody: chmod go-w " + top_ + "/a");
  fs::current_path(before);
}

TEST_F(TrustedPath, AFileThatOthersMayWriteIsRefused) {
  const struct {
    mode_t mode;
    const char* why;
  } cases[] = {{0664, " can be written by its group: chmod g-w "}, {0646, " can be written by everybody: chmod o-w "}, {0666, " can be written by everybody: chmod go-w "}};
  for (const auto& c : cases) {
    ::chmod(file_.c_str(), c.mode);
    EXPECT_EQ(Why(file_), "configuration " + file_ + c.why + file_);
    EXPECT_EQ(code_, Code::kPermission);
  }
  ::chmod(file_.c_str(), 01666);  // the sticky bit of a file keeps nobody from writing it
  EXPECT_NE(Why(file_), "");
}

TEST_F(TrustedPath, ADirectoryOnTheWayThatOthersMayWriteIsRefused) {
  const std::string on_the_way = top_ + "/a";
  ::chmod(on_the_way.c_str(), 0775);
  EXPECT_EQ(Why(file_), "configuration " + file_ + ": " + on_the_way + " can be written by its group: chmod g-w " + on_the_way);
  ::chmod(on_the_way.c_str(), 0777);
  EXPECT_EQ(Why(file_), "configuration " + file_ + ": " + on_the_way + " can be written by everybody: chmod go-w " + on_the_way);
  ::chmod(on_the_way.c_str(), 01777);  // what is ours in it, nobody else can rename
  EXPECT_EQ(Why(file_), "");
}

TEST_F(TrustedPath, WhatAStrangerOwnsIsRefused) {
  if (!GiveAway(file_)) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(Why(file_), "configuration " + file_ + " belongs to uid 12345: it must belong to you or root; use a copy of your own");
  ASSERT_EQ(::chown(file_.c_str(), ::geteuid(), ::getegid()), 0);
  ASSERT_TRUE(GiveAway(top_ + "/a"));
  EXPECT_EQ(Why(file_), "configuration " + file_ + ": " + top_ + "/a belongs to uid 12345: it must belong to you or root; use a copy of your own");
}

TEST_F(TrustedPath, LinksAreFollowedAndCheckedWhereTheyLead) {
  const std::string link = top_ + "/link", directory = top_ + "/directory";
  fs::create_symlink("a/b/file", link);
  fs::create_directory_symlink(top_ + "/a", directory);
  EXPECT_EQ(Why(link), "");
  EXPECT_EQ(Why(directory + "/b/file"), "");
  ::chmod((top_ + "/a/b").c_str(), 0777);
  for (const std::string& path : {link, directory + "/b/file"})
    EXPECT_EQ(Why(path), "configuration " + path + ": " + top_ + "/a/b can be written by everybody: chmod go-w " + top_ + "/a/b");
  ::chmod((top_ + "/a/b").c_str(), 0755);
  // A sticky directory keeps nobody from making a link of their own.
  if (GiveAway(link)) {
    EXPECT_EQ(Why(link), "configuration " + link + " belongs to uid 12345: it must belong to you or root; use a copy of your own");
  }
  fs::create_symlink("loop", top_ + "/loop");
  EXPECT_EQ(Why(top_ + "/loop"), "configuration " + top_ + "/loop: Too many levels of symbolic links");
}

TEST_F(TrustedPath, WhatIsNotThereIsNotFound) {
  for (const std::string& path : {top_ + "/none", top_ + "/none/file", file_ + "/below", std::string()}) {
    EXPECT_NE(Why(path), "");
    EXPECT_EQ(code_, Code::kNotFound) << path;
  }
}

TEST_F(TrustedPath, APlaceIsSafeIfOthersCannotRenameWhatIsInIt) {
  const auto safe = [&] {
    struct stat info {};
    EXPECT_EQ(::stat(top_.c_str(), &info), 0);
    return IsSafeToMakeIn(info);
  };
  for (const mode_t mode : {0700, 0755, 01777, 01770}) {
    ::chmod(top_.c_str(), mode);
    EXPECT_TRUE(safe()) << std::oct << mode;
  }
  for (const mode_t mode : {0777, 0770, 0702}) {
    ::chmod(top_.c_str(), mode);
    EXPECT_FALSE(safe()) << std::oct << mode;
  }
  ::chmod(top_.c_str(), 01777);
  if (GiveAway(top_)) {
    EXPECT_FALSE(safe());
  }
  (void)!::chown(top_.c_str(), ::geteuid(), ::getegid());
}

}  // namespace
}  // namespace tierd
