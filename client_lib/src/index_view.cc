#include "client_lib/src/index_view.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/shared_mapping.h"

namespace tierd::client {
namespace {

constexpr std::uint64_t kPopulateAlways = 4 << 20;  // faulting that much in costs less than 0.2 ms

bool HoldsTogether(const abi::IndexHeader& h, std::uint64_t bytes, const std::uint8_t instance[16]) {
  if (h.magic != abi::kIndexMagic || h.layout_version != abi::kLayoutVersion || h.total_bytes != bytes) return false;
  if (std::memcmp(h.instance, instance, sizeof h.instance) != 0) return false;
  if (h.slot_count == 0 || h.slot_count > 0xffffffffu || h.probe_limit > abi::kProbeSlack) return false;
  const std::uint64_t attrs_bytes = sizeof(abi::AttrClass) * abi::kMaxAttrClasses;
  const std::uint64_t slots_bytes = (h.slot_count + abi::kProbeSlack) * sizeof(abi::Slot);
  if (h.attrs_offset % 8 != 0 || h.attrs_offset > bytes || bytes - h.attrs_offset < attrs_bytes) return false;
  if (h.slots_offset % 64 != 0 || h.slots_offset > bytes || bytes - h.slots_offset < slots_bytes) return false;
  const std::uint64_t atimes_bytes = (h.slot_count + abi::kProbeSlack) * sizeof(std::int64_t);
  return h.atimes_offset % 8 == 0 && h.atimes_offset >= abi::kIndexHeaderBytes && h.atimes_offset <= bytes && bytes - h.atimes_offset >= atimes_bytes;
}

}  // namespace

IndexView* MapIndex(int fd, std::uint64_t bytes, const std::uint8_t instance[16], bool populate) {
  if (bytes < abi::kIndexHeaderBytes) return nullptr;
  void* const data = MapShared(fd, bytes, false, true);
  if (data == nullptr) return nullptr;
  const auto* header = static_cast<const abi::IndexHeader*>(data);
  void* const memory = HoldsTogether(*header, bytes, instance) ? std::malloc(sizeof(IndexView)) : nullptr;
  if (memory == nullptr) {
    UnmapShared(data, bytes);
    return nullptr;
  }
  if (populate || bytes <= kPopulateAlways) PopulateForReading(data, bytes);
  auto* view = new (memory) IndexView;
  const auto* base = static_cast<const std::byte*>(data);
  view->header = header;
  view->slots = reinterpret_cast<const abi::Slot*>(base + header->slots_offset);
  view->attrs = reinterpret_cast<const abi::AttrClass*>(base + header->attrs_offset);
  view->atimes = reinterpret_cast<const std::atomic<std::int64_t>*>(base + header->atimes_offset);
  view->slot_count = header->slot_count;
  view->probe_limit = header->probe_limit;
  view->generation = header->generation;
  view->bytes = bytes;
  std::memcpy(view->hash_secret, header->hash_secret, sizeof view->hash_secret);
  return view;
}

void RetireIndex(IndexView& view) { OverlayWithZeros(view.header, view.bytes, false); }

}  // namespace tierd::client
