#include "tierd/config/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "temp_dir.h"
#include "tierd/config/config_view.h"

namespace tierd::config {
namespace {

std::vector<std::string> Problems(const std::string& text, const policies::Registry* policies = nullptr) {
  const Result<Config> config = Config::Parse(text, "t");
  if (!config.ok()) return {"parse: " + config.status().message()};
  return Lines(Check(*config, policies));
}

std::string Source(const std::string& path, const std::string& more = "") { return "[[source]]\npath = \"" + path + "\"\n" + more; }

using Strings = std::vector<std::string>;

TEST(Check, AGoodConfigurationPasses) {
  const TempDir dir;
  EXPECT_EQ(Problems(Source(dir.Make("data")) + "[ssd]\ndirectory = \"" + dir.path() + "/cache\"\n"), Strings());
}

TEST(Check, SaysWhatIsWrongWithASource) {
  const TempDir dir;
  EXPECT_EQ(Problems(Source(dir.path() + "/none")), Strings({"t:2: source " + dir.path() + "/none: no such directory: mount or create it, or remove this source"}));
  const std::string file = dir.Write("file", "x");
  EXPECT_EQ(Problems(Source(file)), Strings({"t:2: source " + file + ": not a directory: name the directory that holds the data"}));
  EXPECT_EQ(Problems(Source("/proc/self")), Strings({"t:2: source /proc/self: below /proc: nothing there can be cached"}));
  if (::geteuid() != 0) {
    const std::string locked = dir.Make("locked");
    std::filesystem::permissions(locked, std::filesystem::perms::none);
    EXPECT_EQ(Problems(Source(locked)), Strings({"t:2: source " + locked + ": Permission denied: tierd needs to read it as the user it runs as"}));
  }
}

TEST(Check, OfASourceThatIsServedOnlyItsPlaceCounts) {
  const TempDir dir;
  const std::string data = dir.Make("data"), gone = dir.path() + "/gone", link = dir.path() + "/link";
  ASSERT_EQ(::symlink(data.c_str(), link.c_str()), 0);
  const Running running{{gone, data}, std::chrono::seconds(60)};
  const auto problems = [&](const std::string& text) { return Lines(Check(*Config::Parse(text, "t"), nullptr, &running)); };
  EXPECT_EQ(problems(Source(gone) + Source(data)), Strings()) << "what it serves may be gone for a while";
  EXPECT_EQ(problems(Source(data) + Source(gone + "-too")), Strings({"t:4: source " + gone + "-too: no such directory: mount or create it, or remove this source"}));
  EXPECT_EQ(problems(Source(data) + Source(link)), Strings({"t:4: source " + link + " and source " + data + " are the same directory: keep one of them"}));
  EXPECT_EQ(problems(Source(gone) + "[ssd]\ndirectory = \"" + gone + "/cache\"\n"),
            Strings({"t:4: ssd.directory " + gone + "/cache lies inside the source " + gone + ": tierd never writes there; name a local directory"}));
}

TEST(Check, NoSourceIsAnError) {
  EXPECT_EQ(Problems(""), Strings({"no source: no network file system that can be used is mounted here; name a directory: tierd --source DIR"}));
  EXPECT_EQ(Problems("sources = \"listed\"\n"), Strings({"no source: add a [[source]] with a path, or start tierd --source DIR"}));
}

TEST(Check, SeesThroughSymbolicLinks) {
  const TempDir dir;
  const std::string data = dir.Make("data");
  dir.Make("data/sub");
  const std::string link = dir.path() + "/link";
  ASSERT_EQ(::symlink(data.c_str(), link.c_str()), 0);
  EXPECT_EQ(Problems(Source(data) + Source(link)), Strings({"t:4: source " + link + " and source " + data + " are the same directory: keep one of them"}));
  EXPECT_EQ(Problems(Source(data) + Source(link + "/sub")), Strings({"t:4: source " + link + "/sub and source " + data + " lie inside one another: keep one of them"}));
  EXPECT_EQ(Problems(Source(data) + "[ssd]\ndirectory = \"" + link + "/new/cache\"\n"),
            Strings({"t:4: ssd.directory " + link + "/new/cache lies inside the source " + data + ": tierd never writes there; name a local directory"}));
}

TEST(Mounts, OneThatWillNotDoIsLeftOut) {
  const TempDir dir;
  const std::string first = dir.Make("first"), sub = dir.Make("first/sub"), other = dir.Make("other"), none = dir.path() + "/none", link = dir.path() + "/link";
  const std::string file = dir.Write("file", "x");
  ASSERT_EQ(::symlink(first.c_str(), link.c_str()), 0);
  const Mounts mounts = ChooseMounts({none, first, link, file, link + "/sub", other}, Config::Defaults());
  EXPECT_EQ(mounts.usable, Strings({first, other}));
  EXPECT_EQ(mounts.notes, Strings({"network mount " + none + " is left out: no such directory: mount or create it, or remove this source",
                                   "network mount " + link + " is left out: it and " + first + " are the same directory",
                                   "network mount " + file + " is left out: not a directory: name the directory that holds the data",
                                   "network mount " + link + "/sub is left out: it and " + first + " lie inside one another"}));
  Config config = Config::Defaults();
  config.AdoptMounts(mounts.usable);
  EXPECT_TRUE(Check(config, nullptr).ok());
}

TEST(Mounts, ASourceThatWasNamedComesFirst) {
  const TempDir dir;
  const std::string data = dir.Make("data"), link = dir.path() + "/link", other = dir.Make("other");
  ASSERT_EQ(::symlink(data.c_str(), link.c_str()), 0);
  const Result<Config> config = Config::Parse("sources = \"auto\"\n" + Source(link), "t");
  ASSERT_TRUE(config.ok());
  const Mounts mounts = ChooseMounts({data, link, link + "/below", other}, *config);
  EXPECT_EQ(mounts.usable, Strings({other}));
  EXPECT_EQ(mounts.notes, Strings({"network mount " + data + " is left out: it and " + link + " are the same directory"})) << "of its own name nothing has to be said";
}

TEST(Check, OwnPathsStayOutOfSources) {
  const TempDir dir;
  const std::string data = dir.Make("data");
  EXPECT_EQ(Problems(Source(data) + "[daemon]\nsocket = \"" + data + "/s\"\nruntime_dir = \"" + data + "\"\n"),
            Strings({"t:5: daemon.runtime_dir " + data + " lies inside the source " + data + ": tierd never writes there; name a local directory",
                     "t:4: daemon.socket " + data + "/s lies inside the source " + data + ": tierd never writes there; name a local directory"}));
  EXPECT_EQ(Problems(Source(data) + "[ssd]\ndirectory = \"" + dir.path() + "\"\n"),
            Strings({"t:4: ssd.directory " + dir.path() + " contains the source " + data + ": name a directory of its own"}));
}

TEST(Check, PoliciesMustExist) {
  const TempDir dir;
  const policies::Registry registry;
  const std::string source = Source(dir.Make("data"), "policy = \"lur\"\n");
  const Strings problems = Problems(source, &registry);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].starts_with("t:3: source.policy: there is no policy \"lur\"; did you mean \"lru\"? There are: ")) << problems[0];
  EXPECT_EQ(Problems(source), Strings());  // nobody to ask
  EXPECT_EQ(Problems(Source(dir.path() + "/data") + "[policy]\ndirectory = \"" + dir.path() + "/none\"\n"),
            Strings({"t:4: policy.directory " + dir.path() + "/none: no such directory: create it, or remove this line"}));
}

TEST(Check, ARuntimeDirectoryThatNobodyNamedMayNotLieInASource) {
  const TempDir dir;
  const std::string data = dir.Make("data"), link = dir.path() + "/link";
  ASSERT_EQ(::symlink(data.c_str(), link.c_str()), 0);
  HostFacts host;
  const auto problem = [&](const std::string& runtime, const std::string& more) {
    host.xdg_runtime_dir = runtime;
    const Config config = *Config::Parse(Source(data) + "[ssd]\ndirectory = \"off\"\n" + more, "t");
    return CheckRuntimePlace(config, *Resolve(config, host)).message();
  };
  EXPECT_EQ(problem(data, ""), "daemon.runtime_dir " + data + "/tierd lies inside the source " + data + ": tierd never writes there; name a local directory");
  EXPECT_NE(problem(link, "").find("lies inside the source"), std::string::npos);
  EXPECT_EQ(problem(dir.path(), ""), "");
  EXPECT_EQ(problem(data, "[daemon]\nsocket = \"" + dir.path() + "/s\"\n"), "") << "nothing is made there";
}

}  // namespace
}  // namespace tierd::config
