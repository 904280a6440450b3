#include "tierd/ssd/directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

void Overwrite(const std::string& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(value);
}

// A directory with one record in it.
void Fill(const SsdOptions& options) {
  Life life(options);
  ASSERT_TRUE(life.Start().status.ok());
  ASSERT_TRUE(life.Put("x", 1, 1000).ok());
  life.Stop();
}

TEST(CacheDirectory, IsMadeForItsOwnerOnly) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/made/here");
  Fill(options);
  struct stat st {};
  ASSERT_EQ(::stat(options.directory.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options.directory)) {
    ASSERT_EQ(::stat(entry.path().c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, entry.is_directory() ? 0700u : 0600u) << entry.path();
  }
}

TEST(CacheDirectory, SecondDaemonIsToldWhoHasIt) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Life first(options);
  ASSERT_TRUE(first.Open().ok());
  // Another process, as a second daemon would be.
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Result<CacheDirectory> second = OpenCacheDirectory(options);
    const std::string text = second.ok() ? "opened" : second.status().ToString();
    const bool wrote = ::write(pipe_fds[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(wrote ? 0 : 1);
  }
  ::close(pipe_fds[1]);
  char text[512] = {};
  ASSERT_GT(::read(pipe_fds[0], text, sizeof(text) - 1), 0);
  ::close(pipe_fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(std::string(text), "busy: SSD directory " + options.directory + " is in use by another tierd, pid " + std::to_string(::getpid()));
}

// A disk without a free block, played by a limit: the number in the lock file is for people.
TEST(CacheDirectory, IsOpenedThoughNothingCanBeWritten) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Fill(options);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    const Result<CacheDirectory> opened = OpenCacheDirectory(options);
    ::_exit(!opened.ok() ? 1 : opened->recorded.ok() ? 2 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CacheDirectory, RefusesLinksStrangersAndForeignFiles) {
  TempDirectory dir;
  std::filesystem::create_directory(dir.path() + "/real");
  ASSERT_EQ(::chmod((dir.path() + "/real").c_str(), 0755), 0);  // whatever the umask
  std::filesystem::create_directory_symlink(dir.path() + "/real", dir.path() + "/link");
  EXPECT_EQ(OpenCacheDirectory(SmallOptions(dir.path() + "/link")).status().code(), Code::kInvalid);
  EXPECT_EQ(OpenCacheDirectory(SmallOptions(dir.path() + "/real")).status().code(), Code::kPermission) << "0755";
  std::filesystem::permissions(dir.path() + "/real", std::filesystem::perms::owner_all);
  std::ofstream(dir.path() + "/real/thesis.tex") << "precious";
  EXPECT_EQ(OpenCacheDirectory(SmallOptions(dir.path() + "/real")).status().code(), Code::kInvalid);
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/real/thesis.tex"));
  EXPECT_EQ(CheckCacheDirectory(dir.path() + "/real").code(), Code::kInvalid);
  std::ofstream(dir.path() + "/file") << "x";
  EXPECT_EQ(OpenCacheDirectory(SmallOptions(dir.path() + "/file")).status().code(), Code::kInvalid);
  std::filesystem::create_directory(dir.path() + "/theirs");
  if (::chown((dir.path() + "/theirs").c_str(), 12345, 12345) == 0) {  // root that may
    EXPECT_EQ(OpenCacheDirectory(SmallOptions(dir.path() + "/theirs")).status().code(), Code::kPermission);
  }
}

struct Spoil {
  const char* name;
  std::function<void(const std::string& directory, SsdOptions& options)> act;
  const char* reason;
};

TEST(CacheDirectory, DiscardsWhatItMustNotRead) {
  const Spoil spoils[] = {
      {"older format", [](const std::string& d, SsdOptions&) { Overwrite(d + "/superblock", 8, 0); }, "it has an older format"},
      {"newer format", [](const std::string& d, SsdOptions&) { Overwrite(d + "/superblock", 8, 2); }, "it has a newer format"},
      {"damaged", [](const std::string& d, SsdOptions&) { Overwrite(d + "/superblock", 60, 77); }, "its superblock is damaged"},
      {"truncated", [](const std::string& d, SsdOptions&) { std::filesystem::resize_file(d + "/superblock", 300); }, "its superblock is damaged"},
      {"missing", [](const std::string& d, SsdOptions&) { std::filesystem::remove(d + "/superblock"); }, "its superblock is missing"},
      {"other machine", [](const std::string&, SsdOptions& o) { o.machine_id = "another"; }, "it was made on another machine"},
      {"longer chunks", [](const std::string&, SsdOptions& o) { o.region_bytes = 1 << 20; o.largest_payload_bytes = 250'000; }, "its regions have 262144 bytes, too few for a chunk of 250000"},
      {"less room", [](const std::string&, SsdOptions& o) { o.region_bytes = 128 << 10; o.capacity_bytes = 1'000'000; }, "its regions have 262144 bytes, a capacity of 1000000 holds fewer than four"},
  };
  for (const Spoil& spoil : spoils) {
    TempDirectory dir;
    SsdOptions options = SmallOptions(dir.path() + "/c");
    Fill(options);
    spoil.act(options.directory, options);
    Life life(options);
    const RecoveryReport report = life.Start();
    EXPECT_TRUE(report.status.ok()) << spoil.name;
    EXPECT_EQ(report.records, 0u) << spoil.name;
    EXPECT_EQ(life.tier->note(), "discarded the content of " + options.directory + ": " + spoil.reason) << spoil.name;
    ASSERT_TRUE(life.Put("y", 1, 100).ok());
    EXPECT_EQ(life.Get("y"), ReadOutcome::kOk);
  }
}

TEST(CacheDirectory, SoundDirectoryHasNoNote) {
  TempDirectory dir;
  const SsdOptions options = SmallOptions(dir.path() + "/c");
  Fill(options);
  Life life(options);
  EXPECT_EQ(life.Start().records, 1u);
  EXPECT_EQ(life.tier->note(), "");
}

TEST(CacheDirectory, JudgesFileSystems) {
  TempDirectory dir;
  EXPECT_TRUE(CheckDirectoryFileSystem(dir.path()).ok());
  EXPECT_TRUE(CheckDirectoryFileSystem(dir.path() + "/not/yet/there/").ok());
}

TEST(CacheDirectory, RefusesNonsenseOptions) {
  TempDirectory dir;
  SyncIo io;
  SystemClock clock;
  const SsdOptions good = SmallOptions(dir.path() + "/c");
  Life owner(good);
  const auto code_of = [&](const std::function<void(SsdOptions&)>& change) {
    SsdOptions options = good;
    change(options);
    return SsdTier::Open(options, io, clock, owner).status().code();
  };
  EXPECT_EQ(code_of([](SsdOptions& o) { o.directory.clear(); }), Code::kInvalid);
  EXPECT_EQ(code_of([](SsdOptions& o) { o.region_bytes = 1000; }), Code::kInvalid);
  EXPECT_EQ(code_of([](SsdOptions& o) { o.capacity_bytes = o.region_bytes; }), Code::kInvalid);
  EXPECT_EQ(code_of([](SsdOptions& o) { o.write_unit_bytes = 100; }), Code::kInvalid);
  EXPECT_EQ(code_of([](SsdOptions& o) { o.region_buffers = 1; }), Code::kInvalid);
  EXPECT_EQ(code_of([](SsdOptions& o) { o.max_reads = 0; }), Code::kInvalid);
}

}  // namespace
}  // namespace tierd::ssd
