#include "tierd/config/edit_distance.h"

#include <algorithm>
#include <vector>

namespace tierd::config {

std::size_t EditDistance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> two_back(width), last(width), row(width);
  for (std::size_t j = 0; j < width; ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], two_back[j - 2] + 1);
    }
    std::swap(two_back, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string Nearest(std::string_view word, std::span<const std::string> words) {
  if (word.empty() || word.size() > 256) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, (word.size() + 1) / 3) + 1;
  for (const std::string& candidate : words) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() || word.size() < 4) return best;
  for (const std::string& candidate : words) {
    if (candidate.find(word) != std::string::npos || (candidate.size() >= 4 && word.find(candidate) != std::string_view::npos)) return candidate;
  }
  return "";
}

}  // namespace tierd::config
