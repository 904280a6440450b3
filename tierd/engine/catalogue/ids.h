// Ids of the catalogue: dense 32-bit numbers, reused after an entry is forgotten. Types, so that they are not mixed up.
#pragma once

#include <cstdint>

namespace tierd::engine {

enum class FileId : std::uint32_t {};
enum class ObjectId : std::uint32_t {};  // one chunk of a file, or the listing of a directory; what policies call an object
enum class DirId : std::uint32_t {};

inline constexpr FileId kNoFile{0xffffffffu};
inline constexpr ObjectId kNoObject{0xffffffffu};

constexpr std::uint32_t Raw(FileId id) { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t Raw(ObjectId id) { return static_cast<std::uint32_t>(id); }
constexpr std::uint32_t Raw(DirId id) { return static_cast<std::uint32_t>(id); }

}  // namespace tierd::engine
