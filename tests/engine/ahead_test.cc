// Room ahead of need: where a look at all sessions' leases is dear, a miss of a full tier does not pay for one of its own (HAZARDS 2.4, 5). Looks are counted, never timed.
#include <sys/mman.h>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/spy_policy.h"

namespace tierd::engine {
namespace {

// Pages of sessions that hold nothing; what is not written to takes no memory.
class SessionPages {
 public:
  explicit SessionPages(std::size_t count)
      : count_(count), memory_(::mmap(nullptr, count * sizeof(abi::SessionPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~SessionPages() { ::munmap(memory_, count_ * sizeof(abi::SessionPage)); }
  SessionPages(const SessionPages&) = delete;
  SessionPages& operator=(const SessionPages&) = delete;

  abi::SessionPage* at(std::size_t i) { return static_cast<abi::SessionPage*>(memory_) + i; }

 private:
  const std::size_t count_;
  void* const memory_;
};

class AheadTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 8192;
  static constexpr int kFit = (16 << 20) / kBytes;  // in the tier, at most
  static constexpr int kMisses = 288;               // of a full tier

  AheadTest() {
    options_.ram.capacity_bytes = 16 << 20;
    source_options().staleness = abi::Staleness::kImmutable;
    source_options().policy = "lru";
    source_options().ahead = false;
    names_ = MakeFiles(kFit + kMisses, kBytes);
  }
  ~AheadTest() override { StopEngine(); }

  // `slots` of each may be in use.
  void StartWithSessions(std::size_t count, std::uint32_t slots = 0) {
    pages_ = std::make_unique<SessionPages>(count);
    StartEngine();
    for (std::size_t i = 0; i < count; ++i) {
      if (slots != 0) pages_->at(i)->lease_high = slots;
      AddSession(pages_->at(i));
    }
  }
  // Until somebody has to leave. Returns the file that comes next.
  std::size_t Fill() {
    std::size_t next = 0;
    while (next < names_.size() && engine().counters().evictions[0][0] == 0) Read(next++);
    return next;
  }
  void Read(std::size_t i) {
    const Answer answer = Fetch(names_[i]);
    ASSERT_EQ(answer.status(), abi::FetchStatus::kFrame) << names_[i];
    EXPECT_TRUE(answer.bytes == Bytes(names_[i], kBytes));
  }
  std::uint64_t Looks() { return engine().ram().leases().scans(); }
  std::uint64_t Residents() { return engine().placement().ram_resident_objects(); }

  std::vector<std::string> names_;
  SpyPolicy spy_;
  std::unique_ptr<SessionPages> pages_;
};

TEST_F(AheadTest, OfManySessionsALookIsSharedByManyMisses) {
  StartWithSessions(1000);
  const std::size_t first = Fill();
  ASSERT_GT(first, std::size_t{kFit} / 2);
  const std::uint64_t looks = Looks();
  std::uint64_t least = kFit, full = 0;
  for (std::size_t i = first; i < names_.size(); ++i) {
    Read(i);
    least = std::min(least, Residents());
    full = std::max(full, Residents());
  }
  const std::size_t misses = names_.size() - first;
  EXPECT_LE(Looks() - looks, misses / 7) << misses << " misses";
  EXPECT_GE(least + kFit / 256 + 1, full) << "a 256th leaves early, no more";
  for (std::size_t i = names_.size() - (full - kFit / 256 - 1); i < names_.size(); ++i) EXPECT_TRUE(InRam(names_[i])) << "who was used last is there: " << names_[i];
}

TEST_F(AheadTest, OfFewSessionsNobodyLeavesEarly) {
  StartWithSessions(2, 1024);
  const std::size_t first = Fill();
  const std::uint64_t full = Residents();
  for (std::size_t i = first; i < names_.size(); ++i) {
    Read(i);
    ASSERT_EQ(Residents(), full);
  }
  EXPECT_EQ(engine().counters().evictions[0][0], names_.size() - full) << "each for one";
  for (std::size_t i = 0; i < names_.size(); ++i) EXPECT_EQ(InRam(names_[i]), i >= names_.size() - full) << names_[i];
}

TEST_F(AheadTest, TheRoomIsForThoseWhomThePolicyAdmitsToAFullTier) {
  StartWithSessions(1000);
  engine().SwitchPolicy(unit(), spy_.Instance(), "spy", "");
  ASSERT_TRUE(RunUntil([&] { return !unit().policy.changing(); }));
  const std::size_t next = Fill();
  ASSERT_GE(engine().ram().free_bytes(), 4 * kBytes) << "ahead of need";
  const std::uint64_t full = Residents();
  EXPECT_LT(engine().placement().FreeForResidents(), kBytes);
  // Who may make nobody leave finds no room.
  std::vector<BringOutcome> brought;
  engine().fetcher().Bring(unit(), {.path = names_[next], .evict = false, .done = [&](const BringResult& result) { brought.push_back(result.outcome); }});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return !brought.empty(); }));
  EXPECT_EQ(brought.front(), BringOutcome::kNoRoom);
  // Nor whom the policy does not want beside those who are there.
  spy_.admits[TIERD_TIER_RAM] = false;
  (void)Fetch(names_[next + 1]);
  EXPECT_EQ(Residents(), full);
  // Who is worth more than they are does, and the policy has not been told that there is room.
  spy_.admits[TIERD_TIER_RAM] = true;
  spy_.admissions.clear();
  Read(next + 2);
  EXPECT_EQ(Residents(), full + 1);
  ASSERT_FALSE(spy_.admissions.empty());
  EXPECT_LT(spy_.admissions.back().bytes_free, kBytes);
}

}  // namespace
}  // namespace tierd::engine
