// What the registry takes from a shared object, and the sentence for what it does not take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "policies/builtin.h"
#include "policies/policy_instance.h"
#include "policies/registry.h"

namespace tierd::policies {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// The modules that CMake built from bad_policy.c.
std::string Module(const std::string& variant) { return std::string(TIERD_BAD_POLICY_DIR) + "/policy_" + variant + ".so"; }

struct Case {
  const char* variant;
  Code code;
  const char* sentence;
};
class BadPolicy : public ::testing::TestWithParam<Case> {};

TEST_P(BadPolicy, IsRefusedWithItsReason) {
  const Result<PolicyLibrary> loaded = LoadPolicy(Module(GetParam().variant));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), GetParam().code) << loaded.status().ToString();
  EXPECT_THAT(loaded.status().message(), HasSubstr(GetParam().sentence));
  EXPECT_THAT(loaded.status().message(), HasSubstr(Module(GetParam().variant)));
}

INSTANTIATE_TEST_SUITE_P(Registry, BadPolicy,
                         ::testing::Values(Case{"no_symbol", Code::kInvalid, "exports no tierd_policy_get()"},
                                           Case{"null", Code::kInvalid, "returned NULL"},
                                           Case{"version", Code::kUnsupported, "made for policy ABI 99, this tierd speaks 1"},
                                           Case{"size", Code::kInvalid, "struct_size is 24 bytes"},
                                           Case{"name", Code::kInvalid, "name is not of the form"},
                                           Case{"long_name", Code::kInvalid, "name is not of the form"},
                                           Case{"summary", Code::kInvalid, "summary is not one line"},
                                           Case{"function", Code::kInvalid, "victims() is missing"}),
                         [](const auto& param) { return std::string(param.param.variant); });

TEST(LoadPolicy, RefusesWhatIsNoSharedObject) {
  const std::string dir = ::testing::TempDir() + "tierd_registry_" + std::to_string(::getpid());
  fs::create_directories(dir);
  const std::string text = dir + "/text.so";
  std::ofstream(text) << "not an ELF file";
  Result<PolicyLibrary> loaded = LoadPolicy(text);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), Code::kInvalid);
  EXPECT_THAT(loaded.status().message(), HasSubstr("cannot be loaded"));
  EXPECT_EQ(LoadPolicy(dir + "/absent.so").status().code(), Code::kNotFound);
  EXPECT_EQ(LoadPolicy(dir).status().code(), Code::kInvalid);
  EXPECT_THAT(LoadPolicy("libc.so.6").status().message(), HasSubstr("absolute path"));
  EXPECT_THAT(LoadPolicy("").status().message(), HasSubstr("absolute path"));
  fs::remove_all(dir);
}

TEST(LoadPolicy, ATableOfALaterVersionIsCutToWhatThisHostKnows) {
  Result<PolicyLibrary> loaded = LoadPolicy(Module("grown"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->ops().struct_size, sizeof(tierd_policy_ops));
  EXPECT_STREQ(loaded->ops().name, "grown");
  const tierd_policy_ops* before = &loaded->ops();
  const PolicyLibrary moved = std::move(*loaded);
  EXPECT_EQ(&moved.ops(), before) << "instances keep pointing at it";
}

TEST(Registry, KnowsTheBuiltinPolicies) {
  const Registry registry;
  for (const tierd_policy_ops* ops : BuiltinPolicies()) {
    EXPECT_TRUE(CheckPolicyOps(ops, "built in").ok());
    ASSERT_TRUE(registry.Find(ops->name).ok());
    EXPECT_EQ(*registry.Find(ops->name), ops);
  }
  EXPECT_EQ(*registry.Find(kDefaultPolicy), AutoPolicy());
  const Result<const tierd_policy_ops*> absent = registry.Find("nothing");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.status().message(), "no policy is named \"nothing\"; there are: auto, freeze, lru, belady, epoch, s3fifo, random, fifo, lfu, frequency, importance");
}

TEST(LoadPolicy, TakesATableOfTheFirstRevisionAndReadsNothingBeyondIt) {
  Result<PolicyLibrary> loaded = LoadPolicy(Module("revision1"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->ops().admit_for, nullptr);
  EXPECT_EQ(loaded->ops().soon, nullptr);
  EXPECT_EQ(loaded->ops().hint, nullptr);
  Result<PolicyInstance> instance = PolicyInstance::Create(loaded->ops(), {});
  ASSERT_TRUE(instance.ok());
  instance->ObjectKnown({.id = 1, .file_id = 1, .chunk = 0, .bytes = 1});
  const std::uint32_t ids[] = {1};
  instance->Soon(ids);
  const double priorities[] = {1};
  instance->Prioritize(ids, priorities);
  EXPECT_FALSE(instance->Admit(TIERD_TIER_RAM, 1, 10, TIERD_AHEAD)) << "asked through admit";
}

TEST(Registry, LoadsOnceAndNeverReplaces) {
  Registry registry;
  Result<const tierd_policy_ops*> sound = registry.Load(Module("sound"));
  ASSERT_TRUE(sound.ok()) << sound.status().ToString();
  EXPECT_EQ(*registry.Find("sound"), *sound);
  EXPECT_EQ(registry.entries().back().path, Module("sound"));
  EXPECT_TRUE(PolicyInstance::Create(**sound, {}).ok());
  EXPECT_EQ(registry.Load(Module("sound")).status().code(), Code::kExists);
  const Status taken = registry.Load(Module("taken")).status();
  EXPECT_EQ(taken.code(), Code::kExists);
  EXPECT_THAT(taken.message(), HasSubstr("a policy named lru is there already (built in)"));
}

// The dynamic linker knows what it has loaded by name, and a descriptor's number is used again.
TEST(Registry, EachFileOfADirectoryIsLoadedAsItself) {
  const std::string dir = ::testing::TempDir() + "tierd_policies_each_" + std::to_string(::getpid());
  fs::create_directories(dir);
  for (const char* variant : {"version", "taken", "sound", "grown", "revision1"}) fs::copy_file(Module(variant), dir + "/" + variant + ".so");
  for (int round = 0; round < 3; ++round) {
    Registry registry;
    EXPECT_EQ(registry.LoadDirectory(dir).size(), 2u) << "another ABI, a name that is taken";
    for (const Registry::Entry& entry : registry.entries()) {
      if (entry.path.empty()) continue;
      EXPECT_EQ(entry.path, dir + "/" + entry.ops->name + ".so");
    }
    EXPECT_EQ(registry.entries().size(), BuiltinPolicies().size() + 3);
  }
  fs::remove_all(dir);
}

TEST(Registry, ADirectoryLoadsItsGoodOnesAndReportsTheOthers) {
  const std::string dir = ::testing::TempDir() + "tierd_policies_" + std::to_string(::getpid());
  fs::create_directories(dir);
  fs::copy_file(Module("sound"), dir + "/b.so");
  fs::copy_file(Module("version"), dir + "/a.so");
  std::ofstream(dir + "/README.md") << "not a policy";
  Registry registry;
  const std::vector<Status> problems = registry.LoadDirectory(dir);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].message(), HasSubstr("/a.so"));
  EXPECT_TRUE(registry.Find("sound").ok());
  EXPECT_TRUE(registry.LoadDirectory(dir + "/absent").empty());
  EXPECT_EQ(registry.LoadDirectory(dir + "/b.so").size(), 1u) << "not a directory";
  fs::remove_all(dir);
}

}  // namespace
}  // namespace tierd::policies
