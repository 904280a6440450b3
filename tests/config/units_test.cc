#include "tierd/config/units.h"

#include <gtest/gtest.h>

#include <random>

namespace tierd::config {
namespace {

TEST(Units, ReadsSizes) {
  const struct {
    const char* text;
    std::uint64_t bytes;
  } rows[] = {{"0", 0},
              {"0 B", 0},
              {"1 B", 1},
              {"800 GB", 800'000'000'000},
              {"800GB", 800'000'000'000},
              {" 4 MiB ", 4 << 20},
              {"4mib", 4 << 20},
              {"1.5 GiB", 1610612736},
              {"0.5 kB", 500},
              {"2 TB", 2'000'000'000'000},
              {"1 PiB", std::uint64_t{1} << 50},
              // As in Slurm's --mem.
              {"300M", 300 << 20},
              {"8G", std::uint64_t{8} << 30},
              {"8g", std::uint64_t{8} << 30},
              {"64k", 64 << 10},
              {"1.5 T", std::uint64_t{3} << 39},
              {"2P", std::uint64_t{2} << 50},
              {"9223372036854775807 B", 9223372036854775807u}};
  for (const auto& row : rows) EXPECT_EQ(ParseSize(row.text), row.bytes) << row.text;
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "B", "12", "K", "12 Gi", "12 GG", "9000P", "4 MX", "-1 GB", "1e9 B", "1..5 GB", ".5 GB", "1 GB x", "0x10 B", "9223372036854775808 B", "99999999 PB",
                           "1.5", "nan GB", "1,5 GB"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
}

TEST(Units, FormatsSizesExactly) {
  EXPECT_EQ(FormatSize(0), "0");
  EXPECT_EQ(FormatSize(800'000'000'000), "800 GB");
  EXPECT_EQ(FormatSize(4 << 20), "4 MiB");
  EXPECT_EQ(FormatSize(1234), "1234 B");
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bytes = random() >> (1 + random() % 63);
    ASSERT_EQ(ParseSize(FormatSize(bytes)), bytes) << bytes;
  }
}

TEST(Units, FormatsSizesForPeople) {
  EXPECT_EQ(HumanSize(0), "0 B");
  EXPECT_EQ(HumanSize(999), "999 B");
  EXPECT_EQ(HumanSize(1023), "1023 B");
  EXPECT_EQ(HumanSize(1024), "1.00 KiB");
  EXPECT_EQ(HumanSize(1023 * 1024), "1.00 MiB");
  EXPECT_EQ(HumanSize(std::uint64_t{123} << 30), "123 GiB");
}

TEST(Units, ReadsAndFormatsDurations) {
  const struct {
    const char* text;
    std::uint32_t ms;
    const char* again;
  } rows[] = {{"0", 0, "0"}, {"250ms", 250, "250ms"}, {"60s", 60'000, "60s"}, {"1.5 s", 1500, "1500ms"}, {"5min", 300'000, "300s"},
              {"5m", 300'000, "300s"}, {"2h", 7'200'000, "2h"}, {"1d", 86'400'000, "24h"}};
  for (const auto& row : rows) {
    EXPECT_EQ(ParseDurationMs(row.text), row.ms) << row.text;
    EXPECT_EQ(FormatDurationMs(row.ms), row.again);
    EXPECT_EQ(ParseDurationMs(FormatDurationMs(row.ms)), row.ms);
  }
  for (const char* text : {"", "60", "s", "1 week", "-1s", "50d", "1h30m"}) EXPECT_EQ(ParseDurationMs(text), std::nullopt) << text;
}

TEST(Units, ReadsShares) {
  EXPECT_EQ(ParsePercent("25%"), 25.0);
  EXPECT_EQ(ParsePercent("12.5 %"), 12.5);
  EXPECT_EQ(FormatPercent(12.5), "12.5%");
  EXPECT_EQ(FormatPercent(25), "25%");
  for (const char* text : {"0.0001%", "0.0000005%", "12.3456789%", "100%"}) EXPECT_EQ(FormatPercent(*ParsePercent(text)), text);
  EXPECT_EQ(ParsePercent(FormatPercent(5e-324)), 5e-324);
  for (const char* text : {"", "%", "0%", "101%", "-5%", "25", "25%%"}) EXPECT_EQ(ParsePercent(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tierd::config
