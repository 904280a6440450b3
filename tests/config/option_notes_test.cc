// What is said about options that are not taken as they are written.
#include "tierd/config/option_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tierd::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kGiB = 1 << 30;

HostFacts Host() {
  HostFacts host;
  host.uid = 1000;
  host.home = "/home/u";
  host.memory_bytes = 24 * kGiB;
  host.memory_room_bytes = 20 * kGiB;
  host.memory_bound_by = "node";
  host.open_files = 1024;
  CacheDirectory disk;
  disk.path = "/nvme/tierd";
  disk.total_bytes = 200 * kGiB;
  disk.free_bytes = 100 * kGiB;
  host.cache_directories = {disk};
  return host;
}

std::vector<std::string> NotesOf(const std::string& text, const HostFacts& host = Host()) {
  const Result<Config> config = Config::Parse(text, "/etc/tierd/tierd.toml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  const Result<Resolved> resolved = Resolve(*config, host);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? resolved->option_notes : std::vector<std::string>();
}

std::string Ram(const std::string& line) { return "[ram]\n" + line + "\n[ssd]\ndirectory = \"off\"\n"; }
std::string Ssd(const std::string& line) { return "[ssd]\ndirectory = \"/nvme/tierd\"\n" + line + "\n"; }
std::string Source(const std::string& line) {
  return "[[source]]\npath = \"/d\"\n" + line + "\n[ssd]\ndirectory = \"off\"\n";
}

TEST(OptionNotes, NothingIsSaidOfDefaultsAndOfWhatIsPossible) {
  EXPECT_THAT(NotesOf(""), IsEmpty());
  EXPECT_THAT(NotesOf(Ram("capacity = \"8 GiB\"\nsegment_size = \"64 MiB\"\npin_cap = \"1 GiB\"")), IsEmpty());
  EXPECT_THAT(NotesOf(Ssd("capacity = \"150 GiB\"")), IsEmpty()) << "what others have of it may come free";
  EXPECT_THAT(NotesOf(Source("staleness = \"ttl\"\nttl = \"5s\"\nmax_inflight = 64")), IsEmpty());
  EXPECT_THAT(NotesOf("[limits]\nsessions = 512\n"), IsEmpty());
  HostFacts nothing_known;
  EXPECT_THAT(NotesOf(Ram("capacity = \"99 TB\""), nothing_known), IsEmpty());
}

TEST(OptionNotes, MoreRamThanThereIsNamesWhatTheTierCanHold) {
  for (const char* size : {"99 TB", "24 GiB", "100%"}) {
    EXPECT_THAT(NotesOf(Ram(std::string("capacity = \"") + size + "\"")),
                ElementsAre(AllOf(StartsWith(std::string("ram.capacity ") + size + ": "), HasSubstr("has 24.0 GiB"),
                                  HasSubstr("512 MiB is left to others"), HasSubstr("holds 23.5 GiB at most"),
                                  HasSubstr("name a smaller size"))))
        << size;
  }
}

TEST(OptionNotes, AShareOfMemoryBelowTheLeastIsRaisedAndSaid) {
  EXPECT_THAT(NotesOf(Ram("capacity = \"0.01%\"")), ElementsAre(HasSubstr("the tier takes 16.0 MiB, the least")));
}

TEST(OptionNotes, MemoryThatIsAllLeftToOthersLeavesNoTier) {
  EXPECT_THAT(NotesOf(Ram("min_available = \"100 GB\"")),
              ElementsAre(AllOf(StartsWith("ram.min_available 100 GB: "), HasSubstr("can hold nothing"))));
}

TEST(OptionNotes, StepsAndPinsThatDoNotFitTheTierAreSaid) {
  EXPECT_THAT(NotesOf(Ram("capacity = \"64 MiB\"\nsegment_size = \"2 MiB\"")),
              ElementsAre(AllOf(StartsWith("ram.segment_size 2 MiB: "), HasSubstr("16.0 MiB is used"))));
  EXPECT_THAT(NotesOf(Ram("capacity = \"64 MiB\"\npin_cap = \"8 GiB\"")),
              ElementsAre(AllOf(StartsWith("ram.pin_cap 8 GiB: "), HasSubstr("has 64.0 MiB"))));
}

TEST(OptionNotes, MoreSsdThanTheFileSystemHasNamesWhatTheTierCanHold) {
  EXPECT_THAT(NotesOf(Ssd("capacity = \"900 TB\"")),
              ElementsAre(AllOf(StartsWith("ssd.capacity 900 TB: "), HasSubstr("/nvme/tierd has 200 GiB"),
                                HasSubstr("holds 199 GiB at most"))));
}

TEST(OptionNotes, SizesOfATierThatIsNotThereHaveNoEffect) {
  EXPECT_THAT(NotesOf("[ssd]\ndirectory = \"off\"\ncapacity = \"1 TB\"\nmin_free = \"2 GiB\"\n"),
              ElementsAre(AllOf(StartsWith("ssd.capacity 1 TB: has no effect"), HasSubstr("--ssd")),
                          StartsWith("ssd.min_free 2 GiB: has no effect")));
}

TEST(OptionNotes, ATimeToLiveWithoutEffectIsSaid) {
  EXPECT_THAT(NotesOf(Source("name = \"a\"\nstaleness = \"immutable\"\nttl = \"5s\"")),
              ElementsAre(AllOf(StartsWith("source.a.ttl 5s: has no effect"), HasSubstr("staleness is immutable"))));
}

TEST(OptionNotes, RequestsAndClientsBeyondTheLimitOfOpenFilesAreSaid) {
  EXPECT_THAT(NotesOf(Source("name = \"a\"\nmax_inflight = 400")),
              ElementsAre(AllOf(StartsWith("source.a.max_inflight 400: "), HasSubstr("(1024) allows 256"), HasSubstr("ulimit -Hn"))));
  EXPECT_THAT(NotesOf("[limits]\nsessions = 65536\n"),
              ElementsAre(AllOf(StartsWith("limits.sessions 65536: "), HasSubstr("fewer than 512"))));
  EXPECT_THAT(NotesOf(Source("name = \"a\"\nhung_cap = 512")), ElementsAre(StartsWith("source.a.hung_cap 512: 496 is used")));
}

TEST(OptionNotes, AListenerThatOtherHostsReachIsSaid) {
  const auto notes = [](const std::string& address) {
    return NotesOf("[daemon]\nmetrics_address = \"" + address + "\"\n[ssd]\ndirectory = \"off\"\n");
  };
  for (const char* here : {"127.0.0.1:9469", "127.8.0.1:1", "[::1]:9469", "[0:0:0:0:0:0:0:1]:9469", "[::ffff:127.0.0.1]:9469", "off"})
    EXPECT_THAT(notes(here), IsEmpty()) << here;
  for (const char* wide : {"0.0.0.0:9469", "[::]:9469", "10.1.2.3:9469", "[::ffff:10.1.2.3]:9469", "[fe80::1]:9469"}) {
    EXPECT_THAT(notes(wide), ElementsAre(AllOf(StartsWith("daemon.metrics_address " + std::string(wide) + ": every host that reaches"),
                                               HasSubstr("use 127.0.0.1"))))
        << wide;
  }
}

}  // namespace
}  // namespace tierd::config
