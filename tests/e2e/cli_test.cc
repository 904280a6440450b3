// tierctl against the real daemon: its verbs, their exit codes, and sums that agree with the disk and with the source to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <future>
#include <regex>

#include "tests/e2e/cli_fixture.h"
#include "tests/e2e/own_mounts.h"
#include "tests/e2e/region_walk.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::e2e {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using tierctl::Ran;

int Occurrences(const std::string& text, const std::string& of) {
  int count = 0;
  for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

// What the source delivered of the small files. (Of a large one, whose chunks are read side by side, the kernel's read-ahead may fetch parts twice.)
std::uint64_t SmallBytesRead(const pfs_sim::Rig& rig) {
  std::uint64_t bytes = 0;
  for (const auto& [path, counters] : rig.PathCounters("dir")) bytes += counters.bytes;
  return bytes;
}

// Three characters stand for each of their bytes in a query.
TEST_F(CliTest, PathsOfFourThousandBytesThatAreNotAscii) {
  std::string path = source;
  while (path.size() + 201 < 4000) {
    path += '/';
    for (int i = 0; i < 100; ++i) path += "\xc3\xa4";
  }
  std::filesystem::create_directories(path);
  path += '/';
  while (path.size() < 4090) path += '\xa4';
  Write(path, "far");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  EXPECT_EQ(Ctl({"prefetch", "--wait", path}).exit_code, 0);
  EXPECT_EQ(CtlJson({"stat", path})["files"][0]["ram_bytes"], 3);
  EXPECT_THAT(Ctl({"explain", path}).out, HasSubstr("In RAM: yes"));
  EXPECT_EQ(Du(path)["files"], 1);
  EXPECT_EQ(CtlJson({"ls", path.substr(0, path.rfind('/'))})["entries"].size(), 1u);
}

TEST_F(CliTest, DuAgreesWithTheRegionFilesAndWithTheSource) {
  constexpr int kFiles = 60;
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  source = rig->backing();
  const std::uint64_t bytes = MakeFiles(kFiles) + 9'000'001;
  Write(rig->backing() + "/large", Content("large", 9'000'001));
  source = rig->mount();
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  json sums = Du(source);
  EXPECT_EQ(sums["files"], kFiles + 1);
  EXPECT_EQ(sums["size_bytes"], bytes);
  EXPECT_EQ(sums["missing_bytes"], bytes);
  EXPECT_EQ(rig->Counters().bytes_read, 0u) << "du reads no file";

  // A part: what du says is missing is what reading the rest takes from the source.
  ASSERT_EQ(Ctl({"prefetch", "--wait", source + "/dir0", source + "/large"}).exit_code, 0);
  sums = Du(source);
  const std::uint64_t missing = sums["missing_bytes"];
  EXPECT_EQ(bytes - missing, SmallBytesRead(*rig) + 9'000'001);
  EXPECT_EQ(sums["ram_bytes"], bytes - missing);
  EXPECT_EQ(sums["files_missing"], kFiles - kFiles / 3);
  rig->Control("counters reset");
  {
    Client client(daemon.socket());
    for (int i = 0; i < kFiles; ++i) ASSERT_EQ(Get(client.get(), Path(i)).bytes.size(), SizeOf(i));
  }
  EXPECT_EQ(SmallBytesRead(*rig), missing);
  EXPECT_EQ(Du(source)["missing_bytes"], 0);

  // And the SSD column is what lies on the disk, file by file.
  ASSERT_TRUE(Eventually(5000, [&] { return Du(source)["ssd_bytes"] == bytes; }));
  const json listed = CtlJson({"ls", "-r", source});
  EXPECT_EQ(daemon.Stop(), 0);
  const auto on_disk = RegionPayloads(daemon.ssd_directory());
  EXPECT_EQ(on_disk.size(), kFiles + 1u);
  std::uint64_t sum = 0, files = 0;
  for (const json& entry : listed["entries"]) {
    if (entry["kind"] != "file") continue;
    const auto it = on_disk.find(entry["path"].get<std::string>().substr(source.size() + 1));
    ASSERT_TRUE(it != on_disk.end()) << entry;
    EXPECT_EQ(entry["ssd_bytes"], it->second) << entry;
    sum += it->second;
    ++files;
  }
  EXPECT_EQ(files, kFiles + 1u);
  EXPECT_EQ(sum, bytes);
}

TEST_F(CliTest, MissingIsExactWhenNotEverythingFits) {
  constexpr int kFiles = 40;  // 40 MB into 16 MiB of RAM and nothing else
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  for (int i = 0; i < kFiles; ++i) Write(rig->backing() + "/f" + std::to_string(i), Content(std::to_string(i), 1'000'000 + static_cast<std::size_t>(i)));
  source = rig->mount();
  auto options = Options();
  options.ram = "16 MiB";
  options.ssd = "off";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const Ran ran = Ctl({"prefetch", "--wait", source});
  EXPECT_EQ(ran.exit_code, 2) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("found no room"));
  const json sums = Du(source);
  const std::uint64_t missing = sums["missing_bytes"];
  EXPECT_GT(missing, 20'000'000u);
  EXPECT_EQ(sums["size_bytes"].get<std::uint64_t>() - missing, sums["ram_bytes"].get<std::uint64_t>());
  rig->Control("counters reset");
  Client client(daemon.socket());
  for (int i = 0; i < kFiles; ++i) EXPECT_EQ(Get(client.get(), source + "/f" + std::to_string(i)).error, 0);
  EXPECT_EQ(rig->Counters().bytes_read, missing) << "freeze lets nobody else in: what was missing is read past the tier";
  std::uint64_t uncached = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string path = source + "/f" + std::to_string(i);
    const Got got = Get(client.get(), path, TIER_NOWAIT);
    if (got.error == -ENODATA) {
      uncached += 1'000'000 + static_cast<std::uint64_t>(i);
      EXPECT_THAT(Ctl({"explain", path}).out, ::testing::ContainsRegex("In RAM: no.*\n")) << i;
    } else {
      EXPECT_EQ(got.error, 0);
    }
  }
  EXPECT_EQ(uncached, missing);
}

TEST_F(CliTest, PrefetchTakesListsTiersAndTellsWhatIsShort) {
  MakeFiles(12);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Write(scratch.path() + "/list", Path(0) + "\n" + Path(1) + "\n\n");
  const Ran listed = Ctl({"prefetch", "--wait", "-f", scratch.path() + "/list"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("verified 2 of 2 files"));
  const Ran piped = Ctl({"prefetch", "--wait", "-0", "-f", "-", Path(4)}, Path(2) + std::string(1, '\0') + Path(3) + std::string(1, '\0'));
  EXPECT_THAT(piped.out, HasSubstr("verified 3 of 3 files"));

  const Ran ssd_only = Ctl({"prefetch", "--wait", "--tier", "ssd", Path(5)});
  EXPECT_EQ(ssd_only.exit_code, 0) << ssd_only.err;
  const json sums = Du(Path(5));
  EXPECT_EQ(sums["ram_bytes"], 0);
  EXPECT_EQ(sums["ssd_bytes"], SizeOf(5));

  const Ran gone = Ctl({"prefetch", "--wait", Path(6), source + "/gone"});
  EXPECT_EQ(gone.exit_code, 2);
  EXPECT_THAT(gone.out, HasSubstr("verified 1 of 1 file"));
  EXPECT_EQ(gone.err, "tierctl: " + source + "/gone: No such file or directory\n");
  Write(scratch.path() + "/list", Path(7) + "\n" + source + "/gone\n");
  const Ran gone_in_list = Ctl({"prefetch", "--wait", "-f", scratch.path() + "/list"});
  EXPECT_EQ(gone_in_list.exit_code, 2);
  EXPECT_THAT(gone_in_list.err, ::testing::StartsWith("tierctl: short: 1 file could not be read. First: "));
  const Ran no_list = Ctl({"prefetch", "-f", scratch.path() + "/nolist"});
  EXPECT_EQ(no_list.exit_code, 1);
  EXPECT_EQ(no_list.err, "tierctl: " + scratch.path() + "/nolist: No such file or directory\n");
}

TEST_F(CliTest, ADaemonThatIsStoppedIsSaidToBe) {
  MakeFiles(1);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const std::string words = "tierd (pid " + std::to_string(daemon.pid()) + ") does not answer: it is stopped or hung";
  daemon.Kill(SIGSTOP);
  const Ran status = Ctl({"status"}), gc = Ctl({"gc"}), doctor = Ctl({"doctor", "--no-speed"});
  daemon.Kill(SIGCONT);
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_EQ(status.err, "tierctl: " + words + "\n");
  EXPECT_EQ(gc.exit_code, 3);
  EXPECT_EQ(gc.err, "tierctl: " + words + "\n");
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.out, ::testing::ContainsRegex("FAIL  daemon +tierd .pid [0-9]+. does not answer: it is stopped or hung\n +-> kill -CONT "));
  EXPECT_THAT(doctor.out, ::testing::Not(HasSubstr("tierd --source DIR")));
  EXPECT_EQ(Ctl({"status"}).exit_code, 0);
}

TEST_F(CliTest, EvictPinVerifyAndExplainDoWhatTheySay) {
  constexpr int kFiles = 20;
  for (int i = 0; i < kFiles; ++i) Write(Path(i), Content(std::to_string(i), 1'500'000));
  auto options = Options();
  options.ram = "16 MiB";
  options.ssd = "off";
  options.more.insert(options.more.end(), {"--policy", "lru"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  ASSERT_EQ(Get(client.get(), Path(0)).error, 0);
  EXPECT_EQ(Ctl({"pin", Path(0)}).out, "pinned 1 file, 1.43 MiB in the cache\n");
  EXPECT_EQ(CtlJson({"stat", Path(0)})["files"][0]["pinned"], true);
  for (int round = 0; round < 2; ++round)
    for (int i = 1; i < kFiles; ++i) ASSERT_EQ(Get(client.get(), Path(i)).error, 0);
  EXPECT_EQ(Get(client.get(), Path(0), TIER_NOWAIT).error, 0) << "pinned: thirty megabytes later it is still there";
  EXPECT_THAT(Ctl({"explain", Path(0)}).out, HasSubstr("In RAM: yes"));
  EXPECT_THAT(Ctl({"explain", Path(1)}).out, HasSubstr("In RAM: no"));
  EXPECT_EQ(Ctl({"unpin", Path(0)}).out, "unpinned 1 file\n");
  EXPECT_EQ(CtlJson({"stat", Path(0)})["files"][0]["pinned"], false);
  // More than there is room for.
  const Ran all = Ctl({"pin", source});
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_THAT(all.out, ::testing::MatchesRegex("pinned 20 files, [0-9.]+ MiB of 28.6 MiB in the cache\n"));
  EXPECT_THAT(all.err, ::testing::MatchesRegex("tierctl: short: [0-9]+ files not wholly in the cache: .*\n"));
  const json document = CtlJson({"pin", source});
  EXPECT_GT(document["missing_bytes"], 0) << document;
  EXPECT_EQ(document["size_bytes"], kFiles * 1'500'000) << document;
  EXPECT_EQ(Ctl({"unpin", source}).out, "unpinned 20 files\n");
  EXPECT_EQ(Ctl({"evict", source}).exit_code, 0);
  EXPECT_EQ(Du(source)["ram_bytes"], 0);
  EXPECT_EQ(Get(client.get(), Path(0), TIER_NOWAIT).error, -ENODATA);
}

TEST_F(CliTest, VerifyFindsADamagedRecord) {
  MakeFiles(12);
  auto options = Options();
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ASSERT_EQ(Ctl({"prefetch", "--wait", source}).exit_code, 0);
  EXPECT_EQ(Ctl({"verify"}).out.substr(0, 15), "12 records good");
  EXPECT_EQ(daemon.Stop(), 0);
  const std::string victim = Content("7", SizeOf(7));
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(daemon.ssd_directory())) {
    if (entry.path().filename().string().rfind("regions-", 0) != 0) continue;
    const std::string bytes = Plain(entry.path()).bytes;
    const std::size_t at = bytes.find(victim);
    if (at == std::string::npos) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at + 100));
    file.put(static_cast<char>(~victim[100]));
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
  EXPECT_EQ(CtlJson({"status"})["tiers"]["ssd"]["retired_regions"], 0);
  const Ran verified = Ctl({"verify"});
  EXPECT_EQ(verified.exit_code, 2);
  EXPECT_THAT(verified.out, HasSubstr("11 records good"));
  EXPECT_THAT(verified.out, HasSubstr("1 bad"));
  EXPECT_EQ(Du(source)["missing_bytes"], SizeOf(7));
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), Path(7)).bytes, victim);
}

TEST_F(CliTest, ConfigIsSetReloadedAndNeverHalfChanged) {  // F36
  MakeFiles(3);
  const std::string file = scratch.path() + "/tierd.toml";
  const std::string good = "[[source]]\npath = \"" + source + "\"\nname = \"d\"\n[limits]\nsessions = 16\n[ssd]\nmin_free = \"3 MiB\"\n";
  Write(file, good);
  DaemonProcess::Options options;
  options.config = file;
  options.ssd_capacity = "512 MiB";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  EXPECT_EQ(Ctl({"config", "get", "limits.sessions"}).out, "16\n");
  EXPECT_EQ(CtlJson({"config", "get", "source.d.policy"})["values"][0]["origin"], "default");
  EXPECT_EQ(Ctl({"config", "set", "source.d.policy", "lru"}).out, "source.d.policy: auto -> lru\n");
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "lru");
  const json before = CtlJson({"config", "get"});
  struct Bad {
    std::string text, says;
  };
  const std::vector<Bad> bads{{good + "[ram]\ncapacty = \"1 GiB\"\n", file + ":9: "},          {good + "[ram]\npages = 7\n", file + ":9: "},
                              {good + "[ram\n", file + ":8"},                                   {good + "[ram]\ncapacity = \"lots\"\n", file + ":9: "},
                              {"", "is empty"},                                                 {"# nothing\n", "is empty"},
                              {"[[source]]\nname = \"d\"\n", file + ":1: "},                  {"[[source]]\npath = \"" + source + "\"\nname = \"d\"\npolicy = \"magic\"\n", "magic"}};
  int refused = 0;
  for (const Bad& bad : bads) {
    Write(file, bad.text);
    const Ran reload = Ctl({"config", "reload"});
    EXPECT_EQ(reload.exit_code, 1) << bad.text;
    EXPECT_EQ(reload.out, "");
    EXPECT_THAT(reload.err, HasSubstr(bad.says));
    EXPECT_EQ(CtlJson({"config", "get"}), before) << bad.text;
    ::kill(daemon.pid(), SIGHUP);
    ++refused;
    ASSERT_TRUE(Eventually(10'000, [&] { return Occurrences(daemon.output(), "reload refused, nothing changed") == refused; })) << daemon.output();
  }
  EXPECT_EQ(CtlJson({"config", "get"}), before);
  // A right one is taken: what was set by hand goes back to the file, what needs a restart is said to.
  Write(file, std::regex_replace(good, std::regex("16"), "32") + "[policy]\nseed = 2\n");
  const Ran reload = Ctl({"config", "reload"});
  EXPECT_EQ(reload.exit_code, 0) << reload.err;
  EXPECT_THAT(reload.out, HasSubstr("source.d.policy: lru -> auto\n"));
  EXPECT_THAT(reload.err, HasSubstr("at the next start: limits.sessions: 16 -> 32\n"));
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "auto");
  // What is in effect, and what is not yet.
  const Ran sessions = Ctl({"config", "get", "limits.sessions"});
  EXPECT_EQ(sessions.out, "16\n");
  EXPECT_THAT(sessions.err, HasSubstr("pending restart: 32"));
  EXPECT_EQ(CtlJson({"config", "get", "limits.sessions"})["values"][0]["pending"], "32");
  EXPECT_THAT(Ctl({"config", "get", "limits"}).out, HasSubstr("16 (pending restart: 32)"));
  EXPECT_FALSE(CtlJson({"config", "get", "source.d.policy"})["values"][0].contains("pending"));
  // What "auto" has come out as, also of what is probed.
  const auto effective = [&](const char* key) { return CtlJson({"config", "get", key})["values"][0].value("effective", ""); };
  EXPECT_EQ(effective("ram.segment_size"), "16.0 MiB");
  EXPECT_EQ(effective("ram.pages"), daemon.Status()["tiers"]["ram"]["pages"]);
  EXPECT_EQ(effective("ssd.engine"), daemon.Status()["tiers"]["ssd"]["engine"]);
  EXPECT_EQ(effective("ram.capacity"), "") << "was set";
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(CliTest, AReloadChangesEverySourceOrNone) {
  MakeFiles(3);
  const std::string other = scratch.path() + "/other";
  std::filesystem::create_directories(other);
  const std::string file = scratch.path() + "/tierd.toml";
  const auto text = [&](const std::string& first, const std::string& second) {
    return "[ssd]\nmin_free = \"" + std::string(first == "lru" ? "5 MiB" : "3 MiB") + "\"\n[[source]]\npath = \"" + source + "\"\nname = \"d\"\npolicy = \"" + first +
           "\"\n[[source]]\npath = \"" + other + "\"\nname = \"e\"\npolicy = \"" + second + "\"\n";
  };
  Write(file, text("freeze", "freeze"));
  DaemonProcess::Options options;
  options.config = file;
  options.ssd_capacity = "512 MiB";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const json before = CtlJson({"config", "get"});
  Write(file, text("lru", "magic"));
  const Ran reload = Ctl({"config", "reload"});
  EXPECT_EQ(reload.exit_code, 1);
  EXPECT_THAT(reload.err, HasSubstr("source.e.policy"));
  EXPECT_EQ(daemon.Status()["sources"][0]["policy"], "freeze");
  EXPECT_EQ(CtlJson({"config", "get"}), before);
  Write(file, text("lru", "lru"));
  EXPECT_EQ(Ctl({"config", "reload"}).exit_code, 0);
  for (const json& one : daemon.Status()["sources"]) EXPECT_EQ(one["policy"], "lru");
  // A source that goes, and one that comes, are not current.
  std::filesystem::create_directories(scratch.path() + "/third");
  Write(file, "[[source]]\npath = \"" + source + "\"\nname = \"d\"\npolicy = \"lru\"\n[[source]]\npath = \"" + scratch.path() + "/third\"\nname = \"f\"\n");
  EXPECT_EQ(Ctl({"config", "reload"}).exit_code, 0);
  EXPECT_EQ(CtlJson({"config", "get", "source.e.path"})["values"][0]["value"], other);
  EXPECT_EQ(CtlJson({"config", "get", "source.e.path"})["values"][0]["pending"], "");
  EXPECT_EQ(CtlJson({"config", "get", "source.f.path"})["values"][0]["value"], "");
  EXPECT_EQ(daemon.Stop(), 0);
}

// What the next start would end with: a reload says it, with its line, and changes nothing.
TEST_F(CliTest, AReloadIsCheckedAsAStartIs) {  // F36
  KeepMountsToOneself();
  MakeFiles(3);
  const std::string file = scratch.path() + "/tierd.toml", other = scratch.path() + "/other";
  const std::string link = scratch.path() + "/link";
  std::filesystem::create_directories(other);
  std::filesystem::create_directory_symlink(source, link);
  const auto text = [&](const std::string& ssd, const std::string& more, const std::string& policy = "auto") {
    return "[ssd]\ndirectory = \"" + ssd + "\"\ncapacity = \"512 MiB\"\nmin_free = \"2 MiB\"\n[[source]]\nname = \"d\"\npath = \"" + source + "\"\npolicy = \"" + policy + "\"\n" + more;
  };
  const auto another = [](const std::string& path, const std::string& more = "") { return "[[source]]\npath = \"" + path + "\"\n" + more; };
  const std::string ssd = scratch.path() + "/ssd";
  Write(file, text(ssd, ""));
  DaemonProcess::Options options;
  options.config = file;
  options.ssd = "";
  options.ssd_capacity = "";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const json before = CtlJson({"config", "get"});
  struct Bad {
    std::string text, says;
  };
  std::vector<Bad> bads{{text(ssd, another(scratch.path() + "/none")), file + ":10: source " + scratch.path() + "/none: no such directory"},
                        {text(ssd, another(link)), file + ":10: source " + link + " and source " + source + " are the same directory"},
                        {text(source + "/cache", ""), file + ":2: ssd.directory " + source + "/cache lies inside the source"},
                        {text("/dev/shm/tierd-test-cache", ""), file + ":2: ssd.directory: cache directory /dev/shm is in memory"},
                        {text(file, ""), file + ":2: ssd.directory: " + file + " is no directory"},
                        {text(ssd, another(other, "policy = \"magic\"\n")), file + ":11: source.other.policy: "},
                        {text(ssd, "", "magic"), file + ":8: source.d.policy: "}};
  std::string why;
  const auto rig = pfs_sim::Rig::Start({}, &why);
  if (rig != nullptr) bads.push_back({text(rig->mount() + "/cache", ""), file + ":2: ssd.directory: "});
  for (const Bad& bad : bads) {
    Write(file, bad.text);
    const Ran reload = Ctl({"config", "reload"});
    EXPECT_EQ(reload.exit_code, 1) << bad.text;
    EXPECT_EQ(reload.out, "");
    EXPECT_THAT(reload.err, HasSubstr(bad.says));
    EXPECT_EQ(CtlJson({"config", "get"}), before) << bad.text;
  }
  // Another directory that will do, and what is set by hand beside it.
  Write(file, text(other, ""));
  const Ran reload = Ctl({"config", "reload"});
  EXPECT_EQ(reload.exit_code, 0) << reload.err;
  EXPECT_THAT(reload.err, HasSubstr("at the next start: ssd.directory: " + ssd + " -> " + other));
  EXPECT_EQ(Ctl({"config", "set", "ssd.min_free", "3 MiB"}).exit_code, 0);
  EXPECT_EQ(CtlJson({"config", "get", "ssd.directory"})["values"][0]["pending"], other);
  EXPECT_EQ(daemon.Stop(), 0);
}

// Its state is no mistake of the file: a reload may be what helps.
TEST_F(CliTest, AReloadWaitsForNoSourceThatHangs) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.timeout_ms = 1}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  source = rig->mount();
  const std::string file = scratch.path() + "/tierd.toml";
  const auto text = [&](int rate) { return "[[source]]\npath = \"" + source + "\"\nname = \"d\"\nrequest_budget = " + std::to_string(rate) + "\n"; };
  Write(file, text(1000));
  DaemonProcess::Options options;
  options.config = file;
  options.ssd = "off";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  rig->Control("fault add op=getattr path=* errno=hang");
  rig->Control("fault add op=lookup path=* errno=hang");
  Write(file, text(2000));
  const Ran reload = Ctl({"config", "reload"});
  EXPECT_EQ(reload.exit_code, 0) << reload.err;
  EXPECT_THAT(reload.out, HasSubstr("source.d.request_budget: 1000 -> 2000"));
  rig.reset();  // before the daemon, which cannot end while it hangs there
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST_F(CliTest, TheFirstFallbackOfEachReasonIsLogged) {
  MakeFiles(3);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  Client client(daemon.socket());
  const auto bypass = [&] { EXPECT_EQ(Get(client.get(), source + "/../data/dir0/f0").origin, static_cast<std::uint32_t>(TIER_FROM_BYPASS)); };
  bypass();
  EXPECT_TRUE(Eventually(10'000, [&] { return Occurrences(daemon.output(), "bypass reason=") == 1; })) << daemon.output();
  EXPECT_THAT(daemon.output(), HasSubstr("bypass reason=path reads=1 "));
  bypass();
  SleepMs(5000);  // one more look
  EXPECT_EQ(daemon.Status()["fallback"]["path"], 2);
  EXPECT_EQ(Occurrences(daemon.output(), "bypass reason="), 1);
}

TEST_F(CliTest, DoctorLooksAtEverythingAndNamesRemedies) {
  MakeFiles(3);
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  const json document = CtlJson({"doctor"});
  ASSERT_TRUE(document.is_object());
  std::map<std::string, json> checks;
  for (const json& check : document["checks"]) {
    checks[check["name"]] = check;
    EXPECT_FALSE(check["detail"].get<std::string>().empty()) << check;
    EXPECT_EQ(check["remedy"].get<std::string>().empty(), check["state"] == "ok") << check;
  }
  for (const char* name : {"kernel", "io_uring", "memory.pages", "limits.memlock", "limits.files", "ssd.directory", "ssd.speed", "source.type", "memory.room", "daemon", "daemon.ram",
                           "daemon.ssd", "daemon.source.data"})
    EXPECT_TRUE(checks.contains(name)) << name;
  EXPECT_THAT(checks["daemon.ram"]["detail"].get<std::string>(), HasSubstr("; memory bound by "));
  // With a daemon it is the daemon's directories that are looked at.
  EXPECT_THAT(checks["ssd.directory"]["detail"].get<std::string>(), HasSubstr(daemon.ssd_directory()));
  EXPECT_THAT(checks["source.type"]["detail"].get<std::string>(), HasSubstr(source));
}

// On a terminal the progress line has rate and time to go; elsewhere nothing is written but the result.
// What it left behind in a source that hangs cannot be killed, and held its output open.
TEST_F(CliTest, DoctorEndsForWhoReadsItsOutput) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.timeout_ms = 1}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  Write(rig->backing() + "/file", "x");
  rig->Control("fault add op=open path=* errno=hang every=1");
  auto ended = std::async(std::launch::async, [&] {
    return tierctl::RunProgram({"/bin/sh", "-c", std::string(TIERCTL_BINARY) + " doctor --no-speed --config /dev/null --source " + rig->mount() + " | cat"}, {"PATH=/usr/bin:/bin"}, "");
  });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(8)), std::future_status::ready);
  rig->Control("release");
  EXPECT_THAT(ended.get().out, HasSubstr(rig->mount() + ": does not answer within 5 s"));
}

TEST_F(CliTest, ProgressIsForTerminals) {
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0, .bandwidth = 4'000'000}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  for (int i = 0; i < 60; ++i) Write(rig->backing() + "/f" + std::to_string(i), Content(std::to_string(i), 80'000));
  source = rig->mount();
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    ::setenv("TIERD_SOCKET", daemon.socket().c_str(), 1);
    ::execl(TIERCTL_BINARY, "tierctl", "prefetch", "--wait", source.c_str(), nullptr);
    ::_exit(127);
  }
  std::string seen;
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(terminal, buffer, sizeof buffer)) > 0) seen.append(buffer, static_cast<std::size_t>(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << seen;
  EXPECT_TRUE(std::regex_search(seen, std::regex("\r[0-9]+/60 files, [0-9.]+ [KMG]?i?B, [0-9]+ files/s, [0-9.]+ [KMG]?i?B/s, [0-9.]+ s to go"))) << seen;
  EXPECT_THAT(seen, HasSubstr("verified 60 of 60 files"));
  ASSERT_EQ(Ctl({"evict", source}).exit_code, 0);
  const Ran piped = Ctl({"prefetch", "--wait", source});
  EXPECT_EQ(piped.err, "");
  EXPECT_EQ(std::count(piped.out.begin(), piped.out.end(), '\n'), 1);
}

TEST_F(CliTest, WrongPathsAndAMissingDaemonAreOneLineEach) {
  MakeFiles(3);
  Write(scratch.path() + "/outside", "x");
  ASSERT_TRUE(daemon.Start(Options())) << daemon.output();
  for (int tries = 0; tries < 500 && Ctl({"status", "--json"}).out.find("\"recovering\"") != std::string::npos; ++tries) ::usleep(10'000);  // `verify` waits for nobody
  const std::string outside = scratch.path() + "/outside", gone = source + "/gone";
  for (const char* verb : {"ls", "stat", "explain", "du", "evict", "pin", "unpin", "verify", "prefetch"}) {
    const Ran ran = Ctl({verb, outside});
    EXPECT_EQ(ran.exit_code, 1) << verb;
    EXPECT_EQ(ran.err, "tierctl: " + outside + " is below no source\n") << verb;
    const Ran slip = Ctl({verb, gone});
    EXPECT_EQ(slip.exit_code, 1) << verb;
    EXPECT_EQ(slip.err, "tierctl: " + gone + ": No such file or directory\n") << verb;
  }
  EXPECT_EQ(daemon.Stop(), 0);
  for (const char* verb : {"status", "jobs", "verify"}) {
    const Ran ran = Ctl({verb});
    EXPECT_EQ(ran.exit_code, 3) << verb;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("no tierd is running here")) << verb;
  }
  EXPECT_EQ(Ctl({"stat"}).exit_code, 64);
  EXPECT_EQ(Ctl({"statsu"}).exit_code, 64);
  EXPECT_EQ(Ctl({"version"}).exit_code, 0);
}

}  // namespace
}  // namespace tierd::e2e
