// An array over dense ids that grows on demand and never moves what it holds: growth allocates one page, it copies no element, so
// that an event of a policy costs the same at ten objects and at ten million. Value type, no thread rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tierd::policies {

template <typename T>
class PagedArray {
 public:
  // Ids below Limit() may be indexed; they start as T().
  std::uint32_t Limit() const { return static_cast<std::uint32_t>(pages_.size() * kPage); }
  void Cover(std::uint32_t id) {
    while (id >= Limit()) pages_.push_back(std::make_unique<T[]>(kPage));
  }
  T& operator[](std::uint32_t id) { return pages_[id / kPage][id % kPage]; }
  const T& operator[](std::uint32_t id) const { return pages_[id / kPage][id % kPage]; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace tierd::policies
