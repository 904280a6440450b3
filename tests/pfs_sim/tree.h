// Sample trees whose names, sizes and bytes follow from a few numbers.
//
// For tests, benchmarks and shell scripts: MakeTree writes one, CheckTree proves that another copy of it
// (a mount, a restored directory) holds the same. Thread rule: pure, or own threads inside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pfs_sim {

// Sizes are fixed, or log-normal with the given mean of the size and sigma of its logarithm.
struct SizeRule {
  double mean = 4096;
  double sigma = 0;  // 0: every file has `mean` bytes
};

struct TreeOptions {
  uint64_t files = 1000;
  uint64_t dirs = 0;  // class folders that the files are dealt to in turn; 0: all in the root
  SizeRule size;
  uint64_t seed = 0;
  uint64_t version = 1;
};

// "4096", "lognormal:MEAN:SIGMA"; nothing when it is neither.
std::optional<SizeRule> ParseSizeRule(const std::string& text);

// The path of file `index`, relative to the tree's root: "d0003/f00000017.bin" or "f00000017.bin".
std::string TreePath(const TreeOptions& tree, uint64_t index);
uint64_t TreeSize(const TreeOptions& tree, uint64_t index);
uint64_t TreeBytes(const TreeOptions& tree);  // of all files together

// Writes (over) the tree below `dir`, which must exist. False with a sentence in *why.
bool MakeTree(const std::string& dir, const TreeOptions& tree, std::string* why);

struct TreeCheck {
  uint64_t files_right = 0;
  uint64_t files_wrong = 0;  // missing, of the wrong size, or with a wrong byte
  uint64_t bytes = 0;
  std::string first_wrong;   // one sentence about one of them
};

// Reads every file of the tree and compares it with `threads` readers.
TreeCheck CheckTree(const std::string& dir, const TreeOptions& tree, int threads = 4);

}  // namespace pfs_sim
