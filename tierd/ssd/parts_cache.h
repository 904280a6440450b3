// Tables of parts that headers were read for: who reads a long record piece by piece reads its header once. What is in it was checked, and is of that very record: a region
// that is written anew has another epoch.
//
// Loop thread only; the tables themselves are constant, and a worker may hold one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>

#include "client_lib/abi/layout.h"
#include "tierd/ssd/record.h"

namespace tierd::ssd {

class PartsCache {
 public:
  // About a kilobyte each: chunks of 4 MiB of 64 GiB take 18 MB. Behind it the oldest goes.
  explicit PartsCache(std::size_t most = 16384) : most_(most) {}

  using Table = std::shared_ptr<const PartSums>;  // held by the reads under way
  // Null: not there.
  Table Find(const SsdLocation& location) const {
    const auto found = tables_.find(location);
    return found == tables_.end() ? nullptr : found->second;
  }
  void Add(const SsdLocation& location, Table table) {
    if (tables_.contains(location)) return;
    order_.push_back(location);
    tables_.emplace(location, std::move(table));
    if (order_.size() <= most_) return;
    tables_.erase(order_.front());
    order_.pop_front();
  }
  std::size_t size() const { return tables_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const SsdLocation& at) const { return static_cast<std::size_t>(abi::Mix64((std::uint64_t{at.region} << 32 | at.place) ^ at.fill_sequence)); }
  };
  const std::size_t most_;
  std::unordered_map<SsdLocation, Table, Hash> tables_;
  std::deque<SsdLocation> order_;
};

}  // namespace tierd::ssd
