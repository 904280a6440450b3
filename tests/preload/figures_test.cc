// Every figure that is shown of a job, against the counters of the source itself, where RAM holds half of the data: what the readers did is in all of them, or none.
#include <cmath>
#include <sstream>

#include "tests/e2e/exposition.h"
#include "tests/pfs_sim/rig.h"
#include "tests/preload/run_fixture.h"

namespace tierd::e2e {
namespace {

using nlohmann::json;

constexpr std::uint64_t kFiles = 400, kFileBytes = 80'000, kEpochs = 4;

// Reads every file once per epoch, in another order each, with eight threads. Then looks at all screens while the daemon is there. argv: directory, tierctl, output prefix.
constexpr const char* kReader = R"(
import concurrent.futures, os, random, subprocess, sys
root, tierctl, out = sys.argv[1:]
names = sorted(os.path.join(root, name) for name in os.listdir(root))
def read(name):
    with open(name, 'rb', buffering=0) as file:
        return len(file.readall())
trace = out + 'trc'
subprocess.run([tierctl, 'policy', 'try', 'lru'], check=True)
subprocess.run([tierctl, 'trace', 'start', trace], check=True)
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for epoch in range(4):
        random.Random(epoch).shuffle(names)
        assert sum(pool.map(read, names)) == len(names) * 80000
subprocess.run([tierctl, 'trace', 'stop'], check=True)
for verb in (['status'], ['status', '--json'], ['top', '--batch', '-n', '1'], ['metrics']):
    with open(out + '.'.join(verb[:2]), 'wb') as file:
        subprocess.run([tierctl] + verb, stdout=file, check=True)
)";

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The words of the first line that begins with that word, spaces aside.
std::vector<std::string> Row(const std::string& text, const std::string& name, std::size_t column = 0) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (row.size() > column && row[column] == name) return row;
  }
  return {};
}

class FiguresTest : public RunTest {
 protected:
  // False: there is no rig here, `why` says the reason.
  bool RunOverRig(const std::vector<std::string>& options, std::string* why) {
    rig_ = pfs_sim::Rig::Start({.latency_us = 500}, why);
    if (rig_ == nullptr) return false;
    for (std::uint64_t i = 0; i < kFiles; ++i) Write(rig_->backing() + "/set/" + std::to_string(i), Content("figures", kFileBytes));
    rig_->Control("counters reset");
    const std::string out = scratch_.path() + "/screen.";
    report_path_ = scratch_.path() + "/report.json";
    std::vector<std::string> run{TIERCTL_BINARY, "run", "--source", rig_->mount(), "--ram", "16 MiB", "--ssd", "off"};
    run.insert(run.end(), options.begin(), options.end());
    const std::vector<std::string> command{"/usr/bin/python3", "-c", kReader, rig_->mount() + "/set", TIERCTL_BINARY, out};
    std::vector<std::string> quiet = run;
    quiet.insert(quiet.end(), {"--report", report_path_, "--"});
    quiet.insert(quiet.end(), command.begin(), command.end());
    const JobResult result = RunJob(quiet, job_);
    EXPECT_EQ(result.code, 0) << result.output;
    report_ = ReadJson(report_path_);
    status_text_ = TextOf(out + "status");
    status_ = json::parse(TextOf(out + "status.--json"), nullptr, false);
    top_ = TextOf(out + "top.--batch");
    page_ = ParseExposition(TextOf(out + "metrics"));
    return true;
  }
  static std::uint64_t Sum(const json& numbers) {
    std::uint64_t sum = 0;
    for (const auto& [name, value] : numbers.items()) sum += value.get<std::uint64_t>();
    return sum;
  }
  double Metric(const std::string& name, const std::string& tier) const {
    for (const auto& [sample, value] : page_.samples)
      if (sample.rfind(name + "{", 0) == 0 && sample.find("tier=\"" + tier + "\"") != std::string::npos) return value;
    return -1;
  }

  std::unique_ptr<pfs_sim::Rig> rig_;
  std::string report_path_, status_text_, top_;
  json report_, status_;
  Exposition page_;
};

TEST_F(FiguresTest, EveryFigureCountsAllThatTheReadersDid) {
  std::string why;
  if (!RunOverRig({}, &why)) GTEST_SKIP() << why;
  ASSERT_TRUE(status_.is_object());
  EXPECT_TRUE(IsAsTheSchemaSays(report_path_));
  const json& reads = status_["reads"];
  std::uint64_t count = 0, bytes = 0;
  for (const char* origin : {"ram", "ssd", "source", "bypass"}) count += reads[origin]["count"].get<std::uint64_t>(), bytes += reads[origin]["bytes"].get<std::uint64_t>();
  EXPECT_EQ(count, kEpochs * kFiles) << reads;
  EXPECT_EQ(bytes, kEpochs * kFiles * kFileBytes) << reads;

  // The source's own counters.
  const pfs_sim::RigCounters rig = rig_->Counters();
  const std::uint64_t around = reads["bypass"]["bytes"], opened = Sum(status_["real_opens"]), brought = status_["sources"][0]["read_bytes"];
  EXPECT_EQ(rig.bytes_read, brought + around);
  EXPECT_EQ(rig.opens, page_.Value("tierd_source_requests_total{op=\"read\",result=\"ok\"}") + static_cast<double>(opened));
  EXPECT_GE(opened, kFiles) << "RAM holds half of the files: " << status_["real_opens"];
  EXPECT_EQ(status_["real_reads"]["bytes"], around);

  // Every screen has the same four numbers, and shares of all of them.
  for (const char* origin : {"ram", "ssd", "source", "bypass"}) {
    SCOPED_TRACE(origin);
    const std::uint64_t here = reads[origin]["count"];
    EXPECT_EQ(report_["reads"][origin], reads[origin]);
    EXPECT_EQ(Metric("tierd_reads_total", origin), static_cast<double>(here));
    EXPECT_EQ(Metric("tierd_read_bytes_total", origin), reads[origin]["bytes"].get<double>());
    const std::vector<std::string> row = Row(status_text_, origin);
    ASSERT_GE(row.size(), 3u) << status_text_;
    EXPECT_EQ(row[1], std::to_string(here));
    EXPECT_NEAR(std::stod(row[2]), 100.0 * static_cast<double>(here) / static_cast<double>(count), .1) << status_text_;
    const std::vector<std::string> live = Row(top_, origin, 1);
    ASSERT_GE(live.size(), 5u) << top_;
    EXPECT_EQ(live[4], std::to_string(here) + ",") << top_;
  }
  EXPECT_EQ(report_["real_opens"], status_["real_opens"]);
  // One RAM hit in 64 of each thread is timed, and everything else that was waited for.
  EXPECT_GE(page_.Value("tierd_read_duration_seconds_count{tier=\"ram\"}"), std::floor(reads["ram"]["count"].get<double>() / 64) - 8) << reads;
  EXPECT_GT(page_.Value("tierd_read_duration_seconds_count{tier=\"ram\"}"), 0);
  EXPECT_EQ(page_.Value("tierd_read_duration_seconds_count{tier=\"source\"}"), reads["source"]["count"].get<double>());
  EXPECT_EQ(page_.Value("tierd_read_duration_seconds_count{tier=\"bypass\"}"), reads["bypass"]["count"].get<double>());
  EXPECT_GT(page_.Value("tierd_read_duration_seconds_sum{tier=\"bypass\"}"), .0005 * reads["bypass"]["count"].get<double>()) << "the rig takes half a millisecond for each";

  // Ghosts and traces have what went around the cache, too.
  const json& source = status_["sources"][0];
  EXPECT_NEAR(source["tried"][0]["all"]["reads"].get<double>(), static_cast<double>(count), static_cast<double>(count) / 20) << source["tried"];
  EXPECT_GE(source["tried"][0]["seen_ratio"].get<double>(), .95);
  EXPECT_EQ(source["trace"]["objects"], kFiles) << source["trace"];
  EXPECT_GE(source["trace"]["seen_ratio"].get<double>(), .95) << source["trace"];

  // tierd:hit_ratio:rate5m and the dashboard's first panel, of the whole run.
  double all = 0, hits = 0;
  for (const char* origin : {"ram", "ssd", "source", "bypass"}) all += Metric("tierd_reads_total", origin);
  for (const char* origin : {"ram", "ssd"}) hits += Metric("tierd_reads_total", origin);
  const double refused = page_.Value("tierd_fallback_total{reason=\"no_frame\"}") - Metric("tierd_reads_total", "bypass");
  const double ratio = hits / (all + std::max(0.0, refused));
  EXPECT_NEAR(ratio, reads["ram"]["count"].get<double>() / static_cast<double>(count), .001);

  // Epochs are the same reads, told apart.
  std::uint64_t of_epochs = 0;
  for (const json& epoch : report_["epochs"]) of_epochs += Sum(epoch["bytes"]);
  EXPECT_EQ(report_["epochs"].size(), kEpochs);
  EXPECT_NEAR(static_cast<double>(of_epochs), static_cast<double>(bytes), static_cast<double>(bytes) / 50);
  EXPECT_EQ(report_["source_saved_bytes"].get<std::uint64_t>(), bytes - std::min(bytes, rig.bytes_read));

  // Of the epochs that have ended, which are all but the last: what they took from the source, and what any policy would have had to.
  const json& regret = status_["sources"][0]["regret"];
  const std::uint64_t judged = regret["source_bytes"];
  const std::uint64_t last = Sum(report_["epochs"].back()["bytes"]);
  EXPECT_GE(judged + last, rig.bytes_read * 95 / 100) << regret;
  EXPECT_LE(judged, rig.bytes_read) << regret;
}

TEST_F(FiguresTest, TheSixLinesAgree) {
  std::string why;
  if (!RunOverRig({"--policy", "lru"}, &why)) GTEST_SKIP() << why;
  EXPECT_EQ(report_["advice"].get<std::string>().find("RAM holds 5"), 0u) << report_["advice"];
  EXPECT_NE(report_["advice"].get<std::string>().find(", and lru makes "), std::string::npos) << report_["advice"];
  EXPECT_NE(report_["advice"].get<std::string>().find("--policy auto"), std::string::npos) << report_["advice"];
}

TEST_F(FiguresTest, OneLineWhereNothingWasRead) {
  const JobResult result = RunIt({}, {"/bin/true"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
}

}  // namespace
}  // namespace tierd::e2e
