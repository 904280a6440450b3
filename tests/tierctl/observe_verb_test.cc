// metrics, policy and debug bundle against a control server of the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPage = "# HELP tierd_x What it is.\n# TYPE tierd_x counter\ntierd_x 5\ntierd_y{tier=\"ram\"} 1e+06\n";

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(MetricsVerb, PrintsThePageWithLabelsAdded) {
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", kPage);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics"}).out, kPage);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "--label", "slot=1", "--label", "rack=a \"b\" \\c"}).out,
            "# HELP tierd_x What it is.\n# TYPE tierd_x counter\ntierd_x{slot=\"1\",rack=\"a \\\"b\\\" \\\\c\"} 5\ntierd_y{slot=\"1\",rack=\"a \\\"b\\\" \\\\c\",tier=\"ram\"} 1e+06\n");
  for (const char* wrong : {"slot", "=1", "1x=1", "__x=1", "a-b=1"}) EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "--label", wrong}).exit_code, 64) << wrong;
}

TEST(MetricsVerb, WritesAFileWholeAndTakesItAwayWithTheDaemon) {
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", kPage);
  const std::string file = fake.directory() + "/tierd.prom";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "metrics", "-o", file});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ReadFile(file), kPage);
  const Ran gone = RunTierctl({"--socket", fake.directory() + "/nobody.sock", "metrics", "-o", file});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_FALSE(std::filesystem::exists(file));
  const Ran nowhere = RunTierctl({"--socket", fake.socket(), "metrics", "-o", "/nowhere/tierd.prom"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_EQ(nowhere.err, "tierctl: /nowhere/tierd.prom: No such file or directory\n");
}

// A shell that appends means it, and what it appends to is not ours to take away.
TEST(MetricsVerb, StdoutIsWrittenToAndNotReplaced) {
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", kPage);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "-o", "-"}).out, kPage);
  EXPECT_FALSE(std::filesystem::exists("-"));
  const std::string file = fake.directory() + "/all.prom";
  std::ofstream(file) << "old\n";
  const auto append = [&](const std::string& socket) { return RunProgram({"/bin/sh", "-c", "exec \"$0\" --socket \"$1\" metrics -o /dev/stdout >> \"$2\"", TIERCTL_BINARY, socket, file}, {}, "").exit_code; };
  EXPECT_EQ(append(fake.socket()), 0);
  EXPECT_EQ(ReadFile(file), std::string("old\n") + kPage);
  EXPECT_EQ(append(fake.directory() + "/nobody.sock"), 3);
  EXPECT_EQ(ReadFile(file), std::string("old\n") + kPage);
}

TEST(StatusVerb, TellsOfRegionsThatAreLeftAlone) {
  FakeControl fake;
  json ssd = {{"state", "ok"}, {"directory", "/nvme"}, {"capacity_bytes", 10}, {"allowed_bytes", 10}, {"used_bytes", 0}, {"objects", 0}, {"pinned_bytes", 0}, {"note", ""}, {"retired_regions", 2}};
  fake.Reply("GET /v1/status", {{"tiers", {{"ssd", ssd}}}});
  ssd["retired_regions"] = 0;
  fake.Reply("GET /v1/status", {{"tiers", {{"ssd", ssd}}}});
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).out, HasSubstr("/nvme; 2 regions left alone for an hour: they could not be written, or not be read at the start\n"));
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).out, HasSubstr("/nvme\n"));
}

TEST(StatusVerb, TellsOfReadsThatTookTheSourceInsteadOfASlowSsd) {
  FakeControl fake;
  const json ssd = {{"state", "ok"}, {"directory", "/nvme"}, {"capacity_bytes", 10}, {"allowed_bytes", 10}, {"used_bytes", 0}, {"objects", 0}, {"pinned_bytes", 0}, {"note", ""}, {"slow_reads", 1200}};
  fake.Reply("GET /v1/status", {{"tiers", {{"ssd", ssd}}}});
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).out, HasSubstr("/nvme; 1200 reads took the source instead, which answers sooner\n"));
}

// Files that found no room are opened at the source: their reads are in no row.
TEST(StatusVerb, SaysWhatIsNotCounted) {
  FakeControl fake;
  json status = {{"reads", {{"ram", {{"count", 952}, {"bytes", 10}}}, {"bypass", {{"count", 8}, {"bytes", 9}}}}}, {"fallback", {{"no_frame", 15000}, {"path", 8}}}};
  fake.Reply("GET /v1/status", status);
  status["fallback"] = {{"path", 8}};
  fake.Reply("GET /v1/status", status);
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).out, HasSubstr("\nnot among these, nor in REGRET: what was read through 15000 bypassed opens, beside 960 reads here\n"));
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "status"}).out, Not(HasSubstr("not among these")));
}

// Most of it was refused before the end, and nothing is left to write then.
TEST(MetricsVerb, ALongPageThatCannotBeWrittenIsAnError) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", std::string(1 << 20, '\n'));
  const Ran ran = RunProgram({"/bin/sh", "-c", "exec \"$0\" --socket \"$1\" metrics > /dev/full", TIERCTL_BINARY, fake.socket()}, {}, "");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "tierctl: cannot write to stdout\n");
}

TEST(MetricsVerb, NoLabelStandsTwice) {
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", "tierd_x{tier=\"ram,node=\\\"a\"} 1\n");
  const auto run = [&](std::vector<std::string> labels) {
    std::vector<std::string> arguments{"--socket", fake.socket(), "metrics"};
    for (std::string& label : labels) arguments.insert(arguments.end(), {"--label", std::move(label)});
    return RunTierctl(arguments);
  };
  EXPECT_EQ(run({"node=1", "rack=2"}).exit_code, 0);
  for (const auto& labels : {std::vector<std::string>{"node=1", "node=2"}, {"tier=x"}}) {
    const Ran ran = run(labels);
    EXPECT_EQ(ran.exit_code, 64);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("would stand twice"), std::string::npos) << ran.err;
  }
}

// `-o /dev/stdout` and `-o /dev/null` are what people try; a collector's directory may hold links to where the files are.
TEST(MetricsVerb, WritesIntoWhatIsNoFileAndBehindLinks) {
  FakeControl fake;
  fake.ReplyText("GET /v1/metrics", kPage);
  const std::string fifo = fake.directory() + "/fifo", file = fake.directory() + "/tierd.prom", link = fake.directory() + "/link.prom";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "-o", fifo}).exit_code, 0);
  char text[256] = {};
  EXPECT_EQ(::read(reader, text, sizeof text - 1), static_cast<ssize_t>(std::strlen(kPage)));
  EXPECT_STREQ(text, kPage);
  ::close(reader);
  std::ofstream(file) << "old";
  std::filesystem::create_symlink("tierd.prom", link);
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "-o", link}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReadFile(file), kPage);
  for (const std::string& name : {fifo, link}) EXPECT_EQ(RunTierctl({"--socket", fake.directory() + "/nobody.sock", "metrics", "-o", name}).exit_code, 3);
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "metrics", "-o", link}).exit_code, 0);
  EXPECT_EQ(ReadFile(file), kPage) << "through a link that led to nothing";
}

json Config() {
  const auto value = [](const char* key, const char* text) { return json{{"key", key}, {"value", text}, {"origin", "default"}, {"reloadable", true}}; };
  return {{"file", nullptr}, {"values", {value("source.imagenet.path", "/pfs/secret/imagenet"), value("source.imagenet.policy", "freeze"), value("source.imagenet.policy_parameters", ""), value("source.coco.policy", "lru"),
                                         value("source.coco.policy_parameters", "k=2"), value("ram.capacity", "8 GiB")}}};
}

TEST(PolicyVerb, ListsShowsAndSets) {
  FakeControl fake;
  fake.Reply("GET /v1/config", Config());
  fake.Reply("GET /v1/policies", {{"policies", {{{"name", "freeze"}, {"summary", "fills once"}, {"path", nullptr}}, {{"name", "mine"}, {"summary", "of my own"}, {"path", "/p/mine.so"}}}}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "policy", "list"}).out,
            "POLICY  SOURCES   FROM        WHAT IT DOES\n"
            "freeze  imagenet  built in    fills once\n"
            "mine    -         /p/mine.so  of my own\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "policy", "show"}).out,
            "SOURCE    POLICY  PARAMETERS  WRONG ANSWERS  ORIGIN\n"
            "imagenet  freeze  -           0              default\n"
            "coco      lru     k=2         0              default\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "policy", "show", "cocoa"}).err, "tierctl: unknown source cocoa; did you mean coco?\n");
  fake.Reply("PATCH /v1/config", {{"applied", {{{"key", "source.imagenet.policy"}, {"from", "freeze"}, {"to", "lru"}}}}, {"restart", json::array()}});
  fake.Reply("PATCH /v1/config", {{"applied", json::array()}, {"restart", json::array()}});
  const Ran set = RunTierctl({"--socket", fake.socket(), "policy", "set", "lru"});
  EXPECT_EQ(set.out, "source.imagenet.policy: freeze -> lru\n") << set.err;
  std::vector<std::string> keys;
  for (const auto& request : fake.Requests())
    if (request.method == "PATCH") keys.push_back(request.body["key"]);
  EXPECT_THAT(keys, testing::ElementsAre("source.imagenet.policy", "source.coco.policy"));
  FakeControl refusing;
  refusing.Reply("GET /v1/config", Config());
  refusing.ReplyError("PATCH /v1/config", 422, "invalid_config", "no policy \"lur\"; did you mean \"lru\"?");
  const Ran wrong = RunTierctl({"--socket", refusing.socket(), "policy", "set", "lur", "coco"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
  FakeControl half;
  half.Reply("GET /v1/config", Config());
  half.ReplyError("PATCH /v1/config", 422, "invalid_config", "policy lru has no parameter \"window\"");
  half.Reply("PATCH /v1/config", {{"applied", {{{"key", "source.coco.policy"}, {"from", "freeze"}, {"to", "lru"}}}}, {"restart", json::array()}});
  const Ran partly = RunTierctl({"--socket", half.socket(), "policy", "set", "lru"});
  EXPECT_EQ(partly.exit_code, 2);
  EXPECT_EQ(partly.out, "source.coco.policy: freeze -> lru\n");
  EXPECT_THAT(partly.err, testing::HasSubstr("no parameter"));
}

TEST(PolicyVerb, PrioritiesOfLongPathsAreSentInSeveralRequests) {
  FakeControl fake;
  fake.Reply("POST /v1/policies/priorities", {{"files", 350}, {"heard", 350}});
  std::string list;
  for (int i = 0; i < 700; ++i) list += std::to_string(i) + " /d/" + std::string(1'600, 'x') + std::to_string(i) + "\n";
  const Ran ran = RunTierctl({"--socket", fake.socket(), "policy", "prioritize", "-"}, {}, list);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  int said = 0;
  for (const auto& request : fake.Requests()) {
    EXPECT_LE(request.body.dump().size(), 1u << 20);
    ASSERT_EQ(request.body["paths"].size(), request.body["priorities"].size());
    for (std::size_t i = 0; i < request.body["paths"].size(); ++i, ++said) {
      EXPECT_TRUE(request.body["paths"][i].get<std::string>().ends_with("x" + std::to_string(said)));
      EXPECT_EQ(request.body["priorities"][i], said);
    }
  }
  EXPECT_EQ(said, 700);
}

// Everything that a bundle must not hold is planted where it could come from.
TEST(DebugBundle, HoldsNoPathAndNoName) {
  FakeControl fake;
  fake.Reply("GET /v1/status", {{"state", "degraded"}, {"runtime_directory", "/run/user/1000/secret"}, {"config_file", "/home/secret/my config.toml"},
                                {"tiers", {{"ssd", {{"directory", "/nvme/secret"}, {"note", "index lost in /nvme/secret/index: rebuilt"}}}}},
                                {"sources", {{{"name", "secretset"}, {"path", "/pfs/secret dir/set"}, {"path_b64", "c2VjcmV0"}, {"policy", "freeze"}}}}});
  fake.Reply("GET /v1/version", {{"version", "0.1.0"}});
  fake.Reply("GET /v1/config", {{"file", "/home/secret/my config.toml"}, {"values", {{{"key", "source.secretset.path"}, {"value", "/pfs/secret dir/set"}, {"origin", "/home/secret/x.toml:3"}},
                                                                                     {{"key", "ram.capacity"}, {"value", "8 GiB"}, {"origin", "default"}}}}});
  fake.Reply("GET /v1/doctor", {{"checks", {{{"name", "daemon.ssd"}, {"state", "ok"}, {"detail", "on /nvme/secret, O_DIRECT"}, {"remedy", ""}}}}});
  fake.Reply("GET /v1/jobs", {{"jobs", {JobJson(1, "prefetch", "partial", {{"error", "cannot read /pfs/secret dir/set/a secret.jpg: Permission denied"}})}}});
  fake.Reply("GET /v1/policies", {{"policies", {{{"name", "mine"}, {"path", "/home/secret/mine.so"}}}}});
  fake.ReplyText("GET /v1/metrics", "# HELP x y\ntierd_policy_info{source=\"secretset\",policy=\"freeze\"} 1\ntierd_reads_total{tier=\"ram\",result=\"hit\"} 7\n");
  const Ran ran = RunTierctl({"--socket", fake.socket(), "debug", "bundle", "-o", "-"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, Not(HasSubstr("secret")));
  EXPECT_THAT(ran.out, Not(HasSubstr("c2VjcmV0")));
  EXPECT_THAT(ran.out, Not(HasSubstr("my config")));
  const json bundle = json::parse(ran.out);
  EXPECT_EQ(bundle["status"]["state"], "degraded");
  EXPECT_EQ(bundle["status"]["sources"][0]["name"], "source1");
  EXPECT_EQ(bundle["config"]["values"][1]["value"], "8 GiB");
  EXPECT_EQ(bundle["config"]["values"][0]["key"], "source.source1.path");
  EXPECT_EQ(bundle["config"]["values"][0]["value"], bundle["status"]["sources"][0]["path"]) << "what is the same stays the same";
  EXPECT_EQ(bundle["metrics"][1], "tierd_reads_total{tier=\"ram\",result=\"hit\"} 7");
  EXPECT_TRUE(bundle["host"].contains("kernel"));
}

// Names may hold what separates words and members of lists.
TEST(DebugBundle, KnowsWhereAPathEnds) {
  const std::string odd = "/pfs/secret (x), secret/set";
  FakeControl fake;
  fake.Reply("GET /v1/status", {{"runtime_directory", "/dev/shm/secret"},
                                {"tiers", {{"ssd", {{"directory", "/nvme/secret; <secret>"}, {"note", "index lost in /nvme/secret; <secret>: rebuilt, see " + odd + ", that is all"}}}}},
                                {"sources", {{{"name", "set"}, {"path", odd}}, {{"name", "outer"}, {"path", "/pfs"}}}}});
  fake.Reply("GET /v1/version", {{"version", "0.1.0"}});
  fake.Reply("GET /v1/config", {{"file", "/home/a, secret.toml"}, {"values", {{{"key", "source.set.path"}, {"value", odd}, {"origin", "/home/a, secret.toml:3"}}}}});
  fake.Reply("GET /v1/doctor", {{"checks", {{{"name", "limits"}, {"detail", "/proc/self/limits, read for /pfs/a, secret"}, {"remedy", "echo 1 >/proc/sys/x/y, then [/pfs/secret, b] again"}}}}});
  fake.Reply("GET /v1/jobs", {{"jobs", {JobJson(1, "prefetch", "partial", {{"error", "cannot read \"" + odd + "/a, (secret).jpg\": Permission denied"}})}}});
  fake.Reply("GET /v1/policies", {{"policies", json::array()}});
  fake.ReplyText("GET /v1/metrics", "tierd_sessions 7\n");
  const Ran ran = RunTierctl({"--socket", fake.socket(), "debug", "bundle", "-o", "-"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, Not(HasSubstr("secret")));
  const json bundle = json::parse(ran.out);
  const std::string set = bundle["status"]["sources"][0]["path"], disk = bundle["status"]["tiers"]["ssd"]["directory"];
  EXPECT_EQ(bundle["status"]["tiers"]["ssd"]["note"], "index lost in " + disk + ": rebuilt, see " + set + ", that is all");
  EXPECT_EQ(bundle["config"]["values"][0]["value"], set);
  EXPECT_THAT(std::string(bundle["doctor"]["checks"][0]["detail"]), testing::StartsWith("/proc/self/limits, read for <path"));
  EXPECT_THAT(std::string(bundle["doctor"]["checks"][0]["remedy"]), testing::StartsWith("echo 1 >/proc/sys/x/y, then [<path"));
}

TEST(DebugBundle, IsWrittenWithoutADaemonToo) {
  const std::string file = std::filesystem::temp_directory_path().string() + "/tierctl-bundle-" + std::to_string(::getpid()) + ".json";
  const Ran ran = RunTierctl({"--socket", "/nowhere/control.sock", "debug", "bundle", "-o", file});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, file + "\n");
  EXPECT_THAT(ran.err, HasSubstr("no tierd is running here"));
  EXPECT_TRUE(json::parse(ReadFile(file)).contains("host"));
  std::filesystem::remove(file);
}

// A daemon in a unit with PrivateTmp writes into a /tmp of its own.
TEST(TraceVerb, ATraceThatThisShellCannotSeeIsSaid) {
  FakeControl fake;
  const std::string file = fake.directory() + "/epoch.trc";
  fake.Reply("POST /v1/trace", {{"trace", {{"path", file}, {"running", true}, {"error", ""}, {"bytes", 1}, {"objects", 0}, {"accesses", 0}, {"lost", 0}, {"full", false}}}});
  const Ran elsewhere = RunTierctl({"--socket", fake.socket(), "trace", "start", file});
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_THAT(elsewhere.err, HasSubstr("the trace runs, but " + file + " is not there for this shell"));
  EXPECT_THAT(elsewhere.err, HasSubstr("/var/cache/tierd/USER"));
  std::ofstream{file} << "begun";
  const Ran here = RunTierctl({"--socket", fake.socket(), "trace", "start", file});
  EXPECT_EQ(here.exit_code, 0);
  EXPECT_EQ(here.out, file + "\n");
  EXPECT_EQ(here.err, "");
}

}  // namespace
}  // namespace tierctl
