// A daemon whose /metrics are compared with what clients saw.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {

inline constexpr const char* kTierNames[] = {"ram", "ssd", "source", "bypass"};
inline std::string Labels(int tier) { return std::string("{tier=\"") + kTierNames[tier] + "\""; }

class MetricsTest : public testing::Test {
 protected:
  Exposition Scrape() const { return ParseExposition(daemon.Metrics()); }
  DaemonProcess::Options Options(const std::string& of) const {
    DaemonProcess::Options options;
    options.source = of;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off", "--set", "source.staleness=immutable"});
    return options;
  }
  // What clients saw, by tier.
  struct Done {
    double reads[4] = {}, bytes[4] = {};
    void Add(const Got& got) {
      ++reads[got.origin];
      bytes[got.origin] += static_cast<double>(got.bytes.size());
    }
  };
  static Done DoneBy(const Client& client) {
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    EXPECT_EQ(tier_stats(client.get(), &statistics), 0);
    Done done;
    std::copy_n(statistics.reads, TIER_ORIGINS, done.reads);
    std::copy_n(statistics.bytes, TIER_ORIGINS, done.bytes);
    return done;
  }
  static void ExpectReads(const Exposition& page, const Done& done) {
    for (int tier = 0; tier < 4; ++tier) {
      const std::string result = tier < 2 ? ",result=\"hit\"}" : ",result=\"miss\"}";
      EXPECT_EQ(page.Value("tierd_reads_total" + Labels(tier) + result), done.reads[tier]) << kTierNames[tier];
      EXPECT_EQ(page.Value("tierd_read_bytes_total" + Labels(tier) + "}"), done.bytes[tier]) << kTierNames[tier];
      // Of RAM hits one in 64 is timed.
      const double timed = page.Value("tierd_read_duration_seconds_count" + Labels(tier) + "}");
      if (tier == 0) {
        EXPECT_LE(timed, done.reads[0]);
      } else {
        EXPECT_EQ(timed, done.reads[tier]) << kTierNames[tier];
      }
    }
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
};

// Sizes that differ, so that a sum of bytes belongs to one set of files only.
inline std::size_t SizeOf(int i) { return 1000 + static_cast<std::size_t>(i) * 37; }

}  // namespace tierd::e2e
