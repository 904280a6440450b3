#include "tierctl/bench/sample.h"

#include <algorithm>
#include <filesystem>
#include <random>

namespace tierctl::bench {

Sample Draw(const std::string& directory, const Limits& limits) {
  namespace fs = std::filesystem;
  Sample sample;
  std::mt19937_64 random(1);
  std::error_code error;
  std::vector<Piece> drawn;
  for (fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    if (at->is_symlink(unknown) || !at->is_regular_file(unknown)) continue;
    const std::uintmax_t size = at->file_size(unknown);
    if (unknown || size == 0) continue;
    if (sample.files_seen == limits.look_at) {
      sample.cut = true;
      break;
    }
    ++sample.files_seen;
    if (limits.on_file) limits.on_file(sample.files_seen);
    Piece piece{at->path().string(), static_cast<std::uint32_t>(std::min<std::uintmax_t>(size, kMostOfAFile)), size <= kMostOfAFile};
    if (drawn.size() < limits.files) {
      drawn.push_back(std::move(piece));
    } else if (const std::uint64_t place = random() % sample.files_seen; place < drawn.size()) {
      drawn[place] = std::move(piece);
    }
  }
  std::sort(drawn.begin(), drawn.end(), [](const Piece& a, const Piece& b) { return a.path < b.path; });
  std::shuffle(drawn.begin(), drawn.end(), random);
  for (Piece& piece : drawn) {
    if (sample.bytes + piece.bytes > limits.bytes) break;
    sample.bytes += piece.bytes;
    sample.pieces.push_back(std::move(piece));
  }
  return sample;
}

}  // namespace tierctl::bench
