// Decides when readers behave like an epoch, and of what, so that the daemon starts to bring the rest of it by itself (warm-up on first touch): kThreshold distinct files
// read, nearly all of them below one directory. A single `head` does not; nor do a table of labels or a checkpoint beside the data make it bring what nobody reads.
//
//   train/a/.. x 31, labels.csv          walks train: the outlier is left alone
//   a/.. x 16, b/.. x 16                 walks a, and b when as many of its files are read: not what lies beside them
//   then val/.. x 32                     walks val, too
//   a/.. x 32, b/.. x 32, then c/.. x 32 walks a, b, and with the third neighbour the directory of all: classes that are read one after the other
//
// Pure; one per source; loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tierd::engine {

class WarmupTrigger {
 public:
  static constexpr std::size_t kThreshold = 32;
  static constexpr std::size_t kNearlyAll = 28;  // of these
  static constexpr std::size_t kNeighbours = 3;  // so many directories are read beside one another: the one above is
  // What is read besides by and by, a checkpoint now and then, is no epoch of the directory that holds it and the data.
  static constexpr std::int64_t kTogetherNs = 60'000'000'000;

  // A demand read of a file nobody had asked for before, now. The directory to be walked, "" the root of the source, if this read says so.
  std::optional<std::string> OnFirstRead(std::string_view relative_path, std::int64_t now_ns);
  // Deepest directory that holds all that is walked; "" the root of the source, also while nothing is.
  const std::string& common_directory() const { return common_; }
  // The dataset was evicted or invalidated by hand: start counting anew.
  void Reset() { *this = WarmupTrigger(); }

 private:
  struct Read {
    std::string directory;
    std::int64_t at_ns;
  };
  std::string HoldsNearlyAll() const;
  void Walk(const std::string& directory);

  std::vector<std::string> walked_;  // none below another
  std::deque<Read> outside_;         // the latest reads outside of these, at most kThreshold
  std::string common_;
};

}  // namespace tierd::engine
