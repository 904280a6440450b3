// What `tierctl run` says at the end.
#include "tierctl/run/summary.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "tierctl/terminal/reads.h"
#include "tierctl/run/option_notes.h"

namespace tierctl::run {
namespace {

using nlohmann::json;

json Read(std::uint64_t count, std::uint64_t bytes) { return {{"count", count}, {"bytes", bytes}}; }
json StatusOf(std::uint64_t ram, std::uint64_t source, std::uint64_t read_bytes, const json& epochs = json::array()) {
  return {{"reads", {{"ram", Read(ram, ram * 1000)}, {"ssd", Read(0, 0)}, {"source", Read(source, source * 1000)}, {"bypass", Read(0, 0)}}},
          {"sources", {{{"path", "/d"}, {"read_bytes", read_bytes}, {"epochs", epochs}}}},
          {"fallback", json::object()}};
}
json Epoch(std::uint64_t ram, std::uint64_t ssd, std::uint64_t source, std::uint64_t bypass = 0, double seconds = 2) {
  const json reads = {{"ram", ram}, {"ssd", ssd}, {"source", source}, {"bypass", bypass}};
  json bytes;
  for (const auto& [origin, count] : reads.items()) bytes[origin] = 1000 * count.get<std::uint64_t>();
  return {{"files", 100}, {"file_bytes", std::uint64_t{100'000}}, {"reads", reads}, {"bytes", bytes}, {"seconds", seconds}};
}

class RunSummaryTest : public testing::Test {
 protected:
  RunSummaryTest() {
    facts_.before = StatusOf(0, 0, 0);
    facts_.after = StatusOf(200, 100, 100'000, json::array({Epoch(0, 0, 100), Epoch(100, 0, 0), Epoch(100, 0, 0)}));
    facts_.own_daemon = true;
    facts_.reports = {{"processes", 3}, {"opened", 300}, {"reads", {{"ram", 200}, {"source", 100}}}, {"bytes", {{"ram", 200'000}, {"source", 100'000}}}};
  }
  std::string Line(std::size_t number) const {
    std::istringstream text(SummaryText(Summary(facts_)));
    std::string line;
    for (std::size_t i = 0; i <= number; ++i) std::getline(text, line);
    return line;
  }

  JobFacts facts_;
};

TEST_F(RunSummaryTest, SixLines) {
  const std::string text = SummaryText(Summary(facts_));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST_F(RunSummaryTest, OneLineWhereNothingWasRead) {
  for (const auto& [stats, line] : {std::pair{0, "nothing below a source was read by a program that could be served; is --source right?"},
                                    std::pair{31, "no file below a source was read; answered from the index: 31 stat, 0 listings"}}) {
    facts_.before = facts_.after = StatusOf(0, 0, 0);
    facts_.reports = {{"processes", 1}, {"stats", stats}};
    EXPECT_EQ(SummaryText(Summary(facts_)), "tierd: " + std::string(line) + "\n");
  }
}

// RAM of half the files, and a policy that keeps little of it: one story in all lines.
TEST_F(RunSummaryTest, OfHalfTheDataInRamAllLinesAgree) {
  facts_.after = StatusOf(150, 0, 450'000, json::array({Epoch(10, 0, 40, 50, 9), Epoch(47, 0, 3, 50, 5), Epoch(12, 0, 38, 50, 6), Epoch(12, 0, 38, 50, 4)}));
  facts_.after["tiers"] = {{"ram", {{"allowed_bytes", 53'000}}}, {"ssd", {{"state", "off"}}}};
  facts_.after["sources"][0]["policy"] = "lru";
  facts_.after["reads"]["bypass"] = Read(200, 200'000);
  facts_.reports = {{"processes", 1}, {"opened", 200}, {"reads", {{"ram", 81}, {"source", 119}, {"bypass", 200}}}, {"bytes", {{"ram", 81'000}, {"source", 119'000}, {"bypass", 200'000}}},
                    {"fallback", {{"no_frame", 200}}}, {"real_opens", {{"not_cached", 200}}}, {"real_reads", {{"count", 200}, {"bytes", 200'000}}}};
  facts_.after["reads"]["ram"] = Read(81, 81'000), facts_.after["reads"]["source"] = Read(119, 119'000);
  facts_.seconds = 24;
  facts_.after["sources"][0]["read_bytes"] = 119'000;
  EXPECT_EQ(SummaryText(Summary(facts_)),
            "tierd: 391 KiB in 400 reads of 1 process, 24.0 s; bytes: ram 20.3%, source 29.8%, bypass 49.9%\n"
            "tierd: epoch 1: 9.0 s, ram 10.0%, source 40.0%, bypass 50.0%; epoch 2: 5.0 s, ram 47.0%, source 3.0%, bypass 50.0%; "
            "epochs 3-4: 4.0 s to 6.0 s each, ram 12.0%, source 38.0%, bypass 50.0%\n"
            "tierd: the source gave 116 KiB to tierd and 195 KiB by bypass, for 391 KiB read: 79.1 KiB (20.2%) saved\n"
            "tierd: bypass: 200 reads, 195 KiB; why: no room 200; the source's own file used for: none\n"
            "tierd: conversions: none; answered from the index: 0 stat, 0 listings\n"
            "tierd: RAM holds 53% of what an epoch reads, and lru makes 12% of it: --policy auto keeps a part of it; a larger --ram, or an SSD tier (--ssd), holds more\n");
  facts_.after["sources"][0]["policy"] = "auto";
  EXPECT_TRUE(Line(5).ends_with("and auto makes 12% of it: a larger --ram, or an SSD tier (--ssd), holds more")) << Line(5);
  facts_.after["sources"][0]["epochs"].push_back(Epoch(51, 0, 9, 40));
  EXPECT_EQ(Line(5), "tierd: RAM holds 53% of what an epoch reads, and 51% came from there: a larger --ram, or an SSD tier (--ssd), holds more");
  facts_.after["tiers"]["ram"]["allowed_bytes"] = 200'000;
  EXPECT_EQ(Line(5).find("RAM holds"), std::string::npos) << "it could hold all: " << Line(5);
}

// What never asked the daemon is in the reads and in no epoch.
TEST_F(RunSummaryTest, SaysHowManyReadsTheEpochsTell) {
  facts_.reports["reads"]["bypass"] = 200;
  EXPECT_TRUE(Line(1).ends_with(" (of 300 of 500 reads)")) << Line(1);
}

TEST_F(RunSummaryTest, OptionsThatWereNotTakenAsWrittenAreInTheAdvice) {
  facts_.after = StatusOf(900, 100, 100'000, json::array({Epoch(0, 0, 100), Epoch(100, 0, 0), Epoch(100, 0, 0)}));
  facts_.reports["bytes"] = {{"ram", 900'000}, {"source", 100'000}};
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  facts_.option_notes = {"--ram 99 TB: too large", "--keep: for nothing"};
  EXPECT_EQ(Line(5), "tierd: --ram 99 TB: too large; --keep: for nothing");
}

TEST_F(RunSummaryTest, WhereMemoryIsTheBoundNoLargerRamIsAdvised) {
  facts_.after = StatusOf(150, 0, 450'000, json::array({Epoch(10, 0, 90), Epoch(47, 0, 53), Epoch(12, 0, 88), Epoch(12, 0, 88)}));
  facts_.after["tiers"] = {{"ram", {{"allowed_bytes", 53'000}, {"capacity_bytes", 400'000}}}, {"ssd", {{"state", "off"}}}};
  EXPECT_TRUE(Line(5).ends_with("more memory for the job, or an SSD tier (--ssd), holds more")) << Line(5);
}

TEST(RunOptionNotes, NameTheOptionAndWhatIsGivenInstead) {
  RunOptions options;
  options.ram = "8 GiB";
  const auto status = [](std::uint64_t allowed, const json& notes) {
    return json{{"option_notes", notes}, {"tiers", {{"ram", {{"capacity_bytes", std::uint64_t{8} << 30}, {"allowed_bytes", allowed << 30}, {"bound_by", "node"}}}, {"ssd", {{"state", "off"}}}}}};
  };
  EXPECT_EQ(OptionNotes(options, status(8, json::array())), std::vector<std::string>());
  EXPECT_EQ(OptionNotes(options, status(3, json::array())),
            std::vector<std::string>{"--ram 8 GiB: 3.00 GiB are free for it now (node), and the tier grows as more comes free; name a smaller size, or ask for more memory"});
  EXPECT_EQ(OptionNotes(options, status(3, {"ram.capacity 8 GiB: too large"})), std::vector<std::string>{"--ram 8 GiB: too large"});
  options.ram = "";
  EXPECT_EQ(OptionNotes(options, status(3, {"ram.capacity 8 GiB: too large"})), std::vector<std::string>{"ram.capacity 8 GiB: too large"}) << "of the configuration";
  options.real_fds = options.no_preload = options.keep = true;
  EXPECT_EQ(OptionNotes(options, status(8, json::array())).size(), 2u);
}

TEST(BypassReasons, AreOneListInWordsWhereAnOpenIsCountedOnce) {
  const json document = {{"fallback", {{"no_frame", 200}, {"no_daemon", 3}, {"path", 2}}},
                         {"real_opens", {{"not_cached", 200}, {"path", 1}, {"low_descriptor", 4}}}};
  EXPECT_EQ(Listed(BypassReasons(document)), "low descriptor 4, no daemon 3, no room 200, path 3");
  EXPECT_EQ(Listed(BypassReasons({{"real_opens", {{"not_cached", 5}}}})), "not cached 5") << "no reason was counted";
  EXPECT_EQ(Listed(BypassReasons(json::object())), "none");
}

// Five epochs are over.
TEST_F(RunSummaryTest, NoSecondEpochIsAdvisedAfterTheFifth) {
  facts_.reports["bytes"] = {{"ram", 100'000}, {"source", 400'000}};
  json epochs = json::array();
  for (int i = 0; i < 5; ++i) epochs.push_back(Epoch(20, 0, 80));
  facts_.after = StatusOf(100, 400, 400'000, epochs);
  EXPECT_EQ(Line(5).find("a second epoch"), std::string::npos) << Line(5);
}

TEST_F(RunSummaryTest, HitsPerTierAndEpochAndWhatWasSaved) {
  EXPECT_NE(Line(0).find("300 reads of 3 processes"), std::string::npos) << Line(0);
  EXPECT_NE(Line(0).find("ram 66.7%, source 33.3%"), std::string::npos) << Line(0);
  EXPECT_EQ(Line(1), "tierd: epoch 1: 2.0 s, source 100%; epochs 2-3: 2.0 s each, ram 100%");
  EXPECT_NE(Line(2).find("saved"), std::string::npos) << Line(2);
  EXPECT_EQ(Summary(facts_)["source_saved_bytes"], 200'000);
}

TEST_F(RunSummaryTest, AdvisesToNameFilesByTheSource) {
  facts_.reports["fallback"] = {{"path", 60}};
  EXPECT_EQ(Line(5).find("named through"), std::string::npos) << Line(5);
  facts_.reports["real_opens"] = {{"path", 60}};
  EXPECT_NE(Line(5).find("named through"), std::string::npos) << Line(5);
}

// What is read through a mapping of the source's own file is in no other number.
TEST_F(RunSummaryTest, SaysWhatWasMappedOfTheSource) {
  EXPECT_NE(Line(3).find("; the source's own file used for: none"), std::string::npos) << Line(3);
  facts_.reports["source_uses"] = {{"lock", 2}, {"mmap", 1}};
  EXPECT_NE(Line(3).find("; the source's own file used for: lock 2, mmap 1"), std::string::npos) << Line(3);
  EXPECT_NE(Line(5).find("1 of 1 mapping showed the source's own file"), std::string::npos) << Line(5);
  EXPECT_TRUE(Line(5).ends_with("within the file, 64 chunks and a quarter of --ram at most")) << Line(5);
  facts_.reports["maps"] = 3;
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  facts_.reports["maps"] = 2;
  EXPECT_NE(Line(5).find("1 of 3 mappings showed the source's own file"), std::string::npos) << Line(5);
  const std::string text = SummaryText(Summary(facts_));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
}

TEST_F(RunSummaryTest, ManyUnlikeEpochsStayInOneLine) {
  json epochs = json::array();
  for (std::uint64_t i = 0; i < 50; ++i) epochs.push_back(Epoch(50 + i, 50 - i, 0));
  facts_.after = StatusOf(0, 0, 0, epochs);
  EXPECT_TRUE(Line(1).starts_with("tierd: epoch 1: 2.0 s, ram 50.0%, ssd 50.0%; epoch 2: 2.0 s, ram 51.0%, ssd 49.0%; ")) << Line(1);
  EXPECT_NE(Line(1).find("; epoch 6: 2.0 s, ram 55.0%, ssd 45.0%; ...; epoch 45: "), std::string::npos) << Line(1);
  EXPECT_TRUE(Line(1).ends_with("; epoch 50: 2.0 s, ram 99.0%, ssd 1.0%")) << Line(1);
}

// Programs that use libtier by themselves write no reports.
TEST_F(RunSummaryTest, WhatTheDaemonOfTheJobCountedCountsToo) {
  facts_.preload = false;
  facts_.reports = json::object();
  EXPECT_EQ(Summary(facts_)["reads"]["ram"]["count"], 200);
  EXPECT_EQ(Summary(facts_)["reads"]["source"]["bytes"], 100'000);
}

TEST_F(RunSummaryTest, AFewReadsOfManyThatFoundNoRoomAreFew) {
  facts_.after["reads"]["bypass"] = Read(41, 41'000);
  facts_.after["fallback"] = {{"no_frame", 41}};
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  facts_.after["reads"]["bypass"] = Read(200, 200'000);
  facts_.after["fallback"] = {{"no_frame", 200}};
  EXPECT_EQ(Line(5), "tierd: 200 of 500 reads found no room in the cache: a larger --ram or --ssd holds more");
}

TEST_F(RunSummaryTest, TellsWhereTheSourceGaveMoreThanWasServed) {
  facts_.after = StatusOf(200, 100, 60 << 20);
  EXPECT_EQ(Line(5).find("more than was served"), std::string::npos) << Line(5);
  facts_.after = StatusOf(200, 100, 6'000'000'000);
  EXPECT_EQ(Line(5), "tierd: the source gave 5.59 GiB more than was served: files were brought that nobody read, or of which a part was read; a larger --ram or --ssd keeps them");
}

// RAM had most of it when it was asked for, and the source had given all of it just before.
TEST_F(RunSummaryTest, WhatWasBroughtAheadIsNotSaved) {
  const auto served = [this](std::uint64_t ram, std::uint64_t ssd, std::uint64_t source, std::uint64_t given, const json& epochs) {
    facts_.reports["bytes"] = {{"ram", ram}, {"ssd", ssd}, {"source", source}};
    facts_.after = StatusOf(0, 0, given, epochs);
  };
  const std::string note = " (most was brought just ahead of its first read)", advice = "most was read for the first time";
  served(248'000'000, 0, 2'000'000, 250'000'000, json::array({Epoch(73, 0, 27)}));
  EXPECT_TRUE(Line(0).ends_with("; bytes: ram 99.2%, source 0.8%" + note)) << Line(0);
  EXPECT_EQ(Summary(facts_)["reads"]["ram"]["bytes"], 248'000'000);
  EXPECT_NE(Line(5).find(advice), std::string::npos) << Line(5);
  const std::string text = SummaryText(Summary(facts_));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  served(48'000'000, 0, 202'000'000, 250'000'000, json::array({Epoch(20, 0, 80)}));
  EXPECT_EQ(Line(0).find(note), std::string::npos) << Line(0);
  EXPECT_NE(Line(5).find(advice), std::string::npos) << Line(5);
  // Two epochs, and what was brought beside them.
  served(498'000'000, 0, 2'000'000, 270'000'000, json::array({Epoch(73, 0, 27), Epoch(100, 0, 0)}));
  EXPECT_EQ(Line(0).find(note), std::string::npos) << Line(0);
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  // Little was read three times, more was brought.
  served(3'000'000, 0, 0, 60'000'000, json::array({Epoch(100, 0, 0), Epoch(100, 0, 0), Epoch(100, 0, 0)}));
  EXPECT_EQ(Line(0).find(note), std::string::npos) << Line(0);
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  // Files were opened and not read.
  served(0, 0, 0, 60'000'000, json::array());
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  // Of a daemon that others use too nobody knows whom the source gave it for.
  facts_.own_daemon = false;
  served(248'000'000, 0, 2'000'000, 250'000'000, json::array());
  EXPECT_EQ(Line(0).find(note), std::string::npos) << Line(0);
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
}

// A daemon that was there before, and serves others: only the growth counts, and what the job's own processes say about reads.
TEST_F(RunSummaryTest, OfASharedDaemon) {
  facts_.own_daemon = false;
  facts_.before = StatusOf(5'000, 5'000, 900'000);
  facts_.after = StatusOf(9'000, 5'100, 1'000'000, json::array({Epoch(1, 2, 3)}));
  const json summary = Summary(facts_);
  EXPECT_EQ(summary["reads"]["ram"]["count"], 200);
  EXPECT_EQ(summary["source_read_bytes"], 100'000);
  EXPECT_TRUE(summary["epochs"].empty());
  EXPECT_EQ(Line(1), "tierd: epochs: not known");
}

TEST_F(RunSummaryTest, FallbacksByReason) {
  facts_.reports["fallback"] = {{"no_frame", 3}};
  facts_.after["fallback"] = {{"no_frame", 2}, {"timeout", 4}};
  EXPECT_NE(Line(3).find("no room 3, timeout 4"), std::string::npos) << Line(3);
}

TEST_F(RunSummaryTest, OneLineOfAdvice) {
  EXPECT_EQ(Line(5), "tierd: nothing to improve here");
  facts_.after = json();
  EXPECT_NE(Line(5).find("not always there"), std::string::npos);
  facts_.before = json();
  EXPECT_NE(Line(5).find("there was no daemon"), std::string::npos);
}

TEST_F(RunSummaryTest, SaysAgainWhyThereIsNoCache) {
  facts_.before = facts_.after = json();
  facts_.without = "source.path /typo: no such directory";
  EXPECT_EQ(Line(5), "tierd: without a cache: source.path /typo: no such directory; all was read from the source");
}

// A larger tier would not help: the job's processes do not map it.
TEST_F(RunSummaryTest, SaysThatTheAddressSpaceIsLimited) {
  facts_.reports["bytes"]["bypass"] = 900'000'000;
  facts_.reports["fallback"] = {{"no_frame", 3}};
  EXPECT_NE(Line(5).find("a larger --ram"), std::string::npos) << Line(5);
  facts_.limited_space = true;
  EXPECT_NE(Line(5).find("ulimit -v"), std::string::npos) << Line(5);
}

// The package reads what lies below no source, too; no tier would hold it.
TEST_F(RunSummaryTest, SaysWhatLiesBelowNoSource) {
  facts_.preload = false;
  facts_.reports = json::object();
  facts_.after["reads"]["bypass"] = Read(64, 80'000'000);
  EXPECT_EQ(Line(3), "tierd: bypass: 64 reads, 76.3 MiB; why: below no source 64; the source's own file used for: none");
  EXPECT_EQ(Line(5), "tierd: 76.3 MiB in 64 reads lie below no source: if that is data, add its directory (--source)");
  facts_.after["fallback"] = {{"no_frame", 4}};
  EXPECT_NE(Line(3).find("why: no room 4, below no source 60;"), std::string::npos) << Line(3);
  EXPECT_EQ(Line(5), "tierd: 60 of 64 bypassed reads were of files that lie below no source: if that is data, add its directory (--source)");
  facts_.after["fallback"] = {{"no_frame", 60}};
  EXPECT_EQ(Line(5), "tierd: a good part bypassed the cache: a larger --ram or --ssd holds more");
  facts_.after["fallback"] = {{"no_frame", 64}};
  EXPECT_EQ(Line(3).find("below no source"), std::string::npos) << Line(3);
  // Opens that became the source's own file have a reason, too, and no reads.
  facts_.preload = true;
  facts_.reports = {{"processes", 1}, {"opened", 900}, {"real_opens", {{"not_cached", 64}}}};
  EXPECT_NE(Line(3).find("no room 64, below no source 64;"), std::string::npos) << Line(3);
}

TEST_F(RunSummaryTest, SharesAre100PercentTogether) {
  facts_.own_daemon = false;
  facts_.reports["bytes"] = {{"ram", 1'246}, {"ssd", 1'246}, {"source", 7'508}};
  EXPECT_NE(Line(0).find("bytes: ram 12.5%, ssd 12.5%, source 75.0%"), std::string::npos) << Line(0);
  facts_.reports["bytes"] = {{"ram", 1}, {"ssd", 2}, {"source", 999'999'999'999}};
  EXPECT_NE(Line(0).find("bytes: ram 0.1%, ssd 0.1%, source 99.8%"), std::string::npos) << Line(0);
}

TEST_F(RunSummaryTest, SaysThatFilesFoundNoRoom) {
  facts_.reports["fallback"] = {{"no_frame", 60}};
  facts_.reports["reads"]["bypass"] = 60;
  EXPECT_EQ(Line(5), "tierd: nothing to improve here") << "a sixth";
  facts_.reports["fallback"] = {{"no_frame", 800}, {"timeout", 1}};
  facts_.reports["reads"]["bypass"] = 900;
  EXPECT_EQ(Line(5), "tierd: 800 of 1200 reads found no room in the cache: a larger --ram or --ssd holds more");
  facts_.after["tiers"] = {{"ssd", {{"state", "off"}}}};
  EXPECT_EQ(Line(5), "tierd: 800 of 1200 reads found no room in the cache: a larger --ram, or an SSD tier (--ssd), holds more");
  facts_.limited_space = true;
  EXPECT_NE(Line(5).find("800 of 1200 reads found no room in the cache: of an address space that is limited"), std::string::npos) << Line(5);
  facts_.reports["fallback"] = {{"changed", 800}};
  EXPECT_EQ(Line(5).find("no room"), std::string::npos) << "there was another reason: " << Line(5);
}

// Not one of its files was served, and --source is right for all that.
TEST_F(RunSummaryTest, NothingServedIsNoWrongSource) {
  facts_.before = facts_.after = StatusOf(0, 0, 0);
  facts_.reports = {{"processes", 1}, {"fallback", {{"no_frame", 8000}}}, {"real_opens", {{"not_cached", 8000}}}};
  EXPECT_NE(Line(5).find("8000 of 8000 opens found no room in the cache"), std::string::npos) << Line(5);
  facts_.reports = {{"processes", 1}, {"real_opens", {{"flags", 7}}}};
  EXPECT_EQ(Line(5), "tierd: nothing was served: all bypassed the cache (flags 7)");
  facts_.reports = {{"processes", 1}, {"fallback", {{"hung", 7}}}};
  EXPECT_EQ(Line(5), "tierd: nothing was served: all bypassed the cache (hung 7)");
  facts_.reports = {{"processes", 1}};
  EXPECT_NE(Line(0).find("is --source right?"), std::string::npos) << Line(0);
  // Its processes were killed, the daemon has counted.
  facts_.reports = {{"processes", 0}};
  facts_.exit_code = 124;
  facts_.after["fallback"] = {{"no_frame", 8000}};
  EXPECT_EQ(Line(5), "tierd: 8000 of 8000 reads found no room in the cache: a larger --ram or --ssd holds more");
}

TEST_F(RunSummaryTest, KilledBeforeTheyCouldReport) {
  facts_.before = StatusOf(5'000, 5'000, 900'000);
  facts_.after = StatusOf(9'000, 5'100, 1'000'000);
  facts_.reports = {{"processes", 0}};
  facts_.own_daemon = false;
  // As far as anybody knows it read nothing.
  EXPECT_FALSE(Summary(facts_)["all_jobs"]);
  EXPECT_EQ(Line(0), "tierd: no process of the job reported: it read nothing below a source, or was killed before it could (4100 reads of all jobs of this daemon meanwhile)");
  for (const int code : {124, 143}) {
    facts_.exit_code = code;
    EXPECT_TRUE(Summary(facts_)["all_jobs"]);
    EXPECT_EQ(Summary(facts_)["reads"]["ram"]["count"], 4'000);
    EXPECT_NE(Line(0).find("4100 reads of all jobs of this daemon, "), std::string::npos) << Line(0);
    EXPECT_EQ(Line(5), "tierd: the job's processes were killed before they could report: all figures are the daemon's, of all jobs that it served meanwhile");
  }
  facts_.own_daemon = true;
  EXPECT_FALSE(Summary(facts_)["all_jobs"]);
  EXPECT_NE(Line(0).find("4100 reads of processes that were killed before they could report, "), std::string::npos) << Line(0);
  facts_.exit_code = 0;
  EXPECT_NE(Line(0).find("4100 reads of processes that did not report, "), std::string::npos) << Line(0);
  facts_.exit_code = 124;
  facts_.own_daemon = false;
  facts_.reports = {{"processes", 2}, {"opened", 9}, {"reads", {{"ram", 9}}}, {"bytes", {{"ram", 9}}}};
  EXPECT_NE(Line(0).find("9 reads of 2 processes that reported, "), std::string::npos) << Line(0);
  facts_.reports = {{"processes", 0}};
  facts_.after = facts_.before;
  EXPECT_EQ(Line(0), "tierd: no read below a source had reached the daemon when the job was killed; is --source right?");
}

// It answered tierctl, and not the job: --source is as right as it can be.
TEST_F(RunSummaryTest, SaysThatTheJobDidNotFindTheDaemon) {
  facts_.own_daemon = false;
  facts_.after = facts_.before;
  facts_.reports = {{"processes", 2}, {"fallback", {{"no_daemon", 2}}}, {"real_opens", {{"not_cached", 2}}}};
  EXPECT_EQ(Line(5), "tierd: the job's programs did not get to the daemon (no_daemon 2): all was read from the source");
  facts_.reports["opened"] = 50;
  EXPECT_EQ(Line(5), "tierd: the daemon was not always there (no_daemon 2): see its log");
  facts_.own_daemon = true;
  EXPECT_EQ(Line(5), "tierd: the daemon was not always there (no_daemon 2): see its log with --keep");
}

// The job's own daemon was killed: by the kernel, where memory ran out.
TEST_F(RunSummaryTest, SaysThatTheDaemonWasKilled) {
  facts_.after = nullptr;
  facts_.daemon_signal = SIGKILL;
  EXPECT_EQ(Line(2), "tierd: the source gave tierd what is not known and 0 B by bypass, for 293 KiB read");
  EXPECT_TRUE(Summary(facts_)["source_read_bytes"].is_null());
  EXPECT_TRUE(Summary(facts_)["source_saved_bytes"].is_null());
  EXPECT_EQ(Line(5), "tierd: the daemon was killed while the job ran (signal 9): what was read later is the source's; where memory runs out the kernel ends the daemon first: a smaller --ram, or more memory for the job");
  facts_.daemon_signal = SIGSEGV;
  EXPECT_EQ(Line(5), "tierd: the daemon was killed while the job ran (signal 11): what was read later is the source's; see its log with --keep");
  facts_.daemon_signal = facts_.signal_number = SIGKILL;
  facts_.reports = {{"processes", 0}};
  const std::string text = SummaryText(Summary(facts_));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_EQ(Line(0).find("tierd: what was read is not known: no process reported, and the daemon is gone; "), 0) << Line(0);
  EXPECT_EQ(Line(4), "tierd: conversions: not known");
  EXPECT_EQ(Line(5), "tierd: the daemon was killed while the job ran (signal 9), and so was the job; where memory runs out the kernel ends the daemon first: a smaller --ram, or more memory for the job");
}

}  // namespace
}  // namespace tierctl::run
