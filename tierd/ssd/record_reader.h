// Reads: one device read per record, header and payload together; identity, epoch, offset and both checksums are compared before a byte
// is called good. Direct records go straight into the caller's frame, the header into a small buffer beside it.
//
// Of a long record parts can be read: its header first, which says what each part has to sum up to, then the parts alone. Headers are remembered.
//
// Part of the tier; loop thread only. Long payloads are checked on the checksum workers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tierd/io/aligned_buffer.h"
#include "tierd/ssd/parts_cache.h"
#include "tierd/ssd/region_writer.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class RecordReader {
 public:
  RecordReader(TierContext& context, RegionWriter& writer, Worker& checksums);

  struct Told {
    ReadDone done;
    std::function<void()> on_hung;  // may be empty
  };

  FrameNeeds NeedsOf(std::uint32_t payload_bytes) const;
  // `range`: as WidenToParts gives it; 0 bytes: the whole payload.
  Status Read(const SsdLocation& location, const RecordIdentity& expected, PayloadRange range, std::span<std::byte> dest, Told told, ReadClass read_class);
  void Hasten(const SsdLocation& location);
  // What there was no memory to ask the device for is tried again, and then given up; of what the device keeps too long is told. A few times a second.
  void Tick();
  // Reads one block of some region to see whether the device lives; of another one, where that failed. Nothing to read: counts as a success.
  void Probe();

  std::size_t in_flight() const { return in_flight_; }

 private:
  struct Operation {
    // The device may still write to it when the engine gives the request up at the end of its life.
    ~Operation() {
      if (in_flight) side.Abandon();
    }
    SsdLocation location;
    RecordIdentity expected;
    std::uint64_t region_epoch = 0;
    PayloadRange range;                // 0 bytes: all
    PartsCache::Table parts;           // of the range's checksums; null until the header has been read
    std::span<std::byte> dest;
    Told told;
    std::int64_t sent_ns = 0;
    std::size_t place = 0;             // in sent_, while with the device
    io::AlignedBuffer side;            // header of a direct read, or the whole record
    std::uint32_t lead = 0;        // bytes in `side` before the record's header
    ReadClass read_class = ReadClass::kForeground;
    bool direct = false;
    bool in_flight = false;        // with the device
    bool ended = false;            // `done` has been called

    bool is_part() const { return range.bytes != 0; }
    std::uint32_t wanted_bytes() const { return is_part() ? range.bytes : location.stored_bytes; }
  };
  using OperationPtr = std::shared_ptr<Operation>;  // shared by the I/O callback or the checksum job, and nobody else

  struct Load {
    std::size_t reads = 0;
    std::uint64_t bytes = 0;
  };
  // What may go to the device now; null: nothing.
  OperationPtr* Next();
  void ReadFromBuffer(OperationPtr op, std::span<const std::byte> record);
  // Hands to the device what may go there.
  void Pump();
  bool Submit(const OperationPtr& op);
  // What Submit asks the device for: where it begins in the region, and the memory for it. 0 parts: there is none.
  struct Asked {
    std::uint32_t from = 0;
    iovec memory[2];
    unsigned count = 0;
  };
  Asked AskForRecord(Operation& op);
  Asked AskForPart(Operation& op);
  void OnHeader(OperationPtr op);
  void Leave(Operation& op);
  void TellHung();
  void OnRead(OperationPtr op, std::size_t wanted, io::IoResult result);
  static ReadOutcome Check(const ScanFormat& format, Operation& op);
  static ReadOutcome CheckHeader(const ScanFormat& format, const Operation& op, std::span<const std::byte> record, DecodedHeader& decoded);
  void Complete(OperationPtr op, ReadOutcome outcome);
  void Finish(OperationPtr op, ReadResult result);
  bool IsNewFailure(const Operation& op);
  void ZeroTail(Operation& op) const;
  // The device can write so many bytes straight into it.
  bool IsAlignedFor(std::span<const std::byte> dest, std::uint32_t bytes) const;
  io::AlignedBuffer TakeSide(std::size_t bytes);
  void ReturnSide(io::AlignedBuffer buffer);

  TierContext& context_;
  RegionWriter& writer_;
  Worker& checksums_;
  const std::size_t side_bytes_;
  std::vector<io::AlignedBuffer> free_sides_;  // each side_bytes_
  PartsCache parts_;
  SsdLocation last_bad_;  // of which parts could not be read
  std::size_t in_flight_ = 0;              // waiting, with the device, being checked
  std::deque<OperationPtr> waiting_[2];    // by class
  Load at_device_[2];                      // by class
  std::vector<Operation*> sent_;           // with the device, in no order; has room for all that may be
  bool probing_ = false;
  std::uint32_t probe_from_ = 0;  // region
};

}  // namespace tierd::ssd
