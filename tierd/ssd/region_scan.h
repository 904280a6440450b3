// What is in a region, from its table of contents or, without one, by walking its headers. Never resynchronises on magic: a walk goes
// from the region's start by lengths and stops at the first header that fails or has another region, epoch or offset (HAZARDS 2.16).
//
// Pure on images; the Read functions block (workers). Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tierd/io/aligned_buffer.h"
#include "tierd/ssd/region_files.h"
#include "tierd/ssd/region_toc.h"

namespace tierd::ssd {

// Records that own their paths.
class RecordBatch {
 public:
  void Add(const RecoveredRecord& record);
  std::span<const RecoveredRecord> records() const { return records_; }
  std::size_t size() const { return records_.size(); }
  void Visit(const RecordVisitor& visit) const;

 private:
  std::vector<RecoveredRecord> records_;
  std::vector<std::unique_ptr<char[]>> blocks_;  // paths; never move
  std::size_t room_ = 0;                         // left in the last block
  char* next_ = nullptr;
};

// What the functions below need to know of a directory.
struct ScanFormat {
  RecordSalt salt;
  std::uint32_t alignment = 4096;
  std::uint32_t region_bytes = 0;
};

struct WalkResult {
  std::uint64_t epoch = 0;       // of the first record; 0: the region has none
  std::uint32_t records = 0;
  std::uint32_t damaged = 0;     // payloads that do not verify (counted only when verifying)
  std::uint32_t records_end = 0;
};
// `image` is the whole region. With `verify` every payload is checked and `sound` says how that went (else it is true).
WalkResult WalkRegion(const ScanFormat& format, std::uint32_t region, std::span<const std::byte> image, bool verify,
                      const std::function<void(const RecoveredRecord&, bool sound)>& visit);

struct RegionContents {
  Status status;            // kIo: the device failed; contents are empty then
  std::uint64_t epoch = 0;  // 0: nothing in it
  bool from_toc = false;
  RecordBatch records;      // sound ones only, when walked
};
// Table of contents if it is sound and of the same epoch as the first record, else a verifying walk. `scratch` is made on demand and kept
// by the caller for the next region.
RegionContents ReadRegionContents(const ScanFormat& format, std::uint32_t region, RegionAddress address, io::AlignedBuffer* scratch);
// The same of a region whose epoch is known: its table of contents is believed though the first record is damaged.
RegionContents ReadKnownContents(const ScanFormat& format, std::uint32_t region, RegionAddress address, std::uint64_t epoch, io::AlignedBuffer* scratch);
// The walk alone.
RegionContents ReadAndWalkRegion(const ScanFormat& format, std::uint32_t region, RegionAddress address, io::AlignedBuffer* scratch);
// The image of a region of which some places may not be readable: they are zero then. Not ok: no memory, nothing of it can be read, or the device failed,
// or was well again, meanwhile: that says nothing about the records.
Status ReadRegionImage(const ScanFormat& format, RegionAddress address, io::AlignedBuffer* image);
// Which of the records that are listed elsewhere are in the image of their region as they should be, header, identity and payload.
std::vector<bool> SoundRecords(const ScanFormat& format, std::uint64_t epoch, std::span<const std::byte> image, std::span<const RecoveredRecord> records);
// That of the record header with which the region starts; 0 if that is not sound. Not ok: it could not be read, which says nothing.
Result<std::uint64_t> FirstEpoch(const ScanFormat& format, std::uint32_t region, RegionAddress address);

}  // namespace tierd::ssd
