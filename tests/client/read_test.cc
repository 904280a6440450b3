// Whole files and ranges, hit, missed and unknown to the cache.
#include <errno.h>

#include <cstring>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class ReadTest : public ClientRig {};

TEST_F(ReadTest, MissThenHit) {
  Write("a/b.bin", ContentOf("b", 5000));
  StartDaemon();
  Client();
  EXPECT_EQ(ContentOf("b", 5000), Get(Path("a/b.bin"), TIER_FROM_SOURCE));
  EXPECT_EQ(ContentOf("b", 5000), Get(Path("a/b.bin"), TIER_FROM_RAM));
  EXPECT_EQ(1u, daemon_->fetches);
  EXPECT_EQ(0u, daemon_->Leases());
  const tier_statistics s = Stats();
  EXPECT_EQ(1u, s.reads[TIER_FROM_RAM]);
  EXPECT_EQ(1u, s.reads[TIER_FROM_SOURCE]);
  EXPECT_EQ(5000u, s.bytes[TIER_FROM_RAM]);
  EXPECT_EQ(1u, s.connected);
}

TEST_F(ReadTest, ViewHoldsItsFrame) {
  Write("f", ContentOf("f", 100'000));
  StartDaemon();
  daemon_->Cache("f");
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
  daemon_->Evict("f");
  EXPECT_EQ(1u, daemon_->Recycle());
  EXPECT_EQ(ContentOf("f", 100'000), std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  EXPECT_EQ(nullptr, view.data);
  EXPECT_EQ(0u, daemon_->Recycle());
  tier_release(&view);  // harmless
}

TEST_F(ReadTest, CopiesAndRanges) {
  Write("f", ContentOf("f", 70'000));
  StartDaemon();
  Client();
  const std::string content = ContentOf("f", 70'000);
  for (int round = 0; round < 2; ++round) {  // missed, hit
    std::string buffer(80'000, 'x');
    std::uint64_t size = 0;
    EXPECT_EQ(70'000, tier_read_file(client_, Path("f").c_str(), buffer.data(), buffer.size(), &size, 0));
    EXPECT_EQ(70'000u, size);
    EXPECT_EQ(content, buffer.substr(0, 70'000));
    EXPECT_EQ('x', buffer[70'000]);
    EXPECT_EQ(100, tier_read_file(client_, Path("f").c_str(), buffer.data(), 100, &size, 0));
    EXPECT_EQ(70'000u, size);
    EXPECT_EQ(1000, tier_pread(client_, Path("f").c_str(), buffer.data(), 5000, 69'000, 0));
    EXPECT_EQ(content.substr(69'000), buffer.substr(0, 1000));
    EXPECT_EQ(0, tier_pread(client_, Path("f").c_str(), buffer.data(), 5000, 70'000, 0));
    EXPECT_EQ(0, tier_pread(client_, Path("f").c_str(), buffer.data(), 5000, 1'000'000, 0));
    daemon_->Evict("f");
  }
  EXPECT_EQ(-EINVAL, tier_pread(client_, Path("f").c_str(), nullptr, 5, 0, 0));
  EXPECT_EQ(-EINVAL, tier_pread(client_, Path("f").c_str(), &options_, 5, -1, 0));
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(ReadTest, ErrorsAreThoseOfTheSource) {
  Write("secret", "x");
  ::chmod(Path("secret").c_str(), 0);
  std::filesystem::create_directory(Path("dir"));
  ::mkfifo(Path("fifo").c_str(), 0600);
  StartDaemon();
  Client();
  tier_view view;
  char buffer[16];
  errno = 4711;
  EXPECT_EQ(-ENOENT, tier_get(client_, Path("missing").c_str(), &view, 0));
  EXPECT_EQ(nullptr, view.data);
  EXPECT_EQ(-ENOENT, tier_get(client_, Path("missing/deeper").c_str(), &view, 0));
  if (::geteuid() != 0) {
    EXPECT_EQ(-EACCES, tier_get(client_, Path("secret").c_str(), &view, 0));
  }
  EXPECT_EQ(-EISDIR, tier_get(client_, Path("dir").c_str(), &view, 0));
  EXPECT_EQ(-EISDIR, tier_read_file(client_, Path("dir").c_str(), buffer, 16, nullptr, 0));
  EXPECT_EQ(-EISDIR, tier_get(client_, root_.c_str(), &view, 0));
  EXPECT_EQ(-EINVAL, tier_get(client_, Path("fifo").c_str(), &view, 0));
  EXPECT_EQ(-ENOTDIR, tier_get(client_, Path("secret/x").c_str(), &view, 0));
  EXPECT_EQ(-ENOENT, tier_get(client_, "", &view, 0));
  EXPECT_EQ(-ENAMETOOLONG, tier_get(client_, ("/" + std::string(5000, 'x')).c_str(), &view, 0));
  // Whoever releases what a refused call left does no harm.
  const tier_view garbage{&view, 1, 1, 0x5a5a5a5a, {1, 2, 3}};
  const auto zeroed = [&] { return view.data == nullptr && view.kind_ == 0 && view.opaque_[0] == 0; };
  const char* x = "/x";
  view = garbage;
  EXPECT_TRUE(tier_get(client_, nullptr, &view, 0) == -EINVAL && zeroed());
  view = garbage;
  EXPECT_TRUE(tier_get(client_, x, &view, 1u << 30) == -EINVAL && zeroed());
  view = garbage;
  EXPECT_TRUE(tier_get_batch(client_, &x, 1, &view, nullptr, 1u << 30) == -EINVAL && zeroed());
  EXPECT_EQ(4711, errno);
}

TEST_F(ReadTest, ZeroBytesAndOddNames) {
  Write("empty", "");
  const std::vector<std::string> names = {" ", "a\nb", "-rf", "\xff\xfe", ".hidden", "..twodots", std::string(255, 'n'), "ünïcode"};
  for (const std::string& name : names) Write("odd/" + name, ContentOf(name, 300));
  StartDaemon();
  Client();
  for (int round = 0; round < 2; ++round) {
    tier_view view;
    ASSERT_EQ(0, tier_get(client_, Path("empty").c_str(), &view, 0));
    EXPECT_EQ(0u, view.size);
    EXPECT_NE(nullptr, view.data);
    tier_release(&view);
    for (const std::string& name : names) EXPECT_EQ(ContentOf(name, 300), Get(Path("odd/" + name), round == 0 ? TIER_FROM_SOURCE : TIER_FROM_RAM));
  }
}

TEST_F(ReadTest, PathsThatAreNotCanonical) {
  Write("d/f", ContentOf("f", 300));
  StartDaemon();
  Client();
  EXPECT_EQ(ContentOf("f", 300), Get(Path("d/f"), TIER_FROM_SOURCE));
  EXPECT_EQ(ContentOf("f", 300), Get(root_ + "//d/f", TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("f", 300), Get(root_ + "/./d/./f", TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("f", 300), Get(root_ + "/d/../d/f", TIER_FROM_BYPASS));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kPath));
  tier_view view;
  EXPECT_EQ(-ENOTDIR, tier_get(client_, Path("d/f/.").c_str(), &view, 0));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(Path("d"));
  EXPECT_EQ(ContentOf("f", 300), Get("f", TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("f", 300), Get("./f", TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("f", 300), Get("../d/f", TIER_FROM_BYPASS));
  std::filesystem::current_path(before);
  EXPECT_EQ(1u, daemon_->fetches);
}

TEST_F(ReadTest, OutsideOfEverySource) {
  std::ofstream(base_ + "/outside") << "hello";
  StartDaemon();
  Client();
  EXPECT_EQ("hello", Get(base_ + "/outside", TIER_FROM_BYPASS));
  EXPECT_EQ("hello", Get(root_ + "/../outside", TIER_FROM_BYPASS));
  std::ofstream(root_ + "x") << "beside";  // shares the prefix, not the directory
  EXPECT_EQ("beside", Get(root_ + "x", TIER_FROM_BYPASS));
  EXPECT_EQ(0u, daemon_->fetches);
}

TEST_F(ReadTest, Symlinks) {
  Write("real/f", ContentOf("f", 2000));
  std::filesystem::create_directory_symlink("real", Path("link"));
  std::filesystem::create_symlink("/etc/hostname", Path("out"));
  StartDaemon();
  Client();
  EXPECT_EQ(ContentOf("f", 2000), Get(Path("link/f"), TIER_FROM_SOURCE));
  EXPECT_EQ(2u, daemon_->fetches);  // retry after the alias, then the target under its lease
  EXPECT_EQ(ContentOf("f", 2000), Get(Path("link/f"), TIER_FROM_RAM));
  EXPECT_EQ(ContentOf("f", 2000), Get(Path("real/f"), TIER_FROM_RAM));
  EXPECT_EQ(2u, daemon_->fetches);
  daemon_->Evict("real/f");
  EXPECT_EQ(ContentOf("f", 2000), Get(Path("link/f"), TIER_FROM_SOURCE));
  EXPECT_EQ(3u, daemon_->fetches);
  Get(Path("out"), TIER_FROM_BYPASS);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(ReadTest, ExpiredSlotsAreAskedFor) {
  Write("f", ContentOf("f", 100));
  StartDaemon();
  daemon_->Cache("f");
  Client();
  Get(Path("f"), TIER_FROM_RAM);
  daemon_->Expire("f");
  Get(Path("f"), TIER_FROM_SOURCE);
  Get(Path("f"), TIER_FROM_RAM);
  daemon_->Expire("f");
  Write("f", ContentOf("f", 120, 2));
  EXPECT_EQ(ContentOf("f", 120, 2), Get(Path("f"), TIER_FROM_SOURCE));
}

TEST_F(ReadTest, FlagsKeepAwayFromDaemonAndSource) {
  Write("f", ContentOf("f", 100));
  StartDaemon();
  Client();
  Get(Path("f"));  // maps the segment
  daemon_->Evict("f");
  tier_view view;
  EXPECT_EQ(-ENODATA, tier_get(client_, Path("f").c_str(), &view, TIER_NOWAIT));
  EXPECT_EQ(1u, daemon_->fetches);
  daemon_->bypass_reason = static_cast<std::uint32_t>(abi::Fallback::kNoFrame);
  EXPECT_EQ(-ENODATA, tier_get(client_, Path("f").c_str(), &view, TIER_CACHED));
  EXPECT_EQ(2u, daemon_->fetches);
  daemon_->Evict("f");
  EXPECT_EQ(ContentOf("f", 100), Get(Path("f"), TIER_FROM_BYPASS));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kNoFrame));
  daemon_->bypass_reason = 0;
  Get(Path("f"));
  EXPECT_EQ(ContentOf("f", 100), Get(Path("f"), TIER_FROM_RAM, TIER_NOWAIT));
}

TEST_F(ReadTest, PrivateCopiesPastThePinCap) {
  options_.pin_cap_bytes = 1 << 20;
  for (int i = 0; i < 4; ++i) Write("f" + std::to_string(i), ContentOf(std::to_string(i), 400'000));
  StartDaemon();
  Client();
  tier_view views[4];
  for (int i = 0; i < 4; ++i) ASSERT_EQ(0, tier_get(client_, Path("f" + std::to_string(i)).c_str(), &views[i], 0));
  EXPECT_EQ(2u, daemon_->Leases());
  EXPECT_EQ(800'000u, Stats().leased_bytes);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ContentOf(std::to_string(i), 400'000), std::string(static_cast<const char*>(views[i].data), views[i].size));
    tier_release(&views[i]);
  }
  EXPECT_EQ(0u, daemon_->Leases());
  EXPECT_EQ(0u, Stats().leased_bytes);
  ASSERT_EQ(0, tier_get(client_, Path("f0").c_str(), &views[0], TIER_COPY));
  EXPECT_EQ(0u, daemon_->Leases());
  tier_release(&views[0]);
}

TEST_F(ReadTest, MoreViewsThanLeases) {
  Write("f", ContentOf("f", 50));
  StartDaemon();
  daemon_->Cache("f");
  Client();
  std::vector<tier_view> views(abi::kLeaseSlots + 100);
  for (tier_view& view : views) ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
  EXPECT_LT(daemon_->Leases(), abi::kLeaseSlots);
  for (tier_view& view : views) {
    EXPECT_EQ(TIER_FROM_RAM, static_cast<int>(view.origin));
    EXPECT_EQ(0, std::memcmp(view.data, ContentOf("f", 50).data(), 50));
    tier_release(&view);
  }
  EXPECT_EQ(0u, daemon_->Leases());
}

// A file without bytes needs no lease, and is known whether or not one is left.
TEST_F(ReadTest, AnEmptyFileWhenAllLeasesAreTaken) {
  Write("f", ContentOf("f", 50));
  Write("empty", "");
  StartDaemon();
  daemon_->Cache("f");
  daemon_->Cache("empty");
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
  tier_release(&view);
  for (auto& lease : daemon_->page(0)->leases) lease.store(abi::EncodeLease(1, 1));
  ASSERT_EQ(0, tier_get(client_, Path("empty").c_str(), &view, TIER_CACHED | TIER_NOWAIT));
  EXPECT_EQ(TIER_FROM_RAM, static_cast<int>(view.origin));
  EXPECT_EQ(0u, view.size);
  tier_release(&view);
  ASSERT_EQ(-ENODATA, tier_get(client_, Path("f").c_str(), &view, TIER_CACHED | TIER_NOWAIT));
  ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
  EXPECT_EQ(TIER_FROM_BYPASS, static_cast<int>(view.origin));
  tier_release(&view);
}

// The lease of a hit names its frame (HAZARDS 2.4): the older ones of a file that somebody reads all the time leave limbo. One that comes to nothing is given back.
TEST_F(ReadTest, ALeaseNamesItsFrame) {
  Write("f", ContentOf("f", 50));
  Write("unknown", "x");
  StartDaemon();
  daemon_->Cache("f");
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path("f").c_str(), &view, 0));
  std::vector<std::uint64_t> held;
  for (const auto& lease : daemon_->page(0)->leases) {
    if (lease.load() != 0) held.push_back(lease.load());
  }
  ASSERT_EQ(1u, held.size());
  EXPECT_NE(0u, held[0] & 0xffff) << "it holds any frame of the file";
  tier_release(&view);
  ASSERT_EQ(-ENODATA, tier_get(client_, Path("unknown").c_str(), &view, TIER_CACHED | TIER_NOWAIT));
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(ReadTest, AccessRingAndCounters) {
  for (int i = 0; i < 5; ++i) Write("f" + std::to_string(i), ContentOf("f", 1000));
  StartDaemon();
  for (int i = 0; i < 5; ++i) daemon_->Cache("f" + std::to_string(i));
  Client();
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < 5; ++i) Get(Path("f" + std::to_string(i)), TIER_FROM_RAM);
  }
  const abi::SessionPage& page = *daemon_->page(0);
  EXPECT_EQ(5000u, page.ring_head.load());
  EXPECT_EQ(5000u, page.counters.reads[0].load());
  EXPECT_EQ(5'000'000u, page.counters.bytes[0].load());
  const std::uint64_t entry = page.ring[4999 % abi::kRingEntries].load();
  EXPECT_EQ((4999 / abi::kRingEntries + 1) & 0xff, entry >> 56);
  std::uint64_t timed = 0;
  for (const auto& bucket : page.counters.latency[0]) timed += bucket.load();
  EXPECT_NEAR(5000.0 / abi::kLatencySampling, static_cast<double>(timed), 3);
}

// HAZARDS 2.5. A hit is counted before its bytes are copied: one that turns out to be none is taken back, and counts where it came from.
TEST_F(ReadTest, ACopyUnderARevokedSessionIsNoHit) {
  Write("f", ContentOf("f", 5000));
  StartDaemon();
  daemon_->Cache("f");
  Client();
  char bytes[5000];
  ASSERT_EQ(5000, tier_read_file(client_, Path("f").c_str(), bytes, sizeof bytes, nullptr, 0));
  ASSERT_EQ(5000, tier_read_file(client_, Path("f").c_str(), bytes, sizeof bytes, nullptr, TIER_NOWAIT));
  tier_statistics before{}, after{};
  before.size = after.size = sizeof before;
  tier_stats(client_, &before);
  daemon_->page(0)->revoked.store(1);
  std::memset(bytes, 0, sizeof bytes);
  ASSERT_EQ(5000, tier_read_file(client_, Path("f").c_str(), bytes, sizeof bytes, nullptr, 0));
  EXPECT_EQ(ContentOf("f", 5000), std::string(bytes, sizeof bytes));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kRevoked));
  tier_stats(client_, &after);
  EXPECT_EQ(before.reads[TIER_FROM_RAM], after.reads[TIER_FROM_RAM]);
  EXPECT_EQ(before.bytes[TIER_FROM_RAM], after.bytes[TIER_FROM_RAM]);
  EXPECT_EQ(before.reads[TIER_FROM_BYPASS] + 1, after.reads[TIER_FROM_BYPASS]);
  EXPECT_EQ(before.bytes[TIER_FROM_BYPASS] + 5000, after.bytes[TIER_FROM_BYPASS]);
}

TEST_F(ReadTest, IndexGrows) {
  for (int i = 0; i < 100; ++i) Write("f" + std::to_string(i), ContentOf(std::to_string(i), 100));
  StartDaemon();
  daemon_->CacheAll();
  Client();
  for (int growth = 0; growth < 3; ++growth) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(ContentOf(std::to_string(i), 100), Get(Path("f" + std::to_string(i)), TIER_FROM_RAM));
    daemon_->Grow();
  }
  EXPECT_EQ(0u, daemon_->fetches);
}

TEST_F(ReadTest, ForeignNamespace) {
  options_.root_ino_offset = 1;
  Write("f", ContentOf("f", 100));
  StartDaemon();
  Client();
  EXPECT_EQ(ContentOf("f", 100), Get(Path("f"), TIER_FROM_BYPASS));
  EXPECT_EQ(1u, Fallbacks(abi::Fallback::kNamespace));
  EXPECT_EQ(0u, daemon_->fetches);
}

TEST_F(ReadTest, OpenModeComparesWithTheSource) {
  options_.staleness = abi::Staleness::kOpen;
  Write("f", ContentOf("f", 100));
  StartDaemon();
  Client();
  Get(Path("f"), TIER_FROM_SOURCE);
  Get(Path("f"), TIER_FROM_RAM);
  Write("f", ContentOf("f", 130, 2));
  EXPECT_EQ(ContentOf("f", 130, 2), Get(Path("f"), TIER_FROM_SOURCE));
  std::filesystem::remove(Path("f"));
  tier_view view;
  EXPECT_EQ(-ENOENT, tier_get(client_, Path("f").c_str(), &view, 0));
}

TEST_F(ReadTest, ForeignClockMeansNoDeadlines) {
  options_.foreign_clock = true;
  Write("f", ContentOf("f", 100));
  StartDaemon();
  Client();
  Get(Path("f"), TIER_FROM_SOURCE);
  Get(Path("f"), TIER_FROM_RAM);
  Write("f", ContentOf("f", 130, 2));
  EXPECT_EQ(ContentOf("f", 130, 2), Get(Path("f")));
}

TEST_F(ReadTest, Batch) {
  std::vector<std::string> paths;
  for (int i = 0; i < 700; ++i) {
    Write("f" + std::to_string(i), ContentOf(std::to_string(i), 100 + static_cast<std::size_t>(i)));
    paths.push_back(Path("f" + std::to_string(i)));
  }
  paths[10] = Path("missing");
  paths[11] = root_;
  Write("large", ContentOf("large", 3'000'000));
  paths[12] = Path("large");
  Write("none", "");
  paths[13] = Path("none");
  StartDaemon();
  for (int i = 0; i < 100; ++i) daemon_->Cache("f" + std::to_string(i));
  Client();
  std::vector<const char*> texts;
  for (const std::string& path : paths) texts.push_back(path.c_str());
  for (int round = 0; round < 2; ++round) {
    std::vector<tier_view> views(paths.size());
    std::vector<int> errors(paths.size(), 99);
    EXPECT_EQ(698, tier_get_batch(client_, texts.data(), texts.size(), views.data(), errors.data(), 0));
    for (int i = 0; i < 700; ++i) {
      const tier_view& view = views[static_cast<std::size_t>(i)];
      const std::string got(static_cast<const char*>(view.data), view.size);
      const int error = errors[static_cast<std::size_t>(i)];
      EXPECT_EQ(i == 10 ? -ENOENT : i == 11 ? -EISDIR : 0, error);
      if (i == 12) {
        EXPECT_TRUE(ContentOf("large", 3'000'000) == got);
      } else if (error == 0) {
        EXPECT_EQ(i == 13 ? "" : ContentOf(std::to_string(i), 100 + static_cast<std::size_t>(i)), got);
      }
      tier_release(&views[static_cast<std::size_t>(i)]);
    }
  }
  EXPECT_EQ(0u, daemon_->Leases());
}

// Of files whose size is known no more are asked for at a time than a quarter of the pin cap: here two.
TEST_F(ReadTest, ABatchAsksForWhatFits) {
  options_.pin_cap_bytes = 8 << 20;
  std::vector<std::string> paths;
  for (int i = 0; i < 6; ++i) {
    Write("f" + std::to_string(i), ContentOf(std::to_string(i), 1 << 20));
    paths.push_back(Path("f" + std::to_string(i)));
  }
  StartDaemon();
  daemon_->CacheAll();
  for (int i = 0; i < 6; ++i) daemon_->Evict("f" + std::to_string(i));
  Client();
  daemon_->mischief = Mischief::kLate;  // nothing is in RAM before the batch ends
  daemon_->late_ms = 60'000;
  std::vector<const char*> texts;
  for (const std::string& path : paths) texts.push_back(path.c_str());
  std::vector<tier_view> views(paths.size());
  EXPECT_EQ(6, tier_get_batch(client_, texts.data(), texts.size(), views.data(), nullptr, 0));
  EXPECT_EQ(2u, daemon_->most_fetches);
  for (tier_view& view : views) {
    EXPECT_EQ(std::size_t{1} << 20, view.size);
    tier_release(&view);
  }
}

}  // namespace
}  // namespace tierd::testing
