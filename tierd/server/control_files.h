// What the end points about paths have in common. Loop thread only.
#pragma once

#include <cstdint>
#include <string>

#include "tierd/engine/engine.h"
#include "tierd/server/http.h"

namespace tierd::server {

// How much of a regular file is where. In bytes, and in chunks.
struct Residency {
  std::uint64_t size = 0, ram = 0, ssd = 0, missing = 0;
  std::uint32_t chunks = 0, chunks_ram = 0, chunks_ssd = 0;
};
Residency ResidencyOf(engine::Engine& engine, engine::FileId file);

// By FileRecord::flags: "file", "directory", "symlink", "other".
const char* KindName(std::uint16_t flags);
inline bool IsRegular(std::uint16_t flags) { return (flags & engine::kFileNotRegular) == 0; }

HttpResponse Busy();

std::string Absolute(const engine::SourceUnit& unit, const std::string& relative);

}  // namespace tierd::server
