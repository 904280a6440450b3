#include "tierd/config/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tierd::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

TEST(Sizing, AutoRam) {
  const struct {
    std::uint64_t memory, room, min_available, want;
  } rows[] = {
      {24 * kGiB, 20 * kGiB, 512 * kMiB, 6 * kGiB},          // a quarter of memory
      {24 * kGiB, 4 * kGiB, 512 * kMiB, 2 * kGiB},           // half of what is free
      {24 * kGiB, 700 * kMiB, 512 * kMiB, 188 * kMiB},       // min_available is left
      {1024 * kGiB, 1000 * kGiB, 512 * kMiB, 256 * kGiB},
      {24 * kGiB, 300 * kMiB, 512 * kMiB, 64 * kMiB},        // less than min_available is free: the least that is useful
      {24 * kGiB, 100 * kMiB, 512 * kMiB, 50 * kMiB},
      {24 * kGiB, 1 * kMiB, 512 * kMiB, 16 * kMiB},
      {24 * kGiB, 0, 512 * kMiB, 256 * kMiB},                // unknown
      {128 * kMiB, 120 * kMiB, 512 * kMiB, 60 * kMiB},       // a small cgroup
  };
  for (const auto& row : rows) EXPECT_EQ(AutoRamBytes(row.memory, row.room, row.min_available), row.want) << row.memory << " " << row.room;
}

TEST(Sizing, WhatIsLeftToOthers) {
  EXPECT_EQ(AutoMinAvailableBytes(24 * kGiB), 512 * kMiB);
  EXPECT_EQ(AutoMinAvailableBytes(4 * kGiB), 512 * kMiB);
  EXPECT_EQ(AutoMinAvailableBytes(400 * kMiB), 50 * kMiB);
  EXPECT_EQ(AutoMinAvailableBytes(0), 512 * kMiB) << "unknown";
  EXPECT_EQ(AutoRamBytes(400 * kMiB, 380 * kMiB, AutoMinAvailableBytes(400 * kMiB)), 100 * kMiB);
  EXPECT_EQ(AutoRamBytes(400 * kMiB, 380 * kMiB, AutoMinAvailableBytes(400 * kMiB), false), 50 * kMiB);
}

TEST(Sizing, AutoSsd) {
  EXPECT_EQ(AutoSsdBytes(100 * kGiB, 0, kGiB, true), 90 * kGiB);
  EXPECT_EQ(AutoSsdBytes(100 * kGiB, 0, kGiB, false), 50 * kGiB);
  EXPECT_EQ(AutoSsdBytes(50 * kGiB, 50 * kGiB, kGiB, false), 50 * kGiB);  // a restart comes to the same size
  EXPECT_EQ(AutoSsdBytes(3 * kGiB / 2, 0, kGiB, true), kGiB / 2);         // min_free is left
  EXPECT_EQ(AutoSsdBytes(kGiB / 2, 0, kGiB, true), 0u);
}

HostFacts Host() {
  HostFacts host;
  host.uid = 1000;
  host.home = "/home/u";
  host.xdg_runtime_dir = "/run/user/1000";
  host.memory_bytes = 24 * kGiB;
  host.memory_room_bytes = 20 * kGiB;
  host.memory_bound_by = "node";
  return host;
}

CacheDirectory Directory(const std::string& path, std::uint64_t free_bytes, Status usable = Status::Ok()) {
  CacheDirectory directory;
  directory.path = path;
  directory.usable = std::move(usable);
  directory.total_bytes = 200 * kGiB;
  directory.free_bytes = free_bytes;
  return directory;
}

Config Parsed(const std::string& text) {
  Result<Config> config = Config::Parse(text, "t");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

TEST(Resolve, DefaultsOnAnOrdinaryMachine) {
  HostFacts host = Host();
  host.cache_directories = {Directory("/home/u/.cache/tierd", 400 * kGiB, Status(Code::kInvalid, "/home/u is on a network file system (nfs4)")),
                            Directory("/var/tmp/tierd-1000", 100 * kGiB)};
  const Result<Resolved> resolved = Resolve(Config::Defaults(), host);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->runtime_dir, "/run/user/1000/tierd");
  EXPECT_EQ(resolved->socket, "/run/user/1000/tierd/tierd.sock");
  EXPECT_EQ(resolved->control_socket, "/run/user/1000/tierd/control.sock");
  EXPECT_EQ(resolved->metrics_address, "127.0.0.1:9469");
  EXPECT_EQ(resolved->policy_directory, "/home/u/.config/tierd/policies");
  EXPECT_EQ(resolved->engine.ram.capacity_bytes, 6 * kGiB);
  EXPECT_EQ(resolved->engine.ram.pin_cap_bytes, 6 * kGiB / 4);
  EXPECT_EQ(resolved->engine.ssd.directory, "/var/tmp/tierd-1000");
  EXPECT_EQ(resolved->engine.ssd.capacity_bytes, 50 * kGiB);
  EXPECT_THAT(resolved->notes, ElementsAre("not for the SSD tier: /home/u is on a network file system (nfs4)"));
  EXPECT_EQ(resolved->here.at("ram.capacity"), "6.00 GiB of 24.0 GiB");
  EXPECT_EQ(resolved->here.at("ram.segment_size"), "256 MiB");
  EXPECT_EQ(resolved->here.at("ram.pin_cap"), "1.50 GiB");
  EXPECT_EQ(resolved->here.at("ram.min_available"), "512 MiB");
  for (const char* probed : {"ram.pages", "ssd.engine"}) EXPECT_EQ(resolved->here.at(probed), "probed at the start") << probed;
  EXPECT_FALSE(resolved->ssd_taken);
  EXPECT_EQ(resolved->here.at("ssd.directory"), "/var/tmp/tierd-1000");
  EXPECT_EQ(resolved->here.at("ssd.capacity"), "50.0 GiB of 100 GiB free");
}

// As the specification of XDG_CONFIG_HOME has it, and as the file itself is looked for.
TEST(Resolve, ARelativeConfigHomeIsNone) {
  HostFacts host = Host();
  host.xdg_config_home = "/etc/mine";
  EXPECT_EQ(PolicyDirectory(Config::Defaults(), host), "/etc/mine/tierd/policies");
  host.xdg_config_home = "mine";
  EXPECT_EQ(PolicyDirectory(Config::Defaults(), host), "/home/u/.config/tierd/policies");
}

TEST(Resolve, WithoutRuntimeDirectoryOfTheSession) {
  HostFacts host = Host();
  host.xdg_runtime_dir.clear();
  host.home.clear();
  const Result<Resolved> resolved = Resolve(Config::Defaults(), host);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->socket, "/tmp/tierd-1000/tierd.sock");
  EXPECT_EQ(resolved->policy_directory, "");
  EXPECT_EQ(resolved->engine.ssd.directory, "");
  EXPECT_EQ(resolved->here.at("ssd.directory"), "off");
  EXPECT_THAT(resolved->notes, ElementsAre(HasSubstr("no SSD tier: no usable local directory")));
}

TEST(Resolve, ControlSocketIsBesideAGivenSocket) {
  const Result<Resolved> resolved = Resolve(Parsed("[daemon]\nsocket = \"/x/y/t.sock\"\nmetrics_address = \"off\"\n"), Host());
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->control_socket, "/x/y/control.sock");
  EXPECT_EQ(resolved->metrics_address, "");
}

TEST(Resolve, SharesAreOfTheMachine) {
  HostFacts host = Host();
  host.cache_directories = {Directory("/nvme/tierd", 150 * kGiB)};
  const Result<Resolved> resolved =
      Resolve(Parsed("[ram]\ncapacity = \"50%\"\npin_cap = \"10%\"\nsegment_size = \"64 MiB\"\n[ssd]\ndirectory = \"/nvme/tierd\"\ncapacity = \"25%\"\n"), host);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->engine.ram.capacity_bytes, 12 * kGiB);
  EXPECT_EQ(resolved->engine.ram.pin_cap_bytes, 12 * kGiB / 10);
  EXPECT_EQ(resolved->engine.ram.segment_bytes, 64 * kMiB);
  EXPECT_EQ(resolved->engine.ssd.capacity_bytes, 50 * kGiB);
}

TEST(Resolve, NamedDirectoryThatWillNotDoIsAnError) {
  HostFacts host = Host();
  const Config config = Parsed("[ssd]\ndirectory = \"/nfs/cache\"\n");
  host.cache_directories = {Directory("/nfs/cache", 100 * kGiB, Status(Code::kInvalid, "cache directory /nfs/cache is on a network file system (nfs4)"))};
  EXPECT_EQ(Resolve(config, host).status().message(),
            "t:2: ssd.directory: cache directory /nfs/cache is on a network file system (nfs4); name another directory, or \"off\"");
  host.cache_directories = {Directory("/nfs/cache", kGiB + 10 * kMiB)};
  EXPECT_EQ(Resolve(config, host).status().message(),
            "t:2: ssd.directory: /nfs/cache: 1.01 GiB free, too little for 64.0 MiB beside ssd.min_free = 1 GiB; name another directory, or \"off\"");
  EXPECT_EQ(Resolve(config, host).status().code(), Code::kNoSpace);
}

TEST(Resolve, FoundDirectoryInsideASourceIsPassedOver) {
  HostFacts host = Host();
  host.cache_directories = {Directory("/home/u/.cache/tierd", 100 * kGiB), Directory("/var/tmp/tierd-1000", 100 * kGiB)};
  const Result<Resolved> resolved = Resolve(Parsed("[[source]]\npath = \"/home/u\"\n"), host);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->engine.ssd.directory, "/var/tmp/tierd-1000");
  EXPECT_THAT(resolved->notes, ElementsAre("not for the SSD tier: /home/u/.cache/tierd lies inside the source /home/u"));
}

TEST(Resolve, WhatIsSetComesOutAsItIs) {
  const Result<Resolved> resolved = Resolve(
      Parsed("[ram]\ncapacity = \"64 MiB\"\nsegment_size = \"16 MiB\"\npin_cap = \"8 MiB\"\nmin_available = \"1 GiB\"\npages = \"4k\"\n[ssd]\nengine = \"threads\"\ndirectory = \"off\"\n"), Host());
  ASSERT_TRUE(resolved.ok());
  for (const char* key : {"ram.capacity", "ram.segment_size", "ram.pin_cap", "ram.min_available", "ram.pages", "ssd.engine"}) EXPECT_FALSE(resolved->here.contains(key)) << key;
}

TEST(Resolve, OnlyTheDefaultMetricsAddressMayBeAnother) {
  EXPECT_TRUE(Resolve(Config::Defaults(), Host())->metrics_anywhere);
  EXPECT_FALSE(Resolve(Parsed("[daemon]\nmetrics_address = \"127.0.0.1:9469\"\n"), Host())->metrics_anywhere);
}

TEST(Resolve, ADirectoryThatSomebodyElseHasIsToldApart) {
  HostFacts host = Host();
  host.cache_directories = {Directory("/home/u/.cache/tierd", 100 * kGiB, Status(Code::kInvalid, "/home/u is on a network file system (nfs4)")),
                            Directory("/var/tmp/tierd-1000", 100 * kGiB, Status(Code::kPermission, "/var/tmp/tierd-1000 belongs to uid 0"))};
  EXPECT_TRUE(Resolve(Config::Defaults(), host)->ssd_taken);
  host.cache_directories.push_back(Directory("/other", 100 * kGiB));
  EXPECT_FALSE(Resolve(Config::Defaults(), host)->ssd_taken) << "there is a tier";
}

TEST(Resolve, OfAReloadOnlyWhatNeedsNoRestartIsInEffect) {
  HostFacts host = Host();
  host.cache_directories = {Directory("/nvme/tierd", 100 * kGiB)};
  const std::string ssd = "[ssd]\ndirectory = \"/nvme/tierd\"\n";
  const Config started = Parsed(ssd + "[[source]]\npath = \"/a\"\n[[source]]\npath = \"/b\"\nbyte_budget = \"1 GB\"\n");
  Config next = Parsed("[ssd]\ndirectory = \"off\"\nmin_free = \"2 GiB\"\n[ram]\nmin_available = \"18 GiB\"\n[[source]]\npath = \"/new\"\nname = \"b\"\n"
                       "[[source]]\npath = \"/a\"\nname = \"other\"\nttl = \"5s\"\nbyte_budget = \"2 GB\"\nrequest_budget = 7\npolicy_parameters = \"a=1\"\n");
  const Result<Resolved> now = Resolve(next.InEffectSince(started), host);
  ASSERT_TRUE(now.ok()) << now.status().message();
  EXPECT_EQ(now->engine.ssd.directory, "/nvme/tierd");
  EXPECT_EQ(now->engine.ssd.capacity_bytes, 90 * kGiB);
  EXPECT_EQ(now->engine.ssd.min_free_bytes, 2 * kGiB);
  EXPECT_EQ(now->engine.ram.capacity_bytes, 6 * kGiB);
  ASSERT_EQ(now->engine.sources.size(), 1u) << "neither the one that comes nor the one that goes";
  EXPECT_EQ(now->engine.sources[0].path, "/a");
  EXPECT_EQ(now->engine.sources[0].ttl_ms, 60'000u);
  EXPECT_EQ(now->engine.sources[0].bytes_per_s, 2'000'000'000u);
  EXPECT_EQ(now->engine.sources[0].requests_per_s, 7u);
  EXPECT_EQ(now->engine.sources[0].policy_parameters, "a=1");
  Overrides overrides;
  overrides.sets = {"ram.capacity=12.3456789%", "ssd.capacity=0.0001%", "daemon.log_level=off"};
  ASSERT_TRUE(next.Apply(overrides, "/").ok());
  EXPECT_EQ(next.InEffectSince(started).settings().ram.capacity, next.settings().ram.capacity);
  EXPECT_EQ(next.InEffectSince(started).settings().ssd.capacity, next.settings().ssd.capacity);
}

TEST(Resolve, AccessIsAskedAboutEveryTenMinutesAndOfAnImmutableSetOnceADay) {
  const auto recheck_s = [](const std::string& keys) {
    const Result<Resolved> resolved = Resolve(Parsed("[[source]]\npath = \"/a\"\n" + keys), Host());
    return resolved.ok() ? resolved->engine.sources.at(0).AccessRecheckNs() / 1'000'000'000 : -1;
  };
  EXPECT_EQ(recheck_s(""), 600);
  EXPECT_EQ(recheck_s("staleness = \"immutable\"\n"), 24 * 3600);
  EXPECT_EQ(recheck_s("staleness = \"immutable\"\naccess_recheck = \"1h\"\n"), 3600);
  EXPECT_EQ(recheck_s("access_recheck = \"auto\"\n"), 600);
}

TEST(Resolve, SourcesAndLimitsGoThrough) {
  const Result<Resolved> resolved = Resolve(Parsed("[[source]]\npath = \"/a\"\nttl = \"5s\"\n[limits]\nsessions = 3\n[policy]\nseed = 9\ndirectory = \"/p\"\n[ssd]\ndirectory = \"off\"\n"), Host());
  ASSERT_TRUE(resolved.ok());
  ASSERT_EQ(resolved->engine.sources.size(), 1u);
  EXPECT_EQ(resolved->engine.sources[0].ttl_ms, 5000u);
  EXPECT_EQ(resolved->limits.sessions, 3u);
  EXPECT_EQ(resolved->engine.policy_seed, 9u);
  EXPECT_EQ(resolved->policy_directory, "/p");
  EXPECT_EQ(resolved->engine.ssd.directory, "");
}

}  // namespace
}  // namespace tierd::config
