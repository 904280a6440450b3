// Every mistake a file can hold, and the exact line that is said about it (FAULTS F36).
#include <gtest/gtest.h>
#include <unistd.h>

#include "temp_dir.h"
#include "tierd/config/config.h"
#include "tierd/config/config_view.h"

namespace tierd::config {
namespace {

struct Row {
  const char* name;
  const char* text;
  std::vector<std::string> lines;
};

const Row kRows[] = {
    {"no TOML", "[ram\n", {"t:1: Error while parsing table header: expected ']', saw '\\n'"}},
    {"unknown key", "[ram]\ncapacty = \"1 GB\"\n", {"t:2: unknown key ram.capacty; did you mean ram.capacity?"}},
    {"unknown key, nothing near", "[ram]\nxyzzy = 1\n", {"t:2: unknown key ram.xyzzy; there are capacity, pages, segment_size, seal, pin_cap, min_available"}},
    {"section as a key", "ram = 5\n", {"t:1: ram is a section: write [ram] on a line of its own, and its keys (capacity, pages, segment_size, seal, pin_cap, min_available) below"}},
    {"nothing near at the top", "xyzzy = 5\n", {"t:1: unknown key xyzzy; outside of sections there is sources"}},
    {"key of another section", "[ram]\nmetrics_address = \"off\"\n", {"t:2: unknown key ram.metrics_address; metrics_address belongs into [daemon]"}},
    {"key of a source at the top", "ttl = \"60s\"\n", {"t:1: unknown key ttl; ttl belongs into [[source]]"}},
    {"unknown section of a source", "[[sorce]]\npath = \"/x\"\n", {"t:1: unknown section [sorce]; did you mean [[source]]?"}},
    {"unknown section", "[rams]\ncapacity = 3\n", {"t:1: unknown section [rams]; did you mean [ram]?"}},
    {"unknown section, nothing near", "[kubernetes]\n", {"t:1: unknown section [kubernetes]; there are source, daemon, ram, ssd, policy, limits"}},
    {"one bracket", "[source]\npath = \"/x\"\n", {"t:1: a source is written [[source]], with two brackets: there may be several"}},
    {"two brackets", "[[ram]]\ncapacity = \"auto\"\n", {"t:1: write [ram], with one bracket: there is only one"}},
    {"integer for size", "[ram]\ncapacity = 1000000000\n",
     {"t:2: ram.capacity wants a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\", not 1000000000"}},
    {"unit", "[ram]\ncapacity = \"8 X\"\n",
     {"t:2: ram.capacity wants a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\", not \"8 X\""}},
    {"too small", "[ram]\n\ncapacity = \"1 MB\"\n",
     {"t:3: ram.capacity wants a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\", not \"1 MB\""}},
    {"share", "[ram]\ncapacity = \"150%\"\n",
     {"t:2: ram.capacity wants a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\", not \"150%\""}},
    {"no power of two", "[[source]]\npath = \"/x\"\nchunk_size = \"3 MiB\"\n",
     {"t:3: source.chunk_size wants a power of two of 64 KiB to 64 MiB, such as \"4 MiB\", not \"3 MiB\""}},
    {"duration without unit", "[[source]]\npath = \"/x\"\nttl = 60\n", {"t:3: source.ttl wants a time of 100ms to 1d, such as \"60s\", not 60"}},
    {"duration out of range", "[[source]]\npath = \"/x\"\nttl = \"1ms\"\n", {"t:3: source.ttl wants a time of 100ms to 1d, such as \"60s\", not \"1ms\""}},
    {"duration or auto", "[[source]]\npath = \"/x\"\naccess_recheck = \"50ms\"\n", {"t:3: source.access_recheck wants a time of 100ms to 30d, such as \"10min\", or \"auto\", not \"50ms\""}},
    {"choice", "[[source]]\npath = \"/x\"\nstaleness = \"never\"\n", {"t:3: source.staleness wants \"immutable\", \"ttl\" or \"open\", not \"never\""}},
    {"boolean as string", "[[source]]\npath = \"/x\"\noffline_ok = \"yes\"\n", {"t:3: source.offline_ok wants true or false, not \"yes\""}},
    {"string for number", "[limits]\nsessions = \"5\"\n", {"t:2: limits.sessions wants a number of 1 to 65536, not \"5\""}},
    {"negative", "[limits]\nsessions = -1\n", {"t:2: limits.sessions wants a number of 1 to 65536, not -1"}},
    {"float", "[limits]\nsessions = 1.5\n", {"t:2: limits.sessions wants a number of 1 to 65536, not 1.500000"}},
    {"array", "[limits]\nsessions = [1]\n", {"t:2: limits.sessions wants a number of 1 to 65536, not an array"}},
    {"table", "[ram]\ncapacity = { a = 1 }\n",
     {"t:2: ram.capacity wants a size of 16 MiB or more such as \"800 MB\", a share of memory such as \"25%\", or \"auto\", not a table"}},
    {"relative source", "[[source]]\npath = \"data\"\n", {"t:2: source.path wants an absolute path, not \"data\""}},
    {"relative cache", "[ssd]\ndirectory = \"cache\"\n", {"t:2: ssd.directory wants an absolute path, \"auto\" or \"off\", not \"cache\""}},
    {"long socket", "[daemon]\nsocket = \"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n",
     {"t:2: daemon.socket wants an absolute path of 107 bytes at most, or \"auto\", not "
      "\"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""}},
    {"address", "[daemon]\nmetrics_address = \"localhost\"\n", {"t:2: daemon.metrics_address wants an address in numbers such as \"127.0.0.1:9469\" or \"[::1]:9469\", or \"off\", not \"localhost\""}},
    {"port", "[daemon]\nmetrics_address = \"127.0.0.1:99999\"\n",
     {"t:2: daemon.metrics_address wants an address in numbers such as \"127.0.0.1:9469\" or \"[::1]:9469\", or \"off\", not \"127.0.0.1:99999\""}},
    {"no path", "[[source]]\nttl = \"5s\"\n", {"t:1: [[source]] has no path: add path = \"/the/directory\""}},
    {"twice", "[[source]]\npath = \"/x\"\n[[source]]\npath = \"/x/\"\n", {"t:4: source /x is listed twice (t:2): remove one"}},
    {"nested", "[[source]]\npath = \"/x\"\n[[source]]\npath = \"/x//y\"\n",
     {"t:4: source /x/y and source /x (t:2) lie inside one another: keep one of them"}},
    {"same name", "[[source]]\npath = \"/x\"\nname = \"a\"\n[[source]]\npath = \"/y\"\nname = \"a\"\n",
     {"t:3: another source is called \"a\" too: names must differ", "t:6: another source is called \"a\" too: names must differ"}},
    {"name", "[[source]]\npath = \"/x\"\nname = \"a b\"\n", {"t:3: source.name wants a name of letters, digits, '_', '-' and '.', 64 at most, not \"a b\""}},
    {"offline_ok", "[[source]]\npath = \"/x\"\noffline_ok = true\n", {"t:3: source.offline_ok needs staleness = \"immutable\""}},
    {"chunk over region", "[ssd]\nregion_size = \"8 MiB\"\n[[source]]\npath = \"/x\"\nchunk_size = \"8 MiB\"\n",
     {"t:2: ssd.region_size must exceed the largest source.chunk_size by 16 KiB: use the next power of two"}},
    {"policy name", "[[source]]\npath = \"/x\"\npolicy = \"LRU!\"\n", {"t:3: source.policy wants the name of a policy, such as \"auto\" or \"lru\", not \"LRU!\""}},
    {"foreign key", "[ssd]\nverify_checksum = false\n", {"t:2: unknown key ssd.verify_checksum: every cached byte is checked, always; there is no switch"}},
    {"several", "[ram]\ncapacty = 1\n[limits]\nsessions = 0\n[sdd]\n",
     {"t:5: unknown section [sdd]; did you mean [ssd]?", "t:2: unknown key ram.capacty; did you mean ram.capacity?",
      "t:4: limits.sessions wants a number of 1 to 65536, not 0"}},
};

TEST(BadToml, SaysWhereAndWhat) {
  for (const Row& row : kRows) {
    const Result<Config> config = Config::Parse(row.text, "t");
    ASSERT_FALSE(config.ok()) << row.name;
    EXPECT_EQ(config.status().code(), Code::kInvalid) << row.name;
    EXPECT_EQ(Lines(config.status()), row.lines) << row.name;
  }
}

TEST(BadToml, KeyGivenTwiceIsRefusedWithItsLine) {
  const Result<Config> config = Config::Parse("[ram]\npages = \"4k\"\npages = \"auto\"\n", "t");
  ASSERT_FALSE(config.ok());
  EXPECT_TRUE(config.status().message().starts_with("t:3: ")) << config.status().message();
}

TEST(BadToml, AKeyOfEndlessDepthIsRefused) {
  std::string deep = "a";
  for (int i = 0; i < 400'000; ++i) deep += i % 2 == 0 ? ".a" : " . \"b\"";
  for (const std::string& text : {deep + " = 1\n", "[" + deep + "]\n", "[ram]\npages = { " + deep + " = 1 }\n"}) {
    const Result<Config> config = Config::Parse(text, "t");
    ASSERT_FALSE(config.ok());
    EXPECT_TRUE(config.status().message().ends_with(": a key with more than 64 dots: keys are section.name")) << config.status().message();
  }
  const std::string dots(200, '.');
  EXPECT_TRUE(Config::Parse("# " + dots + "\n[ram]\npages = \"4k\"  # . . . " + dots + "\n", "t").ok());
}

TEST(BadToml, AFloodOfMistakesIsCut) {
  std::string text = "[ram]\n";
  for (int i = 0; i < 100; ++i) text += "key" + std::to_string(i) + " = 1\n";
  const Result<Config> config = Config::Parse(text, "t");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(Lines(config.status()).size(), 21u);
  EXPECT_EQ(Lines(config.status()).back(), "... and 80 more");
}

TEST(BadToml, AnyPrefixOfAFileIsHandled) {
  const std::string text = "sources = \"auto\"\n[[source]]\npath = \"/x\"\nttl = \"5s\"\n[ram]\ncapacity = \"25%\"\npages = '4k'\n[limits]\nsessions = 0x10\n";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const Result<Config> config = Config::Parse(std::string_view(text).substr(0, n), "t");
    if (!config.ok()) {
      EXPECT_TRUE(config.status().message().starts_with("t:")) << n;
    }
  }
}

TEST(LoadConfig, RefusesWhatIsNotOurs) {
  const TempDir dir;
  EXPECT_EQ(Config::Load(dir.path() + "/none").status().code(), Code::kNotFound);
  EXPECT_EQ(Config::Load(dir.path()).status().message(), "configuration " + dir.path() + ": not a regular file");
  const std::string file = dir.Write("open", "");
  std::filesystem::permissions(file, std::filesystem::perms(0666));
  EXPECT_EQ(Config::Load(file).status().message(), "configuration " + file + " can be written by everybody: chmod go-w " + file);
  EXPECT_EQ(Config::Load(file).status().code(), Code::kPermission);
  if (::chown(file.c_str(), 12345, 12345) == 0) {  // root, where nothing refuses it
    std::filesystem::permissions(file, std::filesystem::perms(0644));
    EXPECT_EQ(Config::Load(file).status().message(), "configuration " + file + " belongs to uid 12345: it must belong to you or root; use a copy of your own");
  }
  const std::string large = dir.Write("large", std::string(Config::kMaxFileBytes + 1, '#'));
  EXPECT_EQ(Config::Load(large).status().message(), large + ": larger than 1 MiB: not a configuration");
}

}  // namespace
}  // namespace tierd::config
