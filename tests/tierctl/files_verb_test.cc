// ls, stat, explain, du, evict, pin, unpin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json File(const std::string& path, std::uint64_t size, std::uint64_t ram, std::uint64_t ssd) {
  return {{"path", path}, {"kind", "file"}, {"size_bytes", size}, {"ram_bytes", ram}, {"ssd_bytes", ssd}, {"missing_bytes", size - std::max(ram, ssd)}, {"pinned", false}};
}

json Page(const std::vector<json>& entries, const json& next) { return {{"path", "/d"}, {"entries", entries}, {"next", next}, {"walked", true}}; }

TEST(ListVerb, FollowsPages) {
  FakeControl fake;
  json odd = {{"path", "/d/\uFFFD"}, {"path_b64", "L2QvCv8="}, {"kind", "file"}, {"size_bytes", 0}, {"ram_bytes", 0}, {"ssd_bytes", 0}, {"missing_bytes", 0}, {"pinned", true}};
  fake.Reply("GET /v1/files", Page({File("/d/a", 1000, 1000, 0), {{"path", "/d/sub"}, {"kind", "directory"}}}, "c 1"));
  fake.Reply("GET /v1/files", Page({odd}, nullptr));
  const Ran ran = RunTierctl({"--socket", fake.socket(), "ls", "-r", "/d/ä"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "      SIZE     RAM     SSD  P  PATH\n"
            "    1000 B    100%      0%  -  /d/a\n"
            "         -       -       -  -  /d/sub/\n"
            "       0 B       -       -  P  /d/\n\xff\n");
  EXPECT_THAT(fake.Asked(), ElementsAre("GET /v1/files?path=/d/%C3%A4&limit=1000&recursive=1", "GET /v1/files?path=/d/%C3%A4&limit=1000&recursive=1&after=c%201"));
}

TEST(ListVerb, NamesOnlyAndJson) {
  FakeControl fake;
  fake.Reply("GET /v1/files", Page({File("/d/a", 1, 0, 0), File("/d/b", 1, 0, 0)}, nullptr));
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "ls", "-0", "/d"}).out, std::string("/d/a\0/d/b\0", 10));
  const Ran ran = RunTierctl({"ls", "/d", "/e", "--json", "--socket", fake.socket()});
  const json document = json::parse(ran.out);
  EXPECT_EQ(document["entries"].size(), 4u);
  EXPECT_EQ(document["walked"], true);
}

TEST(ListVerb, SaysWhatIsNotKnown) {
  FakeControl fake;
  fake.Reply("GET /v1/files", {{"path", "/d"}, {"entries", json::array()}, {"next", nullptr}, {"walked", false}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "ls", "/usr"}).err, "tierctl: /usr: not all of it is known yet; tierctl du /usr lists it\n");
}

TEST(ListVerb, NothingThereHasNoHeading) {
  FakeControl fake;
  fake.Reply("GET /v1/files", Page({}, nullptr));
  const Ran ran = RunTierctl({"--socket", fake.socket(), "ls", "/nothing/there"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "tierctl: /nothing/there: No such file or directory\n");
}

TEST(ListVerb, JsonIsWholeWhateverTheDaemonSays) {
  FakeControl fake;
  fake.ReplyError("GET /v1/files", 404, "outside", "/x is below no source");
  const json refused = json::parse(RunTierctl({"--socket", fake.socket(), "ls", "--json", "/x"}).out);
  EXPECT_EQ(refused["entries"], json::array());
}

TEST(StatVerb, ALinkShowsWhereItLeads) {
  FakeControl fake;
  json file = File("/d/link", 2048, 2048, 0);
  file["target"] = {{"path", "/d/a"}};
  fake.Reply("GET /v1/file", file);
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "stat", "/d/link"}).out, HasSubstr("  target         /d/a\n"));
}

// What hangs for the daemon would hang for tierctl.
TEST(StatVerb, ASourceThatDidNotAnswerIsNotAskedAgain) {
  FakeControl fake;
  json file = {{"path", "/none/such"}, {"known", false}, {"answered", false}, {"why", {"The source did not answer."}}};
  fake.Reply("GET /v1/file", file);
  const Ran ran = RunTierctl({"--socket", fake.socket(), "explain", "/none/such"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "/none/such\n  The source did not answer.\n");
  EXPECT_EQ(fake.Asked().at(0), "GET /v1/file?path=/none/such&ask=1");
}

TEST(StatVerb, PrintsFactsAndReasons) {
  FakeControl fake;
  json file = File("/d/a", 2048, 2048, 0);
  file["why"] = {"In RAM: yes.", "On SSD: no."};
  fake.Reply("GET /v1/file", file);
  const Ran stat = RunTierctl({"--socket", fake.socket(), "stat", "/d/a"});
  EXPECT_THAT(stat.out, HasSubstr("/d/a\n"));
  EXPECT_THAT(stat.out, HasSubstr("  size_bytes     2048 (2.00 KiB)\n"));
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "explain", "/d/a"}).out, "/d/a\n  In RAM: yes.\n  On SSD: no.\n");
}

json Sums(const char* walk, const json& job = nullptr) {
  return {{"path", "/d"}, {"source", "d"}, {"files", 4}, {"size_bytes", 4096}, {"ram_bytes", 1024}, {"ssd_bytes", 4095}, {"missing_bytes", 1}, {"files_missing", 1}, {"walk", walk}, {"job", job}};
}

TEST(DuVerb, WalksWhatIsNotKnown) {
  FakeControl fake;
  fake.Reply("GET /v1/du", Sums("none"));
  fake.Reply("GET /v1/du", Sums("complete"));
  fake.Reply("POST /v1/walk", {{"job", 8}}, 202);
  fake.Reply("GET /v1/jobs/8", JobJson(8, "walk", "running"));
  fake.Reply("GET /v1/jobs/8", JobJson(8, "walk", "done"));
  const Ran ran = RunTierctl({"--socket", fake.socket(), "du", "/d"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "    SIZE    RAM    SSD  MISSING  FILES  MISSING FILES  PATH\n"
            "4.00 KiB  25.0%  99.9%      1 B      4              1  /d\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(fake.Asked(), ElementsAre("GET /v1/du?path=/d", "POST /v1/walk", "GET /v1/jobs/8", "GET /v1/jobs/8", "GET /v1/du?path=/d"));
}

TEST(DuVerb, JoinsAWalkUnderWayAndAdmitsWhatIsShort) {
  FakeControl fake;
  fake.Reply("GET /v1/du", Sums("running", 9));
  fake.Reply("GET /v1/jobs/9", JobJson(9, "walk", "partial", {{"error", "/d/x: Input/output error"}}));
  const Ran ran = RunTierctl({"--socket", fake.socket(), "du", "/usr"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "tierctl: /usr: could not be listed wholly: /d/x: Input/output error\ntierctl: these are sums of what is known so far, not of everything at the source\n");
  const Ran asked_so = RunTierctl({"--socket", fake.socket(), "du", "--no-walk", "/d", "--json"});
  EXPECT_EQ(asked_so.exit_code, 0);
  EXPECT_EQ(json::parse(asked_so.out)["paths"][0], Sums("running", 9));
}

TEST(ResidencyVerbs, SendPathsAndSayHowMany) {
  FakeControl fake;
  for (const char* end_point : {"POST /v1/evict", "POST /v1/pin", "POST /v1/unpin"}) fake.Reply(end_point, {{"files", 2}});
  const std::string odd = "/d/\xff";
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "evict", "/d/a", odd}).out, "evicted 2 files\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "free", "--invalidate", "/d"}).out, "invalidated 2 files\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "pin", "/d"}).out, "pinned 2 files\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "unpin", "/d", "--json"}).out, "{\n  \"files\": 2\n}\n");
  const auto requests = fake.Requests();
  EXPECT_EQ(requests[0].body, json({{"invalidate", false}, {"paths", {"/d/a", {{"b64", "L2Qv/w=="}}}}}));
  EXPECT_EQ(requests[1].body, json({{"invalidate", true}, {"paths", json::array({"/d"})}}));
  EXPECT_EQ(requests[2].body, json({{"paths", json::array({"/d"})}}));
}

TEST(ResidencyVerbs, PinSaysHowMuchOfItIsThere) {
  FakeControl fake;
  fake.Reply("POST /v1/pin", {{"files", 2}, {"size_bytes", 4096}, {"ram_bytes", 4096}, {"ssd_bytes", 0}, {"missing_bytes", 0}, {"files_missing", 0}});
  const Ran all = RunTierctl({"--socket", fake.socket(), "pin", "/d"});
  EXPECT_EQ(all.out, "pinned 2 files, 4.00 KiB in the cache\n");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  FakeControl small;
  small.Reply("POST /v1/pin", {{"files", 4}, {"size_bytes", 8192}, {"ram_bytes", 1024}, {"ssd_bytes", 0}, {"missing_bytes", 7168}, {"files_missing", 3}});
  const Ran some = RunTierctl({"--socket", small.socket(), "pin", "/d"});
  EXPECT_EQ(some.out, "pinned 4 files, 1.00 KiB of 8.00 KiB in the cache\n");
  EXPECT_EQ(some.err, "tierctl: short: 3 files not wholly in the cache: no room (tierctl status shows the tiers), or never brought (tierctl prefetch --pin brings them)\n");
  EXPECT_EQ(some.exit_code, 2);
  const Ran told = RunTierctl({"--socket", small.socket(), "pin", "/d", "--json"});
  EXPECT_EQ(told.out, "{\n  \"files\": 4,\n  \"files_missing\": 3,\n  \"missing_bytes\": 7168,\n  \"size_bytes\": 8192\n}\n");
  EXPECT_EQ(told.exit_code, 2);
}

// The server takes a megabyte at a time.
TEST(ResidencyVerbs, LongPathsAreSentInSeveralRequests) {
  for (const char* verb : {"evict", "pin", "unpin"}) {
    FakeControl fake;
    fake.Reply("POST /v1/" + std::string(verb), {{"files", 500}});
    std::vector<std::string> command{"--socket", fake.socket(), verb};
    for (int i = 0; i < 700; ++i) command.push_back("/d/" + std::string(1'600, i % 2 == 0 ? 'x' : '\x01') + std::to_string(i));
    EXPECT_EQ(RunTierctl(command).exit_code, 0);
    std::size_t paths = 0;
    for (const auto& request : fake.Requests()) {
      paths += request.body["paths"].size();
      EXPECT_LE(request.body.dump().size(), 1u << 20);
    }
    EXPECT_EQ(paths, 700u);
  }
}

TEST(ResidencyVerbs, NothingThereIsSaid) {
  FakeControl fake;
  fake.Reply("POST /v1/evict", {{"files", 0}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "evict", "/usr"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "tierctl: nothing is known there; tierctl ls shows what is\n");
  FakeControl unknown;
  unknown.Reply("POST /v1/evict", {{"files", 0}, {"unknown", {0, 1}}});
  const Ran slip = RunTierctl({"--socket", unknown.socket(), "evict", "/usr", "/none/such"});
  EXPECT_EQ(slip.exit_code, 1);
  EXPECT_EQ(slip.out, "");
  EXPECT_EQ(slip.err, "tierctl: /none/such: No such file or directory\n");
}

TEST(ResidencyVerbs, ASlipBesideRightPathsIsSaid) {
  FakeControl fake;
  fake.Reply("POST /v1/evict", {{"files", 9}, {"unknown", {1}}});
  const Ran slip = RunTierctl({"--socket", fake.socket(), "evict", "/usr", "/none/such", "/tmp"});
  EXPECT_EQ(slip.exit_code, 2);
  EXPECT_EQ(slip.out, "evicted 9 files\n");
  EXPECT_EQ(slip.err, "tierctl: /none/such: No such file or directory\n");
}

// The others are asked for again, without it.
TEST(ResidencyVerbs, APathBelowNoSourceIsTakenOut) {
  FakeControl fake;
  fake.ReplyText("POST /v1/pin", json({{"error", {{"code", "outside"}, {"message", "/usr is below no source"}, {"outside", {1}}}}}).dump(), 404);
  fake.Reply("POST /v1/pin", {{"files", 2}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "pin", "/d/a", "/usr", "/d/b"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.out, "pinned 2 files\n");
  EXPECT_EQ(ran.err, "tierctl: /usr is below no source\n");
  EXPECT_EQ(fake.Requests()[1].body, json({{"paths", {"/d/a", "/d/b"}}}));
}

}  // namespace
}  // namespace tierctl
