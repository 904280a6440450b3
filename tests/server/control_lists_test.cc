// Requests with thousands of paths: a worker reads the body, and the loop goes through the list in slices, so that others get their turns between (HAZARDS 5).
#include <fstream>
#include <string>
#include <vector>

#include "tests/server/control_api_fixture.h"

namespace tierd::server {
namespace {

constexpr std::size_t kPaths = 3000;

class Lists : public ControlApiTest {
 protected:
  Lists() {
    for (std::size_t i = 0; i < kPaths; ++i) Insert("b/f" + std::to_string(i));
  }
  // {"paths": [all of them, `last`]`more`}
  std::string Body(const std::string& last = "", const std::string& more = "") const {
    std::string list;
    for (std::size_t i = 0; i < kPaths; ++i) list += (i == 0 ? "\"" : ", \"") + daemon.data() + "/b/f" + std::to_string(i) + "\"";
    return "{\"paths\": [" + list + last + "]" + more + "}";
  }
  // Not answered inside the call.
  Said AskLong(const std::string& target, const std::string& body) {
    Said said;
    daemon.api().Handle("POST", target, body, [&said](ControlApi::Response response) { said = {response.status, nlohmann::json::parse(response.body, nullptr, false), response.allow}; });
    EXPECT_EQ(said.status, 0u) << "the body was read on the loop";
    for (int turns = 0; turns < 1'000'000 && said.status == 0; ++turns) {
      daemon.loop().restart();
      daemon.loop().run_one();
    }
    return said;
  }
  std::size_t Pinned() {
    engine::Catalogue& catalogue = daemon.engine().catalogue();
    std::size_t pinned = 0;
    for (std::size_t i = 0; i < kPaths; ++i) {
      const engine::FileId file = catalogue.Find(catalogue.KeyOf(unit().wire_id, "b/f" + std::to_string(i)));
      if (file != engine::kNoFile && (catalogue.file(file).flags & engine::kFilePinned) != 0) ++pinned;
    }
    return pinned;
  }
};

TEST_F(Lists, EachOfThemIsServed) {
  EXPECT_EQ(AskLong("/v1/pin", Body()).body["files"], kPaths);
  EXPECT_EQ(Pinned(), kPaths);
  EXPECT_EQ(AskLong("/v1/unpin", Body()).body, (nlohmann::json{{"files", kPaths}}));
  EXPECT_EQ(Pinned(), 0u);
  EXPECT_EQ(AskLong("/v1/evict", Body()).status, 200u);
}

TEST_F(Lists, WhatMeetsNothingIsSaid) {
  const std::string none = ", \"" + daemon.data() + "/b/none\"";
  for (const char* end_point : {"/v1/pin", "/v1/unpin", "/v1/evict"}) EXPECT_EQ(AskLong(end_point, Body(none)).body["unknown"], nlohmann::json::array({kPaths})) << end_point;
}

TEST_F(Lists, WhatIsWrongInThemIsSaid) {
  const Said outside = AskLong("/v1/pin", Body(", \"/elsewhere\""));
  EXPECT_EQ(outside.status, 404u);
  EXPECT_EQ(outside.body["error"]["code"], "outside");
  EXPECT_EQ(outside.body["error"]["outside"], nlohmann::json::array({kPaths}));
  EXPECT_EQ(AskLong("/v1/pin", Body(", 7")).status, 400u);
  EXPECT_EQ(AskLong("/v1/pin", Body("", ", \"depth\": 1")).body["error"]["message"], "unknown member \"depth\"");
  EXPECT_EQ(AskLong("/v1/pin", Body() + "}").status, 400u);
  EXPECT_EQ(AskLong("/v1/prefetch", Body("", ", \"tier\": \"tape\"")).status, 400u);
  EXPECT_EQ(Pinned(), 0u);
}

// Each look at the clock, after sixteen places, takes 0.15 ms: a slice is four of them.
TEST_F(Lists, ASliceEndsAfterHalfAMillisecond) {
  fuzz::FixedConfig config("/run");
  const TickingClock clock(150'000);
  ControlApi api(daemon.loop(), daemon.engine(), daemon.hub(), clock, config);
  std::string list;
  constexpr std::size_t kFew = 200;  // short enough to be read in the call
  for (std::size_t i = 0; i < kFew; ++i) list += (i == 0 ? "\"" : ", \"") + daemon.data() + "/b/f" + std::to_string(i) + "\"";
  Said said;
  api.Handle("POST", "/v1/pin", "{\"paths\": [" + list + "]}", [&said](ControlApi::Response response) { said = {response.status, nlohmann::json::parse(response.body, nullptr, false), response.allow}; });
  EXPECT_EQ(said.status, 0u);
  EXPECT_EQ(Pinned(), 64u);
  for (int i = 0; i < 5000 && said.status == 0; ++i) Turn();
  EXPECT_EQ(said.body["files"], kFew);
  EXPECT_EQ(Pinned(), kFew);
}

// 256 walks begin in a turn: a job of so many paths needs several, and counts each of them.
TEST_F(Lists, AJobBeginsItsWalksInSeveralTurns) {
  std::string list = "{\"paths\": [";
  for (std::size_t i = 0; i < kPaths; ++i) {
    const std::string path = daemon.data() + "/b/file" + std::to_string(i);
    std::ofstream(path) << i;
    list += (i == 0 ? "\"" : ", \"") + path + "\"";
  }
  list += "]}";
  const Said started = AskLong("/v1/prefetch", list);
  ASSERT_EQ(started.status, 202u);
  const engine::JobStatus* const job = daemon.engine().jobs().Find(started.body["job"]);
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->walking);
  EXPECT_LE(unit().job_walker->active(), 256u);
  for (int turns = 0; job->ended_ns == 0 && turns < 1'000'000; ++turns) {
    daemon.loop().restart();
    daemon.loop().run_one();
  }
  EXPECT_EQ(job->state, engine::JobState::kDone) << job->error;
  EXPECT_EQ(job->files_total, kPaths);
  EXPECT_EQ(job->files_done, kPaths);
  EXPECT_EQ(job->verified_files, kPaths);
}

}  // namespace
}  // namespace tierd::server
