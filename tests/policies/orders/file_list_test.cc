#include "policies/orders/file_list.h"

#include <gtest/gtest.h>

namespace tierd::orders {
namespace {

std::vector<std::string> Sorted(const std::vector<std::string>& paths) {
  std::vector<std::string> sorted;
  for (const std::uint32_t i : ImageFolderOrder(paths)) sorted.push_back(paths[i]);
  return sorted;
}

TEST(ImageFolderOrder, ClassesThenWholeDirectoriesThenNames) {
  EXPECT_EQ(Sorted({"dog/z.jpg", "cat/b/x/1.png", "cat/b-c/2.png", "cat/b/0.bmp", "cat/9.JPEG", "cat/10.jpg", "README.jpg", "cat/notes.txt", "cat/.webp", "/x.jpg", "dogs/a.tif"}),
            (std::vector<std::string>{"cat/.webp", "cat/10.jpg", "cat/9.JPEG", "cat/b/0.bmp", "cat/b-c/2.png", "cat/b/x/1.png", "dog/z.jpg", "dogs/a.tif"}))
      << "a directory sorts by its whole path: '-' before '/'";
  EXPECT_TRUE(ImageFolderOrder({}).empty());
}

TEST(ComparePythonNames, SortsByCodePointsOfWhatPythonSees) {
  const std::string invalid = "\xff";                 // U+DCFF for Python
  const std::string halfwidth = "\xef\xbf\xae";       // U+FFEE
  const std::string smile = "\xf0\x9f\x98\x80";       // U+1F600
  EXPECT_LT(ComparePythonNames("z", invalid), 0);
  EXPECT_LT(ComparePythonNames(invalid, halfwidth), 0) << "by bytes it would come behind";
  EXPECT_LT(ComparePythonNames(halfwidth, smile), 0);
  EXPECT_GT(ComparePythonNames("\xed\xa0\x80", "\xd8\x80"), 0) << "an encoded surrogate is three bytes that are no UTF-8";
  EXPECT_LT(ComparePythonNames("a", "ab"), 0);
  EXPECT_EQ(ComparePythonNames("ab", "ab"), 0);
  EXPECT_GT(ComparePythonNames("b", "ab"), 0);
}

TEST(ParseFileList, LinesOrNulSeparated) {
  EXPECT_EQ(*ParseFileList("a\nb\r\n\nc"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(*ParseFileList(std::string_view("a\nx\0b\0", 6)), (std::vector<std::string>{"a\nx", "b"}));
  EXPECT_FALSE(ParseFileList("").ok());
  EXPECT_FALSE(ParseFileList("\n\n").ok());
}

}  // namespace
}  // namespace tierd::orders
