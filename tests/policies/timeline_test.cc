// Timeline against the same thing said slowly, over random futures, residents, accesses out of order, forgotten objects.
#include "policies/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace tierd::policies {
namespace {

// Each object's known uses, and who is where.
struct Reference {
  std::map<std::uint32_t, std::vector<std::uint64_t>> uses;
  std::set<std::uint32_t> in[2];

  std::uint64_t NextUse(std::uint32_t id) const {
    const auto it = uses.find(id);
    return it == uses.end() || it->second.empty() ? Timeline::kNever : it->second.front();
  }
  std::vector<std::uint64_t> LastFirst(std::uint32_t tier) const {
    std::vector<std::uint64_t> slots;
    for (const std::uint32_t id : in[tier]) slots.push_back(NextUse(id));
    std::sort(slots.rbegin(), slots.rend());
    return slots;
  }
};

TEST(Timeline, DoesWhatTheReferenceDoes) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    Timeline timeline;
    Reference reference;
    constexpr std::uint32_t kObjects = 300;
    const std::uint32_t stretch = seed % 2 == 0 ? 1 : 9973;  // ids over several pages
    for (std::uint32_t i = 0; i < kObjects; ++i) timeline.Know(i * stretch, 10);
    std::uint64_t end = 0;
    std::vector<std::uint32_t> future;
    timeline.SetWindow(40);
    for (int step = 0; step < 40'000; ++step) {
      const std::uint32_t id = random() % kObjects * stretch;
      switch (random() % 8) {
        case 0: {  // more future, so that pages of slots come and go
          if (end - timeline.now() > 12'000) break;
          std::vector<std::uint32_t> ids(random() % 300);
          for (std::uint32_t& next : ids) next = random() % kObjects * stretch;
          timeline.Append(ids);
          for (const std::uint32_t next : ids) reference.uses[next].push_back(end++), future.push_back(next);
          break;
        }
        case 1:
        case 2: {
          const std::uint32_t tier = random() % 2;
          const bool resident = random() % 2 == 0;
          timeline.SetResident(tier, id, resident);
          resident ? void(reference.in[tier].insert(id)) : void(reference.in[tier].erase(id));
          break;
        }
        default: {  // a read within the window, or one that is not planned
          const std::uint64_t now = timeline.now();
          const std::uint32_t read = now < end && random() % 20 != 0 ? future[std::min<std::uint64_t>(end - 1, now + random() % 20)] : id;
          auto& uses = reference.uses[read];
          const bool due = !uses.empty() && uses.front() - now < 40;
          const bool planned = timeline.Consume(read);
          ASSERT_TRUE(planned || !due) << "seed " << seed << " step " << step;
          ASSERT_TRUE(due || !planned || timeline.now() > now) << "seed " << seed << " step " << step;
          if (planned) uses.erase(uses.begin());
          if (timeline.now() == now) break;
          for (auto& [object, slots] : reference.uses) {  // given up
            while (!slots.empty() && slots.front() < timeline.now()) slots.erase(slots.begin());
          }
        }
      }
      ASSERT_EQ(timeline.end(), end);
      ASSERT_EQ(timeline.NextUse(id, false), reference.NextUse(id)) << "seed " << seed << " step " << step;
      if (step % 64 != 0) continue;
      for (std::uint32_t tier = 0; tier < 2; ++tier) {
        std::vector<std::uint64_t> slots;
        for (Timeline::Last last(timeline, tier); last.id() != TIERD_NO_OBJECT; last.Next()) {
          ASSERT_EQ(last.slot(), reference.NextUse(last.id()));
          ASSERT_TRUE(reference.in[tier].contains(last.id()));
          slots.push_back(last.slot());
        }
        ASSERT_EQ(slots, reference.LastFirst(tier)) << "seed " << seed << " step " << step;
      }
    }
    EXPECT_GT(end, 17'000u) << "more than a page of slots";
  }
}

TEST(Timeline, AUseThatDoesNotComeIsGivenUpAfterAWindow) {
  Timeline timeline;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < 100; ++id) timeline.Know(id, 1), ids.push_back(id);
  timeline.SetWindow(10);
  timeline.Append(ids);
  for (std::uint32_t id = 1; id <= 10; ++id) EXPECT_TRUE(timeline.Consume(id));
  EXPECT_EQ(timeline.now(), 11u) << "10 is a window behind 0";
  EXPECT_EQ(timeline.missed(), 1u);
  EXPECT_EQ(timeline.NextUse(0, false), Timeline::kNever);
  EXPECT_FALSE(timeline.Consume(0));
  EXPECT_FALSE(timeline.Consume(50)) << "more than a window ahead";
}

// Nobody heard of the uses before: most of a window is still to come, as far as the timeline knows, and always will be.
TEST(Timeline, GoesToWhereTheReadersAre) {
  Timeline timeline;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < 1000; ++id) timeline.Know(id, 1), ids.push_back(id);
  timeline.SetWindow(100);
  for (int epoch = 0; epoch < 2; ++epoch) timeline.Append(ids);
  for (std::uint32_t id = 0; id < 10; ++id) EXPECT_TRUE(timeline.Consume(id));
  std::uint32_t id = 400;
  for (int i = 0; i < 49; ++i) EXPECT_FALSE(timeline.Consume(id++));
  EXPECT_EQ(timeline.now(), 10u);
  EXPECT_FALSE(timeline.Consume(id - 1)) << "the same once more says nothing";
  EXPECT_TRUE(timeline.Consume(id++));
  EXPECT_EQ(timeline.now(), 400u);
  EXPECT_EQ(timeline.NextUse(420, false), 1420u) << "those that were refused have been consumed";
  EXPECT_EQ(timeline.found(), 0u) << "not all before is given up yet";
  EXPECT_TRUE(timeline.Consume(id++));
  EXPECT_EQ(timeline.now(), 451u);
  EXPECT_EQ(timeline.found(), 1u);
  EXPECT_EQ(timeline.NextUse(399, false), 1399u);
  EXPECT_EQ(timeline.missed(), 390u);
  for (; id < 1000; ++id) EXPECT_TRUE(timeline.Consume(id));
  for (id = 0; id < 1000; ++id) EXPECT_TRUE(timeline.Consume(id));
  EXPECT_TRUE(timeline.empty());
}

// Windows as small as can be, objects that are forgotten and come again under the same id, windows that change: votes stay votes.
TEST(Timeline, LooksForReadersWhateverElseHappens) {
  std::mt19937 random(7);
  for (const std::uint32_t window : {1u, 2u, 3u, 17u, 40u}) {
    Timeline timeline;
    std::vector<std::uint32_t> ids;
    for (std::uint32_t id = 0; id < 500; ++id) timeline.Know(id, 1), ids.push_back(id);
    timeline.SetWindow(window);
    for (int epoch = 0; epoch < 40; ++epoch) {
      std::shuffle(ids.begin(), ids.end(), random);
      timeline.Append(ids);
      for (std::size_t i = random() % 400; i < ids.size(); ++i) {
        if (random() % 16 == 0) timeline.SetWindow(1 + random() % 60);
        if (random() % 8 == 0) {
          const std::uint32_t gone = ids[random() % ids.size()];
          timeline.Forget(gone);
          timeline.Know(gone, 1);
          timeline.Append({&gone, 1});
        }
        timeline.Consume(ids[i]);
        ASSERT_LE(timeline.now(), timeline.end());
      }
    }
    for (std::uint32_t id = 0; id < 500; ++id) {
      const std::uint64_t next = timeline.NextUse(id, false);
      EXPECT_TRUE(next == Timeline::kNever || next < timeline.end());
    }
    timeline.Withdraw();
    EXPECT_TRUE(timeline.empty());
    const std::uint32_t again[] = {1, 2};
    timeline.Append(again);
    EXPECT_EQ(timeline.Consume(1), true);
  }
}

// Others read too, in an order of their own: while the plan is followed, and while its readers pause.
TEST(Timeline, StaysWhereThePlansReadersAre) {
  Timeline timeline;
  std::vector<std::uint32_t> ids, others;
  for (std::uint32_t id = 0; id < 1000; ++id) timeline.Know(id, 1), ids.push_back(id), others.push_back(id);
  std::shuffle(others.begin(), others.end(), std::mt19937(3));
  timeline.SetWindow(100);
  timeline.Append(ids);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(4));
  timeline.Append(ids);
  for (const std::uint32_t id : others) timeline.Consume(id);
  EXPECT_LT(timeline.now(), 300u);
  const std::uint64_t before = timeline.missed();
  for (auto id = static_cast<std::uint32_t>(timeline.now()); id < 1000; ++id) timeline.Consume(id), timeline.Consume(others[id]);
  EXPECT_GE(timeline.now(), 900u);
  EXPECT_LT(timeline.now(), 1100u);
  EXPECT_LE(timeline.missed() - before, 100u);
}

TEST(Timeline, TheFirstUseMayBeOfOneThatIsForgotten) {
  Timeline timeline;
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < 100; ++id) timeline.Know(id, 1), ids.push_back(id);
  timeline.SetWindow(10);
  timeline.Append(ids);
  for (std::uint32_t id = 1; id <= 8; ++id) EXPECT_TRUE(timeline.Consume(id));
  timeline.Forget(0);
  EXPECT_EQ(timeline.now(), 9u);
  EXPECT_TRUE(timeline.Consume(11));
  EXPECT_FALSE(timeline.Consume(30));
}

// Who is used last leaves without a look at its object: also when somebody else stands there by now, or in the other tier alone.
TEST(Timeline, LeavesTheTierThatItIsIn) {
  Timeline timeline;
  for (std::uint32_t id = 0; id < 4; ++id) timeline.Know(id, 1);
  const std::uint32_t ids[] = {0, 1, 2, 3};
  timeline.Append(ids);
  for (std::uint32_t tier = 0; tier < 2; ++tier) timeline.SetResident(tier, 3, true);
  timeline.SetResident(0, 1, true);
  EXPECT_EQ(Timeline::Last(timeline, 0).id(), 3u);
  timeline.SetResident(0, 2, false);
  EXPECT_TRUE(timeline.IsResident(0, 3));
  timeline.SetResident(0, 3, false);
  EXPECT_FALSE(timeline.IsResident(0, 3));
  EXPECT_TRUE(timeline.IsResident(1, 3));
  timeline.SetResident(0, 3, false);
  EXPECT_TRUE(timeline.IsResident(1, 3));
  EXPECT_EQ(Timeline::Last(timeline, 0).id(), 1u);
  EXPECT_EQ(Timeline::Last(timeline, 1).id(), 3u);
}

TEST(Timeline, WithdrawnAndForgotten) {
  Timeline timeline;
  for (std::uint32_t id = 0; id < 10; ++id) timeline.Know(id, 1);
  const std::uint32_t ids[] = {1, 2, 3, 1, 2, 3};
  timeline.Append(ids);
  timeline.SetResident(0, 2, true);
  timeline.SetResident(0, 3, true);
  timeline.Forget(2);
  EXPECT_FALSE(timeline.IsKnown(2));
  EXPECT_TRUE(timeline.Consume(1));
  EXPECT_EQ(timeline.now(), 2u) << "the forgotten object's slot is nobody's";
  EXPECT_EQ(timeline.MissingAt(3, 0), 1u);
  EXPECT_EQ(timeline.MissingAt(2, 0), TIERD_NO_OBJECT) << "resident";
  EXPECT_EQ(timeline.MissingAt(5, 0), TIERD_NO_OBJECT) << "a later use of a resident";
  timeline.Withdraw();
  EXPECT_TRUE(timeline.empty());
  Timeline::Last last(timeline, 0);
  EXPECT_EQ(last.id(), 3u);
  EXPECT_EQ(last.slot(), Timeline::kNever);
  timeline.Append(ids);
  EXPECT_EQ(timeline.NextUse(3, false), timeline.now() + 1) << "2 is not known";
}

}  // namespace
}  // namespace tierd::policies
