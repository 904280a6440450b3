// What the end points answer, as CONTROL.md says, on a whole daemon in this process.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/server/control_api_fixture.h"

namespace tierd::server {
namespace {

using nlohmann::json;

// ---- refusals --------------------------------------------------------------------------------------------------------------

// "@" stands for the directory of the source.
struct Row {
  std::string method, target, body;
  unsigned status;
  std::string code = "", allow = "";
};

std::string Many(const std::string& element, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + element;
  return "[" + list + "]";
}

TEST_F(ControlApiTest, EachRequestIsAnsweredAsThePageSays) {
  const std::string ours = R"("paths": ["@/a"])";
  const std::vector<Row> rows = {
      {"GET", "/v1/version", "", 200},
      {"GET", "/v1/status", "", 200},
      {"GET", "/v1/file?path=@/a", "", 200},
      {"GET", "/v1/file?path=@/a&ask=1", "", 200},
      {"GET", "/v1/du?path=@/", "", 200},
      {"GET", "/v1/jobs", "", 200},
      {"GET", "/v1/plans", "", 200},
      {"GET", "/v1/policies", "", 200},
      {"GET", "/v1/config", "", 200},
      {"GET", "/v1/doctor", "", 200},
      {"POST", "/v1/gc", "{}", 200},
      {"POST", "/v1/policies/priorities", "{" + ours + R"(, "priorities": [0.5]})", 200},

      {"GET", "/v1", "", 404, "not_found"},
      {"GET", "/v1/nothing", "", 404, "not_found"},
      {"GET", "/v1/status/", "", 404, "not_found"},
      {"GET", "/v1/metrics", "", 404, "not_found"},  // as set below
      {"GET", "/v1/jobs/99", "", 404, "not_found"},
      {"DELETE", "/v1/jobs/99", "", 404, "not_found"},
      {"GET", "/v1/plans/99", "", 404, "not_found"},
      {"DELETE", "/v1/plans/99", "", 404, "not_found"},
      {"GET", "/v1/file?path=/etc/passwd", "", 404, "outside"},
      {"GET", "/v1/file?path=@x", "", 404, "outside"},
      {"POST", "/v1/pin", R"({"paths": ["@/a", "/etc"]})", 404, "outside"},
      {"POST", "/v1/trace", R"({"source": "other", "stop": true})", 404, "not_found"},

      {"POST", "/v1/status", "{}", 405, "method", "GET"},
      {"get", "/v1/status", "", 405, "method", "GET"},
      {"GET, PATCH", "/v1/config", "", 405, "method", "GET, PATCH"},
      {"DELETE", "/v1/config", "", 405, "method", "GET, PATCH"},
      {"PUT", "/v1/plans", "", 405, "method", "GET, POST"},
      {"POST", "/v1/jobs/1", "{}", 405, "method", "GET, DELETE"},
      {"GET", "/v1/evict", "", 405, "method", "POST"},

      {"GET", "/v1/file", "", 400, "bad_request"},
      {"GET", "/v1/file?path=a", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/../x", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/a%2", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/a%00", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/a&path=@/a", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/a&limit=1", "", 400, "bad_request"},
      {"GET", "/v1/file?path=@/a&ask=yes", "", 400, "bad_request"},
      {"GET", "/v1/status?verbose=1", "", 400, "bad_request"},
      {"DELETE", "/v1/jobs/99?now=1", "", 400, "bad_request"},
      {"POST", "/v1/walk?path=@", "{" + ours + "}", 400, "bad_request"},
      {"GET", "/v1/files?path=@&deep=1", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&recursive=yes", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&recursive", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&recursive=0&limit=10000&after=0", "", 200},
      {"GET", "/v1/files?path=@&limit=0", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&limit=10001", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&limit=7x", "", 400, "bad_request"},
      {"GET", "/v1/files?path=@&after=next", "", 400, "bad_request"},
      {"GET", "/v1/jobs/one", "", 400, "bad_request"},
      {"GET", "/v1/plans/", "", 400, "bad_request"},

      {"POST", "/v1/walk", "", 400, "bad_request"},
      {"POST", "/v1/walk", "{", 400, "bad_request"},
      {"POST", "/v1/walk", "[]", 400, "bad_request"},
      {"POST", "/v1/walk", "{}", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": []})", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": "@"})", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": [7]})", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": [{"b64": "*"}]})", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": ["@", "b"]})", 400, "bad_request"},
      {"POST", "/v1/walk", "{" + ours + R"(, "depth": 1})", 400, "bad_request"},
      {"POST", "/v1/walk", R"({"paths": )" + Many("\"@/a\"", 10'001) + "}", 413, "too_large"},
      {"POST", "/v1/prefetch", "{" + ours + R"(, "tier": "tape"})", 400, "bad_request"},
      {"POST", "/v1/prefetch", "{" + ours + R"(, "tier": 1})", 400, "bad_request"},
      {"POST", "/v1/prefetch", "{" + ours + R"(, "pin": "yes"})", 400, "bad_request"},
      {"POST", "/v1/prefetch", "{" + ours + R"(, "tier": "ssd"})", 409, "conflict"},  // there is none
      {"POST", "/v1/evict", "{" + ours + R"(, "invalidate": 1})", 400, "bad_request"},
      {"POST", "/v1/unpin", "{}", 400, "bad_request"},
      {"POST", "/v1/verify", "{}", 409, "conflict"},
      {"POST", "/v1/warmup", "{}", 400, "bad_request"},
      {"POST", "/v1/warmup", R"({"rest_s": 601})", 400, "bad_request"},
      {"POST", "/v1/warmup", R"({"rest_s": -1})", 400, "bad_request"},
      {"POST", "/v1/gc", R"({"all": true})", 400, "bad_request"},
      {"POST", "/v1/policies/priorities", "{" + ours + R"(, "priorities": []})", 400, "bad_request"},
      {"POST", "/v1/policies/priorities", "{" + ours + R"(, "priorities": [-1]})", 400, "bad_request"},
      {"POST", "/v1/policies/priorities", R"({"paths": )" + Many("\"@/a\"", 1001) + R"(, "priorities": )" + Many("1", 1001) + "}", 413, "too_large"},
      {"POST", "/v1/policies/try", R"({"policy": 1})", 400, "bad_request"},
      {"POST", "/v1/policies/try", R"({"policy": "lru", "stop": false})", 400, "bad_request"},
      {"POST", "/v1/policies/try", R"({"policy": "lru", "stop": true})", 404, "not_found"},
      {"POST", "/v1/trace", R"({"path": "t.trc"})", 400, "bad_request"},
      {"POST", "/v1/trace", R"({"path": "/tmp/t.trc", "most_bytes": 0})", 400, "bad_request"},
      {"POST", "/v1/trace", R"({"stop": 1})", 400, "bad_request"},
      {"POST", "/v1/plans", "{}", 400, "bad_request"},
      {"POST", "/v1/plans", R"({"plan": {}, "list": "../x.list", "path": "@/a"})", 400, "bad_request"},

      {"PATCH", "/v1/config", R"({"key": "ram.capacity"})", 400, "bad_request"},
      {"PATCH", "/v1/config", R"({"key": "ram.capacity", "value": 7})", 400, "bad_request"},
      {"PATCH", "/v1/config", R"({"key": "ram.capacity", "value": "1 GiB", "keep": true})", 400, "bad_request"},
      {"PATCH", "/v1/config", R"({"key": "ram.capacty", "value": "1 GiB"})", 400, "bad_request"},
      {"POST", "/v1/config/reload", "", 400, "bad_request"},
      {"POST", "/v1/config/reload", R"({"force": true})", 400, "bad_request"},
      {"POST", "/v1/config/reload", "{}", 422, "invalid_config"}};
  daemon.api().metrics_text = nullptr;
  for (const Row& row : rows) {
    const Said said = Ask(row.method, Placed(row.target), Placed(row.body));
    const std::string what = row.method + " " + row.target + " " + row.body.substr(0, 100) + " -> " + said.body.dump();
    EXPECT_EQ(said.status, row.status) << what;
    EXPECT_EQ(said.allow, row.allow) << what;
    ASSERT_TRUE(said.body.is_object()) << what;
    EXPECT_EQ(said.body.contains("error"), row.status >= 400) << what;
    if (!said.body.contains("error")) continue;
    EXPECT_EQ(said.body["error"]["code"], row.code) << what;
    EXPECT_GT(said.body["error"]["message"].get<std::string>().size(), 10u) << what;
    EXPECT_EQ(said.body["error"].contains("details"), row.status == 422) << what;
  }
  EXPECT_EQ(daemon.engine().jobs().List().size(), 0u) << "what is refused starts nothing";
}

TEST_F(ControlApiTest, ABodyIsNestedAsDeepAsTheStackIsLong) {
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  const std::vector<Row> rows = {{"POST", "/v1/prefetch", R"({"paths": ["@/a"], "tier": )" + deep + "}", 400},
                                 {"POST", "/v1/plans", R"({"plan": {"a": )" + deep + R"(}, "list": "x.list", "path": "@/a"})", 400},
                                 {"POST", "/v1/policies/priorities", R"({"paths": ["@/a"], "priorities": )" + deep + "}", 400}};
  for (const Row& row : rows) {
    const Said said = Ask(row.method, row.target, Placed(row.body));
    EXPECT_EQ(said.status, row.status) << row.target;
    EXPECT_NE(said.body["error"]["message"].get<std::string>().find("nested"), std::string::npos) << row.target;
  }
}

TEST_F(ControlApiTest, AProcessIsANumberThatAProcessCanHave) {
  for (const char* number : {"3000000000", "4294967296", "4294967297", "-1", "true"}) {
    const Said said = Ask("POST", "/v1/plans", Placed(R"({"plan": {}, "list": "x.list", "path": "@/a", "process": )" + std::string(number) + "}"));
    EXPECT_EQ(said.status, 400u) << number;
    EXPECT_NE(said.body["error"]["message"].get<std::string>().find("\"process\""), std::string::npos) << number << said.body;
  }
}

TEST_F(ControlApiTest, MetricsAreText) {
  ControlApi::Response said;
  daemon.api().Handle("GET", "/v1/metrics", "", [&said](ControlApi::Response response) { said = std::move(response); });
  EXPECT_EQ(said.status, 200u);
  EXPECT_EQ(said.type, "text/plain; version=0.0.4");
  EXPECT_NE(said.body.find("# TYPE tierd_"), std::string::npos);
}

TEST_F(ControlApiTest, JobsHaveALimitAndAnEnd) {
  const std::string body = Placed(R"({"paths": ["@"]})");
  for (std::size_t i = 0; i < engine::Jobs::kRunningJobs; ++i) ASSERT_EQ(Ask("POST", "/v1/walk", body).status, 202u) << i;
  const Said full = Ask("POST", "/v1/prefetch", body);
  EXPECT_EQ(full.status, 429u);
  EXPECT_EQ(full.body["error"]["code"], "busy");
  const Said cancelled = Ask("DELETE", "/v1/jobs/1");
  EXPECT_EQ(cancelled.status, 200u);
  EXPECT_EQ(cancelled.body["state"], "cancelled");
  const Said again = Ask("DELETE", "/v1/jobs/1");
  EXPECT_EQ(again.status, 409u);
  EXPECT_EQ(again.body["error"]["code"], "conflict");
  const Said next = Ask("POST", "/v1/walk", body);
  EXPECT_EQ(next.status, 202u);
  EXPECT_TRUE(JobEnds(next));
}

// ---- names that are no text ------------------------------------------------------------------------------------------------

TEST_F(ControlApiTest, BytesThatAreNoTextAreTakenAsTheyWereGiven) {
  std::ofstream(Path("b/odd \xff")) << "odd";
  ASSERT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", Placed(R"({"paths": ["@/b"]})"))));
  const auto odd = [&] { return Ask("GET", "/v1/file?path=" + Path("b/odd+%FF")).body; };
  EXPECT_EQ(odd()["path"], Path("b/odd \xef\xbf\xbd"));
  EXPECT_EQ(odd()["ram_bytes"], 3);
  EXPECT_EQ(odd()["pinned"], false);
  const std::string body = json{{"paths", {{{"b64", odd()["path_b64"]}}}}}.dump();
  EXPECT_EQ(Ask("POST", "/v1/pin", body).body["files"], 1);
  EXPECT_EQ(odd()["pinned"], true);
  EXPECT_EQ(Ask("POST", "/v1/unpin", body).body["files"], 1);
  EXPECT_EQ(odd()["pinned"], false);
  EXPECT_EQ(Ask("POST", "/v1/evict", body).body["files"], 1);
  EXPECT_EQ(odd()["ram_bytes"], 0);
  EXPECT_EQ(Ask("GET", "/v1/file?path=" + Path("b/c")).body["ram_bytes"], 3000) << "the others stay";
}

// Of what is known and not there as much is said.
TEST_F(ControlApiTest, PinSaysHowMuchOfItIsThere) {
  ASSERT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", Placed(R"({"paths": ["@/b/c"]})"))));
  Insert("b/other", 500);
  const Said some = Ask("POST", "/v1/pin", Placed(R"({"paths": ["@/b", "@/b/c"]})"));
  EXPECT_EQ(some.body, (json{{"files", 2}, {"size_bytes", 3500}, {"ram_bytes", 3000}, {"ssd_bytes", 0}, {"missing_bytes", 500}, {"files_missing", 1}})) << "each file counts once";
  EXPECT_EQ(Ask("POST", "/v1/unpin", Placed(R"({"paths": ["@/b"]})")).body, (json{{"files", 2}}));
}

// ---- the page --------------------------------------------------------------------------------------------------------------

std::string TextOf(const char* file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::set<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it) found.insert((*it)[1]);
  return found;
}

// "### GET /v1/a?path=P   ·   POST /v1/b, POST /v1/c `{"paths": [...]}` → ..." as its parts between the dots, without what is answered.
std::vector<std::string> HeadingParts(const std::string& page) {
  std::vector<std::string> parts;
  for (std::string line : Matches(page, "(?:^|\n)### ([^\n]*)")) {
    for (std::size_t dot = 0; dot != std::string::npos;) {
      dot = line.find("·");
      parts.push_back(line.substr(0, dot));
      parts.back().resize(std::min(parts.back().find("→"), parts.back().size()));
      if (dot != std::string::npos) line.erase(0, dot + 2);
    }
  }
  return parts;
}

TEST_F(ControlApiTest, ThePageHasEachEndPointWithItsMethodsAndMembers) {
  std::map<std::string, std::set<std::string>> documented;  // methods by path
  std::set<std::string> posted;                             // end points of the part before
  for (const std::string& part : HeadingParts(TextOf(TIERD_CONTROL_PAGE))) {
    for (const char* method : {"GET", "POST", "PATCH", "DELETE"}) {
      const std::set<std::string> paths = Matches(part, (std::string("\\b") + method + " (/v1/[a-z0-9/]+)").c_str());
      for (const std::string& path : paths) documented[path].insert(method);
      if (!paths.empty()) posted = paths;
      for (const std::string& name : Matches(part, "[?&]([a-z]+)=")) {
        for (const std::string& path : paths) EXPECT_EQ(Ask(method, path + "?" + name + "=").body.dump().find("unknown member"), std::string::npos) << path << " " << name;
      }
    }
    for (const std::string& name : Matches(part, "\"([a-z_0-9]+)\":")) {
      for (const std::string& path : posted) {
        const std::string method = documented[path].contains("PATCH") ? "PATCH" : "POST";
        const Said said = Ask(method, path, json{{name, nullptr}}.dump());
        EXPECT_EQ(said.status, 400u) << path << " " << name;
        EXPECT_EQ(said.body.dump().find("unknown member"), std::string::npos) << path << " " << name;
      }
    }
  }
  EXPECT_GE(documented.size(), 24u);
  for (const auto& [path, methods] : documented) {
    const Said said = Ask("TRY", path);
    ASSERT_EQ(said.status, 405u) << path;
    EXPECT_EQ(Matches(said.allow, "([A-Z]+)"), methods) << path;
  }
  for (const std::string& path : Matches(TextOf(TIERD_CONTROL_CODE), "\"(/v1/[a-z/]+)\"")) {
    const auto at = documented.lower_bound(path);
    EXPECT_TRUE(at != documented.end() && at->first.starts_with(path) && (at->first == path || path.ends_with('/'))) << path << " is not in the page";
  }
}

}  // namespace
}  // namespace tierd::server
