// Builds datagrams for clients: header + entries, copied into one buffer. Pure; any thread.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "client_lib/abi/messages.h"

namespace tierd::server {

class MessageWriter {
 public:
  explicit MessageWriter(abi::MessageType type) {
    header_.magic = abi::kMessageMagic;
    header_.type = static_cast<std::uint16_t>(type);
    header_.version = abi::kProtocolVersion;
    header_.count = 0;
    buffer_.resize(sizeof header_);
  }

  // Appends one entry, optionally with a path and the padding to 8 that belongs to it.
  template <typename Entry>
  void Add(const Entry& entry, std::string_view path = {}) {
    Append(&entry, sizeof entry);
    Append(path.data(), path.size());
    buffer_.resize(abi::PadTo8(buffer_.size()));
    ++header_.count;
  }

  // What stands behind path and padding.
  template <typename Entry, typename Tail>
  void Add(const Entry& entry, std::string_view path, const Tail& tail) {
    Add(entry, path);
    Append(&tail, sizeof tail);
  }

  std::uint32_t count() const { return header_.count; }
  std::size_t bytes() const { return buffer_.size(); }

  // The finished datagram; valid until the next Add.
  std::span<const std::byte> Finish() {
    header_.bytes = static_cast<std::uint32_t>(buffer_.size());
    std::memcpy(buffer_.data(), &header_, sizeof header_);
    return buffer_;
  }

 private:
  void Append(const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    buffer_.insert(buffer_.end(), begin, begin + bytes);
  }

  abi::MessageHeader header_{};
  std::vector<std::byte> buffer_;
};

}  // namespace tierd::server
