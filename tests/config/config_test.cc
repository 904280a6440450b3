#include "tierd/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "temp_dir.h"
#include "tierd/config/config_view.h"

namespace tierd::config {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoSources = R"([[source]]
path = "/pfs/imagenet"
staleness = "immutable"
[[source]]
path = "/scratch/imagenet"
[ram]
capacity = "25%"
)";

Config Parsed(const std::string& text) {
  Result<Config> config = Config::Parse(text, "t.toml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? std::move(config).value() : Config::Defaults();
}

std::string ValueOf(const Config& config, const std::string& key) {
  const Result<EffectiveValue> value = config.Get(key);
  return value.ok() ? value->value : "error: " + value.status().message();
}

std::string OriginOf(const Config& config, const std::string& key) { return config.OriginOf(key).Text(); }

TEST(Config, EmptyFileIsTheDefaults) {
  const Config config = Parsed("");
  EXPECT_TRUE(Diff(Config::Defaults(), config).empty());
  EXPECT_TRUE(config.settings().automatic_sources);
}

TEST(Config, NamesComeFromPathsAndStayApart) {
  const Config config = Parsed(kTwoSources);
  ASSERT_EQ(config.settings().sources.size(), 2u);
  EXPECT_EQ(config.settings().sources[0].name, "imagenet");
  EXPECT_EQ(config.settings().sources[1].name, "imagenet-2");
  EXPECT_FALSE(config.settings().automatic_sources);
  EXPECT_EQ(NameFromPath("/"), "root");
  EXPECT_EQ(NameFromPath("/a/ä b"), "___b");
  EXPECT_EQ(NameFromPath("/a/.hidden"), "_hidden");
}

TEST(Config, EachValueKnowsItsOrigin) {
  Config config = Parsed(kTwoSources);
  EXPECT_EQ(OriginOf(config, "ram.capacity"), "t.toml:7");
  EXPECT_EQ(OriginOf(config, "source.imagenet.staleness"), "t.toml:3");
  EXPECT_EQ(OriginOf(config, "source.imagenet-2.path"), "t.toml:5");
  EXPECT_EQ(OriginOf(config, "source.imagenet-2.staleness"), "default");
  ASSERT_TRUE(config.ApplyEnvironment([](const char* name) { return std::string_view(name) == "TIERD_SOCKET" ? std::optional<std::string>("/e/tierd.sock") : std::nullopt; }).ok());
  EXPECT_EQ(ValueOf(config, "daemon.socket"), "/e/tierd.sock");
  EXPECT_EQ(OriginOf(config, "daemon.socket"), "environment");
  Overrides overrides;
  overrides.socket = "other.sock";
  overrides.ram = "1 GB";
  overrides.policy = "lru";
  overrides.sets = {"source.imagenet.ttl=5s", "limits.sessions=7", "ssd.min_free=2 GB"};
  overrides.sources = {"more/", "/pfs/imagenet"};
  ASSERT_TRUE(config.Apply(overrides, "/home/u").ok());
  EXPECT_EQ(ValueOf(config, "daemon.socket"), "/home/u/other.sock");
  EXPECT_EQ(OriginOf(config, "daemon.socket"), "command line");
  EXPECT_EQ(ValueOf(config, "ram.capacity"), "1 GB");
  EXPECT_EQ(ValueOf(config, "source.imagenet.ttl"), "5s");
  EXPECT_EQ(ValueOf(config, "source.imagenet-2.ttl"), "60s");
  EXPECT_EQ(ValueOf(config, "limits.sessions"), "7");
  ASSERT_EQ(config.settings().sources.size(), 3u);
  EXPECT_EQ(config.settings().sources[2].path, "/home/u/more");
  for (const auto& source : config.settings().sources) EXPECT_EQ(source.policy, "lru");
  EXPECT_EQ(OriginOf(config, "source.more.policy"), "command line");
}

TEST(Config, OptionSourceReplacesAutomaticOnes) {
  Config config = Config::Defaults();
  Overrides overrides;
  overrides.sources = {"/a"};
  ASSERT_TRUE(config.Apply(overrides, "/").ok());
  EXPECT_FALSE(config.settings().automatic_sources);
  EXPECT_EQ(config.AdoptMounts({"/mnt/x"}), 0u);
}

TEST(Config, WrongOverridesChangeNothing) {
  const struct {
    std::vector<std::string> sets;
    std::string line;
  } rows[] = {
      {{"ram.capacity"}, "--set ram.capacity: write --set KEY=VALUE"},
      {{"ram.capacty=1 GB"}, "--set ram.capacty=1 GB: unknown key ram.capacty; did you mean ram.capacity?"},
      {{"limits.sessions=many"}, "--set limits.sessions=many: limits.sessions wants a number of 1 to 65536, not \"many\""},
      {{"source.path=/x"}, "--set source.path=/x: source.path cannot be the same for every source: write source.NAME.path"},
      {{"source.imagnet.ttl=5s"}, "--set source.imagnet.ttl=5s: no source is called \"imagnet\"; did you mean \"imagenet\"?"},
      {{"source.imagenet.tll=5s"}, "--set source.imagenet.tll=5s: unknown key source.imagenet.tll; did you mean source.imagenet.ttl?"},
      {{"source.imagenet.offline_ok=true", "source.imagenet.staleness=ttl"}, "command line: source.offline_ok needs staleness = \"immutable\""},
  };
  for (const auto& row : rows) {
    Config config = Parsed(kTwoSources);
    Overrides overrides;
    overrides.sets = row.sets;
    overrides.ram = "2 GB";
    const Status status = config.Apply(overrides, "/");
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_EQ(status.message(), row.line);
    EXPECT_TRUE(Diff(Parsed(kTwoSources), config).empty());
  }
  Config config = Config::Defaults();
  Overrides overrides;
  overrides.ram = "lots";
  overrides.metrics = "nowhere";
  const Status status = config.Apply(overrides, "/");
  EXPECT_EQ(Lines(status).size(), 2u);
  EXPECT_THAT(status.message(), HasSubstr("--ram: ram.capacity wants a size"));
  EXPECT_THAT(status.message(), HasSubstr("--metrics: daemon.metrics_address wants an address"));
}

TEST(Config, WrongEnvironmentIsNamed) {
  Config config = Config::Defaults();
  const Status status = config.ApplyEnvironment([](const char*) { return std::optional<std::string>("not/absolute"); });
  EXPECT_EQ(status.message(), "TIERD_SOCKET: daemon.socket wants an absolute path of 107 bytes at most, or \"auto\", not \"not/absolute\"");
}

TEST(Config, SetAtRunTime) {
  Config config = Parsed(kTwoSources);
  ASSERT_TRUE(config.Set("ram.capacity", "2 GB").ok());
  EXPECT_EQ(OriginOf(config, "ram.capacity"), "control");
  ASSERT_TRUE(config.Set("source.imagenet.byte_budget", "200 MB/s").ok());
  EXPECT_EQ(config.settings().sources[0].bytes_per_s, 200'000'000u);
  EXPECT_EQ(config.Set("ssd.min_free", "1 GiB/s").code(), Code::kInvalid) << "nothing is free per second";
  EXPECT_EQ(config.settings().sources[1].bytes_per_s, 0u);
  ASSERT_TRUE(config.Set("source.policy", "lru").ok());
  EXPECT_EQ(config.settings().sources[1].policy, "lru");

  EXPECT_EQ(config.Set("ram.pages", "4k").code(), Code::kUnsupported);
  EXPECT_EQ(config.Set("ram.pages", "5k").code(), Code::kInvalid);
  EXPECT_EQ(config.Set("ram.pgaes", "4k").message(), "unknown key ram.pgaes; did you mean ram.pages?");
  EXPECT_EQ(config.Set("source.x.ttl", "4s").code(), Code::kNotFound);
  EXPECT_EQ(config.Set("", "4s").code(), Code::kNotFound);
  EXPECT_EQ(config.Set("source.", "4s").code(), Code::kNotFound);
  EXPECT_EQ(ValueOf(config, "ram.pages"), "auto");
}

TEST(Config, MountsBecomeSources) {
  Config config = Parsed("sources = \"auto\"\n[[source]]\npath = \"/pfs/a\"\n");
  EXPECT_EQ(config.AdoptMounts({"/pfs/a", "/pfs", "/pfs/a/b", "/nfs/data", "/gpfs/data"}), 2u);
  EXPECT_EQ(ValueOf(config, "source.data.path"), "/nfs/data");
  EXPECT_EQ(ValueOf(config, "source.data-2.path"), "/gpfs/data");
  EXPECT_EQ(OriginOf(config, "source.data.path"), "mounted");
}

TEST(Config, AutomaticSourcesTakeWhatIsSetForAll) {
  Config config = Config::Defaults();
  Overrides overrides;
  overrides.sets = {"source.staleness=immutable"};
  ASSERT_TRUE(config.Apply(overrides, "/").ok());
  ASSERT_EQ(config.AdoptMounts({"/nfs/data"}), 1u);
  EXPECT_EQ(ValueOf(config, "source.data.staleness"), "immutable");
  EXPECT_EQ(OriginOf(config, "source.data.staleness"), "command line");
}

TEST(Config, DiffTellsWhatNeedsARestart) {
  const Config before = Parsed(kTwoSources);
  const Config after = Parsed(R"([[source]]
path = "/pfs/imagenet"
staleness = "ttl"
byte_budget = "1 GB"
[[source]]
path = "/new"
[ram]
capacity = "50%"
)");
  std::vector<std::string> lines;
  for (const Change& change : Diff(before, after)) lines.push_back(change.key + ": " + change.from + " -> " + change.to + (change.reloadable ? "" : " (restart)"));
  EXPECT_THAT(lines, ::testing::UnorderedElementsAre("source.imagenet-2: /scratch/imagenet ->  (restart)", "source.new:  -> /new (restart)",
                                                     "ram.capacity: 25% -> 50%", "source.imagenet.staleness: immutable -> ttl (restart)",
                                                     "source.imagenet.byte_budget: 0 -> 1 GB"));
  const nlohmann::json json = ChangesJson(Diff(before, after));
  EXPECT_EQ(json["applied"].size(), 2u);
  EXPECT_EQ(json["restart"].size(), 3u);
  EXPECT_EQ(json["applied"][0], nlohmann::json({{"key", "ram.capacity"}, {"from", "25%"}, {"to", "50%"}}));
}

TEST(Config, PrintedConfigurationCanBeLoadedAgain) {
  Config config = Parsed(kTwoSources);
  Overrides overrides;
  overrides.sets = {"source.imagenet.policy_parameters=a=\"b\\c\",d=1", "ram.segment_size=64 MiB", "source.ttl=1500ms"};
  ASSERT_TRUE(config.Apply(overrides, "/").ok());
  const std::string text = PrintToml(config, {{"ram.capacity", "6.0 GiB of 24.0 GiB"}});
  EXPECT_THAT(text, HasSubstr("capacity = \"25%\""));
  EXPECT_THAT(text, HasSubstr("# t.toml:7; here 6.0 GiB of 24.0 GiB\n"));
  EXPECT_TRUE(Diff(config, Parsed(text)).empty()) << text;
}

TEST(Config, ValuesAsJson) {
  const nlohmann::json json = ValuesJson(Parsed(kTwoSources));
  EXPECT_EQ(json["file"], "t.toml");
  EXPECT_TRUE(ValuesJson(Config::Defaults())["file"].is_null());
  const nlohmann::json wanted = {{"key", "ram.capacity"}, {"value", "25%"}, {"origin", "t.toml:7"}, {"reloadable", true}};
  EXPECT_NE(std::find(json["values"].begin(), json["values"].end(), wanted), json["values"].end());
}

TEST(Config, FileIsFoundWhereTheEnvironmentSays) {
  const TempDir dir;
  dir.Make(".config/tierd");
  const std::string file = dir.Write(".config/tierd/tierd.toml", "");
  const auto home = [&](const char* name) { return std::string_view(name) == "HOME" ? std::optional<std::string>(dir.path()) : std::nullopt; };
  EXPECT_EQ(Config::FindFile(home), file);
  const auto xdg = [&](const char* name) { return std::string_view(name) == "XDG_CONFIG_HOME" ? std::optional<std::string>(dir.path() + "/.config") : std::nullopt; };
  EXPECT_EQ(Config::FindFile(xdg), file);
}

TEST(Config, MetricsAddressesAreThoseThatCanBeListenedOn) {
  const auto taken = [](const std::string& address) { return Config::Parse("[daemon]\nmetrics_address = \"" + address + "\"\n", "t").ok(); };
  for (const char* good : {"127.0.0.1:9469", "0.0.0.0:0", "[::1]:9469", "[::]:65535", "[::ffff:10.0.0.1]:80", "off"}) EXPECT_TRUE(taken(good)) << good;
  for (const char* bad : {"999.1.1.1:9", "1:80", "1.2.3:80", "1.2.3.4.5:80", "[1:2:3]:80", "[127.0.0.1]:80", "::1:80", "[]:80", "[::1:80", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1"})
    EXPECT_FALSE(taken(bad)) << bad;
}

}  // namespace
}  // namespace tierd::config
