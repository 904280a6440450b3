// What tierctl says to each thing that goes wrong, as golden files: TIERD_UPDATE_GOLDEN=1 writes them anew, and the difference is for people to look at. Of each: the command, its exit code, what is
// on stderr; nothing is on stdout but the head of a table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using Arguments = std::vector<std::string>;

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; !what.empty() && (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

std::string Told(const Arguments& arguments, const std::string& directory, int exit_code = -1, const Arguments& environment = {}) {
  const Ran ran = RunTierctl(arguments, environment);
  std::string line = "$ tierctl";
  for (const std::string& argument : arguments) line += " " + (argument.find(' ') == std::string::npos && !argument.empty() ? argument : "'" + argument + "'");
  if (exit_code >= 0) {
    EXPECT_EQ(ran.exit_code, exit_code) << line;
  }
  return Replaced(line + "\n" + ran.err + "exit " + std::to_string(ran.exit_code) + "\n\n", directory, "DIRECTORY");
}

void Compare(const std::string& name, const std::string& told) {
  const std::string file = std::string(TIERCTL_GOLDEN_ERRORS) + "/" + name + ".txt";
  if (std::getenv("TIERD_UPDATE_GOLDEN") != nullptr) std::ofstream(file, std::ios::trunc) << told;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(told, text.str()) << file;
}

// Files that verbs take, in the directory of a test's.
constexpr const char *kPriorities = "DIRECTORY/priorities.txt", *kList = "DIRECTORY/list.txt", *kPlan = "DIRECTORY/plan.json";

Arguments InPlace(Arguments arguments, const std::string& directory) {
  std::ofstream(directory + "/priorities.txt") << "0.7 /x/a\n";
  std::ofstream(directory + "/list.txt") << "/x/a\n/x/b\n";
  std::ofstream(directory + "/plan.json") << R"({"tierd_plan": 1, "kind": "torch.sequential"})";
  for (std::string& argument : arguments) argument = Replaced(argument, "DIRECTORY", directory);
  return arguments;
}

const std::vector<Arguments>& Verbs() {
  static const std::vector<Arguments> verbs = {
      {"status"}, {"ls", "/x"}, {"stat", "/x"}, {"explain", "/x"}, {"du", "/x"}, {"prefetch", "/x"}, {"prefetch", "--wait", "/x"}, {"evict", "/x"}, {"evict", "--invalidate", "/x"}, {"pin", "/x"},
      {"unpin", "/x"}, {"verify"}, {"verify", "/x"}, {"jobs"}, {"wait", "1"}, {"cancel", "1"}, {"config", "get"}, {"config", "set", "ram.capacity", "1 GB"}, {"config", "reload"},
      {"metrics"}, {"top", "-n", "1"}, {"policy", "list"}, {"policy", "show"}, {"policy", "set", "lru"}, {"policy", "try"}, {"policy", "try", "lru"}, {"policy", "try", "--stop", "lru"},
      {"policy", "prioritize", kPriorities}, {"bench", "/x"}, {"plan", "sequential", kList}, {"plan", "torch-distributed", kList}, {"plan", "tell", kPlan, kList}, {"plan", "list"},
      {"plan", "remove", "3"}, {"trace", "start", "/x.trc"}, {"trace", "stop"}};
  return verbs;
}

TEST(ErrorGolden, WrongUsage) {
  const std::vector<Arguments> rows = {
      {}, {"prefech", "/x"}, {"--json", "statsu"}, {"--socket", "/s", "xyzzy"}, {"--sockt", "/s"}, {"--jsn"}, {"prefetch", "--wiat", "/x"}, {"prefetch"}, {"prefetch", "--tier", "tape", "/x"},
      {"status", "extra"}, {"ls"}, {"stat"}, {"explain"}, {"du"}, {"evict"}, {"pin"}, {"unpin"}, {"wait"}, {"wait", "soon"}, {"cancel", "-3"}, {"config"}, {"config", "gte"}, {"config", "set"},
      {"config", "set", "ram.capacity"}, {"top", "-d", "0"}, {"top", "-n", "many"}, {"metrics", "--label", "1x=1"}, {"policy"}, {"policy", "sett"}, {"policy", "set"}, {"debug"}, {"debug", "bundel"},
      {"completion"}, {"completion", "tcsh"}, {"run"}, {"run", "--keap", "--", "true"}, {"run", "--"}, {"simulate", "--order", "sideways"}, {"simulate", "--ram", "much"}, {"simulate", "--samples", "0"},
      {"bench", "--readers", "0", "/x"}, {"bench", "--seconds", "ever"}, {"bench", "/x", "/y"}, {"gc", "/x"},
      {"policy", "try", "--parameters"}, {"policy", "try", "lru", "a", "b"}, {"policy", "prioritize"}, {"policy", "prioritize", "/none"}, {"trace"}, {"trace", "strat"}, {"trace", "start"},
      {"trace", "start", "/x.trc", "--most", "much"}, {"trace", "stop", "a", "b"}, {"plan"}, {"plan", "sequental"}, {"plan", "sequential"}, {"plan", "sequential", "/none"},
      {"plan", "sequential", "--epoch", "first", "/none"}, {"plan", "torch-distributed"}, {"plan", "torch-distributed", "--world", "all", "/none"}, {"plan", "tell"}, {"plan", "tell", "/none"},
      {"plan", "tell", "/none", "/none"}, {"plan", "list", "3"}, {"plan", "remove"}, {"plan", "remove", "first"},
      {"evict", ""}, {"trace", "start", ""}, {"run", "--report", "-", "--", "true"}, {"policy", "try", "--stop"}, {"policy", "try", "--parameters", "k=1"}, {"plan", "sequential", "--batch-drop-last", "/none"},
      {"bench", "--seconds", "nan"}, {"simulate", "--step-us", "nan"}, {"simulate", "--source-bandwidth", "0"}, {"simulate", "-p", "lur"}, {"simulate", "--node", "5", "--nodes", "2"},
      {"simulate", "--skip", "12"}, {"--json", "simulate", "--svg", "-"}};
  std::string told;
  for (const Arguments& row : rows) told += Told(row, "");
  Compare("usage", told);
}

TEST(ErrorGolden, NoDaemon) {
  const FakeControl directory;
  std::string told;
  for (Arguments verb : Verbs()) {
    verb = InPlace(verb, directory.directory());
    verb.insert(verb.begin(), {"--socket", directory.directory() + "/none/control.sock"});
    told += Told(verb, directory.directory(), 3);
  }
  Compare("no_daemon", told);
}

// One who reads JSON gets none, and no half of it.
TEST(ErrorGolden, NoDaemonNoJson) {
  const FakeControl directory;
  for (Arguments verb : Verbs()) {
    verb = InPlace(verb, directory.directory());
    verb.insert(verb.begin(), {"--json", "--socket", directory.directory() + "/none/control.sock"});
    const Ran ran = RunTierctl(verb);
    EXPECT_EQ(ran.exit_code, 3) << verb[3];
    EXPECT_EQ(ran.out, "") << verb[3];
  }
}

// Each refusal of CONTROL.md, to each verb that can meet it.
TEST(ErrorGolden, RefusedByTheDaemon) {
  const struct {
    std::vector<const char*> end_points;
    unsigned status;
    const char* code;
    const char* message;
    std::vector<std::string> details;
    std::vector<Arguments> verbs;
    bool with_status = false;  // the verb asks for the status first
  } rows[] = {
      {{"GET /v1/files", "GET /v1/file", "GET /v1/du", "POST /v1/prefetch", "POST /v1/evict", "POST /v1/pin", "POST /v1/unpin", "POST /v1/verify"}, 404, "outside", "/x is below no source", {},
       {{"ls", "/x"}, {"stat", "/x"}, {"explain", "/x"}, {"du", "/x"}, {"prefetch", "/x"}, {"evict", "/x"}, {"pin", "/x"}, {"unpin", "/x"}, {"verify", "/x"}}},
      {{"GET /v1/jobs/7", "DELETE /v1/jobs/7"}, 404, "not_found", "there is no job 7", {}, {{"wait", "7"}, {"cancel", "7"}}},
      {{"DELETE /v1/jobs/7"}, 409, "conflict", "job 7 is over", {}, {{"cancel", "7"}}},
      {{"POST /v1/verify", "POST /v1/gc"}, 409, "conflict", "the SSD index is still being read", {}, {{"verify"}, {"gc"}}},
      {{"POST /v1/prefetch"}, 409, "conflict", "there is no SSD tier", {}, {{"prefetch", "--tier", "ssd", "/x"}}},
      {{"POST /v1/evict", "POST /v1/pin"}, 429, "busy", "too much is waiting to be done, or memory has run out; try again", {}, {{"evict", "/x"}, {"pin", "/x"}}},
      {{"PATCH /v1/config"}, 404, "not_found", "no key ram.capacty; did you mean ram.capacity?", {}, {{"config", "set", "ram.capacty", "1 GB"}}},
      {{"PATCH /v1/config"}, 409, "conflict", "ssd.region_size takes a restart", {}, {{"config", "set", "ssd.region_size", "8 MiB"}}},
      {{"PATCH /v1/config", "POST /v1/config/reload"}, 422, "invalid_config", "the configuration stays as it was", {"/e/t.toml:3: unknown key ram.capacty; did you mean capacity?"},
       {{"config", "set", "ram.capacity", "much"}, {"config", "reload"}}},
      {{"POST /v1/policies/try", "POST /v1/trace"}, 404, "not_found", "no source imagnet; there are: imagenet", {},
       {{"policy", "try", "lru", "imagnet"}, {"trace", "start", "/x.trc", "imagnet"}, {"trace", "stop", "imagnet"}}},
      {{"POST /v1/policies/try"}, 404, "not_found", "no policy lru is tried", {}, {{"policy", "try", "--stop", "lru"}}},
      {{"POST /v1/policies/try"}, 404, "not_found", "no policy is named \"lur\"; there are: auto, freeze, lru", {}, {{"policy", "try", "lur"}}},
      {{"POST /v1/policies/priorities"}, 404, "outside", "/x/a is below no source", {}, {{"policy", "prioritize", kPriorities}}},
      {{"POST /v1/trace"}, 409, "conflict", "a trace runs already", {}, {{"trace", "start", "/x.trc"}}},
      {{"POST /v1/trace"}, 404, "not_found", "no trace runs", {}, {{"trace", "stop"}}},
      {{"POST /v1/plans"}, 409, "conflict", "source imagenet takes no plans: its mode is blind", {},
       {{"plan", "sequential", kList}, {"plan", "torch-distributed", kList}, {"plan", "tell", kPlan, kList}}, true},
      {{"DELETE /v1/plans/3"}, 404, "not_found", "no plan 3 (those that are over are forgotten)", {}, {{"plan", "remove", "3"}}},
      {{"GET /v1/status", "GET /v1/metrics", "GET /v1/plans"}, 500, "internal", "something went wrong", {}, {{"status"}, {"top", "-n", "1"}, {"metrics"}, {"bench"}, {"policy", "try"}, {"plan", "list"}}},
  };
  std::string told;
  for (const auto& row : rows) {
    FakeControl fake;
    for (const char* end_point : row.end_points) fake.ReplyError(end_point, row.status, row.code, row.message, row.details);
    if (row.with_status) fake.Reply("GET /v1/status", {{"runtime_directory", fake.directory()}});
    for (Arguments verb : row.verbs) {
      verb = InPlace(verb, fake.directory());
      verb.insert(verb.begin(), {"--socket", fake.socket()});
      told += Told(verb, fake.directory(), 1);
    }
  }
  Compare("refused", told);
}

TEST(ErrorGolden, NonsenseFromTheDaemon) {
  FakeControl fake;
  fake.ReplyText("GET /v1/status", "not json");
  fake.ReplyRaw("GET /v1/config", "SSH-2.0-OpenSSH\r\n\r\n");
  fake.ReplyRaw("GET /v1/jobs", "");
  Compare("nonsense", Told({"--socket", fake.socket(), "status"}, fake.directory()) + Told({"--socket", fake.socket(), "config", "get"}, fake.directory()) +
                          Told({"--socket", fake.socket(), "jobs"}, fake.directory()));
}

TEST(ErrorGolden, OfTheMachine) {
  const FakeControl fake;
  std::string told = Told({"--socket", fake.socket(), "prefetch", "-f", fake.directory() + "/none"}, fake.directory(), 1);
  told += Told({"--socket", "/" + std::string(200, 'x') + "/control.sock", "status"}, fake.directory(), 3);
  told += Told({"run", "--quiet", "--no-preload", "--", fake.directory() + "/none"}, fake.directory(), 127, {"TIERD_DISABLE=1"});
  told += Told({"run", "--quiet", "--no-preload", "--", fake.directory()}, fake.directory(), 126, {"TIERD_DISABLE=1"});
  told += Told({"simulate", fake.directory() + "/none.trc"}, fake.directory(), 1);
  told += Told({"simulate", fake.directory()}, fake.directory(), 1);
  const std::string empty = fake.directory() + "/empty";
  std::ofstream{empty};
  told += Told(InPlace({"plan", "sequential", empty}, fake.directory()), fake.directory(), 1);
  told += Told(InPlace({"plan", "tell", empty, kList}, fake.directory()), fake.directory(), 1);
  told += Told(InPlace({"plan", "tell", fake.directory(), kList}, fake.directory()), fake.directory(), 1);
  Compare("machine", told);
}

}  // namespace
}  // namespace tierctl
