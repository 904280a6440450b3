#include "tierd/ssd/superblock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tierd/base/check.h"
#include "tierd/base/crc32c.h"
#include "tierd/base/kill_point.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ssd {

namespace {

// The file as stored; dataset entries follow, then zeros, then the checksum of all bytes before it.
struct StoredSuperblock {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t bytes;
  std::array<std::uint8_t, 16> uuid;
  std::array<std::uint8_t, 16> machine;
  std::array<std::uint8_t, 32> path_hash_key;
  std::array<std::uint64_t, 4> secret;
  std::uint64_t lives;
  std::uint32_t region_bytes;
  std::uint32_t record_alignment;
  std::uint32_t regions_per_file;
  std::uint32_t datasets;
};
static_assert(sizeof(StoredSuperblock) == 136 && std::has_unique_object_representations_v<StoredSuperblock>);

struct StoredDataset {
  std::uint64_t id;
  std::uint64_t generation;
};

constexpr std::size_t kCrcOffset = kSuperblockBytes - sizeof(std::uint32_t);
static_assert(sizeof(StoredSuperblock) + kMaxDatasets * sizeof(StoredDataset) <= kCrcOffset);

constexpr const char* kName = "superblock";
constexpr const char* kTemporaryName = "superblock.new";

}  // namespace

std::string EncodeSuperblock(const Superblock& superblock) {
  TIERD_CHECK(superblock.dataset_generations.size() <= kMaxDatasets);
  StoredSuperblock s{};
  s.magic = kSuperblockMagic;
  s.format = kFormat;
  s.bytes = kSuperblockBytes;
  s.uuid = superblock.salt.uuid;
  s.machine = superblock.machine;
  s.path_hash_key = superblock.path_hash_key;
  s.secret = superblock.salt.secret;
  s.lives = superblock.lives;
  s.region_bytes = superblock.region_bytes;
  s.record_alignment = superblock.record_alignment;
  s.regions_per_file = superblock.regions_per_file;
  s.datasets = static_cast<std::uint32_t>(superblock.dataset_generations.size());
  std::string out(kSuperblockBytes, '\0');
  std::memcpy(out.data(), &s, sizeof(s));
  std::size_t at = sizeof(s);
  for (const auto& [id, generation] : superblock.dataset_generations) {
    const StoredDataset entry{id, generation};
    std::memcpy(out.data() + at, &entry, sizeof(entry));
    at += sizeof(entry);
  }
  const std::uint32_t crc = Crc32c(out.data(), kCrcOffset);
  std::memcpy(out.data() + kCrcOffset, &crc, sizeof(crc));
  return out;
}

SuperblockCheck DecodeSuperblock(std::string_view bytes, Superblock* out) {
  StoredSuperblock s{};
  if (bytes.size() < 16) return SuperblockCheck::kDamaged;
  std::memcpy(&s, bytes.data(), std::min(sizeof(s), bytes.size()));
  if (s.magic != kSuperblockMagic) return SuperblockCheck::kDamaged;
  if (s.format < kFormat) return SuperblockCheck::kOlder;
  if (s.format > kFormat) return SuperblockCheck::kNewer;
  if (bytes.size() != kSuperblockBytes || s.bytes != kSuperblockBytes) return SuperblockCheck::kDamaged;
  std::uint32_t crc;
  std::memcpy(&crc, bytes.data() + kCrcOffset, sizeof(crc));
  if (crc != Crc32c(bytes.data(), kCrcOffset)) return SuperblockCheck::kDamaged;
  // Behind a sound checksum these hold unless we wrote nonsense; they bound what the rest of the tier computes with.
  const bool sizes_hold = s.region_bytes >= 65536 && s.region_bytes % 65536 == 0 && s.region_bytes <= (256u << 20) &&
                          (s.record_alignment == 512 || s.record_alignment == 4096) && s.regions_per_file > 0 &&
                          s.regions_per_file <= 65536 && s.datasets <= kMaxDatasets;
  if (!sizes_hold) return SuperblockCheck::kDamaged;
  *out = Superblock{{s.uuid, s.secret}, s.path_hash_key, s.machine, s.lives, s.region_bytes, s.record_alignment, s.regions_per_file, {}};
  for (std::uint32_t i = 0; i < s.datasets; ++i) {
    StoredDataset entry;
    std::memcpy(&entry, bytes.data() + sizeof(s) + i * sizeof(entry), sizeof(entry));
    out->dataset_generations[entry.id] = entry.generation;
  }
  return SuperblockCheck::kOk;
}

Result<SuperblockCheck> LoadSuperblock(int dir_fd, Superblock* out) {
  UniqueFd fd(::openat(dir_fd, kName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    if (errno == ENOENT) return SuperblockCheck::kMissing;
    return Status::FromErrno(errno, "open superblock");
  }
  std::string bytes(kSuperblockBytes + 1, '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = ::pread(fd.get(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read superblock");
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  bytes.resize(have);
  return DecodeSuperblock(bytes, out);
}

Status StoreSuperblock(int dir_fd, const Superblock& superblock) {
  const std::string bytes = EncodeSuperblock(superblock);
  UniqueFd fd(::openat(dir_fd, kTemporaryName, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "create superblock.new");
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "write superblock.new");
    if (n == 0) return Status(Code::kIo, "write superblock.new: nothing was written");
    done += static_cast<std::size_t>(n);
  }
  // Never retried: after a failed fsync nobody knows what is on the disk (F06).
  if (::fsync(fd.get()) != 0) return Status::FromErrno(errno, "fsync superblock.new");
  TIERD_KILL_POINT("ssd.superblock.before_rename");
  if (::renameat(dir_fd, kTemporaryName, dir_fd, kName) != 0) return Status::FromErrno(errno, "rename superblock.new");
  TIERD_KILL_POINT("ssd.superblock.after_rename");
  if (::fsync(dir_fd) != 0) return Status::FromErrno(errno, "fsync cache directory");
  return Status::Ok();
}

std::array<std::uint8_t, 16> MachineDigest(std::string_view machine_id) {
  std::array<std::uint64_t, 2> state{0x74696572642d6d61ull, 0x6368696e652d6964ull};
  for (const char c : machine_id) {
    state[0] = abi::Mix64(state[0] ^ static_cast<unsigned char>(c)) + state[1];
    state[1] = abi::Mix64(state[1] + state[0]);
  }
  std::array<std::uint8_t, 16> digest;
  std::memcpy(digest.data(), state.data(), sizeof(digest));
  return digest;
}

}  // namespace tierd::ssd
