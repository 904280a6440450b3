// What clients said had changed while the SSD's records were still coming in: a client tells a new daemon first of all what the old one did not hear. A record
// of such a path that comes later holds the bytes from before, and equal stamps would let them pass (W12).
//
// Owner: Engine. Loop thread only. Bounded: beyond kMost paths of a source all its records that are still to come are doubted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "client_lib/abi/layout.h"

namespace tierd::engine {

class RecoveryDoubts {
 public:
  static constexpr std::size_t kMost = 65'536;

  void Add(std::uint16_t source, abi::FileKey key, std::string_view path, bool recursive) {
    if (of_source_.size() <= source) of_source_.resize(source + 1u);
    Doubted& doubted = of_source_[source];
    if (doubted.all) return;
    if (doubted.files.size() + doubted.trees.size() >= kMost || (recursive && path.empty())) {
      doubted = Doubted{};
      doubted.all = true;
      return;
    }
    if (recursive) doubted.trees.emplace(path);
    else doubted.files.insert(key.lo);
  }

  bool Cover(std::uint16_t source, abi::FileKey key, std::string_view path) const {
    if (of_source_.size() <= source) return false;
    const Doubted& doubted = of_source_[source];
    if (doubted.all || doubted.files.contains(key.lo)) return true;
    if (doubted.trees.empty()) return false;
    for (std::string at(path);; at.resize(at.rfind('/'))) {
      if (doubted.trees.contains(at)) return true;
      if (at.find('/') == std::string::npos) return false;
    }
  }

  void Clear() { std::vector<Doubted>().swap(of_source_); }

 private:
  struct Doubted {
    bool all = false;
    std::unordered_set<std::uint64_t> files;  // low half of the key: another file doubted by accident is read again
    std::unordered_set<std::string> trees;
  };
  std::vector<Doubted> of_source_;
};

}  // namespace tierd::engine
