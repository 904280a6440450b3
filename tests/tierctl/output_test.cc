#include "tierctl/terminal/output.h"

#include <gtest/gtest.h>

#include "tierctl/terminal/job_watch.h"

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

// As if all of it had been done at one pace from the beginning.
std::string LineOf(const JobSum& sum, double seconds) {
  TimeToGo pace;
  pace.Note(seconds, {static_cast<double>(sum.files_ended()), static_cast<double>(sum.bytes_done)});
  return ProgressLine(sum, seconds, pace);
}

TEST(JobSum, ProgressShowsRateAndTimeLeft) {
  JobSum sum;
  sum.Add(Job("running", 20, 100, false));
  EXPECT_EQ(LineOf(sum, 2.0), "20/100 files, 20.0 MiB, 10 files/s, 10.0 MiB/s, 8.0 s to go");
  JobSum walking;
  walking.Add(Job("running", 20, 100, true));
  EXPECT_EQ(LineOf(walking, 2.0), "20/100+ files, 20.0 MiB, 10 files/s, 10.0 MiB/s");
  EXPECT_EQ(LineOf(JobSum(), 0), "0/0 files, 0 B, 0 files/s, 0 B/s");
}

// 3,000 small files are there, and a large one beside them has 57 of its 300 MiB.
TEST(JobSum, TheTimeLeftIsThatOfTheBytesWhereTheyTakeLonger) {
  JobSum sum;
  sum.Add({{"state", "running"}, {"files_done", 3000}, {"files_total", 3001}, {"bytes_done", 60 << 20}, {"bytes_known", 303 << 20}, {"files_sized", 3001}, {"walking", false}});
  EXPECT_EQ(LineOf(sum, 3.0), "3000/3001 files, 60.0 MiB/303 MiB, 1000 files/s, 20.0 MiB/s, at most 12.2 s to go");
}

TEST(JobSum, AFileThatIsUnderWayHasATimeToGo) {
  JobSum sum;
  sum.Add({{"state", "running"}, {"files_done", 0}, {"files_total", 1}, {"bytes_done", 100 << 20}, {"bytes_known", 300 << 20}, {"files_sized", 1}, {"walking", false}});
  EXPECT_EQ(LineOf(sum, 2.0), "0/1 files, 100 MiB/300 MiB, 0 files/s, 50.0 MiB/s, 4.0 s to go");
}

// Ten files of 1 MiB are there and a tenth of one of 10 MiB: the other nine are taken for 20 MiB / 11.
TEST(JobSum, AFileWithoutASizeIsTakenForTheMean) {
  JobSum sum;
  sum.Add({{"state", "running"}, {"files_done", 10}, {"files_total", 22}, {"files_failed", 1}, {"files_no_room", 1}, {"bytes_done", 11 << 20}, {"bytes_known", 20 << 20}, {"files_sized", 11}, {"walking", false}});
  TimeToGo pace;
  pace.Note(1.0, {12, 11 << 20});
  EXPECT_NEAR(LeftOf(sum, pace)->seconds, (9 + 9 * 20.0 / 11) / 11, 1e-6);
  EXPECT_EQ(LineOf(sum, 1.0), "12/22 files, 11.0 MiB, 12 files/s, 11.0 MiB/s, at most 2.3 s to go, 2 not brought");
}

TEST(JobSum, SaysNoTimeOfWhichTooLittleIsKnownAndNoneThatIsNothing) {
  const auto left = [](std::uint64_t ended, std::uint64_t total, std::uint64_t done, std::uint64_t known, std::uint64_t sized) {
    JobSum sum;
    sum.Add({{"state", "running"}, {"files_done", ended}, {"files_total", total}, {"bytes_done", done}, {"bytes_known", known}, {"files_sized", sized}, {"walking", false}});
    return LineOf(sum, 2.0);
  };
  EXPECT_EQ(left(0, 1, 0, 0, 0), "0/1 files, 0 B, 0 files/s, 0 B/s") << "nothing is known";
  EXPECT_EQ(left(0, 1, 0, 1000, 1), "0/1 files, 0 B/1000 B, 0 files/s, 0 B/s") << "nothing has come yet";
  EXPECT_EQ(left(1000, 1001, 0, 1 << 20, 1001), "1000/1001 files, 0 B/1.00 MiB, 500 files/s, 0 B/s") << "of empty files the pace of bytes cannot be told";
  EXPECT_EQ(left(999'999, 1'000'000, 1 << 20, 1 << 20, 1'000'000), "999999/1000000 files, 1.00 MiB, 500000 files/s, 512 KiB/s, 0.1 s to go") << "something is left";
  EXPECT_EQ(left(10, 10, 1 << 20, 1 << 20, 10), "10/10 files, 1.00 MiB, 5 files/s, 512 KiB/s");
  JobSum old;
  old.Add({{"state", "running"}, {"files_done", 1}, {"files_total", 5}, {"bytes_done", 0}, {"bytes_total", nullptr}, {"files_sized", nullptr}, {"bytes_known", nullptr}, {"walking", false}});
  EXPECT_EQ(LineOf(old, 1.0), "1/5 files, 0 B, 1 files/s, 0 B/s, 4.0 s to go") << "a job whose files have no sizes";
}

TEST(JobSum, StatesThatEnd) {
  for (const char* state : {"done", "partial", "cancelled"}) EXPECT_TRUE(IsFinal({{"state", state}}));
  for (const char* state : {"running", "verifying"}) EXPECT_FALSE(IsFinal({{"state", state}}));
}

}  // namespace
}  // namespace tierctl
