// The superblock: what binds a cache directory to its format, machine and secrets. One file of fixed size, checksummed, replaced by
// rename. FORMAT.md has the grammar.
//
// A value; the tier's loop thread owns the live one. LoadSuperblock and StoreSuperblock block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tierd/base/status.h"
#include "tierd/ssd/record.h"

namespace tierd::ssd {

inline constexpr std::uint64_t kSuperblockMagic = 0x4453534452454954ull;  // "TIERDSSD"
inline constexpr std::size_t kSuperblockBytes = 16384;
inline constexpr std::size_t kMaxDatasets = 900;

struct Superblock {
  RecordSalt salt;
  std::array<std::uint8_t, 32> path_hash_key{};
  std::array<std::uint8_t, 16> machine{};  // digest of the machine id
  // Daemon lives that opened the directory. Fill sequences start at lives << 40 and region epochs at lives << 24: both grow for
  // ever without a write per record or region.
  std::uint64_t lives = 0;
  std::uint32_t region_bytes = 0;
  std::uint32_t record_alignment = 0;
  std::uint32_t regions_per_file = 0;
  std::map<std::uint64_t, std::uint64_t> dataset_generations;  // absent: 0; at most kMaxDatasets
};

enum class SuperblockCheck : std::uint8_t { kOk, kMissing, kDamaged, kOlder, kNewer };

// The file's bytes, kSuperblockBytes long.
std::string EncodeSuperblock(const Superblock& superblock);
// The format number is judged before anything else of the content, so that another format is never misread.
SuperblockCheck DecodeSuperblock(std::string_view bytes, Superblock* out);

// Reads `superblock` in the directory. Errors other than "not there" are a status.
Result<SuperblockCheck> LoadSuperblock(int dir_fd, Superblock* out);
// Temporary file, fsync, rename, fsync of the directory.
Status StoreSuperblock(int dir_fd, const Superblock& superblock);

// Digest of a machine id, so that the id itself is not written to the disk.
std::array<std::uint8_t, 16> MachineDigest(std::string_view machine_id);

}  // namespace tierd::ssd
