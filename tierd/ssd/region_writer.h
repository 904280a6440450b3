// Appends: records are copied into the open region's buffer, the buffer goes to the device in large writes, the region is closed with its
// table of contents after all its records are on the device. While a region has a buffer its records are read from there.
//
// Part of the tier; loop thread only (TouchBuffers: a worker, before the first append).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "tierd/io/aligned_buffer.h"
#include "tierd/ssd/failed_regions.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class RegionWriter {
 public:
  explicit RegionWriter(TierContext& context);

  // False: no memory for the buffers.
  bool has_memory() const;
  // Makes the pages of the buffers real. The only call on a worker.
  void TouchBuffers();

  enum class Use : std::uint8_t { kNew, kMove };
  // kMove may take the last region, which is kept for the mover: while there is none behind it, nothing else goes there.
  // `crc`: Crc32c of the payload as it was read, 0 if not known. kCorrupt: the copy differs from it.
  Result<SsdLocation> Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, Use use, std::uint32_t crc = 0);
  // The record (header first) if its region still has a buffer, else empty. Valid until the next call of any method.
  std::span<const std::byte> RecordInBuffer(const SsdLocation& location) const;

  // Where a write failed, the owner is told which records are gone, some at a turn (HAZARDS 5): one bounded piece of it. The region is free again then,
  // unless it is bad (failed_regions.h). `take_back`: of a record that is still elsewhere, and its owner knows, true.
  void Step(const std::function<bool(const SsdRecord&)>& take_back);
  bool has_work() const;
  // The region is left alone for an hour: it cannot be written, or nobody could find out what is in it.
  void Retire(std::uint32_t region);
  // There are, or will be, records of which the owner is to be told.
  bool failing() const;

  // Gets the next region ready if none is.
  void Prepare();
  bool prepared() const { return prepared_.has_value(); }
  // Set by the space keeper: more regions can be allocated; writes make sense at all.
  void set_growable(bool growable) { growable_ = growable; }
  void set_writable(bool writable) { writable_ = writable; }
  bool writable() const { return writable_; }
  // errno of the last failed write, once; 0 if none since.
  int TakeWriteError() { return std::exchange(last_error_, 0); }

  void Sync(std::function<void(Status)> done);
  // Ends the open region and lets go of the prepared one; again, until idle(): then everything is on the device.
  void Close();
  // Where space must be given back and nothing else is left of it: the prepared region becomes free, or else the open one is ended early.
  void LetGo();
  bool idle() const;
  // What the open region still takes of that use, in bytes.
  std::uint64_t room(Use use) const;
  // A whole region is there for what is moved, or can be had, besides the open one.
  bool has_spare() const { return prepared_ || preparing_ || growable_ || context_.regions.Count(RegionState::kFree) > 0; }
  // Every buffer is being written: nothing can be taken before one is done.
  bool behind() const;

 private:
  struct Buffer {
    // What the device still reads from, when the tier ends without Stop(), stays with the process.
    ~Buffer() {
      if (in_flight > 0) memory.Abandon();
    }
    io::AlignedBuffer memory;
    TocBuilder toc;
    RegionAddress address;
    std::uint32_t region = 0;
    std::uint32_t fill = 0;          // where the next record may start
    std::uint32_t previous_end = 0;  // where the last record ended
    std::uint32_t submitted = 0;     // bytes handed to the device, from the start
    unsigned in_flight = 0;
    std::uint64_t taken = 0;         // as which of all regions
    bool used = false;
    bool movers = false;  // it was the last one
    bool closing = false;
    bool toc_submitted = false;
    bool failed = false;
    bool bad = false;   // the region, not the device
    bool lost = false;  // of a region that could not be written: its records are being told
    TocCursor told;
  };
  struct Waiter {
    std::uint64_t last_write;
    std::uint64_t failures;
    std::function<void(Status)> done;
  };

  bool IsMovers() const { return current_ != nullptr && current_->movers && !has_spare(); }
  Status NoRoomForNew() const;
  Status TakeRegion(Use use);
  Result<SsdLocation> Place(Buffer& buffer, const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t crc);
  static std::uint32_t StartOf(const TierContext& context, const Buffer& buffer, std::uint32_t payload_bytes);
  bool Fits(const Buffer& buffer, std::uint32_t payload_bytes, std::size_t path_bytes) const;
  void SubmitUnits(Buffer& buffer);
  void SubmitPartial(Buffer& buffer);
  bool Submit(Buffer& buffer, std::uint32_t from, std::uint32_t to);
  void OnWritten(Buffer& buffer, std::uint64_t number, std::size_t wanted, io::IoResult result);
  void OnWriteFailed(Buffer& buffer, int error);
  void FreePrepared();
  void CloseBuffer(Buffer& buffer);
  // The next step towards the end of a buffer that has nothing with the device.
  void Advance(Buffer& buffer);
  void AdvanceAll();
  void Finish(Buffer& buffer);
  void Abandon(Buffer& buffer);
  void TryRestedAgain();
  void RunWaiters();
  Buffer* BufferOf(std::uint32_t region) const;

  TierContext& context_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Buffer* current_ = nullptr;
  std::optional<std::uint32_t> prepared_;
  bool preparing_ = false;
  bool growable_ = false;
  bool writable_ = true;
  int last_error_ = 0;
  std::uint64_t next_write_ = 1;
  std::uint64_t failures_ = 0;
  FailedRegions failed_;
  std::set<std::uint64_t> outstanding_;  // write numbers in flight
  std::vector<Waiter> waiters_;
};

}  // namespace tierd::ssd
