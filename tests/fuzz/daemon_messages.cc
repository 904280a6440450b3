// The daemon's reading of client datagrams: one datagram.
#include "client_lib/abi/path_hash.h"
#include "tests/fuzz/fuzz_input.h"
#include "tierd/server/message_reader.h"

using namespace tierd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto datagram = std::as_bytes(std::span(data, size));
  const Result<abi::MessageHeader> header = server::ReadHeader(datagram);
  if (!header.ok()) return 0;
  FUZZ_CHECK(header->bytes == size && header->count >= 1 && header->count <= abi::kMaxBatch);
  const auto check_path = [&](std::string_view path) {
    FUZZ_CHECK(fuzz::Within(path, datagram) && path.size() < abi::kMaxPathBytes);
    if (server::IsCanonicalRelative(path)) FUZZ_CHECK(path.find('\0') == path.npos && !path.ends_with('/') && !path.starts_with('/'));
  };
  // Whatever the type says: each reader must hold its own against each body.
  (void)server::ReadHello(datagram).ok();
  (void)server::ReadId(datagram).ok();
  if (const auto fetches = server::ReadFetch(datagram, header->count); fetches.ok()) {
    FUZZ_CHECK(fetches->size() == header->count);
    for (const server::FetchView& view : *fetches) check_path(view.path);
  }
  if (const auto advices = server::ReadAdvise(datagram, header->count); advices.ok()) {
    FUZZ_CHECK(advices->size() == header->count);
    for (const server::AdviseView& view : *advices) check_path(view.path);
  }
  return 0;
}
