#include "tierctl/output.h"

#include <gtest/gtest.h>

#include "tierctl/job_watch.h"

namespace tierctl {
namespace {

TEST(Output, PercentNeverRoundsToAllOrNothing) {
  EXPECT_EQ(Percent(0, 0), "-");
  EXPECT_EQ(Percent(0, 10), "0%");
  EXPECT_EQ(Percent(10, 10), "100%");
  EXPECT_EQ(Percent(1, 1'000'000), "0.1%");
  EXPECT_EQ(Percent(999'999, 1'000'000), "99.9%");
  EXPECT_EQ(Percent(1, 3), "33.3%");
}

TEST(Output, Spans) {
  EXPECT_EQ(Span(0.04), "0.0 s");
  EXPECT_EQ(Span(99.9), "99.9 s");
  EXPECT_EQ(Span(125), "2:05 min");
  EXPECT_EQ(Span(3723), "1:02:03 h");
  EXPECT_EQ(Span(-3), "0.0 s");
}

TEST(Output, TablesAreAligned) {
  Table table(1);
  table.Row({"N", "NAME", "X"});
  table.Row({"1000", "a", "long text"});
  EXPECT_EQ(table.Text(), "   N  NAME  X\n1000  a     long text\n");
  EXPECT_EQ(Plural(1, "file"), "1 file");
  EXPECT_EQ(Plural(0, "file"), "0 files");
}

nlohmann::json Job(const char* state, std::uint64_t done, std::uint64_t total, bool walking) {
  return {{"state", state}, {"files_done", done}, {"files_total", total}, {"bytes_done", done << 20}, {"walking", walking}, {"elapsed_s", 2.0}};
}

TEST(JobSum, AddsUpAndJudges) {
  JobSum sum;
  sum.Add(Job("done", 10, 10, false));
  EXPECT_TRUE(sum.complete());
  sum.Add(Job("partial", 5, 10, false));
  EXPECT_FALSE(sum.complete());
  EXPECT_EQ(sum.files_done, 15u);
}

TEST(JobSum, ProgressShowsRateAndTimeLeft) {
  JobSum sum;
  sum.Add(Job("running", 20, 100, false));
  EXPECT_EQ(ProgressLine(sum, 2.0), "20/100 files, 20.0 MiB, 10 files/s, 10.0 MiB/s, 8.0 s to go");
  JobSum walking;
  walking.Add(Job("running", 20, 100, true));
  EXPECT_EQ(ProgressLine(walking, 2.0), "20/100+ files, 20.0 MiB, 10 files/s, 10.0 MiB/s");
  EXPECT_EQ(ProgressLine(JobSum(), 0), "0/0 files, 0 B, 0 files/s, 0 B/s");
}

TEST(JobSum, StatesThatEnd) {
  for (const char* state : {"done", "partial", "cancelled"}) EXPECT_TRUE(IsFinal({{"state", state}}));
  for (const char* state : {"running", "verifying"}) EXPECT_FALSE(IsFinal({{"state", state}}));
}

}  // namespace
}  // namespace tierctl
