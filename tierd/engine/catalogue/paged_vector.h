// A growing array in pages of 4,096 elements: elements never move, growth touches one page (no doubling peak, HAZARDS 5).
// T is trivially copyable. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace tierd::engine {

template <typename T>
class PagedVector {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return (*pages_[i / kPage])[i % kPage]; }
  const T& operator[](std::size_t i) const { return (*pages_[i / kPage])[i % kPage]; }
  // Appends a value and returns its index.
  std::size_t PushBack(const T& value) {
    if (size_ == pages_.size() * kPage) pages_.push_back(std::make_unique<std::array<T, kPage>>());
    (*this)[size_] = value;
    return size_++;
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::vector<std::unique_ptr<std::array<T, kPage>>> pages_;
  std::size_t size_ = 0;
};

}  // namespace tierd::engine
