#include "tierd/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace tierd {
namespace {

int OpenNull() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwns) {
  int number = -1;
  {
    const UniqueFd fd(OpenNull());
    ASSERT_TRUE(fd.valid());
    number = fd.get();
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(UniqueFd, MovesOwnership) {
  UniqueFd one(OpenNull());
  const int number = one.get();
  UniqueFd two(std::move(one));
  EXPECT_FALSE(one.valid());
  EXPECT_EQ(two.get(), number);
  UniqueFd three(OpenNull());
  const int closed = three.get();
  three = std::move(two);
  EXPECT_EQ(three.get(), number);
  EXPECT_FALSE(IsOpen(closed));
  UniqueFd& self = three;
  three = std::move(self);
  EXPECT_TRUE(IsOpen(number));
}

TEST(UniqueFd, ReleasesAndResets) {
  UniqueFd fd(OpenNull());
  const int number = fd.Release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(IsOpen(number));
  fd.Reset(number);
  EXPECT_EQ(fd.get(), number);
  fd.Reset();
  EXPECT_FALSE(IsOpen(number));
  EXPECT_FALSE(UniqueFd().valid());
}

}  // namespace
}  // namespace tierd
