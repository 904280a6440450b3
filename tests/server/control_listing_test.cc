// What the control plane tells of trees: pages that end on time and miss nobody who stays, and sums with the walk that belongs to them.
#include <map>

#include "tests/server/control_api_fixture.h"

namespace tierd::server {
namespace {

using nlohmann::json;

constexpr int kFiles = 2500;
std::string Name(int i) { return "many/f" + std::to_string(i); }

class Listing : public ControlApiTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < kFiles; ++i) Insert(Name(i));
  }
  struct Pages {
    std::map<std::string, int> listed;  // how often
    std::size_t pages = 0, largest = 0;
  };
  // `between` runs after each page but the last.
  template <typename Between>
  Pages List(ControlApi& api, const std::string& query, Between between) {
    Pages pages;
    for (std::string after; pages.pages < 10'000;) {
      const Said page = Ask(api, "GET", "/v1/files?path=" + daemon.data() + query + (after.empty() ? "" : "&after=" + after));
      EXPECT_EQ(page.status, 200u) << page.body;
      if (page.status != 200) break;
      for (const json& entry : page.body["entries"]) ++pages.listed[entry["path"]];
      ++pages.pages;
      pages.largest = std::max(pages.largest, page.body["entries"].size());
      if (page.body["next"].is_null()) break;
      after = page.body["next"];
      between(pages.pages);
    }
    return pages;
  }
};

TEST_F(Listing, APageEndsOnTimeWhateverItsLimit) {
  fuzz::FixedConfig config("/run");
  const TickingClock clock(150'000);
  ControlApi api(daemon.loop(), daemon.engine(), daemon.hub(), clock, config);
  const Pages all = List(api, "&recursive=1&limit=10000", [](std::size_t) {});
  EXPECT_EQ(all.listed.size(), std::size_t{kFiles});
  EXPECT_LE(all.largest, 150u) << "four looks at the clock are over half a millisecond";
  EXPECT_GE(all.pages, std::size_t{kFiles} / 150);
  // Nor does what is passed by take longer.
  Insert("alone");
  const Pages few = List(api, "", [](std::size_t) {});
  EXPECT_EQ(few.listed, (std::map<std::string, int>{{Path("alone"), 1}}));
  EXPECT_GT(few.pages, 1u);
}

TEST_F(Listing, WhatStaysIsListedOnceWhileOthersComeAndGo) {
  int came = 0, went = 0;
  for (const std::size_t limit : {7, 1000}) {
    const std::size_t pages_between = limit == 7 ? 5 : 1;
    const Pages pages = List(daemon.api(), "&recursive=1&limit=" + std::to_string(limit), [&](std::size_t page) {
      if (page % pages_between != 0) return;
      // Those with odd numbers go, from both ends; what comes takes their places, and new ones.
      for (const int i : {2 * went + 1, kFiles - 2 * went - 1}) Remove(Name(i));
      for (int i = 0; i < 3; ++i) Insert("new/f" + std::to_string(came++));
      ++went;
    });
    ASSERT_LT(2 * went, kFiles / 2);
    EXPECT_LE(pages.largest, limit);
    EXPECT_GT(went, 0);
    for (int i = 0; i < kFiles; i += 2) {
      const auto listed = pages.listed.find(Path(Name(i)));
      EXPECT_EQ(listed == pages.listed.end() ? 0 : listed->second, 1) << Name(i) << ", limit " << limit;
    }
  }
}

// Nothing more can be known of a file.
TEST_F(ControlApiTest, AKnownFileIsWhollyListed) {
  Insert("a");
  EXPECT_EQ(Ask("GET", "/v1/files?path=" + Path("a")).body["walked"], true);
  EXPECT_EQ(Ask("GET", "/v1/files?path=" + Path("")).body["walked"], false);
}

TEST_F(ControlApiTest, DuTellsOfAWalkOfItsOwnTreeOnly) {
  ASSERT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", json{{"paths", {Path("a"), Path("b")}}}.dump())));
  const auto du = [&](const std::string& relative) { return Ask("GET", "/v1/du?path=" + Path(relative)).body; };
  EXPECT_EQ(du("a")["walk"], "none");
  // Of files that are known du answers at once: the walk does not get on meanwhile.
  const Said walk = Ask("POST", "/v1/walk", json{{"paths", {Path("b")}}}.dump());
  ASSERT_EQ(walk.status, 202u);
  EXPECT_EQ(du("a")["walk"], "none") << "another tree's";
  EXPECT_TRUE(du("a")["job"].is_null());
  EXPECT_EQ(du("b/c")["walk"], "running");
  EXPECT_EQ(du("b/c")["job"], walk.body["job"]);
  ASSERT_TRUE(JobEnds(walk));
  EXPECT_EQ(du("b/c")["walk"], "complete");
  const Said again = Ask("POST", "/v1/walk", json{{"paths", {daemon.data()}}}.dump());
  EXPECT_EQ(du("b/c")["walk"], "complete") << "it is complete, whoever looks again";
  EXPECT_TRUE(du("b/c")["job"].is_null());
  EXPECT_EQ(du("a")["job"], again.body["job"]);
  ASSERT_TRUE(JobEnds(again));
}

}  // namespace
}  // namespace tierd::server
