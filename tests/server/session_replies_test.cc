// Answers to questions that came together go out together; nobody waits for the slowest longer than a tick.
#include <gtest/gtest.h>

#include "tests/engine/engine_fixture.h"
#include "tests/server/bare_client.h"
#include "tierd/server/together.h"

namespace tierd::server {
namespace {

class SessionRepliesTest : public testing::Test {
 protected:
  // The source answers nothing by itself.
  SessionRepliesTest() { source_io_.Hold(io::Step::kOpen); }
  ~SessionRepliesTest() override { source_io_.Release(); }
  // The daemon has taken the message.
  void Ask(const std::vector<std::string>& paths, std::uint64_t first_id) {
    const std::uint64_t fetches = daemon_.engine().counters().fetches;
    client_.AskFor(paths, daemon_.engine().sources().front()->wire_id, first_id);
    daemon_.loop().restart();
    while (daemon_.engine().counters().fetches < fetches + paths.size()) ASSERT_EQ(daemon_.loop().run_one_for(std::chrono::seconds(20)), 1u);
  }
  // As the engine does at the end of a turn.
  std::uint32_t ToldAfter(std::initializer_list<std::uint64_t> ids) {
    for (const std::uint64_t id : ids) {
      abi::FetchReply reply{};
      reply.request_id = id;
      daemon_.hub().OnFetchReply(static_cast<engine::SessionId>(client_.session()), reply);
    }
    daemon_.hub().FlushReplies();
    return Told();
  }
  std::uint32_t Told() { return client_.Told(abi::MessageType::kFetchReply); }

  engine::SteppedFaults source_io_;
  fuzz::InProcessDaemon daemon_{fuzz::SsdTier::kOff, &source_io_};
  BareClient client_{daemon_};
};

TEST_F(SessionRepliesTest, OfOneMessageGoOutWithTheLast) {
  Ask({"a", "b/c", "b/d"}, 1000);
  EXPECT_EQ(ToldAfter({1001}), 0u);
  EXPECT_EQ(ToldAfter({1000}), 0u);
  EXPECT_EQ(ToldAfter({1002}), 3u);
  EXPECT_EQ(Told(), 0u);
}

TEST_F(SessionRepliesTest, WaitNoLongerThanATick) {
  Ask({"a", "b/c", "b/d"}, 1000);
  EXPECT_EQ(ToldAfter({1001, 1000}), 0u);
  daemon_.hub().OnTimer();
  EXPECT_EQ(Told(), 2u);
  EXPECT_EQ(ToldAfter({1002}), 1u);
}

TEST_F(SessionRepliesTest, ThatSomebodyElseWaitsForAreNotKept) {
  Ask({"a", "b/c"}, 1000);
  Ask({"b/d"}, 5000);
  EXPECT_EQ(ToldAfter({1000}), 0u);
  EXPECT_EQ(ToldAfter({5000}), 2u) << "what was kept goes along";
  EXPECT_EQ(ToldAfter({1001}), 1u);
}

TEST(Together, KnowsMessagesApart) {
  Together together;
  together.Asked(10, 2);
  together.Asked(12, 3);
  together.Asked(15, 1);
  EXPECT_TRUE(together.IsAwaited(15));
  EXPECT_FALSE(together.IsAwaited(14));
  EXPECT_FALSE(together.IsAwaited(11));
  EXPECT_TRUE(together.IsAwaited(10));
  EXPECT_TRUE(together.IsAwaited(10)) << "its message is answered";
  EXPECT_FALSE(together.IsAwaited(12));
  EXPECT_TRUE(together.IsAwaited(13));
}

// However many messages somebody sends, and with whatever ids.
TEST(Together, KeepsNoMoreThanSoMany) {
  Together together;
  for (std::uint64_t i = 0; i < 1000; ++i) together.Asked(i * 10, 2);
  EXPECT_FALSE(together.IsAwaited(10 * (Together::kMostMessages - 1)));
  EXPECT_TRUE(together.IsAwaited(10 * Together::kMostMessages));
  together.Asked(UINT64_MAX - 1, 2);
  EXPECT_TRUE(together.IsAwaited(UINT64_MAX));
}

}  // namespace
}  // namespace tierd::server
