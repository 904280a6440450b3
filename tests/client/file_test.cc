// Open files, large files, metadata and listings.
#include <dirent.h>
#include <errno.h>

#include <cstring>
#include <map>

#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr std::size_t kLarge = 340'000;  // 6 chunks of 64 KiB, the last one short

class FileTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    options_.chunk_bytes = kChunk;
  }
  tier_file* Open(const std::string& path, unsigned flags = 0) {
    tier_file* file = nullptr;
    EXPECT_EQ(0, tier_open(client_, path.c_str(), &file, flags)) << path;
    return file;
  }
  static std::string ReadAll(tier_file* file, std::size_t step, std::size_t bytes) {
    std::string out(bytes, '\0');
    std::size_t at = 0;
    for (;;) {
      const ssize_t got = tier_file_pread(file, out.data() + at, std::min(step, bytes - at), static_cast<std::int64_t>(at));
      EXPECT_GE(got, 0);
      if (got <= 0) break;
      at += static_cast<std::size_t>(got);
    }
    out.resize(at);
    return out;
  }
  static std::size_t Descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  }
};

TEST_F(FileTest, LargeFileInPieces) {
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  const std::string content = ContentOf("large", kLarge);
  std::string buffer(kLarge, '\0');
  EXPECT_EQ(1000, tier_pread(client_, Path("large").c_str(), buffer.data(), 1000, 220'000, 0));
  EXPECT_EQ(content.substr(220'000, 1000), buffer.substr(0, 1000));
  EXPECT_TRUE(Disturbed() || daemon_->fetches == 2u);  // its kind, then the one chunk
  EXPECT_EQ(200'000, tier_pread(client_, Path("large").c_str(), buffer.data(), 200'000, 30'000, 0));
  EXPECT_TRUE(content.substr(30'000, 200'000) == buffer.substr(0, 200'000));
  std::uint64_t size = 0;
  EXPECT_EQ(static_cast<ssize_t>(kLarge), tier_read_file(client_, Path("large").c_str(), buffer.data(), buffer.size(), &size, 0));
  EXPECT_EQ(kLarge, size);
  EXPECT_TRUE(content == buffer);
  EXPECT_TRUE(Disturbed() || daemon_->fetches == 7u);
  EXPECT_EQ(static_cast<ssize_t>(kLarge), tier_read_file(client_, Path("large").c_str(), buffer.data(), buffer.size(), &size, 0));
  EXPECT_TRUE(Disturbed() || daemon_->fetches == 7u);
  EXPECT_TRUE(Disturbed() || Stats().reads[TIER_FROM_RAM] == 1u);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(FileTest, LargeFileAsOneView) {
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  for (int round = 0; round < 2; ++round) {
    tier_view view;
    ASSERT_EQ(0, tier_get(client_, Path("large").c_str(), &view, 0));
    if (Disturbed()) GTEST_SKIP();
    const std::size_t leases = daemon_->Leases();  // in place: chunks mapped side by side; a short tail that begins no page is copied
    EXPECT_TRUE(leases == 5 || leases == 6) << leases;
    EXPECT_TRUE(ContentOf("large", kLarge) == std::string(static_cast<const char*>(view.data), view.size));
    daemon_->Evict("large");
    EXPECT_EQ(leases, daemon_->Recycle());
    EXPECT_TRUE(ContentOf("large", kLarge) == std::string(static_cast<const char*>(view.data), view.size));
    tier_release(&view);
    EXPECT_EQ(0u, daemon_->Leases());
    EXPECT_EQ(0u, daemon_->Recycle());
  }
  tier_view copy;
  ASSERT_EQ(0, tier_get(client_, Path("large").c_str(), &copy, TIER_COPY));
  EXPECT_EQ(0u, daemon_->Leases());
  EXPECT_TRUE(ContentOf("large", kLarge) == std::string(static_cast<const char*>(copy.data), copy.size));
  tier_release(&copy);
}

TEST_F(FileTest, LargeViewPastTheCapIsPartlyACopy) {
  options_.pin_cap_bytes = 3 * kChunk;
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  tier_view view;
  ASSERT_EQ(0, tier_get(client_, Path("large").c_str(), &view, 0));
  EXPECT_TRUE(Disturbed() || daemon_->Leases() == 3u);
  EXPECT_LE(Stats().leased_bytes, 3 * kChunk);
  EXPECT_TRUE(ContentOf("large", kLarge) == std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
}

// Past the pin cap a handle keeps a copy; past the budget for those (16 MiB where the daemon says none, a quarter of it kept back) it has a descriptor of the source.
TEST_F(FileTest, HandlesPastTheBudgetForCopiesReadTheSource) {
  options_.pin_cap_bytes = 1 << 20;
  Write("f", ContentOf("f", 50'000));
  StartDaemon();
  Client();
  Get(Path("f"));
  const std::size_t before = Descriptors();
  for (int round = 0; round < 2; ++round) {
    std::vector<tier_file*> files;
    for (int i = 0; i < 500; ++i) files.push_back(Open(Path("f")));
    if (Disturbed()) GTEST_SKIP();
    const std::size_t leased = daemon_->Leases(), of_source = Descriptors() - before, copies = 500 - leased - of_source;
    EXPECT_EQ(copies, (12u << 20) / 53'248) << leased << " leased, " << of_source << " of the source";
    EXPECT_GT(of_source, 100u);
    for (tier_file* file : {files.front(), files[250], files.back()}) EXPECT_EQ(ContentOf("f", 50'000), ReadAll(file, 7'777, 60'000));
    for (tier_file* file : files) tier_close(file);
    EXPECT_EQ(before, Descriptors());
  }
}

TEST_F(FileTest, SmallOpenFileNeedsNoDescriptor) {
  Write("f", ContentOf("f", 50'000));
  StartDaemon();
  Client();
  Get(Path("f"));
  const std::size_t before = Descriptors();
  tier_file* file = Open(Path("f"));
  if (Disturbed()) GTEST_SKIP();
  EXPECT_EQ(before, Descriptors());
  EXPECT_EQ(1u, daemon_->Leases());
  EXPECT_EQ(ContentOf("f", 50'000), ReadAll(file, 777, 60'000));
  tier_view view;
  ASSERT_EQ(0, tier_file_pin(file, 100, 1000, &view));
  EXPECT_EQ(2u, daemon_->Leases());
  tier_close(file);
  daemon_->Evict("f");
  EXPECT_EQ(1u, daemon_->Recycle());
  EXPECT_EQ(ContentOf("f", 50'000).substr(100, 1000), std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  EXPECT_EQ(0u, daemon_->Recycle());
}

// More chunks than an open file holds: without the source it is read chunk by chunk, and only as long as they are there.
TEST_F(FileTest, LargeFileFromTheCacheAlone) {
  constexpr std::size_t kTwentyChunks = 20 * kChunk;
  Write("large", ContentOf("large", kTwentyChunks));
  StartDaemon();
  daemon_->Cache("large");
  Client();
  char first;
  ASSERT_EQ(1, tier_pread(client_, Path("large").c_str(), &first, 1, 0, 0));  // a session with its descriptors
  const std::size_t descriptors = Descriptors();
  tier_file* file = Open(Path("large"), TIER_CACHED);
  ASSERT_NE(nullptr, file);
  EXPECT_EQ(descriptors, Descriptors());
  EXPECT_TRUE(ContentOf("large", kTwentyChunks) == ReadAll(file, 100'000, kTwentyChunks));
  Write("new", ContentOf("large", kTwentyChunks, 2));
  std::filesystem::rename(Path("new"), Path("large"));
  daemon_->Evict("large");
  char byte;
  EXPECT_EQ(-ENODATA, tier_file_pread(file, &byte, 1, 10 * kChunk)) << "another version is no answer";
  tier_close(file);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(FileTest, KeepsItsVersionOverReplace) {
  Write("small", ContentOf("small", 50'000));
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  tier_file* small = Open(Path("small"));
  tier_file* large = Open(Path("large"));  // half cached: first chunk only
  EXPECT_EQ(ContentOf("large", kLarge).substr(0, 10), ReadAll(large, 10, 10));
  for (const char* name : {"small", "large"}) {
    Write("new", ContentOf(name, name[0] == 's' ? 60'000 : kLarge, 2));
    std::filesystem::rename(Path("new"), Path(name));
    daemon_->Expire(name);
  }
  EXPECT_EQ(ContentOf("small", 60'000, 2), Get(Path("small")));  // a new open sees the new version
  EXPECT_TRUE(ContentOf("large", kLarge, 2) == Get(Path("large")));
  EXPECT_EQ(ContentOf("small", 50'000), ReadAll(small, 9999, 70'000));
  EXPECT_TRUE(ContentOf("large", kLarge) == ReadAll(large, 20'000, kLarge));
  tier_view view;
  ASSERT_EQ(0, tier_file_pin(large, 200'000, 50'000, &view));
  EXPECT_TRUE(ContentOf("large", kLarge).substr(200'000, view.size) == std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  ASSERT_EQ(0, tier_file_pin(small, 40'000, 500'000, &view));
  EXPECT_EQ(ContentOf("small", 50'000).substr(40'000), std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  tier_close(small);
  tier_close(large);
  EXPECT_EQ(0u, daemon_->Leases());
}

TEST_F(FileTest, RewriteInPlaceUnderAnOpenFileIsStale) {
  Write("large", ContentOf("large", kLarge));
  Write("moved", ContentOf("moved", kLarge));
  StartDaemon();
  Client();
  tier_file* large = Open(Path("large"));
  tier_file* moved = Open(Path("moved"));
  daemon_->bypass_reason = static_cast<std::uint32_t>(abi::Fallback::kOverload);
  std::string bytes(1000, '\0');
  ASSERT_EQ(1000, tier_file_pread(large, bytes.data(), 1000, 200'000));
  EXPECT_EQ(ContentOf("large", kLarge).substr(200'000, 1000), bytes);
  ::usleep(20'000);
  Write("large", ContentOf("large", kLarge, 2));  // the same inode, the same size
  EXPECT_EQ(-ESTALE, tier_file_pread(large, bytes.data(), 1000, 100'000));
  std::filesystem::remove(Path("moved"));  // another ctime, the same bytes
  ASSERT_EQ(1000, tier_file_pread(moved, bytes.data(), 1000, 100'000));
  EXPECT_EQ(ContentOf("moved", kLarge).substr(100'000, 1000), bytes);
  tier_close(large);
  tier_close(moved);
}

TEST_F(FileTest, WhatThisProcessReadsItselfIsNotFromTheCache) {
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  tier_file* large = Open(Path("large"));
  daemon_.reset();
  tier_view view;
  ASSERT_EQ(0, tier_file_pin(large, 200'000, 1000, &view));
  EXPECT_EQ(static_cast<std::uint32_t>(TIER_FROM_BYPASS), view.origin);
  EXPECT_EQ(ContentOf("large", kLarge).substr(200'000, 1000), std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  EXPECT_EQ(1u, Stats().reads[TIER_FROM_BYPASS]);
  tier_close(large);
}

TEST_F(FileTest, DaemonThatCutsFilesDifferently) {
  Write("large", ContentOf("large", kLarge));
  Write("other", ContentOf("other", 1000));
  StartDaemon();
  Client();
  tier_file* large = Open(Path("large"));
  EXPECT_TRUE(ContentOf("large", kLarge).substr(0, 100) == ReadAll(large, 100, 100));
  daemon_.reset();
  options_.chunk_bytes = 2 * kChunk;
  StartDaemon();
  daemon_->CacheAll();
  for (int tries = 0; tries < 700 && Stats().sessions < 2; ++tries, ::usleep(10'000)) Get(Path("other"));
  ASSERT_EQ(2u, Stats().sessions);
  EXPECT_TRUE(ContentOf("large", kLarge) == ReadAll(large, 30'000, kLarge));
  tier_close(large);
}

TEST_F(FileTest, PinWalksThroughALargeFile) {
  Write("large", ContentOf("large", kLarge));
  StartDaemon();
  Client();
  tier_file* file = Open(Path("large"));
  std::string all;
  for (;;) {
    tier_view view;
    ASSERT_EQ(0, tier_file_pin(file, static_cast<std::int64_t>(all.size()), kLarge, &view));
    if (view.size == 0) break;
    EXPECT_LE(view.size, kChunk);
    all.append(static_cast<const char*>(view.data), view.size);
    tier_release(&view);
  }
  EXPECT_TRUE(ContentOf("large", kLarge) == all);
  tier_close(file);
  file = Open(Path("large"));  // now all of it is held
  EXPECT_TRUE(Disturbed() || daemon_->Leases() == 6u);
  EXPECT_TRUE(ContentOf("large", kLarge) == ReadAll(file, 70'000, kLarge));
  tier_close(file);
  EXPECT_EQ(0u, daemon_->Leases());
  EXPECT_EQ(0u, Stats().leased_bytes);
}

// So late that no read of whoever serves it moves it (relatime); each another.
void SetAtime(const std::string& path) {
  static std::int64_t hours = 0;
  timespec times[2] = {};
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec += ++hours * 3600;
  times[1].tv_nsec = UTIME_OMIT;
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

void ExpectSameStat(const std::string& path, const tier_attr& attr, bool follow = true) {
  struct stat st;
  ASSERT_EQ(0, follow ? ::stat(path.c_str(), &st) : ::lstat(path.c_str(), &st));
  EXPECT_EQ(st.st_dev, attr.dev);
  EXPECT_EQ(st.st_ino, attr.ino);
  EXPECT_EQ(static_cast<std::uint64_t>(st.st_size), attr.bytes);
  EXPECT_EQ(st.st_mode, attr.mode);
  EXPECT_EQ(st.st_nlink, attr.nlink);
  EXPECT_EQ(st.st_uid, attr.uid);
  EXPECT_EQ(st.st_gid, attr.gid);
  EXPECT_EQ(st.st_atim.tv_sec * 1'000'000'000ll + st.st_atim.tv_nsec, attr.atime_ns);
  EXPECT_EQ(st.st_mtim.tv_sec * 1'000'000'000ll + st.st_mtim.tv_nsec, attr.mtime_ns);
  EXPECT_EQ(st.st_ctim.tv_sec * 1'000'000'000ll + st.st_ctim.tv_nsec, attr.ctime_ns);
}

TEST_F(FileTest, Stat) {
  Write("d/f", ContentOf("f", 1234));
  std::filesystem::create_symlink("f", Path("d/l"));
  std::filesystem::create_symlink("nowhere", Path("d/dangling"));
  for (const char* name : {"d/f", "d/l", "d/dangling", "d"}) SetAtime(Path(name));
  StartDaemon();
  Client();
  for (int round = 0; round < 2; ++round) {
    const auto origin = static_cast<std::uint32_t>(round == 0 ? TIER_FROM_SOURCE : TIER_FROM_RAM);
    for (const char* name : {"d/f", "d"}) {
      tier_attr attr{};
      attr.size = sizeof attr;
      EXPECT_EQ(0, tier_stat(client_, Path(name).c_str(), &attr, 0));
      EXPECT_TRUE(origin == attr.origin || attr.origin == TIER_FROM_BYPASS) << name;
      ExpectSameStat(Path(name), attr);
    }
    tier_attr attr{};
    attr.size = sizeof attr;
    EXPECT_EQ(0, tier_stat(client_, Path("d/l").c_str(), &attr, 0));
    EXPECT_EQ(1234u, attr.bytes);
    ExpectSameStat(Path("d/l"), attr);
    EXPECT_EQ(0, tier_stat(client_, Path("d/dangling").c_str(), &attr, TIER_NOFOLLOW));
    ExpectSameStat(Path("d/dangling"), attr, false);
    EXPECT_EQ(-ENOENT, tier_stat(client_, Path("d/dangling").c_str(), &attr, 0));
    EXPECT_EQ(-ENOENT, tier_stat(client_, Path("missing").c_str(), &attr, 0));
  }
  struct {
    std::uint64_t size = 24;
    std::uint64_t dev = 0, ino = 0, canary = 42;
  } small;
  EXPECT_EQ(0, tier_stat(client_, Path("d/f").c_str(), reinterpret_cast<tier_attr*>(&small), 0));
  EXPECT_NE(0u, small.ino);
  EXPECT_EQ(42u, small.canary);
  tier_file* file = Open(Path("d/f"));
  tier_attr attr{};
  attr.size = sizeof attr;
  EXPECT_EQ(0, tier_fstat(file, &attr));
  ExpectSameStat(Path("d/f"), attr);
  tier_close(file);
}

std::map<std::string, std::uint32_t> Names(tier_listing* listing) {
  std::map<std::string, std::uint32_t> out;
  tier_entry entry;
  while (tier_list_next(listing, &entry) == 1) {
    EXPECT_EQ(entry.name_bytes, std::strlen(entry.name));
    EXPECT_TRUE(out.emplace(entry.name, entry.type).second);
  }
  return out;
}

TEST_F(FileTest, List) {
  for (int i = 0; i < 300; ++i) Write("d/" + std::to_string(i), "x");
  std::filesystem::create_directory(Path("d/sub"));
  std::filesystem::create_directory(Path("empty"));
  std::filesystem::create_symlink("0", Path("d/link"));
  for (int round = 0; round < 3; ++round) {  // without daemon, asked, known
    if (round == 1) {
      tier_disconnect(client_);
      StartDaemon();
    }
    if (round < 2) Client();
    tier_listing* listing;
    ASSERT_EQ(0, tier_list(client_, Path("d").c_str(), &listing, 0));
    auto names = Names(listing);
    EXPECT_EQ(302u, names.size());
    EXPECT_EQ(DT_DIR, static_cast<int>(names["sub"]));
    EXPECT_EQ(DT_LNK, static_cast<int>(names["link"]));
    EXPECT_EQ(DT_REG, static_cast<int>(names["17"]));
    EXPECT_EQ(0, tier_list_seek(listing, 0));
    tier_entry entry;
    ASSERT_EQ(1, tier_list_next(listing, &entry));
    const std::uint64_t second = entry.position;
    ASSERT_EQ(1, tier_list_next(listing, &entry));
    const std::string name = entry.name;
    EXPECT_EQ(0, tier_list_seek(listing, second));
    ASSERT_EQ(1, tier_list_next(listing, &entry));
    EXPECT_EQ(name, entry.name);
    EXPECT_EQ(-EINVAL, tier_list_seek(listing, 3));
    tier_list_close(listing);
    ASSERT_EQ(0, tier_list(client_, Path("empty").c_str(), &listing, 0));
    EXPECT_TRUE(Names(listing).empty());
    tier_list_close(listing);
    EXPECT_EQ(-ENOTDIR, tier_list(client_, Path("d/0").c_str(), &listing, 0));
    EXPECT_EQ(-ENOENT, tier_list(client_, Path("none").c_str(), &listing, 0));
    tier_list_close(nullptr);
  }
  EXPECT_EQ(0u, daemon_->Leases());
}

}  // namespace
}  // namespace tierd::testing
