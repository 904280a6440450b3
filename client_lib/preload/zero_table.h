// A table that every program starts with as untouched zero pages: no constructor runs, whatever its entries' members are by default. (Megabytes written before main cost each
// process that is started a thousand page faults.) Who takes an entry for the first time finds zeroes in it.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tierd::preload {

template <typename T, std::size_t N>
class ZeroTable {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  T* begin() { return reinterpret_cast<T*>(bytes_); }
  T* end() { return begin() + N; }
  T& operator[](std::size_t at) { return begin()[at]; }
  bool Holds(const void* address) const { return address >= bytes_ && address < bytes_ + sizeof bytes_; }

 private:
  alignas(T) std::byte bytes_[N * sizeof(T)] = {};
};

}  // namespace tierd::preload
