#include "tierd/config/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "temp_dir.h"

namespace tierd::config {
namespace {

TEST(Host, ExaminesACacheDirectory) {
  const TempDir dir;
  const CacheDirectory to_come = ExamineCacheDirectory(dir.path() + "/a/b");
  EXPECT_GT(to_come.total_bytes, 0u);
  EXPECT_EQ(to_come.held_bytes, 0u);

  const std::string file = dir.Write("file", "x");
  EXPECT_EQ(ExamineCacheDirectory(file).usable.message(), file + " is no directory");
  const std::string link = dir.path() + "/link";
  ASSERT_EQ(::symlink(dir.path().c_str(), link.c_str()), 0);
  EXPECT_EQ(ExamineCacheDirectory(link).usable.message(), link + " is a symbolic link: name the directory itself");
  const std::string foreign = dir.Make("foreign");
  if (::chown(foreign.c_str(), 12345, 12345) == 0) {  // root, where nothing refuses it
    EXPECT_EQ(ExamineCacheDirectory(foreign).usable.code(), Code::kPermission);
  }
  EXPECT_EQ(ExamineCacheDirectory("/proc/tierd").free_bytes, 0u);  // nothing can be put there: Resolve passes it over
}

TEST(Host, CountsWhatTheTierHoldsAlready) {
  const TempDir dir;
  const std::string cache = dir.Make("cache");
  dir.Write("cache/regions-0", std::string(1 << 20, 'x'));
  EXPECT_GE(ExamineCacheDirectory(cache).held_bytes, std::uint64_t{1} << 20);
}

TEST(Host, LooksOnlyAtTheNamedDirectory) {
  const TempDir dir;
  const auto no_environment = [](const char*) { return std::optional<std::string>(); };
  const Result<Config> named = Config::Parse("[ssd]\ndirectory = \"" + dir.path() + "\"\n", "t");
  ASSERT_TRUE(named.ok());
  const HostFacts facts = CollectHost(*named, no_environment);
  ASSERT_EQ(facts.cache_directories.size(), 1u);
  EXPECT_EQ(facts.cache_directories[0].path, dir.path());
  EXPECT_GT(facts.memory_bytes, 0u);
  EXPECT_EQ(facts.xdg_runtime_dir, "");
  const Result<Config> off = Config::Parse("[ssd]\ndirectory = \"off\"\n", "t");
  ASSERT_TRUE(off.ok());
  EXPECT_TRUE(CollectHost(*off, no_environment).cache_directories.empty());
}

TEST(Host, CandidatesComeFromTheEnvironment) {
  const auto environment = [](const char* name) -> std::optional<std::string> {
    const std::string_view key = name;
    if (key == "CACHE_DIRECTORY") return "/var/cache/tierd:/other";
    if (key == "HOME") return "/home/u";
    if (key == "XDG_RUNTIME_DIR") return "/does/not/exist";
    return std::nullopt;
  };
  const HostFacts facts = CollectHost(Config::Defaults(), environment);
  std::vector<std::string> paths;
  for (const auto& directory : facts.cache_directories) paths.push_back(directory.path);
  EXPECT_EQ(paths, std::vector<std::string>({"/var/cache/tierd", "/home/u/.cache/tierd", "/var/tmp/tierd-" + std::to_string(::geteuid())}));
  EXPECT_EQ(facts.xdg_runtime_dir, "");  // not a directory of ours
}

}  // namespace
}  // namespace tierd::config
