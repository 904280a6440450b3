// What --json prints is what tierctl/schema says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;

json StatusJson() {
  const json read = {{"count", 1}, {"bytes", 2}};
  const json ram = {{"state", "ok"}, {"capacity_bytes", 10}, {"allowed_bytes", 8}, {"used_bytes", 5}, {"allocated_bytes", 6}, {"limbo_bytes", 0}, {"objects", 3}, {"pinned_bytes", 0},
                    {"pages", "tmpfs_huge"}, {"pages_reason", "x"}, {"bound_by", "node"}};
  const json source = {{"name", "d"}, {"path", "/d"}, {"other_names", json::array()}, {"fs", "ext4"}, {"state", "up"}, {"staleness", "ttl"}, {"ttl_s", 60.0}, {"policy", "freeze"}, {"mode", "seeded"}, {"plans", 1}, {"observation", ""}, {"same_orders", 0}, {"engine", "io_uring"}, {"window", 64},
                       {"in_flight", 1}, {"queued", 0}, {"hung", 2}, {"files", 3}, {"requests", 4}, {"read_bytes", 5}, {"epochs", {{{"files", 3}, {"reads", {{"ram", 1}, {"ssd", 0}, {"source", 2}}}}}},
                       {"regret", {{"source_bytes", 0}, {"least_bytes", 0}, {"regret_bytes", 0}, {"share", 1.0}, {"judged_reads", 0}, {"judged_misses", 0}, {"least_misses", 0}, {"epochs", json::array()}}},
                       {"tried", json::array()}, {"trace", nullptr}};
  return {{"version", "0.1.0"}, {"pid", 5}, {"instance", "9f"}, {"uptime_s", 1.5}, {"state", "ok"}, {"runtime_directory", "/r"}, {"config_file", nullptr}, {"metrics_address", nullptr},
          {"tiers", {{"ram", ram}, {"ssd", {{"state", "off"}, {"note", "none found"}}}}}, {"sources", {source}}, {"reads", {{"ram", read}, {"ssd", read}, {"source", read}, {"bypass", read}}},
          {"fallback", {{"timeout", 3}}}, {"integrity_failures", 1}, {"sessions", 2}, {"leases", 3}, {"leases_frozen", 1}, {"jobs_running", 1}, {"ring_lost", 0}, {"loop_lag_max_us", 7}};
}

json FileJson() {
  return {{"path", "/d/a"}, {"source", "d"}, {"relative", "a"}, {"known", true}, {"kind", "file"}, {"size_bytes", 1}, {"ram_bytes", 1}, {"ssd_bytes", 0}, {"missing_bytes", 0}, {"pinned", false},
          {"chunk_bytes", 4194304}, {"chunks", 1}, {"chunks_ram", 1}, {"chunks_ssd", 0}, {"leased", false}, {"mtime_ns", -1}, {"ctime_ns", 0}, {"inode", 3}, {"mode", 420}, {"staleness", "immutable"},
          {"valid_for_s", nullptr}, {"checked", true}, {"racy", false}, {"policy", "freeze"}, {"why", {"In RAM: yes."}}};
}

void Arm(FakeControl& fake) {
  const json change = {{"key", "k"}, {"from", "a"}, {"to", "b"}};
  fake.Reply("GET /v1/status", StatusJson());
  fake.Reply("GET /v1/version", {{"version", "0.1.0"}, {"api", 1}, {"pid", 5}, {"instance", "9f"}});
  fake.Reply("GET /v1/files", {{"path", "/d"},
                               {"entries", {{{"path", "/d/a"}, {"kind", "file"}, {"size_bytes", 1}, {"ram_bytes", 1}, {"ssd_bytes", 0}, {"missing_bytes", 0}, {"pinned", false}},
                                            {{"path", "/d/s"}, {"kind", "directory"}}}},
                               {"next", nullptr},
                               {"walked", true}});
  fake.Reply("GET /v1/file", FileJson());
  fake.Reply("GET /v1/du", {{"path", "/d"}, {"source", "d"}, {"files", 1}, {"size_bytes", 1}, {"ram_bytes", 1}, {"ssd_bytes", 0}, {"missing_bytes", 0}, {"files_missing", 0}, {"walk", "complete"}, {"job", nullptr}});
  fake.Reply("POST /v1/prefetch", {{"job", 1}}, 202);
  fake.Reply("POST /v1/verify", {{"job", 2}}, 202);
  fake.Reply("GET /v1/jobs", {{"jobs", {JobJson(1, "prefetch", "done")}}});
  fake.Reply("GET /v1/jobs/1", JobJson(1, "prefetch", "done"));
  fake.Reply("DELETE /v1/jobs/1", JobJson(1, "prefetch", "cancelled"));
  fake.Reply("GET /v1/jobs/2", JobJson(2, "verify", "done", {{"bytes_total", nullptr}}));
  for (const char* end_point : {"POST /v1/evict", "POST /v1/pin", "POST /v1/unpin"}) fake.Reply(end_point, {{"files", 1}});
  fake.Reply("GET /v1/config", {{"file", nullptr}, {"values", {{{"key", "k"}, {"value", "auto"}, {"origin", "default"}, {"reloadable", true}, {"effective", "v"}}, {{"key", "source.d.policy"}, {"value", "freeze"}, {"origin", "default"}, {"reloadable", true}}}}});
  fake.Reply("GET /v1/policies", {{"policies", {{{"name", "freeze"}, {"summary", "s"}, {"path", nullptr}}}}});
  const json counts = {{"reads", 4}, {"ram_hits", 1}, {"ssd_hits", 0}, {"misses", 3}, {"daemon_misses", 2}};
  fake.Reply("POST /v1/policies/try",
             {{"tried", {{{"policy", "lru"}, {"parameters", ""}, {"takes_plans", false}, {"mode", "blind"}, {"share", 0.5}, {"all", counts}, {"last_epoch", counts}}}}});
  fake.Reply("POST /v1/trace", {{"trace", {{"path", "/t.trc"}, {"running", true}, {"error", ""}, {"bytes", 1}, {"objects", 1}, {"accesses", 1}, {"lost", 0}, {"full", false}}}});
  const json plan = {{"id", 3}, {"source", "d"}, {"state", "followed"}, {"from", "told"}, {"plan", {{"tierd_plan", 1}, {"kind", "torch.sequential"}, {"samples", 9}}}, {"samples", 9}, {"known", 9},
                     {"epoch", 1}, {"position", 4}, {"epoch_samples", 9}, {"epochs_begun", 2}, {"readers", 1}, {"recall_ratio", 1.0}, {"precision_ratio", 0.5}, {"samples_per_second", 100}};
  fake.Reply("GET /v1/plans", {{"plans", {plan}}});
  fake.Reply("DELETE /v1/plans/3", plan);
  fake.Reply("PATCH /v1/config", {{"applied", json::array({change})}, {"restart", json::array()}});
  fake.Reply("POST /v1/config/reload", {{"applied", json::array()}, {"restart", json::array({change})}});
  fake.Reply("POST /v1/gc", {{"ssd_bytes", 5}, {"ssd_allocated_bytes", 6}});
  fake.Reply("GET /v1/doctor", {{"checks", {{{"name", "daemon.x"}, {"state", "ok"}, {"detail", "d"}, {"remedy", ""}}}}});
}

struct Row {
  std::string schema;
  std::vector<std::string> arguments;
};
const Row kRows[] = {{"status", {"status"}},
                     {"version", {"version"}},
                     {"ls", {"ls", "/d"}},
                     {"stat", {"stat", "/d/a"}},
                     {"stat", {"explain", "/d/a"}},
                     {"du", {"du", "/d"}},
                     {"prefetch", {"prefetch", "/usr"}},
                     {"prefetch", {"prefetch", "--wait", "/usr"}},
                     {"jobs", {"jobs"}},
                     {"jobs", {"wait", "1"}},
                     {"jobs", {"cancel", "1"}},
                     {"verify", {"verify"}},
                     {"affected", {"evict", "/d"}},
                     {"affected", {"pin", "/d"}},
                     {"affected", {"unpin", "/d"}},
                     {"config_get", {"config", "get"}},
                     {"config_changes", {"config", "set", "k", "v"}},
                     {"config_changes", {"config", "reload"}},
                     {"policy_list", {"policy", "list"}},
                     {"policy_show", {"policy", "show"}},
                     {"config_changes", {"policy", "set", "lru"}},
                     {"policy_prioritize", {"policy", "prioritize", "/dev/null"}},
                     {"policy_try", {"policy", "try"}},
                     {"policy_try", {"policy", "try", "lru"}},
                     {"trace", {"trace", "start", "/dev/null"}},
                     {"trace", {"trace", "stop"}},
                     {"plan_list", {"plan", "list"}},
                     {"plan_list", {"plan", "remove", "3"}},
                     {"simulate", {"simulate", "-n", "100", "--ram", "50%"}},
                     {"doctor", {"doctor", "--no-speed"}},
                     {"top", {"top", "-n", "1"}},
                     {"gc", {"gc"}}};

Ran Validate(const std::vector<std::string>& pairs) {
  std::vector<std::string> command{"/usr/bin/python3", TIERCTL_VALIDATE};
  command.insert(command.end(), pairs.begin(), pairs.end());
  return RunProgram(command, {}, "");
}

Ran Validate(const std::string& directory, const std::string& schema, const std::string& document) {
  std::ofstream(directory + "/document.json") << document;
  return Validate({TIERCTL_SCHEMAS "/" + schema + ".json", directory + "/document.json"});
}

TEST(Schema, EveryVerbPrintsWhatItsSchemaSays) {
  FakeControl fake;
  Arm(fake);
  std::vector<std::string> pairs;
  for (const Row& row : kRows) {
    std::vector<std::string> arguments = row.arguments;
    arguments.insert(arguments.end(), {"--json", "--socket", fake.socket()});
    const Ran ran = RunTierctl(arguments);
    ASSERT_TRUE(json::accept(ran.out)) << row.arguments[0] << ": " << ran.out << ran.err;
    const std::string document = fake.directory() + "/" + std::to_string(pairs.size()) + "-" + row.arguments[0] + ".json";
    std::ofstream(document) << ran.out;
    pairs.insert(pairs.end(), {TIERCTL_SCHEMAS "/" + row.schema + ".json", document});
  }
  const Ran valid = Validate(pairs);
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
}

TEST(Schema, VersionWithoutADaemon) {
  const FakeControl fake;
  const Ran valid = Validate(fake.directory(), "version", RunTierctl({"--socket", "/none/c", "version", "--json"}).out);
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
}

// Of a job that used a daemon that was there; tests/preload has one with its own.
TEST(Schema, ReportOfARun) {
  FakeControl fake;
  Arm(fake);
  const std::string report = fake.directory() + "/report.json";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "run", "--no-preload", "--report", report, "--", "/bin/sh", "-c", "exit 3"});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(ran.err, "");
  const Ran valid = Validate({TIERCTL_SCHEMAS "/run.json", report});
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
}

TEST(Schema, SchemasAreNotEmptyPromises) {
  const FakeControl fake;
  std::set<std::string> used{"run", "bench", "plan_told"};  // the last two: tests/e2e, with a real daemon
  for (const Row& row : kRows) used.insert(row.schema);
  for (const auto& entry : std::filesystem::directory_iterator(TIERCTL_SCHEMAS)) {
    const std::string name = entry.path().stem();
    EXPECT_EQ(used.count(name), 1u) << name << " is checked by nothing";
    EXPECT_EQ(Validate(fake.directory(), name, "{\"unrelated\": 1}").exit_code, 1) << name << " accepts anything";
  }
}

TEST(Schema, HumanOutputOfStatusIsPlain) {
  FakeControl fake;
  Arm(fake);
  const Ran ran = RunTierctl({"--socket", fake.socket(), "status"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out,
            "tierd 0.1.0 pid 5: ok, up 1.5 s, 2 clients, 1 job running\n"
            "in /r, configuration none, metrics off\n"
            "\n"
            "TIER  STATE  USED  CAPACITY  OBJECTS  PINNED  \n"
            "RAM   ok     5 B   10 B      3        0 B     tmpfs_huge pages, only 8 B of 10 B allowed now (node)\n"
            "SSD   off                                     none found\n"
            "\n"
            "SOURCE  STATE  FS    STALENESS   POLICY  ENGINE    IN FLIGHT     FILES  READ  PATH\n"
            "d       up     ext4  ttl 60.0 s  freeze  io_uring  1/64, 2 hung  3      5 B   /d\n"
            "\n"
            "READS FROM  COUNT  SHARE  BYTES\n"
            "       ram      1  25.0%  2 B\n"
            "       ssd      1  25.0%  2 B\n"
            "    source      1  25.0%  2 B\n"
            "    bypass      1  25.0%  2 B\n"
            "not among these, nor in REGRET: what was read through 2 bypassed opens, beside 4 reads here\n"
            "\n"
            "bypass, by reason: timeout 3\n"
            "integrity failures (not served): 1\n"
            "1 lease held over a fork: the memory stays until the children end, too\n");
}

}  // namespace
}  // namespace tierctl
