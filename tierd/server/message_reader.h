// Reads datagrams of clients as the hostile input they are: every length is checked before a field is used, every field is copied out.
// Pure functions; any thread. The layouts are client_lib/abi/messages.h.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tierd/base/status.h"

namespace tierd::server {

// The paths point into the datagram and live as long as it does.
struct FetchView {
  abi::FetchEntry entry;
  std::string_view path;
  abi::FetchPart part{};  // with kFetchPart
};
struct AdviseView {
  abi::AdviseEntry entry;
  std::string_view path;
};

// The header, when magic, byte count and entry count (<= kMaxBatch) hold.
Result<abi::MessageHeader> ReadHeader(std::span<const std::byte> datagram);

// The bodies; kInvalid names what is wrong. `datagram` is whole, its header was accepted by ReadHeader.
Result<abi::Hello> ReadHello(std::span<const std::byte> datagram);
Result<abi::IdEntry> ReadId(std::span<const std::byte> datagram);
Result<std::vector<FetchView>> ReadFetch(std::span<const std::byte> datagram, std::uint32_t count);
Result<std::vector<AdviseView>> ReadAdvise(std::span<const std::byte> datagram, std::uint32_t count);

// A path below a source as LAYOUT.md wants it from clients: relative, no empty, "." or ".." component, no NUL, below PATH_MAX. "" is the root.
bool IsCanonicalRelative(std::string_view path);

}  // namespace tierd::server
