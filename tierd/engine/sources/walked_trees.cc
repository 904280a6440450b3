#include "tierd/engine/sources/walked_trees.h"

#include <algorithm>
#include <vector>

namespace tierd::engine {

void WalkedTrees::Note(const std::string& path, std::int64_t now_ns) {
  // "a/b" comes between "a/" and "a0", whose last character is the one after '/'.
  ended_ns_.erase(path.empty() ? ended_ns_.begin() : ended_ns_.lower_bound(path + "/"), path.empty() ? ended_ns_.end() : ended_ns_.lower_bound(path + "0"));
  if (ended_ns_.size() == kMost && !ended_ns_.contains(path)) ForgetOlderHalf();
  ended_ns_.insert_or_assign(path, now_ns);
}

bool WalkedTrees::Covers(std::string_view path, std::int64_t since_ns) const {
  for (;;) {
    const auto it = ended_ns_.find(path);
    if (it != ended_ns_.end() && it->second > since_ns) return true;
    if (path.empty()) return false;
    const std::size_t slash = path.rfind('/');
    path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
  }
}

void WalkedTrees::ForgetOlderHalf() {
  std::vector<decltype(ended_ns_)::iterator> all;
  for (auto it = ended_ns_.begin(); it != ended_ns_.end(); ++it) all.push_back(it);
  const auto half = all.begin() + kMost / 2;
  std::nth_element(all.begin(), half, all.end(), [](const auto& a, const auto& b) { return a->second < b->second; });
  std::for_each(all.begin(), half, [this](const auto& it) { ended_ns_.erase(it); });
}

}  // namespace tierd::engine
