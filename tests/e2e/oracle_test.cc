// Real trees, byte by byte: everything below /usr/share and /usr/lib (TIERD_ORACLE_MB megabytes of each, default 150) through RAM, SSD and after a
// restart, then under each policy through a RAM tier of about 1 % of it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

std::vector<std::string> FilesBelow(const std::string& root, std::uint64_t limit_bytes) {
  std::vector<std::string> files;
  std::uint64_t bytes = 0;
  std::error_code error;
  for (auto it = std::filesystem::recursive_directory_iterator(root, std::filesystem::directory_options::skip_permission_denied, error);
       it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    if (error) break;
    std::error_code ignored;
    const auto type = it->symlink_status(ignored).type();
    if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::symlink) continue;
    if (type == std::filesystem::file_type::regular) bytes += it->file_size(ignored);
    if (bytes > limit_bytes) break;
    files.push_back(it->path());
  }
  return files;
}

class OracleTest : public testing::TestWithParam<const char*> {
 protected:
  void Compare(const Client& client, const std::vector<std::string>& files) {
    for (const std::string& path : files) {
      const Got ours = Get(client.get(), path);
      const Got plain = Plain(path);
      ASSERT_EQ(ours.error, plain.error) << path;
      ASSERT_TRUE(ours.bytes == plain.bytes) << path;
      ++origins[ours.origin];
    }
  }
  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::map<std::uint32_t, std::uint64_t> origins;
};

TEST_P(OracleTest, EveryByteIsTheSource) {
  const char* text = std::getenv("TIERD_ORACLE_MB");
  const std::uint64_t limit = (text != nullptr ? std::strtoull(text, nullptr, 10) : 150) << 20;
  const std::vector<std::string> files = FilesBelow(GetParam(), limit);
  ASSERT_GT(files.size(), 100u);
  DaemonProcess::Options options;
  options.source = GetParam();
  options.ram = "256 MiB";
  options.ssd_capacity = "4 GiB";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  {
    Client client(daemon.socket());
    ASSERT_EQ(client.error(), 0);
    for (int round = 0; round < 2; ++round) Compare(client, files);
  }
  EXPECT_GT(origins[TIER_FROM_RAM], 0u);
  EXPECT_GT(origins[TIER_FROM_SSD], 0u);
  ASSERT_EQ(daemon.Stop(), 0);
  for (const char* policy : {"freeze", "lru"}) {
    options.ram = "16 MiB";
    options.more = {"--policy", policy};
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    Client client(daemon.socket());
    Compare(client, files);
    ASSERT_EQ(daemon.Stop(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Trees, OracleTest, testing::Values("/usr/share", "/usr/lib"));

}  // namespace
}  // namespace tierd::e2e
