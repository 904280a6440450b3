// Tells the epochs of a source's readers apart, so that one can see what each was served from. An epoch is one pass over a set of files, whoever reads them and in what
// order: it ends with the last file that was new to it, and once a quarter as many files as it had have been read again with nothing new in between, the next one has
// begun with the first of these. So files that are opened twice, ranks that are not in step and a small set read in between do not end it, and fewer than kLeastFiles
// files are one epoch for ever. Pure; one per source; loop thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tierd::engine {

class EpochCounter {
 public:
  static constexpr std::uint64_t kLeastFiles = 32;
  static constexpr std::size_t kMost = 128;  // later epochs are added to the last one
  static constexpr std::size_t kOrigins = 4;  // as abi::Tier

  struct Epoch {
    std::uint64_t files = 0;                        // distinct ones
    std::array<std::uint64_t, kOrigins> reads{};
    std::uint64_t file_bytes = 0;                   // of the distinct files
    std::uint64_t read_bytes = 0;                   // of all reads, a chunk at a time
    std::array<std::uint64_t, kOrigins> bytes{};    // the same by origin
    std::int64_t first_ns = 0, last_ns = 0;         // its first read and its last; 0: none
  };

  struct Sizes {
    std::uint64_t chunk;  // that was read
    std::uint64_t file;   // or a little more
    std::int64_t now_ns = 0;
  };
  // `mark` belongs to the file; 0 when it is new.
  void OnRead(std::uint32_t& mark, std::size_t origin, const Sizes& sizes);
  void OnRead(std::uint32_t& mark, std::size_t origin) { OnRead(mark, origin, Sizes{.chunk = 0, .file = 0}); }

  // The epochs so far, the present one last; none before the first read.
  std::size_t count() const { return used_; }
  Epoch epoch(std::size_t number) const;
  // How many have ended, also beyond kMost, and the last of them.
  std::uint64_t ended() const { return ended_; }
  const Epoch& last_ended() const { return last_ended_; }
  // The last read was of a file that was new to its epoch.
  bool last_was_new() const { return last_was_new_; }
  // Of all reads, by origin.
  const std::array<std::uint64_t, kOrigins>& bytes() const { return bytes_; }

 private:
  void BeginNext();

  std::array<Epoch, kMost> epochs_{};
  std::size_t used_ = 0;
  // Marks: below first_ an earlier epoch's; below again_ of the present one; again_: read a second time since the last file that was new.
  std::uint32_t first_ = 1;
  std::uint32_t again_ = 2;
  std::uint64_t files_again_ = 0;
  std::uint64_t bytes_again_ = 0;
  std::uint64_t ended_ = 0;
  bool last_was_new_ = false;
  std::array<std::uint64_t, kOrigins> bytes_{};
  Epoch last_ended_;
  Epoch before_;  // what epochs_[used_ - 1] held of earlier epochs
  Epoch since_;  // reads since the last new file: of the present epoch or already of the next
};

}  // namespace tierd::engine
