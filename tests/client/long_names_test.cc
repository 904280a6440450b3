// Names longer than NAME_MAX: CIFS, exFAT and vfat have them up to 765 bytes, FUSE up to 1,024. No file system here does, so readdir tells of them.
#include <dirent.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <set>

#include "tests/client/client_rig.h"

namespace {

std::atomic<bool> long_names{false};

// The file "7a" is told of as seven hundred a's.
std::string Told(const std::string& name) {
  const bool longer = long_names && name[0] >= '1' && name[0] <= '9';
  return longer ? std::string(static_cast<std::size_t>(name[0] - '0') * 100, name[1]) : name;
}

}  // namespace

extern "C" dirent* readdir(DIR* directory) {
  static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  alignas(dirent) thread_local char longer[offsetof(dirent, d_name) + 1024];
  const dirent* const entry = next(directory);
  if (entry == nullptr) return nullptr;
  std::memcpy(longer, entry, offsetof(dirent, d_name));
  std::strcpy(longer + offsetof(dirent, d_name), Told(entry->d_name).c_str());
  return reinterpret_cast<dirent*>(longer);
}
// The name that the fake daemon's standard library knows it by: with large files, ours is readdir64.
extern "C" dirent* ReaddirOfOthers(DIR* directory) __asm__("readdir");
dirent* ReaddirOfOthers(DIR* directory) { return readdir(directory); }

namespace tierd::testing {
namespace {

class LongNamesTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    for (const char* digit : {"3", "5", "7", "9"}) {
      for (char c = 'a'; c <= 'z'; ++c) Write("d/" + std::string(digit) + c, "x");
    }
    Write("d/.short", "x");
    long_names = true;
  }
  void TearDown() override {
    long_names = false;
    ClientRig::TearDown();
  }
  void ExpectAll() {
    std::set<std::string> expected{".short"};
    for (const unsigned bytes : {300u, 500u, 700u, 900u}) {
      for (char c = 'a'; c <= 'z'; ++c) expected.emplace(bytes, c);
    }
    tier_listing* listing = nullptr;
    ASSERT_EQ(0, tier_list(client_, Path("d").c_str(), &listing, 0));
    std::set<std::string> names;
    tier_entry entry;
    while (tier_list_next(listing, &entry) == 1) {
      EXPECT_EQ(entry.name_bytes, std::strlen(entry.name));
      EXPECT_TRUE(names.emplace(entry.name, entry.name_bytes).second);
    }
    EXPECT_EQ(expected, names);
    tier_list_close(listing);
  }
};

TEST_F(LongNamesTest, FromTheSource) {
  Client();
  ExpectAll();
}

TEST_F(LongNamesTest, FromTheCache) {
  StartDaemon();
  Client();
  ExpectAll();
  ExpectAll();
  EXPECT_EQ(0u, Stats().fallback[static_cast<std::size_t>(abi::Fallback::kProtocol)]);
  EXPECT_EQ(0u, daemon_->Leases());
}

}  // namespace
}  // namespace tierd::testing
