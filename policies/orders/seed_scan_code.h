// The codes of seed_scan.cc, one per instruction set. Callers use ScanSeeds.
#pragma once

#include "policies/orders/seed_scan.h"

namespace tierd::orders {

void ScanSeedsPortable(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing);
#if defined(__x86_64__)
void ScanSeedsAvx2(const SeedFilter& filter, std::uint64_t begin, std::uint64_t count, std::vector<std::uint32_t>* passing);
#endif

}  // namespace tierd::orders
