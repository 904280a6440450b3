// What runs on one node know of each other, and how they divide it.
#include "tierctl/run/ledger.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tierctl/run/share.h"

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;
constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

JobIdentity Identity(const Variables& variables, const std::string& cgroups = "0::/\n") {
  const auto environment = [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return IdentityOfJob(environment, cgroups, 7);
}

TEST(JobIdentity, NamesTheBatchSystemAndItsJob) {
  EXPECT_EQ(Identity({}).job, "");
  EXPECT_EQ(Identity({{"SLURM_JOB_ID", ""}}).job, "");
  EXPECT_EQ(Identity({{"SLURM_JOB_ID", "17"}}).job, "Slurm job 17");
  EXPECT_EQ(Identity({{"PBS_JOBID", "17.head"}}).job, "PBS job 17.head");
  EXPECT_EQ(Identity({{"LSB_JOBID", "17"}, {"LSB_JOBINDEX", "0"}}).job, "LSF job 17");
  EXPECT_EQ(Identity({{"LSB_JOBID", "17"}, {"LSB_JOBINDEX", "3"}}).job, "LSF job 17[3]");
  EXPECT_FALSE(Identity({{"SLURM_JOB_ID", "1"}}) == Identity({{"PBS_JOBID", "1"}}));
}

TEST(JobIdentity, TasksOfOneStepAreOneAndStepsAreNot) {
  const Variables job{{"SLURM_JOB_ID", "17"}};
  const auto v2 = [&](const std::string& path) { return Identity(job, "0::" + path + "\n"); };
  const std::string step = "/system.slice/slurmstepd.scope/job_17/step_0";
  EXPECT_EQ(v2(step + "/user/task_0"), v2(step + "/user/task_3"));
  EXPECT_EQ(v2(step + "/user/task_0"), v2(step));
  EXPECT_FALSE(v2(step) == v2("/system.slice/slurmstepd.scope/job_17/step_1"));
  EXPECT_FALSE(v2("/pbs/17") == v2("/pbs/18"));
  const std::string others = "12:cpu,cpuacct:/x\n0::/y\n";
  EXPECT_EQ(Identity(job, "4:memory:/slurm/uid_1/job_17/step_2/task_0\n" + others), Identity(job, "4:memory:/slurm/uid_1/job_17/step_2/task_1\n" + others));
  EXPECT_EQ(Identity(job, others + "4:memory:/slurm/a\n").cgroup, "/slurm/a") << "where memory is in a hierarchy of its own, that counts";
}

TEST(Difference, SaysWhichOptionDiffers) {
  DaemonRecord there;
  there.binary = "/bin/tierd";
  DaemonRecord wanted = there;
  EXPECT_EQ(Difference(there, wanted), "");
  there.options.ram = "4GB";
  EXPECT_EQ(Difference(there, wanted), "") << "who names nothing takes what is there";
  wanted.options.ram = "8GB";
  EXPECT_EQ(Difference(there, wanted), "--ram is 4GB there");
  wanted.options.ram = "4GB";
  wanted.options.policy = "lru";
  EXPECT_EQ(Difference(there, wanted), "--policy is not given there");
  there.options.policy = "lru";
  wanted.options.ssd = "/nvme";
  EXPECT_EQ(Difference(there, wanted), "--ssd is not given there");
  wanted.options.ssd = "";
  wanted.keep = true;
  EXPECT_EQ(Difference(there, wanted), "--keep is not given there");
  wanted.keep = false;
  there.options.sources = {"/a"};
  EXPECT_EQ(Difference(there, wanted), "--source is /a there") << "without --source all network mounts are meant";
  wanted.options.sources = {"/b"};
  EXPECT_EQ(Difference(there, wanted), "") << "what it covers, its status says";
  wanted.binary = "/other/tierd";
  EXPECT_EQ(Difference(there, wanted), "the tierd there is /bin/tierd");
}

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    std::string pattern = fs::temp_directory_path() / "tierd-ledger-test-XXXXXX";
    base_ = ::mkdtemp(pattern.data());
  }
  ~LedgerTest() override { fs::remove_all(base_); }
  std::optional<Ledger> Open(int patience_ms = 0) const { return Ledger::Open(base_, ::geteuid(), patience_ms); }
  std::string path() const { return base_ + "/tierd-ledger-" + std::to_string(::geteuid()); }

  std::string base_;
};

TEST_F(LedgerTest, ARecordLivesAsLongAsItsDaemon) {
  DaemonRecord record;
  record.identity = {"Slurm job 17", "/a", 7};
  record.options = {{"/pfs", "/other"}, "4GB", "/nvme", "lru", ""};
  record.binary = "/bin/tierd";
  record.keep = record.ssd_auto = true;
  record.ram_auto = false;
  record.scratch = "/tmp/scratch";
  record.short_scratch = "/tmp/short";
  record.socket = "/s", record.control = "/c", record.lifeline = "/l";
  tierd::UniqueFd daemon;
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger);
    daemon = ledger->Add("one", record);
    ASSERT_TRUE(daemon.valid());
    EXPECT_FALSE(ledger->Add("one", record).valid()) << "a name is one daemon's";
    const auto live = ledger->Live();
    ASSERT_EQ(live.size(), 1u);
    EXPECT_EQ(live[0].name, "one");
    const DaemonRecord& read = live[0].record;
    EXPECT_EQ(read.identity, record.identity);
    EXPECT_EQ(read.options.sources, record.options.sources);
    EXPECT_EQ(read.options.ram + read.options.ssd + read.options.policy, "4GB/nvmelru");
    EXPECT_EQ(read.binary + read.scratch + read.short_scratch + read.socket + read.control + read.lifeline, "/bin/tierd/tmp/scratch/tmp/short/s/c/l");
    EXPECT_TRUE(read.keep && read.ssd_auto && !read.ram_auto);
  }
  daemon = tierd::UniqueFd();
  auto ledger = Open();
  ASSERT_TRUE(ledger);
  EXPECT_TRUE(ledger->Live().empty());
  ledger->RemoveIfEmpty();
  EXPECT_TRUE(fs::is_empty(base_));
}

TEST_F(LedgerTest, WhatIsInUseStays) {
  auto ledger = Open();
  const tierd::UniqueFd daemon = ledger->Add("one", {});
  ledger->RemoveIfEmpty();
  EXPECT_EQ(ledger->Live().size(), 1u);
  EXPECT_FALSE(Ledger::WasJoined(base_, ::geteuid(), "one"));
  ledger->MarkJoined("one");
  EXPECT_TRUE(Ledger::WasJoined(base_, ::geteuid(), "one"));
}

TEST_F(LedgerTest, OneAtATime) {
  auto first = Open();
  ASSERT_TRUE(first);
  EXPECT_FALSE(Open());
  first->RemoveIfEmpty();
  first.reset();
  EXPECT_TRUE(Open());
}

// In /tmp, where anybody may have made it.
TEST_F(LedgerTest, WhatIsNotTheUsersAloneIsNotUsed) {
  fs::create_directory(path());
  fs::permissions(path(), fs::perms(0755));
  EXPECT_FALSE(Open(1000));
  fs::remove(path());
  fs::create_directory(base_ + "/elsewhere");
  fs::permissions(base_ + "/elsewhere", fs::perms(0700));
  fs::create_directory_symlink(base_ + "/elsewhere", path());
  EXPECT_FALSE(Open(1000));
  fs::remove(path());
  std::ofstream(path()) << "x";
  EXPECT_FALSE(Open(1000));
}

TEST(EqualShare, AllTakeTheSameOfWhatIsFreeOrTheirs) {
  const std::uint64_t free_bytes = 80 * kGiB;
  EXPECT_EQ(EqualShare({}, true, 0, free_bytes, 50), 40 * kGiB);
  EXPECT_EQ(EqualShare({{40 * kGiB, 20 * kGiB, true}}, true, 0, free_bytes - 20 * kGiB, 50), 20 * kGiB) << "what one holds is to be divided, too";
  EXPECT_EQ(EqualShare({{40 * kGiB, 0, true}, {40 * kGiB, 0, true}, {40 * kGiB, 0, true}}, true, 0, free_bytes, 50), 10 * kGiB);
}

TEST(EqualShare, WhatWasNamedComesFirst) {
  EXPECT_EQ(EqualShare({{20 * kGiB, 0, false}}, true, 0, 80 * kGiB, 50), 30 * kGiB);
  EXPECT_EQ(EqualShare({{20 * kGiB, 0, true}}, false, 20 * kGiB, 80 * kGiB, 50), 30 * kGiB);
  EXPECT_EQ(EqualShare({{200 * kGiB, 0, false}}, true, 0, 80 * kGiB, 50), 0u);
  EXPECT_EQ(EqualShare({{20 * kGiB, 0, false}}, false, 20 * kGiB, 80 * kGiB, 50), 0u) << "nobody to divide among";
  EXPECT_EQ(EqualShare({}, true, 0, 3 * kMiB, 50) % kMiB, 0u);
}

}  // namespace
}  // namespace tierctl::run
