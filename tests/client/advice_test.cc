// What a process tells the daemon of files, and what becomes of it when there is nobody to hear it.
#include <errno.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class AdviceTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    for (int i = 0; i < 10; ++i) Write(Name(i), ContentOf(Name(i), 3000));
  }
  static std::string Name(int i) { return "f" + std::to_string(i); }
  void GetAll(int from, int to, int origin = -1) {
    for (int i = from; i < to; ++i) EXPECT_EQ(ContentOf(Name(i), 3000), Get(Path(Name(i)), origin));
  }
};

TEST_F(AdviceTest, InvalidationIsConfirmedOrNothingIsServed) {
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 100);
  GetAll(0, 3, TIER_FROM_RAM);
  const std::string path = Path(Name(1));
  const char* paths[] = {path.c_str()};
  Write(Name(1), ContentOf(Name(1), 3000, 2));
  EXPECT_EQ(1, tier_invalidate(client_, paths, 1, 0));
  EXPECT_EQ(ContentOf(Name(1), 3000, 2), Get(path));
  Write(Name(1), ContentOf(Name(1), 3000, 3));
  daemon_->mischief = Mischief::kSilent;
  EXPECT_EQ(-ETIMEDOUT, tier_invalidate(client_, paths, 1, 0));
  EXPECT_EQ(ContentOf(Name(1), 3000, 3), Get(path, TIER_FROM_BYPASS));
  GetAll(5, 6, TIER_FROM_BYPASS);  // this process is served nothing until a daemon has confirmed
  daemon_->mischief = Mischief::kNone;
  const std::uint32_t before = daemon_->invalidations;
  for (int tries = 0; tries < 700 && Stats().connected == 0; ++tries) {
    GetAll(5, 6);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(before + 1, daemon_->invalidations);
  EXPECT_EQ(ContentOf(Name(1), 3000, 3), Get(path));
}

// What one client could not tell is not lost with it, and another client of the process does not serve it.
TEST_F(AdviceTest, AnInvalidationOutlivesItsClient) {
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 100);
  GetAll(0, 3, TIER_FROM_RAM);
  tier_client* const teller = std::exchange(client_, nullptr);
  Client(0, 100);
  GetAll(0, 3, TIER_FROM_RAM);
  const std::string path = Path(Name(1));
  const char* paths[] = {path.c_str()};
  Write(Name(1), ContentOf(Name(1), 3000, 2));
  daemon_->mischief = Mischief::kSilent;
  EXPECT_EQ(-ETIMEDOUT, tier_invalidate(teller, paths, 1, 0));
  daemon_->mischief = Mischief::kNone;
  const std::uint32_t before = daemon_->invalidations;
  EXPECT_EQ(ContentOf(Name(1), 3000, 2), Get(path, TIER_FROM_BYPASS)) << "of a session that was there before";
  tier_disconnect(teller);
  tier_disconnect(std::exchange(client_, nullptr));
  Client(0, 100);
  EXPECT_EQ(ContentOf(Name(1), 3000, 2), Get(path));
  EXPECT_EQ(1u, Stats().connected);
  EXPECT_EQ(before + 1, daemon_->invalidations);
}

// A process that changes files all the time, and could not tell anybody once.
TEST_F(AdviceTest, WhoInvalidatesWithoutADaemonFindsOne) {
  StartDaemon();
  Client(0, 100);
  GetAll(0, 1);
  const std::string path = Path(Name(1));
  const char* paths[] = {path.c_str()};
  daemon_->mischief = Mischief::kSilent;
  EXPECT_EQ(-ETIMEDOUT, tier_invalidate(client_, paths, 1, 0));
  daemon_->mischief = Mischief::kNone;
  const std::uint32_t before = daemon_->invalidations;
  int told = 0;
  for (int tries = 0; tries < 700 && told == 0; ++tries) {
    told = static_cast<int>(tier_invalidate(client_, paths, 1, 0));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(1, told);
  EXPECT_EQ(before + 2, daemon_->invalidations) << "what was said of one file hundreds of times is remembered once, and of nothing else";
}

// The daemon knows files by the names that go through no link.
TEST_F(AdviceTest, WhatIsToldByANameThroughALinkIsToldByItsOwn) {
  for (const char* name : {"real/f", "real/gone", "real/target"}) Write(name, ContentOf(name, 3000));
  std::filesystem::create_directory_symlink("real", root_ + "/link");
  std::filesystem::create_symlink("real/target", root_ + "/name");
  std::filesystem::create_directory_symlink(root_ + "/real", base_ + "/outside");
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 100);
  const auto told = [&](const std::string& path) {
    const char* paths[] = {path.c_str()};
    const std::uint32_t before = daemon_->invalidations;
    EXPECT_EQ(1, tier_invalidate(client_, paths, 1, 0)) << path;
    return daemon_->invalidations - before;
  };
  EXPECT_EQ(ContentOf("real/f", 3000), Get(Path("real/f"), TIER_FROM_RAM));
  Write("link/f", ContentOf("real/f", 3000, 2));
  EXPECT_EQ(2u, told(Path("link/f")));
  EXPECT_TRUE(ContentOf("real/f", 3000, 2) == Get(Path("real/f")));
  Write("link/f", ContentOf("real/f", 3000, 3));
  EXPECT_EQ(1u, told(base_ + "/outside/f"));
  EXPECT_TRUE(ContentOf("real/f", 3000, 3) == Get(Path("real/f")));
  Write("name", ContentOf("real/target", 3000, 2));
  EXPECT_EQ(2u, told(Path("name")));
  EXPECT_TRUE(ContentOf("real/target", 3000, 2) == Get(Path("real/target")));
  EXPECT_EQ(ContentOf("real/gone", 3000), Get(Path("real/gone"), TIER_FROM_RAM));
  std::filesystem::remove(root_ + "/link/gone");
  EXPECT_EQ(2u, told(Path("link/gone")));
  tier_view view;
  EXPECT_EQ(-ENOENT, tier_get(client_, Path("real/gone").c_str(), &view, 0));
  EXPECT_EQ(1u, told(Path("f1"))) << "once, where no link is";
  // Also what nobody could be told of just then.
  EXPECT_TRUE(ContentOf("real/f", 3000, 3) == Get(Path("real/f")));
  Write("link/f", ContentOf("real/f", 3000, 4));
  const std::string path = Path("link/f");
  const char* paths[] = {path.c_str()};
  daemon_->mischief = Mischief::kSilent;
  EXPECT_EQ(-ETIMEDOUT, tier_invalidate(client_, paths, 1, 0));
  daemon_->mischief = Mischief::kNone;
  tier_disconnect(std::exchange(client_, nullptr));
  Client(0, 100);
  EXPECT_TRUE(ContentOf("real/f", 3000, 4) == Get(Path("real/f")));
}

// More paths than one round takes.
TEST_F(AdviceTest, AllOfALongInvalidationIsTold) {
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 100);
  GetAll(0, 10, TIER_FROM_RAM);
  std::vector<std::string> names(600, Path("x/../" + Name(0)));
  for (int i = 0; i < 10; ++i) {
    Write(Name(i), ContentOf(Name(i), 3000, 2));
    names[static_cast<std::size_t>(i) * 60 + 59] = Path(Name(i));
  }
  std::vector<const char*> paths;
  for (const std::string& name : names) paths.push_back(name.c_str());
  EXPECT_EQ(-EINVAL, tier_invalidate(client_, paths.data(), paths.size(), 0)) << "of those with \"..\"";
  EXPECT_EQ(10u, daemon_->invalidations);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ContentOf(Name(i), 3000, 2) == Get(Path(Name(i)))) << i;
}

TEST_F(AdviceTest, AllOfALongInvalidationIsRemembered) {
  StartDaemon();
  daemon_->CacheAll();
  Client(0, 100);
  GetAll(0, 10, TIER_FROM_RAM);
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) names.push_back(Path(Name(i < 256 ? 0 : i % 10)));
  for (int i = 0; i < 10; ++i) Write(Name(i), ContentOf(Name(i), 3000, 2));
  std::vector<const char*> paths;
  for (const std::string& name : names) paths.push_back(name.c_str());
  daemon_->mischief = Mischief::kSilent;
  EXPECT_EQ(-ETIMEDOUT, tier_invalidate(client_, paths.data(), paths.size(), 0));
  daemon_->mischief = Mischief::kNone;
  const std::uint32_t before = daemon_->invalidations;
  tier_disconnect(std::exchange(client_, nullptr));
  Client(0, 100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ContentOf(Name(i), 3000, 2) == Get(Path(Name(i)))) << i;
  EXPECT_EQ(before + 10, daemon_->invalidations);
}

TEST_F(AdviceTest, Advice) {
  StartDaemon();
  Client();
  const std::string path = Path(Name(1));
  const std::string outside = base_ + "/outside";
  const char* paths[] = {path.c_str(), path.c_str()};
  const char* strangers[] = {outside.c_str()};
  EXPECT_EQ(2, tier_prefetch(client_, paths, 2, 0));
  EXPECT_EQ(1, tier_evict(client_, paths, 1, 0));
  EXPECT_EQ(1, tier_pin(client_, paths, 1, TIER_RECURSIVE));
  EXPECT_EQ(1, tier_unpin(client_, paths, 1, 0));
  EXPECT_EQ(-ENOENT, tier_prefetch(client_, strangers, 1, 0));
  EXPECT_EQ(0, tier_invalidate(client_, strangers, 1, 0));
  EXPECT_EQ(0, tier_prefetch(client_, nullptr, 0, 0));
  EXPECT_EQ(-EINVAL, tier_prefetch(client_, nullptr, 1, 0));
  std::vector<const char*> many(1000, path.c_str());
  EXPECT_EQ(1000, tier_prefetch(client_, many.data(), many.size(), 0));
  EXPECT_EQ(1005u, daemon_->advices);
  daemon_->Stop();
  daemon_.reset();
  EXPECT_EQ(-ENOTCONN, tier_prefetch(client_, paths, 1, 0));
  EXPECT_EQ(0, tier_invalidate(client_, paths, 1, 0));
  const std::string upwards = Path("x/../" + Name(1));
  const char* unresolved[] = {path.c_str(), upwards.c_str()};
  EXPECT_EQ(-EINVAL, tier_invalidate(client_, unresolved, 2, 0));
}

}  // namespace
}  // namespace tierd::testing
