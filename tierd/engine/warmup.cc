#include "tierd/engine/warmup.h"

#include <algorithm>

namespace tierd::engine {
namespace {

std::string_view ParentOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Longest common prefix of two directories, cut at component boundaries.
std::string_view CommonOf(std::string_view a, std::string_view b) {
  const std::size_t limit = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same < limit && a[same] == b[same]) ++same;
  const bool boundary_a = same == a.size() || a[same] == '/';
  const bool boundary_b = same == b.size() || b[same] == '/';
  if (boundary_a && boundary_b) return a.substr(0, same);
  const std::size_t slash = a.substr(0, same).rfind('/');
  return slash == std::string_view::npos ? std::string_view() : a.substr(0, slash);
}

}  // namespace

bool WarmupTrigger::OnFirstRead(std::string_view relative_path) {
  const std::string_view parent = ParentOf(relative_path);
  const std::size_t before = common_.size();
  common_ = any_ ? std::string(CommonOf(common_, parent)) : std::string(parent);
  const bool widened = any_ && common_.size() < before;
  any_ = true;
  ++files_;
  if (files_ < kThreshold || (started_ && !widened)) return false;
  started_ = true;
  return true;
}

void WarmupTrigger::Reset() { *this = WarmupTrigger(); }

}  // namespace tierd::engine
