// What --json prints of the real daemon is what tierctl/schema says, verb by verb.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "tests/e2e/cli_fixture.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

using nlohmann::json;
using tierctl::Ran;

struct Row {
  const char* schema;
  std::vector<std::string> arguments;
  bool again = true;  // without --json, too: some things can be done one time only, and some say nothing on stdout
};

std::string SchemaFile(const std::string& schema) { return TIERCTL_SCHEMAS "/" + schema + ".json"; }

TEST_F(CliTest, EveryVerbAnswersAsItsSchemaSays) {
  MakeFiles(12);
  Write(source + "/dir0/odd \xff name", "x");
  Write(scratch.path() + "/t.toml", "[ram]\ncapacity = \"96 MiB\"\n");
  const std::string link = source + "/link", out = source + "/out";
  std::filesystem::create_symlink("dir1/f1", link);
  std::filesystem::create_symlink("/etc/passwd", out);
  std::string list;
  for (int i = 0; i < 12; ++i) list += Path(i) + "\n";
  Write(scratch.path() + "/list", list);
  Write(scratch.path() + "/values", "0.5 " + Path(1) + "\n2 " + Path(2) + "\n");
  auto options = Options();
  options.config = scratch.path() + "/t.toml";
  options.more.insert(options.more.end(), {"--policy", "belady"});  // follows plans
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const std::vector<Row> rows{{"status", {"status"}},
                              {"version", {"version"}},
                              {"stat", {"stat", Path(1)}},
                              {"du", {"du", source}},
                              {"plan_told", {"plan", "sequential", "--epochs", "3", scratch.path() + "/list"}},
                              {"plan_list", {"plan", "list"}},
                              {"trace", {"trace", "start", scratch.path() + "/t.trc"}, false},
                              {"policy_try", {"policy", "try", "lru"}, false},
                              {"policy_try", {"policy", "try"}},
                              {"prefetch", {"prefetch", source + "/dir1"}},
                              {"prefetch", {"prefetch", "--wait", source}},
                              {"status", {"status"}},
                              {"ls", {"ls", "-r", source}},
                              {"stat", {"stat", Path(1), source, source + "/dir0/odd \xff name"}},
                              {"stat", {"explain", Path(1)}},
                              {"prefetch", {"prefetch", "--wait", link}},
                              {"stat", {"stat", link, out}},
                              {"stat", {"explain", link, out}},
                              {"affected", {"pin", Path(1), Path(2)}},
                              {"affected", {"unpin", Path(1)}},
                              {"verify", {"verify"}},
                              {"verify", {"verify", source + "/dir2"}},
                              {"jobs", {"jobs"}},
                              {"jobs", {"wait", "1"}},
                              {"affected", {"evict", source + "/dir1"}},
                              {"config_get", {"config", "get"}},
                              {"config_get", {"config", "get", "ram"}},
                              {"config_changes", {"config", "set", "ssd.min_free", "2 MiB"}},
                              {"config_changes", {"config", "reload"}},
                              {"policy_list", {"policy", "list"}},
                              {"policy_show", {"policy", "show"}},
                              {"policy_prioritize", {"policy", "prioritize", scratch.path() + "/values"}, false},
                              {"trace", {"trace", "stop"}, false},
                              {"plan_list", {"plan", "remove", "1"}, false},
                              {"config_changes", {"policy", "set", "lru"}, false},
                              {"doctor", {"doctor", "--no-speed"}},
                              {"top", {"top", "-n", "1"}},
                              {"gc", {"gc"}},
                              {"bench", {"bench", "--seconds", "0.2", source}}};
  std::vector<std::string> command{"/usr/bin/python3", TIERCTL_VALIDATE};
  std::set<std::string> used{"run", "simulate"};  // tests/preload, tests/tierctl: no daemon is asked
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> arguments = rows[i].arguments;
    arguments.push_back("--json");
    const Ran ran = Ctl(arguments);
    EXPECT_EQ(ran.exit_code, 0) << arguments[0] << ": " << ran.err;
    const std::string document = scratch.path() + "/" + std::to_string(i) + "-" + arguments[0] + ".json";
    Write(document, ran.out);
    command.insert(command.end(), {SchemaFile(rows[i].schema), document});
    used.insert(rows[i].schema);
    if (!rows[i].again) continue;
    const Ran human = Ctl(rows[i].arguments);
    EXPECT_EQ(human.exit_code, 0) << arguments[0] << ": " << human.err;
    EXPECT_FALSE(human.out.empty() && rows[i].arguments[0] != "config") << arguments[0];
  }
  const Ran valid = tierctl::RunProgram(command, {}, "");
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
  for (const auto& entry : std::filesystem::directory_iterator(TIERCTL_SCHEMAS)) EXPECT_TRUE(used.contains(entry.path().stem())) << entry.path() << " has not seen the daemon";
}

TEST_F(CliTest, AJobThatRunsIsCancelled) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0, .bandwidth = 100'000}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  for (int i = 0; i < 60; ++i) Write(rig->backing() + "/f" + std::to_string(i), Content(std::to_string(i), 80'000));
  source = rig->mount();
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  ASSERT_EQ(Ctl({"prefetch", source}).exit_code, 0);
  const Ran cancelled = Ctl({"cancel", "1", "--json"});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_THAT(cancelled.out, ::testing::HasSubstr("\"cancelled\""));
  const std::string document = scratch.path() + "/cancelled.json";
  Write(document, cancelled.out);
  const Ran valid = tierctl::RunProgram({"/usr/bin/python3", TIERCTL_VALIDATE, SchemaFile("jobs"), document}, {}, "");
  EXPECT_EQ(valid.exit_code, 0) << valid.err;
  EXPECT_EQ(Ctl({"cancel", "1"}).exit_code, 1) << "it is over";
  rig->Control("bandwidth 0");
}

}  // namespace
}  // namespace tierd::e2e
