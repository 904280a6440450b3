// The first entries of torch.randperm(n) at the cost of those entries: n numbers are never written. For trying many seeds.
//
// Owner: one search. One thread at a time. Memory: 24 bytes per entry of the longest prefix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tierd::orders {

class PermutationPrefix {
 public:
  // samples: n, below PyTorch's wide draws. length: at most that many entries are asked for.
  PermutationPrefix(std::uint32_t samples, std::uint32_t length);

  // The first entries of the permutation drawn by these outputs of the generator, one for each, at most `length` and n. Valid until
  // the next call.
  std::span<const std::uint32_t> Draw(std::span<const std::uint32_t> outputs);

 private:
  struct Slot {
    std::uint32_t stamp = 0;  // of the call that wrote it
    std::uint32_t position = 0;
    std::uint32_t value = 0;
  };
  Slot& Find(std::uint32_t position);

  const std::uint32_t samples_;
  std::uint32_t stamp_ = 0;
  std::uint32_t mask_;
  std::vector<Slot> slots_;  // what swaps have put at positions that have not been reached
  std::vector<std::uint32_t> entries_;
};

}  // namespace tierd::orders
