// tier_get_batch: what the daemon is asked for, how often, and under which leases.
#include <algorithm>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class BatchTest : public ClientRig {
 protected:
  static constexpr int kFiles = 6;
  static std::string Name(int i) { return "f" + std::to_string(i); }
  static std::string ContentOfFile(int i) { return ContentOf(Name(i), 3000 + static_cast<std::size_t>(i)); }
  void MakeFiles(const std::string& directory) {
    for (int i = 0; i < kFiles; ++i) Write(directory + "/" + Name(i), ContentOfFile(i));
  }
  // All files of the directory with one call.
  std::vector<tier_view> GetAll(const std::string& directory, unsigned flags = 0) {
    std::vector<std::string> paths;
    std::vector<const char*> texts;
    for (int i = 0; i < kFiles; ++i) paths.push_back(Path(directory + "/" + Name(i)));
    for (const std::string& path : paths) texts.push_back(path.c_str());
    std::vector<tier_view> views(paths.size());
    EXPECT_EQ(kFiles, tier_get_batch(client_, texts.data(), texts.size(), views.data(), nullptr, flags));
    ExpectRight(views);
    return views;
  }
  static void ExpectRight(const std::vector<tier_view>& views) {
    for (int i = 0; i < kFiles; ++i) {
      const tier_view& view = views[static_cast<std::size_t>(i)];
      EXPECT_EQ(ContentOfFile(i), std::string(static_cast<const char*>(view.data), view.size)) << i;
    }
  }
  static void Release(std::vector<tier_view> views) {
    for (tier_view& view : views) tier_release(&view);
  }
  void ExpectAskedOnceForAll() {
    EXPECT_EQ(unsigned{kFiles}, daemon_->fetches);
    EXPECT_EQ(unsigned{kFiles}, daemon_->most_fetches);
  }
};

TEST_F(BatchTest, NobodyIsAskedForCopiesOfWhatIsInRam) {
  MakeFiles("d");
  StartDaemon();
  daemon_->CacheAll();
  Client();
  const std::vector<tier_view> views = GetAll("d", TIER_COPY);
  EXPECT_EQ(0u, daemon_->fetches);
  for (const tier_view& view : views) EXPECT_EQ(TIER_FROM_RAM, static_cast<int>(view.origin));
  EXPECT_EQ(0u, daemon_->Leases());
  Release(views);
}

TEST_F(BatchTest, NorPastThePinCap) {
  options_.pin_cap_bytes = 2 * 3000 + 500;
  MakeFiles("d");
  StartDaemon();
  daemon_->CacheAll();
  Client();
  const std::vector<tier_view> views = GetAll("d");
  EXPECT_EQ(0u, daemon_->fetches);
  EXPECT_EQ(2u, daemon_->Leases());
  Release(views);
}

// The daemon knows where the names lead, and has none of the files in RAM.
TEST_F(BatchTest, FilesBehindALinkAreAskedForAtATimeUnderTheirOwnLeases) {
  MakeFiles("real");
  std::filesystem::create_directory_symlink("real", Path("link"));
  StartDaemon();
  for (int i = 0; i < kFiles; ++i) daemon_->PublishAlias("link/" + Name(i), "real/" + Name(i));
  Client();
  const std::vector<tier_view> views = GetAll("link");
  ExpectAskedOnceForAll();
  for (int i = 0; i < kFiles; ++i) daemon_->Evict("real/" + Name(i));
  EXPECT_EQ(std::size_t{kFiles}, daemon_->Recycle()) << "leased by the views";
  ExpectRight(views);
  Release(views);
  EXPECT_EQ(0u, daemon_->Recycle());
  // Known by now, and not in RAM.
  daemon_->fetches = 0;
  Release(GetAll("link"));
  ExpectAskedOnceForAll();
  EXPECT_EQ(0u, daemon_->Leases());
}

// As somebody finds them who walks the tree.
TEST_F(BatchTest, LinksThatAreKnownAsSuchAreFollowedAtATime) {
  MakeFiles("real");
  std::filesystem::create_directory(Path("links"));
  StartDaemon();
  for (int i = 0; i < kFiles; ++i) {
    std::filesystem::create_symlink("../real/" + Name(i), Path("links/" + Name(i)));
    daemon_->Cache("links/" + Name(i));
  }
  Client();
  Release(GetAll("links"));
  EXPECT_EQ(unsigned{kFiles}, daemon_->most_fetches);
}

}  // namespace
}  // namespace tierd::testing
