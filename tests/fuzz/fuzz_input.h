// What the fuzz targets share: taking typed values off an input, and a check that ends the process where a sanitizer looks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#define FUZZ_CHECK(condition)                                                          \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: FUZZ_CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                    \
    }                                                                                  \
  } while (0)

namespace tierd::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  std::size_t size() const { return rest_.size(); }
  // Zeros where the input ends.
  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::size_t n = std::min(sizeof value, rest_.size());
    if (n != 0) std::memcpy(&value, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return value;
  }
  // At most `bytes`.
  std::span<const std::byte> Bytes(std::size_t bytes) {
    const auto taken = std::as_bytes(rest_.first(std::min(bytes, rest_.size())));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> Rest() { return Bytes(rest_.size()); }
  // Several datagrams in one input: each with its length in 16 bits before it.
  std::span<const std::byte> Datagram() { return Bytes(Take<std::uint16_t>()); }

 private:
  std::span<const std::uint8_t> rest_;
};

inline std::string_view Text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Whether `part` lies within `whole`.
inline bool Within(std::string_view part, std::span<const std::byte> whole) {
  const auto* begin = reinterpret_cast<const char*>(whole.data());
  return part.empty() || (part.data() >= begin && part.data() + part.size() <= begin + whole.size());
}

}  // namespace tierd::fuzz
