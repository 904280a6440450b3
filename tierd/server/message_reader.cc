#include "tierd/server/message_reader.h"

#include <cstring>

#include "client_lib/abi/path_hash.h"

namespace tierd::server {
namespace {

Status Malformed(const char* what) { return Status(Code::kInvalid, std::string("malformed message: ") + what); }

template <typename T>
Result<T> ReadBody(std::span<const std::byte> datagram) {
  if (datagram.size() < sizeof(abi::MessageHeader) + sizeof(T)) return Malformed("short body");
  T body;
  std::memcpy(&body, datagram.data() + sizeof(abi::MessageHeader), sizeof body);
  return body;
}

// What stands behind path and padding.
std::size_t TailBytes(const abi::FetchEntry& entry) { return (entry.flags & abi::kFetchPart) != 0 ? sizeof(abi::FetchPart) : 0; }
std::size_t TailBytes(const abi::AdviseEntry&) { return 0; }
void ReadTail(const std::byte* tail, std::size_t bytes, FetchView& view) {
  if (bytes != 0) std::memcpy(&view.part, tail, sizeof view.part);
}
void ReadTail(const std::byte*, std::size_t, AdviseView&) {}

// Entries of variable length: struct, path, padding, tail. Entry needs the fields entry_bytes and path_bytes.
template <typename View, typename Entry>
Result<std::vector<View>> ReadEntries(std::span<const std::byte> datagram, std::uint32_t count) {
  std::vector<View> views;
  views.reserve(count);
  std::size_t at = sizeof(abi::MessageHeader);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (datagram.size() - at < sizeof(Entry)) return Malformed("entry beyond the end");
    View view;
    std::memcpy(&view.entry, datagram.data() + at, sizeof(Entry));
    const std::size_t path_bytes = view.entry.path_bytes;
    if (path_bytes >= abi::kMaxPathBytes) return Malformed("path too long");
    const std::size_t tail_bytes = TailBytes(view.entry);
    const std::size_t tail_at = abi::PadTo8(sizeof(Entry) + path_bytes);
    if (view.entry.entry_bytes != tail_at + tail_bytes) return Malformed("entry size");
    if (datagram.size() - at < view.entry.entry_bytes) return Malformed("entry beyond the end");
    ReadTail(datagram.data() + at + tail_at, tail_bytes, view);
    view.path = {reinterpret_cast<const char*>(datagram.data()) + at + sizeof(Entry), path_bytes};
    at += view.entry.entry_bytes;
    views.push_back(view);
  }
  if (at != datagram.size()) return Malformed("bytes behind the last entry");
  return views;
}

}  // namespace

Result<abi::MessageHeader> ReadHeader(std::span<const std::byte> datagram) {
  abi::MessageHeader header;
  if (datagram.size() < sizeof header) return Malformed("short header");
  std::memcpy(&header, datagram.data(), sizeof header);
  if (header.magic != abi::kMessageMagic) return Malformed("magic");
  if (header.bytes != datagram.size()) return Malformed("length differs from the datagram's");
  if (header.count == 0 || header.count > abi::kMaxBatch) return Malformed("entry count");
  return header;
}

Result<abi::Hello> ReadHello(std::span<const std::byte> datagram) { return ReadBody<abi::Hello>(datagram); }
Result<abi::IdEntry> ReadId(std::span<const std::byte> datagram) { return ReadBody<abi::IdEntry>(datagram); }

Result<std::vector<FetchView>> ReadFetch(std::span<const std::byte> datagram, std::uint32_t count) {
  return ReadEntries<FetchView, abi::FetchEntry>(datagram, count);
}

Result<std::vector<AdviseView>> ReadAdvise(std::span<const std::byte> datagram, std::uint32_t count) {
  return ReadEntries<AdviseView, abi::AdviseEntry>(datagram, count);
}

bool IsCanonicalRelative(std::string_view path) {
  if (path.size() >= abi::kMaxPathBytes || path.find('\0') != std::string_view::npos) return false;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    if (component.empty() || component == "." || component == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
    if (path.empty()) return false;  // trailing slash
  }
  return true;
}

}  // namespace tierd::server
