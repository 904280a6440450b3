// tier.hpp: the calls of tier.h with owners. Everything it hands out it takes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tier/tier.hpp>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

class WrapperTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 5; ++i) Write(Path(i), Content(std::to_string(i), 3000 + static_cast<std::size_t>(i)));
    Write(source + "/large", Content("large", 9'000'000));
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  std::string Path(int i) const { return source + "/f" + std::to_string(i); }
  tier::Client Connect() const {
    tier_options options{};
    options.size = sizeof options;
    const std::string socket = daemon.socket();
    options.socket = socket.c_str();
    options.flags = TIER_REQUIRE_DAEMON;
    int error = 0;
    tier::Client client(options, &error);
    EXPECT_EQ(error, 0);
    return client;
  }
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
};

TEST_F(WrapperTest, ViewsAreGivenBackByTheirOwners) {
  const tier::Client client = Connect();
  {
    tier::View first, second;
    ASSERT_EQ(client.Get(Path(0), &first), 0);
    EXPECT_EQ(first.text(), Content("0", 3000));
    EXPECT_EQ(client.Statistics().leases, 1u);
    ASSERT_EQ(client.Get(Path(1), &first), 0) << "what it held before is given back";
    EXPECT_EQ(client.Statistics().leases, 1u);
    second = std::move(first);
    tier::View third(std::move(second));
    EXPECT_EQ(third.text(), Content("1", 3001));
    EXPECT_EQ(second.size(), 0u);
    EXPECT_EQ(client.Get(source + "/gone", &third), -ENOENT);
    EXPECT_EQ(third.size(), 0u);
  }
  EXPECT_EQ(client.Statistics().leases, 0u);
}

TEST_F(WrapperTest, BatchesFilesListingsAndMetadata) {
  const tier::Client client = Connect();
  std::vector<std::string> names;
  ASSERT_EQ(client.List(source, &names), 0);
  EXPECT_THAT(names, testing::UnorderedElementsAre("f0", "f1", "f2", "f3", "f4", "large"));
  EXPECT_EQ(client.List(source + "/gone", &names), -ENOENT);
  {
    tier::Batch batch;
    EXPECT_EQ(client.GetBatch({Path(0), source + "/gone", Path(2)}, &batch), 2);
    EXPECT_EQ(batch.error(1), -ENOENT);
    EXPECT_EQ(std::string(static_cast<const char*>(batch[2].data), batch[2].size), Content("2", 3002));
    EXPECT_EQ(client.GetBatch({Path(3)}, &batch), 1);
    EXPECT_EQ(batch.size(), 1u);
  }
  tier_attr attr;
  ASSERT_EQ(client.Stat(Path(3), &attr), 0);
  EXPECT_EQ(attr.bytes, 3003u);
  {
    tier::File file, other;
    ASSERT_EQ(client.Open(source + "/large", &file), 0);
    other = std::move(file);
    EXPECT_FALSE(file);
    ASSERT_EQ(other.Stat(&attr), 0);
    EXPECT_EQ(attr.bytes, 9'000'000u);
    const std::string content = Content("large", 9'000'000);
    char buffer[100];
    EXPECT_EQ(other.Pread(buffer, sizeof buffer, 5'000'000), 100);
    EXPECT_EQ(std::string(buffer, 100), content.substr(5'000'000, 100));
    tier::View piece;
    std::string whole;
    while (other.Pin(static_cast<std::int64_t>(whole.size()), 1 << 20, &piece) == 0 && piece.size() > 0) whole += piece.text();
    EXPECT_TRUE(whole == content);
  }
  char small[10];
  EXPECT_EQ(client.Read(Path(4), small, sizeof small, 20), 10);
  EXPECT_EQ(std::string(small, 10), Content("4", 3004).substr(20, 10));
  Write(Path(4), "new");
  EXPECT_EQ(client.Invalidate({Path(4)}), 1);
  tier::View view;
  ASSERT_EQ(client.Get(Path(4), &view), 0);
  EXPECT_EQ(view.text(), "new");
  EXPECT_GE(client.Prefetch({Path(0)}), 0);
}

}  // namespace
}  // namespace tierd::e2e
