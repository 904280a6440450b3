#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_control.h"
#include "run_tierctl.h"

namespace tierctl {
namespace {

using nlohmann::json;

json Values() {
  return {{"file", "/e/tierd.toml"},
          {"values",
           {{{"key", "ram.capacity"}, {"value", "8 GiB"}, {"origin", "/e/tierd.toml:3"}, {"reloadable", true}},
            {{"key", "ram.pages"}, {"value", "auto"}, {"origin", "default"}, {"reloadable", false}},
            {{"key", "ssd.directory"}, {"value", "/nvme"}, {"origin", "command line"}, {"reloadable", false}}}}};
}

TEST(ConfigVerb, GetOneSomeAll) {
  FakeControl fake;
  fake.Reply("GET /v1/config", Values());
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "get", "ram.capacity"}).out, "8 GiB\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "get", "ram"}).out,
            "KEY           VALUE  EFFECTIVE  ORIGIN\n"
            "ram.capacity  8 GiB             /e/tierd.toml:3\n"
            "ram.pages     auto              default\n");
  EXPECT_EQ(json::parse(RunTierctl({"--socket", fake.socket(), "config", "get", "--json"}).out), Values());
  const Ran unknown = RunTierctl({"--socket", fake.socket(), "config", "get", "ram.capactiy"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.err, "tierctl: unknown key ram.capactiy; did you mean ram.capacity?\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "get", "nope"}).err, "tierctl: unknown key nope; tierctl config get lists them\n");
}

TEST(ConfigVerb, WhatAutoCameOutAsStandsBesideIt) {
  FakeControl fake;
  json values = Values();
  values["values"][1]["effective"] = "hugetlb";
  fake.Reply("GET /v1/config", values);
  const Ran one = RunTierctl({"--socket", fake.socket(), "config", "get", "ram.pages"});
  EXPECT_EQ(one.out, "auto\n");
  EXPECT_EQ(one.err, "tierctl: in effect: hugetlb\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "get", "ram"}).out,
            "KEY           VALUE  EFFECTIVE  ORIGIN\n"
            "ram.capacity  8 GiB             /e/tierd.toml:3\n"
            "ram.pages     auto   hugetlb    default\n");
  EXPECT_EQ(json::parse(RunTierctl({"--socket", fake.socket(), "config", "get", "--json"}).out), values);
}

TEST(ConfigVerb, WhatWaitsForARestartIsNotCurrent) {
  FakeControl fake;
  json values = Values();
  values["values"][1]["pending"] = "4k";
  fake.Reply("GET /v1/config", values);
  const Ran one = RunTierctl({"--socket", fake.socket(), "config", "get", "ram.pages"});
  EXPECT_EQ(one.out, "auto\n");
  EXPECT_EQ(one.err, "tierctl: pending restart: 4k\n");
  EXPECT_THAT(RunTierctl({"--socket", fake.socket(), "config", "get", "ram"}).out, testing::HasSubstr("auto (pending restart: 4k)"));
}

TEST(ConfigVerb, SetAndReload) {
  FakeControl fake;
  const json change = {{"key", "ram.capacity"}, {"from", "8 GiB"}, {"to", "2 GB"}};
  fake.Reply("PATCH /v1/config", {{"applied", json::array({change})}, {"restart", json::array()}});
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "set", "ram.capacity", "2 GB"}).out, "ram.capacity: 8 GiB -> 2 GB\n");
  EXPECT_EQ(fake.Requests()[0].body, json({{"key", "ram.capacity"}, {"value", "2 GB"}}));

  fake.Reply("POST /v1/config/reload", {{"applied", json::array()}, {"restart", json::array({change})}});
  fake.Reply("POST /v1/config/reload", {{"applied", json::array()}, {"restart", json::array()}});
  const Ran later = RunTierctl({"--socket", fake.socket(), "config", "reload"});
  EXPECT_EQ(later.exit_code, 0);
  EXPECT_EQ(later.err, "tierctl: at the next start: ram.capacity: 8 GiB -> 2 GB\n");
  EXPECT_EQ(RunTierctl({"--socket", fake.socket(), "config", "reload"}).err, "tierctl: nothing changed\n");

  FakeControl refusing;
  refusing.ReplyError("PATCH /v1/config", 409, "conflict", "ram.pages takes effect at the next start only");
  const Ran refused = RunTierctl({"--socket", refusing.socket(), "config", "set", "ram.pages", "4k"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.err, "tierctl: ram.pages takes effect at the next start only\n");
}

TEST(ConfigVerb, AValueThatIsNotTakenAsWrittenIsSaid) {
  FakeControl fake;
  fake.Reply("PATCH /v1/config", {{"applied", {{{"key", "ram.capacity"}, {"from", "1 GiB"}, {"to", "99 TB"}}}}, {"restart", json::array()}, {"notes", {"ram.capacity 99 TB: too large"}}});
  const Ran ran = RunTierctl({"--socket", fake.socket(), "config", "set", "ram.capacity", "99 TB"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "tierctl: ram.capacity 99 TB: too large\n");
}

}  // namespace
}  // namespace tierctl
