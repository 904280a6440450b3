// Reads samples with many threads and hands them out in batches, in the order asked for, whoever read what and when.
//
// One Run is one pass over the data; threads live for its length, as the workers of a DataLoader without persistent workers do.
// Thread rule: Run from one thread at a time; `consume` is called on that thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "examples/trainer/model.h"
#include "examples/trainer/reader.h"

namespace trainer {

struct Sample {
  std::string path;
  std::uint8_t label = 0;
};

struct LoaderOptions {
  int threads = 16;
  std::size_t batch = 64;    // samples
  std::size_t window = 32;   // batches read ahead of `consume`; memory: window * batch * 784 bytes
};

class Loader {
 public:
  Loader(Reader& reader, const LoaderOptions& options) : reader_(reader), options_(options) {}

  // Reads samples[order[0]], samples[order[1]] ... False with the first failed read's sentence in *why; `consume` has then seen only
  // batches before it.
  bool Run(const std::vector<Sample>& samples, const std::vector<std::uint32_t>& order,
           const std::function<void(const Batch&)>& consume, std::string* why);

 private:
  Reader& reader_;
  const LoaderOptions options_;
};

// 0 .. count-1 in an order that is a function of (seed, epoch).
std::vector<std::uint32_t> ShuffledOrder(std::size_t count, std::uint64_t seed, std::uint64_t epoch);

}  // namespace trainer
