// /metrics: what the clients did and what the source saw, exactly; the names that are documented; nobody but this machine is served.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/e2e/metrics_fixture.h"
#include "tests/pfs_sim/rig.h"
#include "tests/tierctl/run_tierctl.h"
#include "tierd/base/unique_fd.h"

namespace tierd::e2e {
namespace {

TEST_F(MetricsTest, CountsAreThoseOfTheClientsAndOfTheSource) {
  constexpr int kFiles = 120, kUnreadable = 3;
  std::string why;
  auto rig = pfs_sim::Rig::Start({.latency_us = 0}, &why);
  if (rig == nullptr) GTEST_SKIP() << why;
  const auto path = [&](int i) { return rig->mount() + "/f" + std::to_string(i); };
  for (int i = 0; i < kFiles; ++i) Write(rig->backing() + "/f" + std::to_string(i), Content(std::to_string(i), SizeOf(i)));
  ASSERT_TRUE(daemon.Start(Options(rig->mount()))) << daemon.output();
  rig->Control("counters reset");
  Done done;
  {
    Client one(daemon.socket()), two(daemon.socket());
    for (int i = 0; i < kFiles; ++i) done.Add(Get(one.get(), path(i)));                  // from the source
    for (int i = 0; i < kFiles; i += 2) done.Add(Get(two.get(), path(i)));               // from RAM, by another client
    EXPECT_EQ(done.reads[TIER_FROM_SOURCE], kFiles);
    EXPECT_EQ(done.reads[TIER_FROM_RAM], kFiles / 2);
    for (int i = 0; i < kUnreadable; ++i) EXPECT_EQ(Get(one.get(), rig->mount() + "/none" + std::to_string(i)).error, -ENOENT);
    const auto sees = rig->Counters();
    const Exposition page = Scrape();
    ExpectReads(page, done);
    EXPECT_EQ(sees.opens, kFiles);
    EXPECT_EQ(page.Value("tierd_source_requests_total{op=\"read\",result=\"ok\"}"), static_cast<double>(sees.opens));
    EXPECT_EQ(page.Value("tierd_source_read_bytes_total"), static_cast<double>(sees.bytes_read));
    EXPECT_EQ(page.Value("tierd_sessions"), 2);
    EXPECT_EQ(page.Value("tierd_tier_objects{tier=\"ram\"}"), kFiles);
    EXPECT_EQ(page.Value("tierd_tier_used_bytes{tier=\"ram\"}"), done.bytes[TIER_FROM_SOURCE]);
    EXPECT_EQ(page.Value("tierd_promotions_total{from=\"source\",to=\"ram\",result=\"ok\"}"), kFiles);
    EXPECT_EQ(page.Value("tierd_promotions_bytes_total{from=\"source\",to=\"ram\"}"), done.bytes[TIER_FROM_SOURCE]);
  }
  // Clients that are gone stay in the sums. After a restart the SSD tier serves, and everything counts from nought.
  EXPECT_TRUE(Eventually(30'000, [&] { return Scrape().Value("tierd_sessions") == 0; }));
  ExpectReads(Scrape(), done);
  ASSERT_TRUE(Eventually(30'000, [&] { return Scrape().Value("tierd_tier_objects{tier=\"ssd\"}") == kFiles; })) << Scrape().Value("tierd_tier_objects{tier=\"ssd\"}");
  EXPECT_EQ(daemon.Stop(), 0);
  rig->Control("counters reset");
  ASSERT_TRUE(daemon.Start(Options(rig->mount()))) << daemon.output();
  ASSERT_TRUE(Eventually(30'000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] == "ok"; }));
  Client client(daemon.socket());
  Done again;
  for (int i = 0; i < kFiles; ++i) again.Add(Get(client.get(), path(i)));
  for (int i = 0; i < 10; ++i) again.Add(Get(client.get(), path(i)));
  const auto sees = rig->Counters();
  const Exposition page = Scrape();
  const double slow = page.Value("tierd_ssd_slow_reads_total");  // on a busy device: the source answers sooner (F08)
  EXPECT_EQ(again.reads[TIER_FROM_SSD], kFiles - slow);
  EXPECT_EQ(again.reads[TIER_FROM_SOURCE], slow);
  EXPECT_EQ(again.reads[TIER_FROM_RAM], 10);
  ExpectReads(page, again);
  EXPECT_EQ(page.Value("tierd_promotions_total{from=\"ssd\",to=\"ram\",result=\"ok\"}"), kFiles - slow);
  EXPECT_EQ(page.Value("tierd_source_read_bytes_total"), static_cast<double>(sees.bytes_read));
  EXPECT_EQ(static_cast<double>(sees.opens), slow);
}

TEST_F(MetricsTest, OrdersFallbacksAndLeasesAreCounted) {
  constexpr int kFiles = 50;
  const std::string source = scratch.path() + "/data";
  double bytes = 0;
  for (int i = 0; i < kFiles; ++i) {
    Write(source + "/f" + std::to_string(i), Content(std::to_string(i), SizeOf(i)));
    bytes += static_cast<double>(SizeOf(i));
  }
  auto options = Options(source);
  options.more.back() = "source.staleness=ttl";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  ASSERT_EQ(daemon.Prefetch(source)["files_verified"], kFiles);
  Exposition page = Scrape();
  EXPECT_EQ(page.Value("tierd_prefetch_objects_total"), kFiles);
  EXPECT_EQ(page.Value("tierd_prefetch_bytes_total"), bytes);
  daemon.Control("POST", "/v1/pin", nlohmann::json{{"paths", {source + "/f1"}}}.dump());
  EXPECT_EQ(Scrape().Value("tierd_tier_pinned_bytes{tier=\"ram\"}"), static_cast<double>(SizeOf(1)));

  Client client(daemon.socket());
  tier_view view;
  ASSERT_EQ(tier_get(client.get(), (source + "/f2").c_str(), &view, 0), 0);
  EXPECT_TRUE(Eventually(2000, [&] { return Scrape().Value("tierd_leases") == 1; }));
  tier_release(&view);
  EXPECT_TRUE(Eventually(2000, [&] { return Scrape().Value("tierd_leases") == 0; }));

  // What goes past the cache is counted with its reason. (A file below no source is nobody's business: it has none.)
  EXPECT_EQ(Get(client.get(), source + "/../data/f3").origin, static_cast<std::uint32_t>(TIER_FROM_BYPASS));
  page = Scrape();
  EXPECT_EQ(page.Value("tierd_fallback_total{reason=\"path\"}"), 1);
  double fallbacks = 0;
  for (const auto& [sample, value] : page.samples)
    if (sample.rfind("tierd_fallback_total{", 0) == 0) fallbacks += value;
  EXPECT_EQ(fallbacks, page.Value("tierd_reads_total{tier=\"bypass\",result=\"miss\"}"));

  (void)daemon.Status();  // looks into the rings: the read of f2 is known before the file is evicted
  daemon.Control("POST", "/v1/evict", nlohmann::json{{"paths", {source}}}.dump());
  page = Scrape();
  EXPECT_EQ(page.Value("tierd_evictions_total{tier=\"ram\",cause=\"request\"}"), kFiles);
  EXPECT_EQ(page.Value("tierd_evicted_bytes_total{tier=\"ram\"}"), bytes);
  // f2 was read; all others were brought for nothing.
  EXPECT_EQ(page.Value("tierd_prefetch_unused_bytes_total"), bytes - static_cast<double>(SizeOf(2)));
  EXPECT_EQ(page.Value("tierd_tier_used_bytes{tier=\"ram\"}"), 0);
}

// Rows of docs/metrics.md: | `name` | type | labels | meaning |
std::map<std::string, Family> Documented() {
  const std::string text = Plain(std::string(TIERD_SOURCE_DIR) + "/docs/metrics.md").bytes;
  std::map<std::string, Family> rows;
  const std::regex row("\\| `(tierd_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| ([^|\n]*) \\|");
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    Family& family = rows[(*it)[1]];
    family.type = (*it)[2];
    family.help = (*it)[4];
    const std::string labels = (*it)[3];
    const std::regex label("`([a-z_]+)`");
    for (std::sregex_iterator l(labels.begin(), labels.end(), label); l != end; ++l) family.labels.insert((*l)[1]);
  }
  return rows;
}

TEST_F(MetricsTest, DocsListWhatIsServedAndTheFormatIsSound) {
  const std::string source = scratch.path() + "/data set with a telling name";
  Write(source + "/secret_file", "x");
  Write(scratch.path() + "/t.toml", "[[source]]\npath = \"" + source + "\"\nname = \"d1\"\n");
  auto options = Options("");
  options.config = scratch.path() + "/t.toml";
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  Client client(daemon.socket());
  EXPECT_EQ(Get(client.get(), source + "/secret_file").bytes, "x");
  const std::string text = daemon.Metrics();
  const Exposition page = ParseExposition(text);
  EXPECT_EQ(page.problem, "");
  const auto documented = Documented();
  for (const auto& [name, family] : page.families) {
    EXPECT_FALSE(family.help.empty()) << name;
    EXPECT_GT(family.samples, 0u) << name;
    EXPECT_EQ(name.rfind("tierd_", 0), 0u) << name;
    EXPECT_EQ(family.type == "counter", name.size() > 6 && name.substr(name.size() - 6) == "_total") << name;
    const auto row = documented.find(name);
    ASSERT_TRUE(row != documented.end()) << name << " is missing in docs/metrics.md";
    EXPECT_EQ(row->second.type, family.type) << name;
    EXPECT_EQ(row->second.labels, family.labels) << name;
  }
  for (const auto& [name, family] : documented) EXPECT_TRUE(page.families.contains(name)) << name << " is documented but not served";
  for (const std::string& secret : {std::string("telling"), std::string("secret"), scratch.path()}) EXPECT_EQ(text.find(secret), std::string::npos) << secret;

  // Others' opinion of the format: the official parser, and promtool where it is installed.
  Write(scratch.path() + "/page", text);
  const auto parsed = tierctl::RunProgram({"/usr/bin/python3", "-c",
                                           "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as f\n"
                                           "n = sum(len(m.samples) for m in f(sys.stdin.read()))\nsys.exit(0 if n > 100 else 1)"},
                                          {}, text);
  EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
  const auto checked = tierctl::RunProgram({"/bin/sh", "-c", "command -v promtool >/dev/null || exit 0; promtool check metrics"}, {}, text);
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

// What docs/metrics.md, docs/monitoring.md, README.md and tierd-metrics(7) say of their number.
TEST_F(MetricsTest, TwoSourcesGiveAtMost320Series) {
  const auto page_of = [&](int sources) {
    std::string config;
    for (int i = 0; i < sources; ++i) {
      const std::string name = "d" + std::to_string(i);
      Write(scratch.path() + "/" + name + "/f", "x");
      config += "[[source]]\npath = \"" + scratch.path() + "/" + name + "\"\nname = \"" + name + "\"\n";
    }
    Write(scratch.path() + "/t.toml", config);
    auto options = Options("");
    options.config = scratch.path() + "/t.toml";
    EXPECT_TRUE(daemon.Start(options)) << daemon.output();
    return Scrape().samples.size();
  };
  const std::size_t one = page_of(1);
  EXPECT_EQ(daemon.Stop(), 0);
  const std::size_t two = page_of(2);
  daemon.Control("POST", "/v1/policies/try", nlohmann::json{{"policy", "lru"}, {"source", "d1"}}.dump());
  EXPECT_LE(two, 320u);
  EXPECT_EQ(two, one + 15);
  EXPECT_EQ(Scrape().samples.size(), two + 3);
  for (const char* file : {"/docs/metrics.md", "/docs/monitoring.md"}) {
    const std::string text = Plain(std::string(TIERD_SOURCE_DIR) + file).bytes;
    EXPECT_NE(text.find("two sources gives at most 320 series; each further source gives 15 more, each policy that is tried 3"), std::string::npos) << file;
  }
}

// A connection to the port of /metrics at `to`; invalid where nobody answers.
UniqueFd ConnectTo(const DaemonProcess& daemon, in_addr to) {
  const std::string address = daemon.Status()["metrics_address"];
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr = to;
  in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) == 0 ? std::move(fd) : UniqueFd();
}

// What comes back for `request` until the line with `end` is there or the connection is closed.
std::string Ask(const UniqueFd& fd, const std::string& request, const std::string& end = "") {
  std::string answer;
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return answer;
  char part[4096];
  while (end.empty() || answer.find(end) == std::string::npos || !answer.ends_with('\n')) {
    const ssize_t n = ::recv(fd.get(), part, sizeof part, 0);
    if (n <= 0) break;
    answer.append(part, static_cast<std::size_t>(n));
  }
  return answer;
}

TEST_F(MetricsTest, IsServedToThisMachineAlone) {
  const std::string source = scratch.path() + "/data";
  std::filesystem::create_directories(source);
  ASSERT_TRUE(daemon.Start(Options(source))) << daemon.output();
  const std::string address = daemon.Status()["metrics_address"];
  EXPECT_EQ(address.rfind("127.0.0.1:", 0), 0u) << address;
  in_addr loopback{};
  ::inet_pton(AF_INET, "127.0.0.1", &loopback);
  EXPECT_TRUE(ConnectTo(daemon, loopback).valid());
  ifaddrs* interfaces = nullptr;
  ASSERT_EQ(::getifaddrs(&interfaces), 0);
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    const in_addr own = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr;
    if ((ntohl(own.s_addr) >> 24) == 127) continue;
    EXPECT_FALSE(ConnectTo(daemon, own).valid()) << i->ifa_name;
  }
  ::freeifaddrs(interfaces);
}

TEST_F(MetricsTest, ThePortAnswersScrapesAndNothingElse) {
  const std::string source = scratch.path() + "/data";
  std::filesystem::create_directories(source);
  ASSERT_TRUE(daemon.Start(Options(source))) << daemon.output();
  in_addr loopback{};
  ::inet_pton(AF_INET, "127.0.0.1", &loopback);
  const auto answer = [&](const std::string& request) { return Ask(ConnectTo(daemon, loopback), request); };
  const std::string closes = " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
  const std::string page = answer("GET /metrics?debug=0" + closes);
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200")) << page;
  EXPECT_NE(page.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << page;
  EXPECT_TRUE(answer("GET /" + closes).starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(answer("GET /v1/status" + closes).starts_with("HTTP/1.1 404"));  // the control plane is not for other users
  const std::string refused = answer("DELETE /metrics" + closes);
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 405")) << refused;
  EXPECT_NE(refused.find("Allow: GET"), std::string::npos) << refused;
  EXPECT_TRUE(answer("POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx").starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer("GET /metrics HTTP/1.1\r\nHost: " + std::string(9000, 't') + "\r\n\r\n").starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer("good day\r\n\r\n").starts_with("HTTP/1.1 400"));
  // A Prometheus server keeps its connection.
  const UniqueFd kept = ConnectTo(daemon, loopback);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Ask(kept, "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n", "\ntierd_start_time_seconds ").starts_with("HTTP/1.1 200")) << i;
}

TEST_F(MetricsTest, WhileNobodyScrapesNobodyWakes) {
  const std::string source = scratch.path() + "/data";
  std::filesystem::create_directories(source);
  ASSERT_TRUE(daemon.Start(Options(source))) << daemon.output();
  const std::string tasks = "/proc/" + std::to_string(daemon.pid()) + "/task";
  std::string thread;
  const auto text_of = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const auto found = [&] {  // it takes its name once it runs
    for (const auto& task : std::filesystem::directory_iterator(tasks))
      if (text_of(task.path().string() + "/comm") == "tierd-metrics\n") thread = task.path().string();
    return !thread.empty();
  };
  ASSERT_TRUE(Eventually(5000, found));
  const auto switches = [&] {
    const std::string status = text_of(thread + "/status");
    const std::size_t at = status.find("\nvoluntary_ctxt_switches:");
    return status.substr(at, status.find('\n', at + 1) - at);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it waits again
  const std::string before = switches();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_EQ(switches(), before);
  EXPECT_GT(ParseExposition(daemon.Page()).samples.size(), 100u);
  EXPECT_TRUE(Eventually(2000, [&] { return switches() != before; })) << "it counts when it waits again";
}

}  // namespace
}  // namespace tierd::e2e
