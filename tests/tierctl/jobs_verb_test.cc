// prefetch, jobs, wait, cancel, verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PrefetchVerb, StartsAndLeaves) {
  FakeControl fake;
  fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
  const Ran ran = RunTierctl({"--socket", fake.socket(), "prefetch", "--tier", "ssd", "--pin", "--no-evict", "/usr"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "job 7\n");
  EXPECT_EQ(fake.Requests().at(0).body, json({{"paths", json::array({"/usr"})}, {"tier", "ssd"}, {"pin", true}, {"evict", false}}));
  EXPECT_EQ(json::parse(RunTierctl({"--socket", fake.socket(), "warmup", "/d", "--json"}).out), json({{"jobs", {7}}}));
}

TEST(PrefetchVerb, WaitEndsWithVerifiedCoverage) {
  FakeControl fake;
  fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
  fake.Reply("GET /v1/jobs/7", JobJson(7, "prefetch", "running", {{"files_done", 3}, {"files_expected", 0}, {"files_verified", 0}, {"walking", true}}));
  fake.Reply("GET /v1/jobs/7", JobJson(7, "prefetch", "verifying"));
  fake.Reply("GET /v1/jobs/7", JobJson(7, "prefetch", "done", {{"elapsed_s", 1000}, {"files_done", 5000}, {"bytes_done", 2'048'000}}));
  const Ran ran = RunTierctl({"--socket", fake.socket(), "prefetch", "--wait", "/d"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "verified 10 of 10 files, 1000 B, in 16:40 min: 5 files/s, 2.00 KiB/s\n");
  EXPECT_EQ(ran.err, "");  // no progress without a terminal
}

TEST(PrefetchVerb, WhoInterruptsTheWaitIsToldWhatGoesOn) {
  FakeControl fake;
  fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
  fake.Reply("GET /v1/jobs/7", JobJson(7, "prefetch", "running"));
  const Ran ran = RunProgram({"/usr/bin/timeout", "--signal=INT", "1", TIERCTL_BINARY, "--socket", fake.socket(), "prefetch", "--wait", "/d"}, {}, "");
  EXPECT_EQ(ran.exit_code, 124);
  EXPECT_EQ(ran.err, "\ntierctl: job 7 goes on; tierctl cancel 7 ends it\n");
}

TEST(PrefetchVerb, ShortCoverageIsExitTwo) {
  const struct {
    json more;
    const char* state;
    std::string message;
  } rows[] = {
      {{{"files_failed", 1}, {"files_verified", 9}, {"error", "/d/x: Permission denied"}}, "partial",
       "tierctl: short: 1 file could not be read; 1 file not wholly in a tier at the end. First: /d/x: Permission denied\n"},
      {{{"files_no_room", 4}, {"files_verified", 6}}, "done", "tierctl: short: 4 files found no room (tierctl status shows the tiers); 4 files not wholly in a tier at the end.\n"},
      {{{"files_verified", 9}}, "done", "tierctl: short: 1 file not wholly in a tier at the end.\n"},
      {json::object(), "cancelled", "tierctl: short: a job did not run to its end.\n"},
  };
  for (const auto& row : rows) {
    FakeControl fake;
    fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
    fake.Reply("GET /v1/jobs/7", JobJson(7, "prefetch", row.state, row.more));
    const Ran ran = RunTierctl({"--socket", fake.socket(), "prefetch", "-w", "/d"});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(ran.err, row.message);
    const json document = json::parse(RunTierctl({"--socket", fake.socket(), "prefetch", "-w", "/d", "--json"}).out);
    EXPECT_EQ(document["complete"], false);
    EXPECT_EQ(document["jobs"].size(), 1u);
  }
}

TEST(PrefetchVerb, ListsComeFromFilesAndStdin) {
  FakeControl fake;
  fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
  const std::string list = fake.directory() + "/list";
  std::ofstream(list) << "/d/a\n\n/d/b c\n";
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "prefetch", "-f", list}).exit_code, 0);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "prefetch", "-0", "-f", "-", "/usr"}, {}, std::string("/d/x\ny\0/d/z", 11)).exit_code, 0);
  EXPECT_EQ(fake.Requests()[0].body["paths"], json({"/d/a", "/d/b c"}));
  EXPECT_EQ(fake.Requests()[1].body["paths"], json({"/usr", "/d/x\ny", "/d/z"}));
  const Ran missing = RunTierctl({"--socket", fake.socket(), "prefetch", "-f", fake.directory() + "/none"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.err, "tierctl: " + fake.directory() + "/none: No such file or directory\n");
}

TEST(PrefetchVerb, NothingThereIsADocumentToo) {
  FakeControl fake;
  fake.Reply("GET /v1/du", {{"files", 0}});
  const Ran started = RunTierctl({"--socket", fake.socket(), "prefetch", "--json", "/nothing/there"});
  EXPECT_EQ(started.exit_code, 1);
  EXPECT_EQ(json::parse(started.out), json({{"jobs", json::array()}}));
  const Ran waited = RunTierctl({"--socket", fake.socket(), "prefetch", "--json", "--wait", "/nothing/there"});
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_EQ(waited.err, "tierctl: /nothing/there: No such file or directory\n");
  EXPECT_EQ(json::parse(waited.out)["complete"], false);
}

TEST(PrefetchVerb, LongListsBecomeSeveralJobs) {
  FakeControl fake;
  for (int id = 1; id <= 3; ++id) {
    fake.Reply("POST /v1/prefetch", {{"job", id}}, 202);
    fake.Reply("GET /v1/jobs/" + std::to_string(id), JobJson(static_cast<std::uint64_t>(id), "prefetch", "done"));
  }
  std::string list;
  for (int i = 0; i < 25'000; ++i) list += "/d/" + std::to_string(i) + "\n";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "prefetch", "--wait", "-f", "-"}, {}, list);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("verified 30 of 30 files"));
  std::vector<std::size_t> sizes;
  for (const auto& request : fake.Requests()) {
    if (request.method == "POST") sizes.push_back(request.body["paths"].size());
  }
  EXPECT_THAT(sizes, ElementsAre(10'000, 10'000, 5'000));
}

TEST(PrefetchVerb, WaitsForItsTurn) {
  FakeControl fake;
  fake.ReplyError("POST /v1/prefetch", 429, "busy", "256 jobs run");
  fake.Reply("POST /v1/prefetch", {{"job", 7}}, 202);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "prefetch", "/d"}).out, "job 7\n");
}

TEST(JobVerbs, ListWaitCancel) {
  FakeControl fake;
  fake.Reply("GET /v1/jobs", {{"jobs", {JobJson(1, "warmup", "running", {{"files_done", 2}, {"walking", true}, {"files_expected", 0}}), JobJson(12, "prefetch", "done")}}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "jobs"}).out,
            "JOB  KIND      BY  STATE    STARTED  TIME   FILES  BYTES   VERIFIED  FAILED  NO ROOM  PATH  ERROR\n"
            "  1  warmup    -   running  -        2.0 s  2/10+  1000 B  -         0       0        -     \n"
            " 12  prefetch  -   done     -        2.0 s  10/10  1000 B  10/10     0       0        -     \n");
  FakeControl other;
  other.Reply("GET /v1/jobs", {{"jobs", {JobJson(3, "prefetch", "running", {{"files_done", 9}, {"bytes_done", 400}, {"files_expected", 0}})}}});
  EXPECT_EQ(RunTierctl({"--socket", other.socket(), "jobs"}).out,
            "JOB  KIND      BY  STATE    STARTED  TIME   FILES  BYTES         VERIFIED  FAILED  NO ROOM  PATH  ERROR\n"
            "  3  prefetch  -   running  -        2.0 s  9/10   400 B/1000 B  -         0       0        -     \n");
  fake.Reply("GET /v1/jobs/1", JobJson(1, "warmup", "running"));
  fake.Reply("GET /v1/jobs/1", JobJson(1, "warmup", "done"));
  fake.Reply("GET /v1/jobs/2", JobJson(2, "prefetch", "partial"));
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "wait", "1"}).exit_code, 0);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "wait", "1", "2"}).exit_code, 2);
  fake.ReplyError("GET /v1/jobs/3", 404, "not_found", "there is no job 3");
  const Ran unknown = RunTierctl({"--socket", fake.socket(), "wait", "3"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.err, "tierctl: there is no job 3\n");
  const Ran one_of_two = RunTierctl({"--socket", fake.socket(), "wait", "1", "3"});
  EXPECT_EQ(one_of_two.exit_code, 2);
  EXPECT_EQ(one_of_two.err, "tierctl: there is no job 3\n");
  EXPECT_THAT(one_of_two.out, HasSubstr("warmup"));
  fake.Reply("DELETE /v1/jobs/1", JobJson(1, "prefetch", "cancelled"));
  fake.ReplyError("DELETE /v1/jobs/2", 409, "conflict", "job 2 is over");
  const Ran cancel = RunTierctl({"--socket", fake.socket(), "cancel", "2", "1"});
  EXPECT_EQ(cancel.exit_code, 2);
  EXPECT_EQ(cancel.err, "tierctl: job 2 is over\n");
  EXPECT_THAT(cancel.out, HasSubstr("cancelled"));
}

TEST(JobVerbs, JobsOfProgramsAreCountedNotListed) {
  const json user{{"owner", "user"}, {"pid", nullptr}, {"path", "/pfs/a"}, {"paths", 3}, {"started_s", 1'700'000'000.5}};
  const json daemon{{"owner", "daemon"}, {"pid", nullptr}, {"path", "/pfs/b"}, {"paths", 1}, {"started_s", 1'700'000'100.0}};
  const json program{{"owner", "program"}, {"pid", 4711}, {"path", "/pfs/a/1"}, {"paths", 64}, {"started_s", 1'700'000'200.0}};
  json jobs = json::array();
  for (std::uint64_t id = 10; id < 66; ++id) jobs.push_back(JobJson(id, "prefetch", id < 64 ? "done" : "running", program));
  jobs.push_back(JobJson(1, "prefetch", "done", user));
  jobs.push_back(JobJson(2, "warmup", "done", daemon));
  FakeControl fake;
  fake.Reply("GET /v1/jobs", {{"jobs", jobs}});
  fake.Reply("GET /v1/jobs", {{"jobs", jobs}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "jobs"}, {"TZ=UTC"}).out,
            "JOB  KIND      BY     STATE  STARTED           TIME   FILES  BYTES   VERIFIED  FAILED  NO ROOM  PATH               ERROR\n"
            "  1  prefetch  user   done   2023-11-14 22:13  2.0 s  10/10  1000 B  10/10     0       0        /pfs/a and 2 more  \n"
            "  2  warmup    tierd  done   2023-11-14 22:15  2.0 s  10/10  1000 B  10/10     0       0        /pfs/b             \n"
            "and 56 jobs of programs, 2 running (--json lists them)\n");
  EXPECT_EQ(json::parse(RunTierctl({"--socket", fake.socket(), "jobs", "--json"}).out)["jobs"].size(), 58u);
}

TEST(PlanVerb, RemovesWhatItCan) {
  FakeControl fake;
  fake.Reply("DELETE /v1/plans/1", {{"id", 1}});
  fake.Reply("DELETE /v1/plans/2", {{"id", 2}});
  fake.ReplyError("DELETE /v1/plans/999", 404, "not_found", "no plan 999");
  const Ran ran = RunTierctl({"--socket", fake.socket(), "plan", "remove", "1", "999", "2"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "tierctl: no plan 999\n");
  EXPECT_THAT(fake.Asked(), ElementsAre("DELETE /v1/plans/1", "DELETE /v1/plans/999", "DELETE /v1/plans/2"));
}

// Nothing is told, and nothing asked, of what cannot be: 64, with the option and its range.
TEST(PlanVerb, RefusesWhatIsOutOfRange) {
  FakeControl fake;
  const std::string list = fake.directory() + "/list.txt";
  std::ofstream(list) << "/x/a\n/x/b\n/x/c\n/x/d\n/x/e\n";
  const struct {
    std::vector<std::string> options;
    std::string said;
  } rows[] = {{{"--epochs", "0"}, "--epochs: \"0\" is no whole number from 1 to 1099511627776"},
              {{"--epoch", "-1"}, "--epoch: \"-1\" is no whole number from 0"},
              {{"--process", "0"}, "--process: \"0\" is no whole number from 1"},
              {{"--batch-size", "0"}, "--batch-size: \"0\" is no whole number from 1"},
              {{"--seed", "x"}, "--seed: \"x\" is no whole number of 64 bits"},
              {{"--world", "0"}, "--world: \"0\" is no whole number from 1"},
              {{"--rank", "4", "--world", "4"}, "--rank: \"4\" is no whole number from 0 to 3, with --world 4"},
              {{"--rank", "1"}, "--rank: \"1\" is no whole number from 0 to 0, with --world 1"},
              {{"--position", "1099511627776"}, "--position: \"1099511627776\" is no whole number from 0"},
              {{"--position", "4", "--world", "2"}, "--position: \"4\" is no whole number from 0 to 3, what this reader has of an epoch of 5 samples"}};
  for (const auto& row : rows) {
    std::vector<std::string> arguments{"--socket", fake.socket(), "plan", "torch-distributed"};
    arguments.insert(arguments.end(), row.options.begin(), row.options.end());
    arguments.push_back(list);
    const Ran ran = RunTierctl(arguments);
    EXPECT_EQ(ran.exit_code, 64) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(row.said));
  }
  const std::string document = fake.directory() + "/plan.json";
  std::ofstream(document) << R"({"tierd_plan": 1, "kind": "torch.distributed", "world": 4, "rank": 4})";
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "plan", "tell", document, list}).err, "tierctl: plan: rank is missing or out of range\n");
  EXPECT_THAT(fake.Asked(), ElementsAre());
}

TEST(PlanVerb, NamesInAListAreResolved) {
  FakeControl fake;
  const std::string list = fake.directory() + "/list.txt";
  std::ofstream(list) << "/x/./a\n/x//b\n/x/../x/c\n";
  fake.Reply("GET /v1/status", {{"runtime_directory", fake.directory()}});
  fake.Reply("POST /v1/plans", {{"plan", 3}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "plan", "torch-distributed", list});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json body = fake.Requests()[1].body;
  EXPECT_EQ(body["path"], "/x/a");
  std::ifstream left(fake.directory() + "/" + body["list"].get<std::string>(), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(left), {}), std::string("/x/a\0/x/b\0/x/c\0", 15));
}

TEST(PlanVerb, ADocumentWithoutEndIsNoPlan) {
  FakeControl fake;
  const std::string list = fake.directory() + "/list.txt", document = fake.directory() + "/plan.json";
  std::ofstream(list) << "/x/a\n";
  std::ofstream(document) << R"({"tierd_plan": 1, "a": )" << std::string(400'000, '[') << std::string(400'000, ']') << "}";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "plan", "tell", document, list});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("not a plan"));
}

TEST(PlanVerb, TellsOfTheLastPosition) {
  FakeControl fake;
  const std::string list = fake.directory() + "/list.txt";
  std::ofstream(list) << "/x/a\n/x/b\n/x/c\n/x/d\n/x/e\n";
  fake.Reply("GET /v1/status", {{"runtime_directory", fake.directory()}});
  fake.Reply("POST /v1/plans", {{"plan", 3}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "plan", "torch-distributed", "--world", "2", "--position", "3", "--epochs", "1", "--seed", "-7", "--process", "1", list});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json plan = fake.Requests()[1].body["plan"];
  EXPECT_EQ(plan["position"], 3);
  EXPECT_EQ(plan["epochs"], 1);
  EXPECT_EQ(plan["seed"], -7);
}

TEST(VerifyVerb, ManyPathsBecomeSeveralJobsAndOneSum) {
  FakeControl fake;
  std::vector<std::string> command{"--socket", fake.socket(), "verify"};
  for (int i = 0; i < 10'050; ++i) command.push_back("/d/" + std::to_string(i));
  for (int i = 0; i < 2; ++i) {
    fake.Reply("POST /v1/verify", {{"job", 4}}, 202);
    fake.Reply("POST /v1/verify", {{"job", 5}}, 202);
  }
  fake.Reply("GET /v1/jobs/4", JobJson(4, "verify", "done"));
  fake.Reply("GET /v1/jobs/5", JobJson(5, "verify", "partial", {{"files_failed", 2}, {"files_verified", 8}, {"bytes_total", nullptr}, {"error", "/d/x is bad"}}));
  const Ran ran = RunTierctl(command);
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.out, "18 records good, 1.95 KiB; 2 bad\n");
  command.push_back("--json");
  const json sum = json::parse(RunTierctl(command).out);
  EXPECT_EQ(sum["files_verified"], 18);
  EXPECT_EQ(sum["files_failed"], 2);
  EXPECT_EQ(sum["state"], "partial");
  EXPECT_EQ(sum["error"], "/d/x is bad");
  EXPECT_EQ(sum["elapsed_s"], 4.0);
  EXPECT_TRUE(sum["bytes_total"].is_null());
  std::vector<std::size_t> sizes;
  for (const auto& request : fake.Requests())
    if (request.method == "POST") sizes.push_back(request.body["paths"].size());
  EXPECT_THAT(sizes, ElementsAre(10'000, 50, 10'000, 50));
}

TEST(VerifyVerb, GoodAndBadRecords) {
  FakeControl fake;
  fake.Reply("POST /v1/verify", {{"job", 4}}, 202);
  fake.Reply("GET /v1/jobs/4", JobJson(4, "verify", "done"));
  const Ran good = RunTierctl({"--socket", fake.socket(), "verify"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.out, "10 records good, 1000 B; 0 bad\n");
  EXPECT_EQ(fake.Requests()[0].body, json::object());

  FakeControl failing;
  failing.Reply("POST /v1/verify", {{"job", 4}}, 202);
  failing.Reply("GET /v1/jobs/4", JobJson(4, "verify", "partial", {{"files_failed", 2}, {"files_verified", 8}}));
  const Ran bad = RunTierctl({"--socket", failing.socket(), "verify", "/usr"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_EQ(bad.out, "8 records good, 1000 B; 2 bad\n");
  EXPECT_THAT(bad.err, HasSubstr("bad records were dropped"));
  EXPECT_EQ(failing.Requests()[0].body, json({{"paths", json::array({"/usr"})}}));

  FakeControl recovering;
  recovering.ReplyError("POST /v1/verify", 409, "conflict", "the SSD index is still being read");
  recovering.Reply("GET /v1/du", {{"files", 0}});
  EXPECT_EQ(RunTierctl({"--socket", recovering.socket(), "verify", "/nowhere/x"}).err, "tierctl: /nowhere/x: No such file or directory\n");
  EXPECT_EQ(RunTierctl({"--socket", recovering.socket(), "verify", "/tmp"}).err, "tierctl: the SSD index is still being read\n");

  FakeControl without;
  without.ReplyError("POST /v1/verify", 409, "conflict", "there is no SSD tier");
  EXPECT_EQ(RunTierctl({"--socket", without.socket(), "verify"}).err, "tierctl: there is no SSD tier\n");
}

}  // namespace
}  // namespace tierctl
