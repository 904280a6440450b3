// config/tierd.toml is what people copy: it must name every key, nothing else, and show the true defaults.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tierd/config/config.h"

namespace tierd::config {
namespace {

std::vector<std::string> FileLines() {
  std::ifstream file(TIERD_DEFAULT_FILE);
  EXPECT_TRUE(file.good());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The file with every setting switched on: "#key = ..." and "#[[source]]" lose their '#', "# words" stays a comment.
std::string Uncommented() {
  std::string text;
  for (const std::string& line : FileLines()) {
    const bool setting = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    text += (setting ? line.substr(1) : line) + "\n";
  }
  return text;
}

TEST(DefaultFile, IsShort) { EXPECT_LE(FileLines().size(), 80u); }

TEST(DefaultFile, AsItIsChangesNothing) {
  const Result<Config> config = Config::Load(TIERD_DEFAULT_FILE);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(Diff(Config::Defaults(), *config).empty());
}

TEST(DefaultFile, ShowsTheDefaults) {
  const Result<Config> config = Config::Parse(Uncommented(), "tierd.toml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  Config defaults = Config::Defaults();
  ASSERT_EQ(defaults.AdoptMounts({"/pfs/dataset"}), 1u);
  for (const Change& change : Diff(defaults, *config)) ADD_FAILURE() << change.key << " is " << change.from << ", the file says " << change.to;
}

TEST(DefaultFile, NamesEveryKey) {
  const Result<Config> config = Config::Parse(Uncommented(), "tierd.toml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  for (const EffectiveValue& value : config->Values()) EXPECT_EQ(value.origin.kind, Origin::Kind::kFile) << value.key << " is not in config/tierd.toml";
}

TEST(DefaultFile, MarksWhatCanBeReloaded) {
  std::string section;
  for (const std::string& line : FileLines()) {
    const std::string text = line.starts_with("#") ? line.substr(1) : line;
    if (text.starts_with("[")) section = text.substr(text.find_first_not_of('['), text.find(']') - text.find_first_not_of('['));
    const std::size_t equals = text.find(" = ");
    if (text.starts_with(" ") || text.starts_with("[") || equals == std::string::npos) continue;
    const std::string key = (section.empty() ? "" : section + ".") + text.substr(0, equals);
    const KeyInfo* info = FindKey(key);
    ASSERT_NE(info, nullptr) << key;
    EXPECT_EQ(text.find("# (r)") != std::string::npos, info->reloadable) << key;
  }
}

TEST(KeyTable, SaysEnoughAboutEachKey) {
  std::set<std::string> keys;
  for (const KeyInfo& info : AllKeys()) {
    EXPECT_TRUE(keys.insert(info.key).second) << info.key;
    EXPECT_GT(std::string(info.summary).size(), 20u) << info.key;
    EXPECT_EQ(std::string(info.summary).back(), '.') << info.key;
  }
}

}  // namespace
}  // namespace tierd::config
