// A full tier that reclaims one region which the test knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {

inline constexpr std::size_t kBytes = 20'000;
inline constexpr std::uint32_t kVictim = 4;

// A full tier in which everything is wanted, region 4 much more than the rest; some of the rest goes, and as much comes.
class Bustle {
 public:
  explicit Bustle(Life& life) : life_(life) {
    for (int i = 0; life.Put("keep" + std::to_string(i), 1, kBytes).ok();) ++i;
    life.Settle();
    for (auto& [name, item] : life.items) {
      if (item.location.region == kVictim) dear_.push_back(item);
    }
    EXPECT_EQ(dear_.size(), 12u);
    life.worth_of = [this](const Item& item) { return IsDear(item) ? dear_worth : 1.0; };
    (void)life.RunUntil([] { return false; }, 5);  // what is looked at from now on is as the test has made it
  }
  // True when the region has been reclaimed.
  bool Run(int rounds) {
    for (int round = 0; round < rounds; ++round, ++round_) {
      if (Reclaimed()) return true;
      for (int i = 0; i < 3; ++i) ForgetOne(static_cast<std::size_t>(round_ * 7 + i * 31));
      (void)life_.Put("new" + std::to_string(round_), 1, kBytes);
      (void)life_.RunUntil([] { return false; }, 2);
    }
    return Reclaimed();
  }
  // A location in it says nothing any more.
  bool Reclaimed() { return life_.tier->Read(dear_[0].location, dear_[0].identity, {}, [](const ReadResult&) {}).code() == Code::kNotFound; }
  // Three of its twelve records: it is worth its moves now, and worth least.
  void MakeItWorthLeast() {
    for (int i = 0; i < 3; ++i) {
      life_.tier->Forget(dear_.back().location);
      life_.items.erase({dear_.back().path, 0});
      dear_.pop_back();
    }
    dear_worth = 0.001;
  }
  // How many of them the owner still has, and can read.
  int Left() {
    int left = 0;
    for (const Item& item : dear_) {
      const auto now = life_.items.find({item.path, 0});
      if (now != life_.items.end() && life_.GetAt(Item(now->second)) == ReadOutcome::kOk) ++left;
    }
    return left;
  }
  const std::vector<Item>& dear() const { return dear_; }

  double dear_worth = 1e6;

 private:
  bool IsDear(const Item& item) const {
    return std::any_of(dear_.begin(), dear_.end(), [&](const Item& dear) { return dear.path == item.path; });
  }
  void ForgetOne(std::size_t number) {
    std::vector<Life::Name> others;
    for (const auto& [name, item] : life_.items) {
      if (!IsDear(item)) others.push_back(name);
    }
    if (others.size() < 60) return;
    const Life::Name name = others[number % others.size()];
    life_.tier->Forget(life_.items.at(name).location);
    life_.items.erase(name);
  }

  Life& life_;
  std::vector<Item> dear_;
  int round_ = 0;
};

}  // namespace tierd::ssd
