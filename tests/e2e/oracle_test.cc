// The bytes of real trees: every file below /usr/share and /usr/lib read through tierd and compared with the file, byte by byte: from the source while a RAM
// tier of 1 % of the tree evicts, from the SSD after a restart, from RAM, and under each policy; then what trees do not have: huge sparse files and files
// that may not be read. No tier is smaller than 16 MiB, the least that a daemon takes: under each policy that is 1 % of a sample of 1,600 MB, 16 % of one of 100.
//   TIERD_ORACLE_MB         megabytes of each tree, taken from all over it, for the passes over source and SSD; default 0: all of it
//   TIERD_ORACLE_SAMPLE_MB  for the passes over a sample of it (RAM, each policy); default 100
#include <gtest/gtest.h>
#include <grp.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "policies/registry.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr int kReaders = 2;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kLeastRamMiB = 16;  // of ram.capacity

std::uint64_t MegabytesFrom(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  const std::uint64_t megabytes = text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
  return megabytes == 0 ? std::numeric_limits<std::uint64_t>::max() : megabytes * kMiB;
}

struct Tree {
  std::vector<std::string> files;
  std::uint64_t bytes = 0;
};

// Regular files and symbolic links below `root`, in the order of the directories.
Tree TreeBelow(const std::string& root) {
  Tree tree;
  std::error_code error;
  for (auto it = std::filesystem::recursive_directory_iterator(root, std::filesystem::directory_options::skip_permission_denied, error);
       it != std::filesystem::recursive_directory_iterator() && !error; it.increment(error)) {
    std::error_code ignored;
    const auto type = it->symlink_status(ignored).type();
    if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::symlink) continue;
    if (type == std::filesystem::file_type::regular) tree.bytes += it->file_size(ignored);
    tree.files.push_back(it->path());
  }
  return tree;
}

// Whether a policy always makes room for what comes. The others may keep what they have: a file that RAM has no frame for is then read from the source by who wants it.
bool AlwaysMakesRoom(const std::string& policy) {
  constexpr std::array kNames{"lru", "fifo", "lfu", "random", "s3fifo"};
  return std::find(kNames.begin(), kNames.end(), policy) != kNames.end();
}

// About `limit` bytes of it, from everywhere in the tree.
Tree SampleOf(const Tree& tree, std::uint64_t limit) {
  if (tree.bytes <= limit) return tree;
  Tree sample;
  const std::uint64_t one_in = tree.bytes / limit + 1;
  for (const std::string& path : tree.files) {
    if (std::hash<std::string>{}(path) % one_in != 0) continue;
    struct stat st {};
    const std::uint64_t bytes = ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
    if (bytes > limit / 4) continue;  // one large file would be the whole sample
    sample.bytes += bytes;
    sample.files.push_back(path);
  }
  return sample;
}

using Origins = std::array<std::atomic<std::uint64_t>, TIER_FROM_BYPASS + 1>;

// Compares one file; what is wrong with it, or "".
std::string Compare(tier_client* client, const std::string& path, std::string* plain, Origins* origins) {
  tier_view view{};
  const int ours = tier_get(client, path.c_str(), &view, 0);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int theirs = fd < 0 ? -errno : 0;
  struct stat st {};
  // Links to directories and devices (/dev/null) are refused, as tier.h says.
  if (fd >= 0 && ::fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) theirs = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
  std::size_t done = 0;
  if (theirs == 0) {
    plain->resize(static_cast<std::size_t>(st.st_size));
    for (ssize_t n = 1; n > 0 && done < plain->size(); done += static_cast<std::size_t>(std::max<ssize_t>(n, 0))) n = ::read(fd, plain->data() + done, plain->size() - done);
  }
  if (fd >= 0) ::close(fd);
  std::string wrong;
  if (ours != theirs) wrong = path + ": error " + std::to_string(ours) + ", the file system says " + std::to_string(theirs);
  else if (ours == 0 && (view.size != done || std::memcmp(view.data, plain->data(), done) != 0)) wrong = path + ": other bytes";
  if (ours == 0) {
    ++(*origins)[view.origin];
    tier_release(&view);
  }
  return wrong;
}

class OracleTest : public testing::Test {
 protected:
  // Reads all files once, several threads side by side, each its own share in an order of its own.
  void ReadAll(const Tree& tree) {
    for (auto& count : origins) count = 0;
    Client client(daemon.socket());
    ASSERT_EQ(client.error(), 0);
    std::vector<std::thread> readers;
    for (std::size_t reader = 0; reader < kReaders; ++reader) {
      readers.emplace_back([&, reader] {
        std::string plain;
        for (std::size_t i = reader; i < tree.files.size(); i += kReaders) {
          const std::string wrong = Compare(client.get(), tree.files[i], &plain, &origins);
          EXPECT_EQ(wrong, "");
          if (!wrong.empty()) return;
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
  }
  std::string Where() const {
    std::string text = "from ram ssd source bypass:";
    for (const auto& count : origins) text += " " + std::to_string(count);
    return text;
  }
  void Start(const std::string& source, std::uint64_t ram, const std::vector<std::string>& more) {
    DaemonProcess::Options options;
    options.source = source;
    options.ram = std::to_string(std::max(ram / kMiB, kLeastRamMiB)) + " MiB";
    options.ssd = ssd_capacity == 0 ? "off" : "on";
    options.ssd_capacity = std::to_string(ssd_capacity / kMiB) + " MiB";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), more.begin(), more.end());
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(ssd_capacity == 0 || Eventually(20'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; })) << daemon.output();
  }
  // Objects that left RAM because others came.
  double Evictions() const { return ParseExposition(daemon.Metrics()).Value("tierd_evictions_total{tier=\"ram\",cause=\"capacity\"}"); }
  std::uint64_t Served() const { return origins[TIER_FROM_RAM] + origins[TIER_FROM_SSD] + origins[TIER_FROM_SOURCE]; }

  struct Life {
    std::uint64_t ram = 0;
    std::vector<std::string> more;
    bool new_ssd = false;  // begins with an SSD tier that has nothing
    int rounds = 1;
  };
  // All files, each round, in one life of a daemon. On a machine with more to do than it can a reader reads past the cache: a life of which the last round shows too
  // little of what it is for (`is_enough`) is led again, twice at most. Wrong bytes fail at once.
  template <typename Enough>
  void Lead(const Life& life, const std::string& source, const Tree& tree, Enough is_enough) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (life.new_ssd) std::filesystem::remove_all(daemon.ssd_directory());
      ASSERT_NO_FATAL_FAILURE(Start(source, life.ram, life.more));
      for (int round = 0; round < life.rounds; ++round) ASSERT_NO_FATAL_FAILURE(ReadAll(tree));
      const bool enough = is_enough();
      const std::string seen = Where() + " evicted " + std::to_string(Evictions());
      ASSERT_EQ(daemon.Stop(), 0) << daemon.output();
      if (enough || HasFailure()) return;
      std::printf("attempt %d %s\n", attempt, seen.c_str());
    }
    FAIL() << "the cache was not in it: " << Where();
  }

  ScratchDir scratch;
  DaemonProcess daemon{scratch.path()};
  std::uint64_t ssd_capacity = 0;
  Origins origins{};
};

class TreeTest : public OracleTest, public testing::WithParamInterface<const char*> {};

TEST_P(TreeTest, EveryByteIsTheSource) {
  const Tree all = TreeBelow(GetParam());
  ASSERT_GT(all.files.size(), 100u);
  const Tree tree = SampleOf(all, MegabytesFrom("TIERD_ORACLE_MB", 0));
  const Tree sample = SampleOf(all, MegabytesFrom("TIERD_ORACLE_SAMPLE_MB", 100));
  std::printf("%s: %zu files, %llu MB; sample %zu files, %llu MB\n", GetParam(), tree.files.size(), static_cast<unsigned long long>(tree.bytes / kMiB),
              sample.files.size(), static_cast<unsigned long long>(sample.bytes / kMiB));
  struct statvfs space {};
  ASSERT_EQ(::statvfs(scratch.path().c_str(), &space), 0);
  ssd_capacity = std::clamp<std::uint64_t>(tree.bytes * 5 / 4, 256 * kMiB, space.f_bavail * space.f_frsize / 2);

  const std::vector<std::string> lru{"--policy", "lru", "--set", "source.warm=off"};
  // The source, through a RAM tier that is always full.
  ASSERT_NO_FATAL_FAILURE(Lead({.ram = tree.bytes / 100, .more = lru, .new_ssd = true}, GetParam(), tree,
                               [&] { return origins[TIER_FROM_SOURCE] > tree.files.size() / 2 && Evictions() > 0; }));
  // The SSD, in another life.
  ASSERT_NO_FATAL_FAILURE(Lead({.ram = tree.bytes / 100, .more = lru}, GetParam(), tree,
                               [&] { return origins[TIER_FROM_SSD] + daemon.SlowSsdReads() > tree.files.size() / 2 && Evictions() > 0; }));
  // RAM, with nothing in it that was not asked for.
  ASSERT_NO_FATAL_FAILURE(Lead({.ram = sample.bytes * 2 + 64 * kMiB, .more = {"--set", "source.warm=off"}, .rounds = 2}, GetParam(), sample,
                               [&] { return origins[TIER_FROM_RAM] > sample.files.size() * 9 / 10; }));
  // Each policy: twice through RAM alone, once with an SSD tier below.
  for (const tierd_policy_ops* const policy : policies::BuiltinPolicies()) {
    for (const bool on_ssd : {false, true}) {
      SCOPED_TRACE(policy->name);
      ssd_capacity = on_ssd ? 256 * kMiB : 0;
      ASSERT_NO_FATAL_FAILURE(Lead({.ram = sample.bytes / 100, .more = {"--policy", policy->name}, .new_ssd = true, .rounds = on_ssd ? 1 : 2}, GetParam(), sample, [&] {
        const bool makes_room = AlwaysMakesRoom(policy->name);
        return (Served() > sample.files.size() * 9 / 10 || (!makes_room && !on_ssd && origins[TIER_FROM_RAM] > 0)) && (!makes_room || Evictions() > 0);
      }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trees, TreeTest, testing::Values("/usr/share", "/usr/lib"));

// ---- huge files ---------------------------------------------------------------------------------------------------------------

// A sparse file with an island of bytes here and there, and at its very end.
std::vector<std::uint64_t> MakeSparse(const std::string& path, std::uint64_t bytes, std::uint64_t step) {
  Write(path, "");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  std::vector<std::uint64_t> islands;
  for (std::uint64_t at = 12'345; at < bytes; at += step) islands.push_back(at);
  islands.push_back(bytes - 4000);
  for (const std::uint64_t at : islands) {
    const std::string island = Content(path + std::to_string(at), 4000);
    EXPECT_EQ(::pwrite(fd, island.data(), island.size(), static_cast<off_t>(at)), 4000) << at;
  }
  ::close(fd);
  return islands;
}

// A piece through an open handle against the file.
void ExpectPiece(tier_file* file, int fd, std::uint64_t offset, std::size_t bytes) {
  std::string ours(bytes, 'a'), plain(bytes, 'b');
  const ssize_t got = tier_file_pread(file, ours.data(), bytes, static_cast<std::int64_t>(offset));
  const ssize_t want = ::pread(fd, plain.data(), bytes, static_cast<off_t>(offset));
  ASSERT_EQ(got, want) << offset;
  ASSERT_TRUE(got <= 0 || std::memcmp(ours.data(), plain.data(), static_cast<std::size_t>(got)) == 0) << offset;
}

// That what was read so far came from the cache, most of it: more than `least` bytes, with pieces of `piece` for which the source was asked as the SSD of a busy machine was slower (F08).
void ExpectServed(const DaemonProcess& daemon, tier_client* client, std::uint64_t least, std::uint64_t piece) {
  tier_statistics statistics{};
  statistics.size = sizeof statistics;
  ASSERT_EQ(tier_stats(client, &statistics), 0);
  const std::uint64_t served = statistics.bytes[TIER_FROM_RAM] + statistics.bytes[TIER_FROM_SSD] + statistics.bytes[TIER_FROM_SOURCE];
  EXPECT_GT(served + daemon.SlowSsdReads() * piece, least) << served << " served, " << statistics.bytes[TIER_FROM_BYPASS] << " past it";
}

TEST_F(OracleTest, TwoGigabytesFromEndToEnd) {
  const std::string path = scratch.path() + "/data/two";
  constexpr std::uint64_t kBytes = (std::uint64_t{2} << 30) + 4321;
  MakeSparse(path, kBytes, 37 * kMiB + 11);
  ASSERT_NO_FATAL_FAILURE(Start(scratch.path() + "/data", 64 * kMiB, {"--policy", "lru"}));
  Client client(daemon.socket());
  tier_file* file = nullptr;
  ASSERT_EQ(tier_open(client.get(), path.c_str(), &file, 0), 0);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  constexpr std::size_t kPiece = 3 * kMiB + 17;
  for (std::uint64_t at = 0; at < kBytes && !HasFatalFailure(); at += kPiece) ExpectPiece(file, fd, at, kPiece);
  ExpectPiece(file, fd, kBytes, 10);
  ::close(fd);
  tier_close(file);
  ExpectServed(daemon, client.get(), kBytes / 2, kPiece);
  EXPECT_GT(Evictions(), 0);
}

TEST_F(OracleTest, BeyondFourGibibytes) {
  const std::string path = scratch.path() + "/data/six";
  constexpr std::uint64_t kBytes = (std::uint64_t{6} << 30) + 77;
  ssd_capacity = 256 * kMiB;
  const auto islands = MakeSparse(path, kBytes, 301 * kMiB + 5);
  ASSERT_NO_FATAL_FAILURE(Start(scratch.path() + "/data", 64 * kMiB, {"--policy", "lru"}));
  Client client(daemon.socket());
  tier_file* file = nullptr;
  ASSERT_EQ(tier_open(client.get(), path.c_str(), &file, 0), 0);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t at : islands) ExpectPiece(file, fd, at > 500 ? at - 500 : 0, 6000);
    for (const std::uint64_t edge : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{5} << 30}) ExpectPiece(file, fd, edge - 3000, 6000);
    ExpectPiece(file, fd, kBytes - 10, 100);
    ExpectPiece(file, fd, kBytes + 100, 100);
  }
  ::close(fd);
  tier_close(file);
  ExpectServed(daemon, client.get(), islands.size() * 6000, 6000);  // of twice as much and a little
  EXPECT_GT(Evictions(), 0);
  tier_attr ours{};
  ours.size = sizeof ours;
  EXPECT_EQ(tier_stat(client.get(), path.c_str(), &ours, 0), 0);
  EXPECT_EQ(ours.bytes, kBytes);
}

// ---- permissions --------------------------------------------------------------------------------------------------------------

// As an ordinary user: root may read everything.
int ReadWithoutPermission() {
  ScratchDir scratch;
  const std::string closed = scratch.path() + "/data/closed", later = scratch.path() + "/data/later", below = scratch.path() + "/data/dir/file";
  for (const std::string& path : {closed, later, below}) Write(path, Content(path, 5000));
  ::chmod(closed.c_str(), 0);
  DaemonProcess daemon(scratch.path());
  DaemonProcess::Options options;
  options.source = scratch.path() + "/data";
  options.more = kTrustStamps;
  options.more.insert(options.more.end(), {"--set", "source.ttl=200ms"});
  if (!daemon.Start(options)) return 2;
  Client client(daemon.socket());
  int bad = 0;
  for (int round = 0; round < 3; ++round) bad += Get(client.get(), closed).error != -EACCES;
  // What was cached is withheld once the bound is over.
  for (const std::string& path : {later, below}) bad += Get(client.get(), path).bytes != Content(path, 5000);
  ::chmod(later.c_str(), 0);
  ::chmod((scratch.path() + "/data/dir").c_str(), 0);
  for (const std::string& path : {later, below}) bad += !Eventually(20'000, [&] { return Get(client.get(), path).error == -EACCES; });
  ::chmod((scratch.path() + "/data/dir").c_str(), 0700);
  ::chmod(closed.c_str(), 0600);
  bad += !Eventually(20'000, [&] { return Get(client.get(), closed).bytes == Content(closed, 5000); });
  return bad == 0 ? 0 : 1;
}

TEST_F(OracleTest, FilesWithoutPermissionStayClosed) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned kNobody = 65534;
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(77);
    if (::access(TIERD_BINARY, X_OK) != 0) ::_exit(77);
    ::_exit(ReadWithoutPermission());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot run tierd as an ordinary user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tierd::e2e
