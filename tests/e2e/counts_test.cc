// Each way to read, over files of one chunk and of several: what is counted is what was called, call by call and byte by byte.
#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/metrics_fixture.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

// Ways to read files whole, each with the calls and bytes that it must count for.
class EachWay {
 public:
  explicit EachWay(tier_client* client) : client_(client) {}
  void Read(int way, const std::vector<std::string>& paths) {
    if (way == 3) return ReadBatch(paths);
    for (const std::string& path : paths) {
      if (way == 0) Take(static_cast<ssize_t>(Get(client_, path).bytes.size()));
      if (way == 1) Take(tier_read_file(client_, path.c_str(), buffer_.data(), buffer_.size(), nullptr, 0));
      if (way == 2) ReadPieces(path, [&](std::int64_t at) { return tier_pread(client_, path.c_str(), buffer_.data(), kPiece, at, 0); });
      if (way >= 4) ReadOpen(way == 4, path);
    }
  }
  static constexpr int kWays = 6;
  double calls = 0, bytes = 0;

 private:
  static constexpr std::size_t kPiece = 50'000;  // across the edges of chunks

  void Take(ssize_t got) {
    ASSERT_GT(got, 0);
    ++calls;
    bytes += static_cast<double>(got);
  }
  template <typename ReadAt>
  void ReadPieces(const std::string& path, ReadAt read) {
    const auto end = static_cast<std::int64_t>(std::filesystem::file_size(path));
    for (std::int64_t at = 0; at < end && !testing::Test::HasFatalFailure();) {
      const ssize_t got = read(at);
      Take(got);
      at += got;
    }
  }
  void ReadOpen(bool copy, const std::string& path) {
    tier_file* file = nullptr;
    ASSERT_EQ(tier_open(client_, path.c_str(), &file, 0), 0) << path;
    ReadPieces(path, [&](std::int64_t at) -> ssize_t {
      if (copy) return tier_file_pread(file, buffer_.data(), kPiece, at);
      tier_view view{};
      const int error = tier_file_pin(file, at, kPiece, &view);
      const auto got = static_cast<ssize_t>(view.size);
      tier_release(&view);
      return error != 0 ? error : got;
    });
    tier_close(file);
  }
  void ReadBatch(const std::vector<std::string>& paths) {
    std::vector<const char*> names;
    for (const std::string& path : paths) names.push_back(path.c_str());
    std::vector<tier_view> views(paths.size());
    EXPECT_EQ(tier_get_batch(client_, names.data(), names.size(), views.data(), nullptr, 0), static_cast<ssize_t>(names.size()));
    for (tier_view& view : views) {
      Take(static_cast<ssize_t>(view.size));
      tier_release(&view);
    }
  }

  tier_client* client_;
  std::string buffer_ = std::string(1 << 20, '\0');
};

TEST_F(MetricsTest, EachWayToReadCountsOnceForEachCall) {
  constexpr int kFiles = 8;  // in each way; of one chunk, and of several
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  auto options = Options(rig->mount());
  options.more.insert(options.more.end(), {"--set", "source.chunk_size=64 KiB"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  double source_bytes = 0;
  for (int way = 0; way < EachWay::kWays; ++way) {
    SCOPED_TRACE(way);
    std::vector<std::string> paths;
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "/w" + std::to_string(way) + "f" + std::to_string(i);
      const std::size_t bytes = SizeOf(i) + (i % 2 == 0 ? 0 : 200'000);
      Write(rig->backing() + name, Content(name, bytes));
      paths.push_back(rig->mount() + name);
      source_bytes += static_cast<double>(bytes);
    }
    for (const bool cold : {true, false}) {
      SCOPED_TRACE(cold ? "cold" : "from RAM");
      const Done before = DoneBy(client);
      EachWay each(client.get());
      each.Read(way, paths);
      const Done after = DoneBy(client);
      ExpectReads(Scrape(), after);  // what the client says of itself, exactly
      double calls = 0, bytes = 0;
      for (int tier = cold ? 0 : TIER_FROM_RAM; tier <= (cold ? TIER_FROM_SOURCE : TIER_FROM_RAM); ++tier) {
        calls += after.reads[tier] - before.reads[tier];
        bytes += after.bytes[tier] - before.bytes[tier];
      }
      EXPECT_EQ(calls, each.calls);
      EXPECT_EQ(bytes, each.bytes);
    }
    EXPECT_EQ(Scrape().Value("tierd_tier_used_bytes{tier=\"ram\"}"), source_bytes);
    EXPECT_EQ(Scrape().Value("tierd_source_read_bytes_total"), source_bytes);
  }
}

}  // namespace
}  // namespace tierd::e2e
