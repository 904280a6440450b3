// What was said to have changed lately (tier_invalidate, the control plane). An answer of the source that was asked for before then proves
// nothing about those paths: read-your-writes holds also against reads and stats that were under way.
//
// Loop thread only. Nothing is forgotten: every name has two of kCells cells, which say when something of theirs was last told of. Where both were told of for the sake of
// others, an answer is doubted in vain: with a thousand paths told of since it was asked for, one in a thousand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

namespace tierd::engine {

class InvalidationLog {
 public:
  static constexpr std::size_t kCells = 65'536;  // 24 bytes each

  void Add(std::uint16_t source, std::string_view path, bool recursive, std::int64_t now_ns) {
    const std::uint64_t hash = HashOf(source, path);
    for (const std::size_t at : {First(hash), Second(hash)}) {
      cells_[at].path_ns = now_ns;
      if (recursive) cells_[at].tree_ns = now_ns;
    }
    newest_ns_ = now_ns;
  }

  // Of a file with several names, by whichever: of every source.
  void AddInode(std::uint64_t inode, std::int64_t now_ns) {
    for (const std::size_t at : {First(HashOf(inode)), Second(HashOf(inode))}) cells_[at].inode_ns = now_ns;
    newest_ns_ = now_ns;
  }
  bool CoversInode(std::uint64_t inode, std::int64_t sent_ns) const {
    const std::uint64_t hash = HashOf(inode);
    return Any(sent_ns) && std::min(cells_[First(hash)].inode_ns, cells_[Second(hash)].inode_ns) >= sent_ns;
  }

  // True if an answer asked for at `sent_ns` may be older than an invalidation of `path`.
  bool Covers(std::uint16_t source, std::string_view path, std::int64_t sent_ns) const { return Since(source, path, sent_ns, &Cell::tree_ns); }
  // The same of where `path` led to: each name on the way may be the link that was changed.
  bool CoversWay(std::uint16_t source, std::string_view path, std::int64_t sent_ns) const { return Since(source, path, sent_ns, &Cell::path_ns); }
  // False: no answer asked for at `sent_ns` is in doubt, whatever its path.
  bool Any(std::int64_t sent_ns) const { return sent_ns <= newest_ns_; }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  struct Cell {
    std::int64_t path_ns = kNever;
    std::int64_t tree_ns = kNever;   // of a path with all below it
    std::int64_t inode_ns = kNever;
  };

  static std::uint64_t HashOf(std::uint16_t source, std::string_view path) { return std::hash<std::string_view>{}(path) ^ source * 0x9e3779b97f4a7c15u; }
  static std::uint64_t HashOf(std::uint64_t inode) {  // of neighbours, too, far apart
    const std::uint64_t mixed = (inode ^ inode >> 32) * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
  }
  static std::size_t First(std::uint64_t hash) { return hash % kCells; }
  static std::size_t Second(std::uint64_t hash) { return (hash >> 32) % kCells; }

  // Whether `path` itself was told of since, or one above it as `above` says.
  bool Since(std::uint16_t source, std::string_view path, std::int64_t sent_ns, std::int64_t Cell::*above) const {
    if (!Any(sent_ns)) return false;
    std::int64_t Cell::*told_ns = &Cell::path_ns;
    for (;;) {
      const std::uint64_t hash = HashOf(source, path);
      if (std::min(cells_[First(hash)].*told_ns, cells_[Second(hash)].*told_ns) >= sent_ns) return true;
      if (path.empty()) return false;
      const std::size_t slash = path.rfind('/');
      path = path.substr(0, slash == std::string_view::npos ? 0 : slash);
      told_ns = above;
    }
  }

  std::vector<Cell> cells_ = std::vector<Cell>(kCells);
  std::int64_t newest_ns_ = kNever;
};

}  // namespace tierd::engine
