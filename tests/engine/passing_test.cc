// Bytes of the SSD tier that only pass through RAM on their way to a reader.
#include "tests/engine/engine_fixture.h"
#include "tierd/ram/session_page.h"

namespace tierd::engine {
namespace {

class PassingTest : public EngineTest {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

  PassingTest() {
    UseSsd();
    source_options().policy = "freeze";
    options_.ram.capacity_bytes = 32 << 20;
  }
  ~PassingTest() override { StopEngine(); }
};

// `freeze` names nobody who may leave, and what readers have on its way is many times the reserve: the source is not read for it.
TEST_F(PassingTest, ResidentsYieldToReadersOfTheSsd) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
  source_io_.delay_us[static_cast<std::size_t>(io::Step::kRead)] = 300'000;  // the slower of the two, however busy the machine is (F08)
  StartEngine();
  const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_EQ(WaitForJob(job).verified_files, names.size());
  for (const std::string& name : names) ASSERT_EQ(Fetch(name).status(), abi::FetchStatus::kFrame) << name;
  const std::uint64_t residents = engine().placement().ram_resident_bytes();
  ASSERT_GT(residents, options_.ram.capacity_bytes / 2);
  // Of those that the source was asked for, none but the ones that a busy SSD was too slow for.
  const auto others = [&] { return source_io_.count(io::Step::kOpen) - engine().counters().ssd_slow_bypass; };
  const std::uint64_t others_before = others();

  // All have a frame at a time, while none has been read; but for those that a busy SSD is too slow for.
  constexpr std::size_t kAtATime = 12;
  const auto passing = [&] { return engine().counters().transit_frames + engine().counters().ssd_slow_bypass; };
  const std::uint64_t passing_before = passing();
  ssd_io_.Hold(io::Step::kReadv);
  std::map<std::uint64_t, std::string> asked;
  for (const std::string& name : names) {
    if (!InRam(name) && asked.size() < kAtATime) asked.emplace(Ask(name), name);
  }
  ASSERT_EQ(asked.size(), kAtATime);
  ASSERT_TRUE(RunUntil([&] { return passing() - passing_before >= kAtATime && ssd_io_.waiting > 0; }));
  ssd_io_.Release();
  for (const auto& [id, name] : asked) {
    ASSERT_TRUE(RunUntil([&] { return answers().contains(id); })) << name;
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kFrame) << name << " reason " << int{answers()[id].reply.reason};
    EXPECT_TRUE(answers()[id].bytes == Bytes(name, kBytes)) << name;
  }
  EXPECT_EQ(others(), others_before);
  EXPECT_GE(engine().placement().ram_resident_bytes(), options_.ram.capacity_bytes / 4) << "a quarter stays";
}

// All of it goes to the SSD, and nothing stays in RAM.
class NotAdmittedTest : public PassingTest {
 protected:
  ~NotAdmittedTest() override { StopEngine(); }
  void Start(int files) {
    for (int i = 0; i < files; ++i) names_.push_back(Write("f" + std::to_string(i), Bytes("f" + std::to_string(i), kBytes)));
    source_io_.delay_us[static_cast<std::size_t>(io::Step::kRead)] = 300'000;  // the slower of the two, however busy the machine is (F08)
    StartEngine();
    ops_ = **registry().Find("lru");
    ops_.admit = [](void*, std::uint32_t tier, std::uint32_t, std::uint64_t) { return tier == TIERD_TIER_SSD ? 1 : 0; };
    auto policy = policies::PolicyInstance::Create(ops_, {});
    ASSERT_TRUE(policy.ok());
    unit().policy.Set(std::move(policy).value());
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
    engine().EndTurn();
    ASSERT_EQ(WaitForJob(job).verified_files, names_.size());
    ASSERT_EQ(engine().counters().transit_frames, 0u);
  }
  void ExpectFetched(const std::string& name, abi::Tier tier, int version = 1) {
    const Answer answer = Fetch(name);
    EXPECT_EQ(answer.status(), abi::FetchStatus::kFrame) << name << " reason " << int{answer.reply.reason};
    EXPECT_EQ(answer.tier(), tier) << name;
    EXPECT_TRUE(answer.bytes == Bytes(name, kBytes, version)) << name;
  }
  // A view that somebody keeps of any frame of the file.
  std::uint64_t ViewOf(const std::string& name) { return abi::EncodeLease(abi::LeaseKeyOf(engine().catalogue().KeyOf(ObjectOf(name))), 0); }
  abi::SessionPage* page() { return session_->page(); }
  Result<ram::SessionPage> session_ = ram::SessionPage::Create({});  // gone behind the engine
  tierd_policy_ops ops_;  // the instance's
  std::vector<std::string> names_;
};

// A program that reads a file piece by piece asks for each. Its lease of the next piece, taken before it asks, keeps every frame that the file has had.
TEST_F(NotAdmittedTest, AFilePassesThroughOnceForAllOfItsPieces) {
  Start(60);
  AddSession(page());
  page()->lease_high = 1;
  page()->leases[0].store(ViewOf(names_[0]));
  ExpectFetched(names_[0], abi::Tier::kSsd);
  for (int i = 0; i < 100; ++i) ExpectFetched(names_[0], abi::Tier::kRam);
  EXPECT_EQ(engine().counters().transit_frames, 1u);
  // Others come and go; then its frame does.
  page()->leases[0].store(0);
  for (std::size_t i = 1; i < names_.size(); ++i) ExpectFetched(names_[i], abi::Tier::kSsd);
  EXPECT_EQ(engine().counters().transit_frames, names_.size());
  ExpectFetched(names_[0], abi::Tier::kSsd);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), names_.size()) << "none but the prefetch";
}

TEST_F(NotAdmittedTest, WhatHasPassedThroughIsOfBeforeAChange) {
  Start(3);
  AddSession(page());
  page()->lease_high = 2;
  for (std::size_t i : {0, 1}) page()->leases[i].store(ViewOf(names_[i]));
  for (const std::string& name : names_) ExpectFetched(name, abi::Tier::kSsd);
  Write(names_[0], Bytes(names_[0], kBytes, 2));
  Advise(abi::AdviseOp::kInvalidate, names_[0]);
  RunUntil([] { return false; }, 20);  // what is asked in the same tick of the clock may have been asked before
  ExpectFetched(names_[0], abi::Tier::kSource, 2);
  ExpectFetched(names_[0], abi::Tier::kRam, 2);
  ExpectFetched(names_[1], abi::Tier::kRam);
  Advise(abi::AdviseOp::kEvict, names_[1]);
  ExpectFetched(names_[1], abi::Tier::kSource);
}

// A ttl is how old a byte may be that is read, wherever it is (HAZARDS 2.11).
TEST_F(NotAdmittedTest, WhatHasPassedThroughIsAskedAboutAtItsDeadline) {
  source_options().ttl_ms = 300;
  Start(2);
  ops_.admit = [](void*, std::uint32_t, std::uint32_t, std::uint64_t) { return 0; };
  auto policy = policies::PolicyInstance::Create(ops_, {});
  ASSERT_TRUE(policy.ok());
  unit().policy.Set(std::move(policy).value());
  for (const std::string& name : names_) Advise(abi::AdviseOp::kEvict, name);
  RunUntil([] { return false; }, 20);
  AddSession(page());
  page()->lease_high = 2;
  for (std::size_t i : {0, 1}) page()->leases[i].store(ViewOf(names_[i]));
  for (const std::string& name : names_) {
    ExpectFetched(name, abi::Tier::kSource);
    ASSERT_FALSE(InRam(name) || OnSsd(name)) << name;
  }
  Write(names_[0], Bytes(names_[0], kBytes, 2));
  const std::uint64_t opens = source_io_.count(io::Step::kOpen);
  RunUntil([] { return false; }, 400);
  ExpectFetched(names_[0], abi::Tier::kSource, 2);
  ExpectFetched(names_[1], abi::Tier::kRam);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), opens + 1) << "the other one was asked about, not read";
}

// Views of what only passes through may be kept for ever: one reader finds out, and the others go to the source at once.
TEST_F(NotAdmittedTest, NobodyWaitsForLongForWhatIsKept) {
  Start(60);
  AddSession(page());
  std::size_t kept = 0;
  for (; kept < names_.size() - 10; ++kept) {
    page()->leases[kept].store(ViewOf(names_[kept]));
    page()->lease_high = static_cast<std::uint32_t>(kept + 1);
    if (Fetch(names_[kept]).status() != abi::FetchStatus::kFrame) break;
  }
  ASSERT_GT(kept, 8u);
  ASSERT_LT(kept, names_.size() - 10) << "there is room for all";
  for (std::size_t i = kept + 1; i < kept + 10; ++i) {
    const std::uint64_t id = Ask(names_[i]);
    ASSERT_TRUE(answers().contains(id)) << "it waits";
    EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
  }
  for (std::size_t i = 0; i < kept; ++i) page()->leases[i].store(0);
  ExpectFetched(names_.back(), abi::Tier::kSsd);
}

}  // namespace
}  // namespace tierd::engine
