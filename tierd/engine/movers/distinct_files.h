// Files, each counted once, by their ids: a bit for each file of the catalogue at most. A file that takes over the id of one that was forgotten meanwhile is taken for it.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tierd/engine/catalogue/ids.h"

namespace tierd::engine {

class DistinctFiles {
 public:
  void Add(FileId file) {
    if (Raw(file) >= has_.size()) has_.resize(std::max<std::size_t>(Raw(file) + std::size_t{1}, 2 * has_.size()));
    if (has_[Raw(file)]) return;
    has_[Raw(file)] = true;
    ++count_;
  }
  bool Has(FileId file) const { return Raw(file) < has_.size() && has_[Raw(file)]; }
  std::uint64_t count() const { return count_; }

 private:
  std::vector<bool> has_;
  std::uint64_t count_ = 0;
};

}  // namespace tierd::engine
