#include "tierd/engine/sources/warmup.h"

#include <algorithm>
#include <map>

namespace tierd::engine {
namespace {

std::string_view ParentOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Whether `path` is that directory or below it.
bool Holds(std::string_view directory, std::string_view path) {
  return directory.empty() || (path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/'));
}

// Longest common prefix of two directories, cut at component boundaries.
std::string_view CommonOf(std::string_view a, std::string_view b) {
  while (!Holds(a, b)) a = ParentOf(a);
  return a;
}

}  // namespace

std::optional<std::string> WarmupTrigger::OnFirstRead(std::string_view relative_path, std::int64_t now_ns) {
  const std::string_view directory = ParentOf(relative_path);
  if (std::any_of(walked_.begin(), walked_.end(), [&](const std::string& walked) { return Holds(walked, directory); })) return std::nullopt;
  if (outside_.size() == kThreshold) outside_.pop_front();
  outside_.push_back({std::string(directory), now_ns});
  if (outside_.size() < kThreshold) return std::nullopt;
  std::string next = HoldsNearlyAll();
  const bool holds_walked = std::any_of(walked_.begin(), walked_.end(), [&](const std::string& walked) { return Holds(next, walked); });
  if (holds_walked && now_ns - outside_.front().at_ns > kTogetherNs) return std::nullopt;
  const auto neighbours = std::count_if(walked_.begin(), walked_.end(), [&](const std::string& walked) { return !next.empty() && ParentOf(walked) == ParentOf(next); });
  if (static_cast<std::size_t>(neighbours) + 1 >= kNeighbours) next = std::string(ParentOf(next));
  Walk(next);
  return next;
}

// The deepest directory that does, of the reads outside. Where they lie in one or two directories beside one another, the one that has more of them: what else lies beside these nobody
// has read.
std::string WarmupTrigger::HoldsNearlyAll() const {
  std::string directory;
  for (;;) {
    std::map<std::string_view, std::size_t> below;  // by the next component
    for (const Read& read : outside_) {
      if (read.directory.size() == directory.size() || !Holds(directory, read.directory)) continue;
      const std::size_t begin = directory.empty() ? 0 : directory.size() + 1;
      ++below[std::string_view(read.directory).substr(0, read.directory.find('/', begin))];
    }
    const auto most = std::max_element(below.begin(), below.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == below.end()) return directory;
    if (most->second < kNearlyAll) {
      const bool all_below = std::none_of(outside_.begin(), outside_.end(), [&](const Read& read) { return read.directory == directory; });
      return all_below && below.size() < kNeighbours ? std::string(most->first) : directory;
    }
    directory = std::string(most->first);
  }
}

void WarmupTrigger::Walk(const std::string& directory) {
  std::erase_if(walked_, [&](const std::string& walked) { return Holds(directory, walked); });
  walked_.push_back(directory);
  std::erase_if(outside_, [&](const Read& read) { return Holds(directory, read.directory); });
  common_ = directory;
  for (const std::string& walked : walked_) common_ = std::string(CommonOf(common_, walked));
}

}  // namespace tierd::engine
