#include "tierctl/client/paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

namespace tierctl {
namespace {

TEST(Paths, BecomeAbsolute) {
  EXPECT_EQ(AbsolutePath("/a/b", "/w"), "/a/b");
  EXPECT_EQ(AbsolutePath("b/c/", "/w"), "/w/b/c");
  EXPECT_EQ(AbsolutePath("./b//./c", "/w"), "/w/b/c");
  EXPECT_EQ(AbsolutePath(".", "/"), "/");
  EXPECT_EQ(AbsolutePath("/none/../x", "/w"), "/x");  // cannot be resolved: lexical
  EXPECT_EQ(AbsolutePath("/../..", "/w"), "/");
}

TEST(Paths, DotDotBehindALinkIsTheFileSystemsBusiness) {
  std::string name = std::filesystem::temp_directory_path() / "tierctl-paths-XXXXXX";
  const std::string root = std::filesystem::canonical(::mkdtemp(name.data()));
  std::filesystem::create_directories(root + "/far/deep");
  ASSERT_EQ(::symlink((root + "/far/deep").c_str(), (root + "/link").c_str()), 0);
  EXPECT_EQ(AbsolutePath("link/../x", root), root + "/far/x");
  EXPECT_EQ(AbsolutePath("link/x", root), root + "/link/x");
  std::filesystem::remove_all(root);
}

TEST(Paths, AreEncodedForQueries) {
  EXPECT_EQ(PercentEncoded("/a b/ü?&#%"), "/a%20b/%C3%BC%3F%26%23%25");
  EXPECT_EQ(PercentEncoded(std::string("\xff\n\0", 3)), "%FF%0A%00");
}

TEST(Paths, Utf8) {
  for (const char* text : {"", "abc", "ä", "€", "\xF0\x9F\x98\x80"}) EXPECT_TRUE(IsUtf8(text)) << text;
  for (const char* text : {"\xff", "a\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc3"}) EXPECT_FALSE(IsUtf8(text));
}

TEST(Paths, Base64) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(FromBase64("not base64!"), "");
  EXPECT_EQ(FromBase64("abc"), "");
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(random() % 40, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    ASSERT_EQ(FromBase64(Base64(bytes)), bytes);
  }
}

TEST(Paths, TravelInJson) {
  EXPECT_EQ(PathJson("/a/ü"), "/a/ü");
  EXPECT_EQ(PathJson("/a/\xff"), nlohmann::json({{"b64", Base64("/a/\xff")}}));
  EXPECT_EQ(PathOf({{"path", "/a"}}), "/a");
  EXPECT_EQ(PathOf({{"path", "/a/\uFFFD"}, {"path_b64", Base64("/a/\xff")}}), "/a/\xff");
  EXPECT_EQ(PathOf({{"path", 3}}), "");
}

TEST(Paths, AreHarmlessOnATerminal) {
  EXPECT_EQ(Escaped("plain ü.jpg"), "plain ü.jpg");
  EXPECT_EQ(Escaped("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(Escaped("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Escaped("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(Escaped("\xc2\x9b"), "\\xc2\\x9b");  // a C1 control character, well-formed
  EXPECT_EQ(Escaped("back\\slash"), "back\\\\slash");
}

}  // namespace
}  // namespace tierctl
