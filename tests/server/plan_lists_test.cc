// Lists of plans whose clients have ended.
#include "tierd/server/plan_lists.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>

#include "tests/source/temp_tree.h"

namespace tierd::server {
namespace {

TEST(PlanLists, OfEndedClientsGo) {
  source::TempTree tree;
  const auto make = [&](const std::string& name, std::time_t age_s) {
    tree.Write(name, "/pfs/a\n");
    const timespec then{std::time(nullptr) - age_s, 0};
    const timespec times[] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, (tree.path() + "/" + name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  };
  for (const char* name : {"plan-old.list", "mine.list", "plan-old.txt", "tierd.sock"}) make(name, 3600);
  make("plan-new.list", 30);
  std::filesystem::create_directory(tree.path() + "/plan-dir.list");
  RemoveForgottenLists(tree.path());
  for (const char* name : {"mine.list", "plan-old.txt", "tierd.sock", "plan-new.list", "plan-dir.list"}) EXPECT_TRUE(std::filesystem::exists(tree.path() + "/" + name)) << name;
  EXPECT_FALSE(std::filesystem::exists(tree.path() + "/plan-old.list"));
  RemoveForgottenLists(tree.path() + "/none");
}

}  // namespace
}  // namespace tierd::server
