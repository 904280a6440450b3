// Decides when a reader behaves like an epoch, so that the daemon starts to bring the rest of the data by itself (warm-up on
// first touch): kThreshold distinct files read below one directory. A single `head` does not. Pure; one per source; loop thread only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tierd::engine {

class WarmupTrigger {
 public:
  static constexpr std::size_t kThreshold = 32;

  // A demand read of a file nobody had asked for before. Returns true once, when the walk should start below common_directory(), and again
  // when readers later leave that directory (the common one got shorter).
  bool OnFirstRead(std::string_view relative_path);
  // Deepest directory that holds everything read so far; "" is the root of the source.
  const std::string& common_directory() const { return common_; }
  // The dataset was evicted or invalidated by hand: start counting anew.
  void Reset();

 private:
  std::size_t files_ = 0;
  bool started_ = false;
  bool any_ = false;
  std::string common_;
};

}  // namespace tierd::engine
