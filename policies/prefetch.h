// What a policy keeps between two soon().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tierd/base/prefetch.h"

namespace tierd::policies {

// The objects of the last soon(): at the next one their own lines are there, and say which further ones will be needed. Belongs to one policy instance.
class Announced {
 public:
  void Note(const std::uint32_t* ids, std::size_t count) {
    count_ = std::min(count, kMost);
    std::copy_n(ids, count_, ids_);
  }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::size_t i = 0; i < count_; ++i) visit(ids_[i]);
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::uint32_t ids_[kMost];
  std::size_t count_ = 0;
};

}  // namespace tierd::policies
