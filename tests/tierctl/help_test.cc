// --help of every verb, as golden files: TIERD_UPDATE_GOLDEN=1 writes them anew, and the difference is for people to look at. Then the scripts for shells, run by those shells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "run_tierctl.h"

namespace tierctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::vector<std::vector<std::string>>& Verbs() {
  static const std::vector<std::vector<std::string>> verbs = {
      {}, {"bench"}, {"cancel"}, {"completion"}, {"config"}, {"config", "get"}, {"config", "reload"}, {"config", "set"}, {"debug"}, {"debug", "bundle"}, {"doctor"}, {"du"}, {"evict"}, {"explain"}, {"gc"}, {"jobs"},
      {"ls"}, {"metrics"}, {"pin"}, {"plan"}, {"plan", "list"}, {"plan", "remove"}, {"plan", "sequential"}, {"plan", "tell"}, {"plan", "torch-distributed"}, {"policy"}, {"policy", "list"}, {"policy", "prioritize"}, {"policy", "set"}, {"policy", "show"}, {"policy", "try"}, {"prefetch"}, {"run"}, {"simulate"}, {"stat"}, {"status"}, {"top"}, {"trace"}, {"trace", "start"}, {"trace", "stop"}, {"unpin"}, {"verify"}, {"version"}, {"wait"}};
  return verbs;
}

std::string HelpOf(std::vector<std::string> verb) {
  verb.emplace_back("--help");
  const Ran ran = RunTierctl(verb);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
  return ran.out;
}

TEST(Help, IsAsInTheGoldenFiles) {
  const bool update = std::getenv("TIERD_UPDATE_GOLDEN") != nullptr;
  for (const auto& verb : Verbs()) {
    std::string name = "tierctl";
    for (const std::string& word : verb) name += "_" + word;
    const std::string file = std::string(TIERCTL_GOLDEN) + "/" + name + ".txt";
    const std::string help = HelpOf(verb);
    if (update) std::ofstream(file, std::ios::trunc) << help;
    EXPECT_EQ(help, ReadFile(file)) << file;
  }
}

TEST(Help, EveryVerbThatThereIsHasAGoldenFile) {
  const std::string all = HelpOf({});
  const std::string list = all.substr(all.find("\nSubcommands:"));
  std::istringstream lines(list);
  int verbs = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) continue;
    const std::string name = line.substr(2, line.find_first_of(" ,", 2) - 2);
    if (name.empty()) continue;
    ++verbs;
    EXPECT_TRUE(std::any_of(Verbs().begin(), Verbs().end(), [&](const auto& verb) { return !verb.empty() && verb[0] == name; })) << name;
  }
  EXPECT_GE(verbs, 20);
}

TEST(Help, StartsWithExamples) {
  for (const auto& verb : Verbs()) {
    // What only holds other verbs leads to them instead.
    const bool leaf = std::none_of(Verbs().begin(), Verbs().end(), [&](const auto& other) { return other.size() == verb.size() + 1 && !verb.empty() && other[0] == verb[0]; });
    if (!leaf) continue;
    std::string command = "tierctl";
    for (const std::string& word : verb) command += " " + word;
    const std::string help = HelpOf(verb);
    const std::size_t examples = help.find("\nExamples:\n  "), usage = help.find("\nUsage: ");
    ASSERT_LT(examples, usage) << help;
    EXPECT_THAT(help.substr(examples, usage - examples), HasSubstr(command));
  }
}

TEST(Help, NeverHasColours) {
  // There are none anywhere, so NO_COLOR has nothing to do.
  for (const auto& verb : Verbs()) EXPECT_THAT(HelpOf(verb), Not(HasSubstr("\033"))) << verb.size();
}

class Completion : public testing::Test {
 protected:
  static std::string Script(const std::string& shell) {
    const Ran ran = RunTierctl({"completion", shell});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  }
  // A script for the shell, with the completion in the file $1. False when the shell is not here.
  static bool Run(const std::string& shell, const std::string& script, std::string* out) {
    if (RunProgram({"/bin/sh", "-c", "command -v " + shell}, {}, "").exit_code != 0) return false;
    char file[] = "/tmp/tierctl-completion-XXXXXX";
    const int fd = ::mkstemp(file);
    if (fd >= 0) ::close(fd);
    std::ofstream(file) << Script(shell);
    const std::vector<std::string> command = shell == "fish" ? std::vector<std::string>{"/usr/bin/env", "fish", "--no-config", "-c", script, file}
                                                             : std::vector<std::string>{"/usr/bin/env", shell, shell == "zsh" ? "-f" : "--norc", "-c", script, shell, file};
    const Ran ran = RunProgram(command, {"HOME=/nonexistent", "XDG_CACHE_HOME=/nonexistent"}, "");
    ::unlink(file);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    *out = ran.out;
    return true;
  }
};

// What bash would offer for these words, the last of which is being typed.
std::string BashOffers(const std::string& words) {
  return "source \"$1\"; COMP_WORDS=(" + words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tierctl; echo \"[${COMPREPLY[*]}]\"; ";
}

TEST_F(Completion, BashKnowsVerbsAndOptions) {
  std::string out;
  const std::string script = BashOffers("tierctl pref") + BashOffers("tierctl --socket /x war") + BashOffers("tierctl load --wa") + BashOffers("tierctl config ''") + BashOffers("tierctl config set --j") +
                             BashOffers("tierctl prefetch /pfs/") + BashOffers("tierctl completion --so") + BashOffers("tierctl policy se");
  if (!Run("bash", script, &out)) GTEST_SKIP() << "no bash here";
  EXPECT_EQ(out, "[prefetch]\n[warmup]\n[--wait]\n[get set reload]\n[--json]\n[]\n[--socket]\n[set]\n");
}

TEST_F(Completion, FishKnowsVerbsAndOptions) {
  std::string out;
  const std::string script = "source $argv[1]; complete -C 'tierctl pref'; complete -C 'tierctl load --wa'; complete -C 'tierctl config '; complete -C 'tierctl config s'; complete -C 'tierctl --js'";
  if (!Run("fish", script, &out)) GTEST_SKIP() << "no fish here";
  EXPECT_THAT(out, HasSubstr("prefetch\tbring files"));
  EXPECT_THAT(out, HasSubstr("--wait\twait, and say"));
  EXPECT_THAT(out, HasSubstr("get\tvalues and where"));
  EXPECT_THAT(out, HasSubstr("set\tchange a value"));
  EXPECT_THAT(out, HasSubstr("--json\tanswer as JSON"));
}

// zsh completes only while a line is edited: its helpers are replaced by ones that tell what they were given.
std::string ZshOffers(const std::string& words) {
  return "words=(" + words + "); CURRENT=$#words; _tierctl; ";
}

TEST_F(Completion, ZshKnowsVerbsAndOptions) {
  std::string out;
  const std::string script = "compdef() { :; }; _files() { print files; }; _describe() { print -r -- \"$1: ${(P)2}\"; }; source \"$1\"; " + ZshOffers("tierctl pref") + ZshOffers("tierctl load --wa") +
                             ZshOffers("tierctl config ''") + ZshOffers("tierctl prefetch /pfs/");
  if (!Run("zsh", script, &out)) GTEST_SKIP() << "no zsh here";
  std::istringstream lines(out);
  std::string verbs, options, below, files;
  std::getline(lines, verbs);
  std::getline(lines, options);
  std::getline(lines, below);
  std::getline(lines, files);
  EXPECT_THAT(verbs, HasSubstr("prefetch:bring files, or all below directories"));
  EXPECT_THAT(options, HasSubstr("--wait:wait, and say"));
  EXPECT_THAT(options, HasSubstr("--socket:"));
  EXPECT_THAT(below, HasSubstr("get:values and where each came from"));
  EXPECT_EQ(files, "files");
}

TEST_F(Completion, OfAnotherShellIsRefused) {
  const Ran ran = RunTierctl({"completion", "tcsh"});
  EXPECT_EQ(ran.exit_code, 64);
  EXPECT_THAT(ran.err, HasSubstr("tcsh not in {bash,zsh,fish}"));
}

}  // namespace
}  // namespace tierctl
