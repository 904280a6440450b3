// The daemon's reading of session pages: leases of two hostile clients against some frames, and ring entries against an index.
#include <cstdlib>
#include <memory>

#include "tests/fuzz/fuzz_input.h"
#include "tierd/ram/lease_scanner.h"
#include "tierd/ram/shared_index.h"

using namespace tierd;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<ram::SharedIndex> index = [] {
    ram::IndexOptions options;
    options.initial_slots = 64;
    auto made = std::move(ram::SharedIndex::Create(options)).value();
    for (std::uint64_t i = 1; i <= 20; ++i) {
      ram::SlotValues values;
      values.kind = abi::SlotKind::kFile;
      FUZZ_CHECK(made->Insert({abi::Mix64(i), i}, values, static_cast<ram::OwnerId>(i)).has_value());
    }
    return made;
  }();
  static abi::SessionPage* const pages = static_cast<abi::SessionPage*>(std::aligned_alloc(4096, 2 * sizeof(abi::SessionPage)));

  fuzz::Input input(data, size);
  std::memset(static_cast<void*>(pages), 0, 2 * sizeof(abi::SessionPage));
  for (int i = 0; i < 2; ++i) {
    pages[i].lease_high.store(input.Take<std::uint32_t>());
    pages[i].ring_head.store(input.Take<std::uint64_t>());
    const auto words = input.Take<std::uint16_t>() % (abi::kLeaseSlots + 1);
    for (std::uint32_t n = 0; n < words; ++n) pages[i].leases[n].store(input.Take<std::uint64_t>());
  }
  ram::LeaseScanner scanner;
  scanner.Add(&pages[0]);
  scanner.Add(&pages[1]);
  const ram::LeaseSet& leased = scanner.Scan();
  FUZZ_CHECK(leased.size() <= 2 * abi::kLeaseSlots && scanner.leases() >= leased.size());
  // What a page claims below its lease_high is kept, exactly or by key; nothing else is.
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t high = std::min(pages[i].lease_high.load(), abi::kLeaseSlots);
    for (std::uint32_t n = 0; n < high; ++n) {
      const std::uint64_t word = pages[i].leases[n].load();
      if (word == 0) continue;
      FUZZ_CHECK(leased.Covers(word));
      if ((word & 0xffff) == 0) FUZZ_CHECK(leased.Covers(word | 7));
    }
  }
  if (leased.empty()) FUZZ_CHECK(!leased.Covers(abi::EncodeLease(1, 1)));
  while (input.size() > 0) {
    const auto entry = input.Take<std::uint64_t>();
    const auto owner = index->OwnerAt(static_cast<std::uint8_t>(entry >> 32), static_cast<std::uint32_t>(entry));
    FUZZ_CHECK(!owner || (*owner >= 1 && *owner <= 20));
  }
  return 0;
}
