// Files drawn at random from a tree, to be read by `tierctl bench`. Blocks; on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tierctl::bench {

// What is read of a file: its first bytes, at most kMostOfAFile.
struct Piece {
  std::string path;
  std::uint32_t bytes = 0;
  bool whole = false;  // the file is no longer than that
};
inline constexpr std::uint32_t kMostOfAFile = 4u << 20;

struct Sample {
  std::vector<Piece> pieces;  // in random order, the same for the same tree
  std::uint64_t files_seen = 0;
  std::uint64_t bytes = 0;    // of the pieces
  bool cut = false;           // the tree has more than was looked at
};

struct Limits {
  std::size_t files = 512;
  std::uint64_t bytes = 256u << 20;
  std::uint64_t look_at = 200'000;  // files of the tree
  std::function<void(std::uint64_t)> on_file = {};  // with the number of files seen so far
};

// Regular files that are not empty, of which every one that was seen had the same chance. Links are not followed; what cannot be read is passed over.
Sample Draw(const std::string& directory, const Limits& limits);

}  // namespace tierctl::bench
