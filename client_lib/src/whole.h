// Whole files and ranges by path: the slow path behind tier_get, tier_read_file, tier_pread. Any thread.
#pragma once

#include <cstdint>

#include "client_lib/src/cached_file.h"
#include "tier/tier.h"

namespace tierd::client {

// A file of one chunk in RAM, counted: the fast path alone. False: GetSlow decides.
bool HitView(Client& client, const char* path, tier_view& view);
// 0 or -errno; counts.
int GetSlow(Client& client, const char* path, unsigned flags, tier_view& view);
// Bytes or -errno; counts. `file_size` may be null.
ssize_t ReadSlow(Client& client, const char* path, void* buffer, std::size_t count, std::uint64_t offset, std::uint64_t* file_size, unsigned flags);

// The rest of GetSlow once the cache has answered.
int ViewOf(const Call& call, Cached& cached, tier_view& view);

}  // namespace tierd::client
