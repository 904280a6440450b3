// Why a file is not on the SSD, as GET /v1/file says it (`tierctl explain`).
#include <filesystem>

#include "tests/server/control_api_fixture.h"

namespace tierd::server {
namespace {

class ExplainTest : public ControlApiTest {
 protected:
  explicit ExplainTest(fuzz::SsdTier ssd = fuzz::SsdTier::kOn) : ControlApiTest(ssd) {}
  // The sentence about the SSD.
  std::string Why(const std::string& relative) {
    const Said said = Ask("GET", "/v1/file?path=" + Path(relative));
    EXPECT_EQ(said.status, 200u);
    for (const auto& sentence : said.body["why"]) {
      if (sentence.get<std::string>().starts_with("On SSD: ")) return sentence;
    }
    return said.body.dump();
  }
};

TEST_F(ExplainTest, NobodyHasReadIt) {
  Insert("new");
  EXPECT_EQ(Why("new"), "On SSD: no; it is written there when it is read from the source, or when it leaves RAM.");
}

TEST_F(ExplainTest, WrittenAMomentAgo) {
  EXPECT_TRUE(JobEnds(Ask("POST", "/v1/prefetch", "{\"paths\": [\"" + Path("b/c") + "\"]}")));
  EXPECT_EQ(Why("b/c"), "On SSD: no; the tier takes no file that was written just before it was read.");
}

TEST_F(ExplainTest, NoRoom) {
  Insert("huge", std::uint64_t{1} << 30);
  EXPECT_EQ(Why("huge"), "On SSD: no; the tier is full.");
}

TEST_F(ExplainTest, ATierThatTakesNothing) {
  Insert("new");
  std::filesystem::rename(daemon.directory() + "/ssd", daemon.directory() + "/away");
  ASSERT_TRUE(daemon.Await([this] { return daemon.engine().ssd()->ailing(); }));
  EXPECT_EQ(Why("new"), "On SSD: no; the tier is not well and takes nothing just now (tierctl doctor).");
}

class RecoveringExplainTest : public ExplainTest {
 protected:
  RecoveringExplainTest() : ExplainTest(fuzz::SsdTier::kRecovering) {}
};

TEST_F(RecoveringExplainTest, NotKnownYet) {
  Insert("new");
  EXPECT_EQ(Why("new"), "On SSD: not known yet; the tier's index is still being read.");
}

}  // namespace
}  // namespace tierd::server
