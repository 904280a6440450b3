#include "tierd/ssd/record_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace tierd::ssd {

namespace {

// Memory for side buffers that is kept between reads.
constexpr std::size_t kKeptSideBytes = 4u << 20;

// Holds the header of any direct record and the whole of any packed one with what alignment adds at both ends.
std::size_t SideBytes(const RecordGeometry& geometry) {
  constexpr std::size_t kLongestHeader = 8192;
  return AlignUp(static_cast<std::uint32_t>(geometry.direct_threshold + kLongestHeader + 2 * geometry.alignment), io::AlignedBuffer::kAlignment);
}

}  // namespace

RecordReader::RecordReader(TierContext& context, RegionWriter& writer, Worker& checksums)
    : context_(context), writer_(writer), checksums_(checksums), side_bytes_(SideBytes(context.geometry)) {
  sent_.reserve(std::min(context.options.device_reads, context.options.max_reads));
}

FrameNeeds RecordReader::NeedsOf(std::uint32_t payload_bytes) const {
  if (!context_.geometry.IsDirect(payload_bytes)) return {1, payload_bytes};
  return {context_.format.alignment, AlignUp(payload_bytes, context_.format.alignment)};
}

Status RecordReader::Read(const SsdLocation& location, const RecordIdentity& expected, PayloadRange range, std::span<std::byte> dest, Told told, ReadClass read_class) {
  Region* region = context_.regions.Readable(location);
  if (region == nullptr || !location.valid() || location.fill_sequence != expected.fill_sequence ||
      expected.dataset_generation != context_.GenerationOf(expected.dataset_id)) {
    ++context_.counters.read_miss;
    return Status(Code::kNotFound, "record is no longer in region " + std::to_string(location.region));
  }
  if (dest.size() < (range.bytes != 0 ? range.bytes : location.stored_bytes)) return Status(Code::kInvalid, "destination is shorter than the record");
  if (range.bytes != 0) {
    if (WidenToParts(location.stored_bytes, range) != range) return Status(Code::kInvalid, "not a run of parts of the record");
    if (!IsAlignedFor(dest, range.bytes)) return Status(Code::kInvalid, "destination of a part is not aligned as the device needs it");
  }
  auto op = std::make_shared<Operation>();
  op->location = location;
  op->expected = expected;
  op->region_epoch = region->epoch;
  op->range = range;
  op->dest = dest;
  op->told = std::move(told);
  if (const std::span<const std::byte> record = writer_.RecordInBuffer(location); !record.empty()) {
    ReadFromBuffer(std::move(op), record);
    return Status::Ok();
  }
  if (in_flight_ >= context_.options.max_reads || !context_.health.MayRead(in_flight_)) {
    ++context_.counters.reads_refused;
    return Status(Code::kBusy, "SSD tier takes no more reads now");
  }
  if (std::uint64_t{location.offset()} + context_.RecordBytesOf(location) > context_.format.region_bytes) {
    return Status(Code::kInvalid, "location reaches beyond its region");
  }
  op->read_class = read_class;
  waiting_[static_cast<std::size_t>(read_class)].push_back(std::move(op));
  ++region->readers;
  ++in_flight_;
  ++context_.counters.reads;
  Pump();
  return Status::Ok();
}

RecordReader::OperationPtr* RecordReader::Next() {
  const Load& foreground = at_device_[static_cast<std::size_t>(ReadClass::kForeground)];
  const Load& background = at_device_[static_cast<std::size_t>(ReadClass::kBackground)];
  const Load both{foreground.reads + background.reads, foreground.bytes + background.bytes};
  const SsdOptions& o = context_.options;
  const auto first = [this](ReadClass read_class, const Load& load, std::size_t most_reads, std::uint64_t most_bytes) -> OperationPtr* {
    auto& waiting = waiting_[static_cast<std::size_t>(read_class)];
    if (waiting.empty() || load.reads >= most_reads) return nullptr;
    return load.reads == 0 || load.bytes + waiting.front()->wanted_bytes() <= most_bytes ? &waiting.front() : nullptr;
  };
  if (!waiting_[static_cast<std::size_t>(ReadClass::kForeground)].empty()) return first(ReadClass::kForeground, both, o.device_reads, o.device_bytes);
  if (both.reads >= o.device_reads) return nullptr;
  return first(ReadClass::kBackground, background, o.background_reads, o.background_bytes);
}

// An operation leaves the queue when the device has it: where there is no memory to ask it, it stays the next one.
void RecordReader::Pump() {
  while (const OperationPtr* const next = Next()) {
    const OperationPtr op = *next;
    try {
      if (!Submit(op)) return;
    } catch (const std::bad_alloc&) {
      return;
    }
    op->in_flight = true;
    Load& load = at_device_[static_cast<std::size_t>(op->read_class)];
    ++load.reads;
    load.bytes += op->wanted_bytes();
    op->place = sent_.size();
    sent_.push_back(op.get());
    waiting_[static_cast<std::size_t>(op->read_class)].pop_front();
  }
}

// The device has answered.
void RecordReader::Leave(Operation& op) {
  op.in_flight = false;
  Load& load = at_device_[static_cast<std::size_t>(op.read_class)];
  --load.reads;
  load.bytes -= op.wanted_bytes();
  sent_.back()->place = op.place;
  sent_[op.place] = sent_.back();
  sent_.pop_back();
}

void RecordReader::TellHung() {
  const std::int64_t until_ns = context_.clock.PreciseNs() - context_.options.hung_read_ns;
  for (std::size_t i = 0; i < sent_.size(); ++i) {  // who is told may ask for more
    if (sent_[i]->sent_ns > until_ns) continue;
    if (const auto on_hung = std::exchange(sent_[i]->told.on_hung, nullptr)) on_hung();
  }
}

void RecordReader::Tick() {
  TellHung();
  Pump();
  const OperationPtr* const next = Next();
  if (next == nullptr) return;
  const OperationPtr op = *next;  // still no memory for it: whoever waits goes elsewhere
  waiting_[static_cast<std::size_t>(op->read_class)].pop_front();
  Finish(op, {ReadOutcome::kIoError, ENOMEM, 0});
}

void RecordReader::Hasten(const SsdLocation& location) {
  auto& background = waiting_[static_cast<std::size_t>(ReadClass::kBackground)];
  const auto found = std::find_if(background.begin(), background.end(), [&](const OperationPtr& op) { return op->location == location; });
  if (found == background.end()) return;
  waiting_[static_cast<std::size_t>(ReadClass::kForeground)].push_back(*found);  // first: where there is no memory for it, it stays what it was
  (*found)->read_class = ReadClass::kForeground;
  background.erase(found);
  Pump();
}

void RecordReader::ReadFromBuffer(OperationPtr op, std::span<const std::byte> record) {
  ++context_.counters.reads;
  ++context_.counters.reads_from_buffer;
  RecordHeader header;
  std::memcpy(&header, record.data(), sizeof(header));
  ReadResult result;
  if (header.identity == op->expected && header.offset == op->location.offset()) {
    const std::uint32_t bytes = op->wanted_bytes();
    std::memcpy(op->dest.data(), record.data() + header.header_bytes + op->range.begin, bytes);
    ZeroTail(*op);
    context_.counters.read_bytes += bytes;
    result = {ReadOutcome::kOk, 0, bytes};
  } else {
    ++context_.counters.read_miss;
  }
  context_.mailbox.Post([op, result] { op->told.done(result); });
}

RecordReader::Asked RecordReader::AskForRecord(Operation& op) {
  const SsdLocation& at = op.location;
  const FrameNeeds needs = NeedsOf(at.stored_bytes);
  op.direct = context_.geometry.IsDirect(at.stored_bytes) && IsAlignedFor(op.dest, at.stored_bytes);
  if (op.direct) {
    op.side = TakeSide(at.header_bytes());
    if (op.side.empty()) return {};
    return {at.offset(), {{op.side.data(), at.header_bytes()}, {op.dest.data(), needs.padded_bytes}}, 2};
  }
  op.lead = at.offset() % context_.format.alignment;
  const std::uint32_t bytes = AlignUp(op.lead + at.header_bytes() + at.stored_bytes, context_.format.alignment);
  op.side = TakeSide(bytes);
  if (op.side.empty()) return {};
  return {at.offset() - op.lead, {{op.side.data(), bytes}}, 1};
}

// First the header, unless it is remembered.
RecordReader::Asked RecordReader::AskForPart(Operation& op) {
  const SsdLocation& at = op.location;
  if (op.parts == nullptr) op.parts = parts_.Find(at);
  if (op.parts != nullptr) {
    op.direct = true;
    const std::uint32_t bytes = AlignUp(op.range.bytes, context_.format.alignment);
    return {at.offset() + at.header_bytes() + op.range.begin, {{op.dest.data(), bytes}}, 1};
  }
  op.side = TakeSide(at.header_bytes());
  if (op.side.empty()) return {};
  return {at.offset(), {{op.side.data(), at.header_bytes()}}, 1};
}

// False: no memory.
bool RecordReader::Submit(const OperationPtr& op) {
  const RegionAddress address = context_.files.AddressOf(op->location.region);
  const Asked asked = op->is_part() ? AskForPart(*op) : AskForRecord(*op);
  if (asked.count == 0) return false;
  std::size_t wanted = 0;
  for (unsigned i = 0; i < asked.count; ++i) wanted += asked.memory[i].iov_len;
  op->sent_ns = context_.clock.PreciseNs();
  context_.io.SubmitReadv(address.fd, {asked.memory, asked.count}, address.offset + asked.from, [this, op, wanted](io::IoResult result) {
    Leave(*op);
    try {
      OnRead(op, wanted, result);
    } catch (const std::bad_alloc&) {
      Finish(op, {ReadOutcome::kIoError, ENOMEM, 0});
    }
    Pump();
  });
  return true;
}

void RecordReader::OnRead(OperationPtr op, std::size_t wanted, io::IoResult result) {
  context_.counters.device_read_bytes += result.bytes;
  if (result.error != 0 || result.bytes != wanted) {
    const int error = result.error != 0 ? result.error : EIO;
    if (!IsShortage(error)) {
      ++context_.counters.read_errors;
      if (IsNewFailure(*op)) context_.health.OnError(context_.clock.MonotonicNs());
    }
    Finish(std::move(op), {ReadOutcome::kIoError, error, 0});
    return;
  }
  context_.health.OnReadSuccess(context_.clock.PreciseNs() - op->sent_ns);
  if (op->is_part() && op->parts == nullptr) return OnHeader(std::move(op));
  if (op->wanted_bytes() <= context_.options.inline_checksum_bytes) {
    const ReadOutcome outcome = Check(context_.format, *op);
    Complete(std::move(op), outcome);
    return;
  }
  checksums_.Post([this, op = std::move(op), &mailbox = context_.mailbox, &format = context_.format] {
    const ReadOutcome outcome = Check(format, *op);
    mailbox.Post([this, op, outcome] { Complete(op, outcome); });
  });
}

// The header of a record of which parts are wanted: they come next, ahead of what waits.
void RecordReader::OnHeader(OperationPtr op) {
  const std::span<const std::byte> record = op->side.span();
  DecodedHeader decoded;
  const ReadOutcome outcome = CheckHeader(context_.format, *op, record, decoded);
  if (outcome != ReadOutcome::kOk) return Complete(std::move(op), outcome);
  auto parts = std::make_shared<const PartSums>(DecodeParts(decoded.header, record));
  ReturnSide(std::exchange(op->side, {}));
  if (parts->sums.empty()) return Complete(std::move(op), ReadOutcome::kNoParts);
  parts_.Add(op->location, parts);
  op->parts = std::move(parts);
  waiting_[static_cast<std::size_t>(op->read_class)].push_front(std::move(op));
}

ReadOutcome RecordReader::CheckHeader(const ScanFormat& format, const Operation& op, std::span<const std::byte> record, DecodedHeader& decoded) {
  switch (DecodeHeader(format.salt, record, {op.location.region, op.location.offset(), op.region_epoch, 0}, &decoded)) {
    case HeaderCheck::kBad: return ReadOutcome::kCorrupt;
    case HeaderCheck::kForeign: return ReadOutcome::kMiss;
    case HeaderCheck::kOk: break;
  }
  const RecordHeader& h = decoded.header;
  // A sound record of somebody else: the location was wrong, the device is not.
  if (!(h.identity == op.expected) || h.stored_bytes != op.location.stored_bytes || h.header_bytes != op.location.header_bytes()) {
    return ReadOutcome::kMiss;
  }
  return ReadOutcome::kOk;
}

ReadOutcome RecordReader::Check(const ScanFormat& format, Operation& op) {
  if (op.is_part()) return PartsHold(format.salt, op.expected, *op.parts, op.range, op.dest) ? ReadOutcome::kOk : ReadOutcome::kCorrupt;
  const std::span<const std::byte> record = std::span<const std::byte>(op.side.span()).subspan(op.lead);
  DecodedHeader decoded;
  if (const ReadOutcome header = CheckHeader(format, op, record, decoded); header != ReadOutcome::kOk) return header;
  const RecordHeader& h = decoded.header;
  const std::span<const std::byte> payload = op.direct ? std::span<const std::byte>(op.dest).first(h.stored_bytes) : record.subspan(h.header_bytes, h.stored_bytes);
  if (PayloadCrcCold(format.salt, h.identity, payload) != h.payload_crc) return ReadOutcome::kCorrupt;
  if (!op.direct) std::memcpy(op.dest.data(), payload.data(), payload.size());
  return ReadOutcome::kOk;
}

void RecordReader::Complete(OperationPtr op, ReadOutcome outcome) {
  // The dataset may have been invalidated while the bytes were on their way.
  if (outcome == ReadOutcome::kOk && op->expected.dataset_generation != context_.GenerationOf(op->expected.dataset_id)) outcome = ReadOutcome::kMiss;
  ReadResult result{outcome, 0, 0};
  switch (outcome) {
    case ReadOutcome::kOk:
      ZeroTail(*op);
      result.bytes = op->wanted_bytes();
      context_.counters.read_bytes += result.bytes;
      break;
    case ReadOutcome::kCorrupt:
      ++context_.counters.read_corrupt;
      if (IsNewFailure(*op)) context_.health.OnCorrupt(context_.clock.MonotonicNs());
      break;
    case ReadOutcome::kMiss: ++context_.counters.read_miss; break;
    case ReadOutcome::kIoError:
    case ReadOutcome::kNoParts: break;
  }
  Finish(std::move(op), result);
}

void RecordReader::Finish(OperationPtr op, ReadResult result) {
  if (op->ended) return;
  op->ended = true;
  --in_flight_;
  context_.regions.DropReader(op->location.region);
  ReturnSide(std::move(op->side));
  op->told.done(result);
}

// Many parts of one record may be under way: one bad record is one fault of the device.
bool RecordReader::IsNewFailure(const Operation& op) {
  if (!op.is_part()) return true;
  return !(std::exchange(last_bad_, op.location) == op.location);
}

void RecordReader::ZeroTail(Operation& op) const {
  const std::uint32_t bytes = op.wanted_bytes();
  const std::uint32_t padded = op.is_part() ? AlignUp(bytes, context_.format.alignment) : NeedsOf(bytes).padded_bytes;
  const std::size_t end = std::min<std::size_t>(op.dest.size(), padded);
  if (end > bytes) std::memset(op.dest.data() + bytes, 0, end - bytes);
}

bool RecordReader::IsAlignedFor(std::span<const std::byte> dest, std::uint32_t bytes) const {
  const std::uint32_t alignment = context_.format.alignment;
  return dest.size() >= AlignUp(bytes, alignment) && reinterpret_cast<std::uintptr_t>(dest.data()) % alignment == 0;
}

void RecordReader::Probe() {
  if (probing_) return;
  // Space that was never written reads well from a dead device.
  std::uint32_t region = context_.regions.FindState(RegionState::kClosed, probe_from_).value_or(0);
  while (region < context_.regions.size() && context_.regions.at(region).state == RegionState::kAbsent) ++region;
  if (region == context_.regions.size() || !context_.files.IsOpen(region)) {
    context_.health.OnWriteSuccess();
    return;
  }
  io::AlignedBuffer block(io::AlignedBuffer::kAlignment);
  if (block.empty()) return;
  const RegionAddress address = context_.files.AddressOf(region);
  const iovec part{block.data(), io::AlignedBuffer::kAlignment};
  const std::int64_t sent_ns = context_.clock.PreciseNs();
  // The buffer lives in the callback.
  auto held = std::make_shared<io::AlignedBuffer>(std::move(block));
  context_.io.SubmitReadv(address.fd, {&part, 1}, address.offset, [this, held, sent_ns, region](io::IoResult result) {
    probing_ = false;
    if (IsShortage(result.error)) return;
    if (result.error != 0) {
      probe_from_ = region + 1;
      context_.health.OnError(context_.clock.MonotonicNs());
    } else {
      context_.health.OnReadSuccess(context_.clock.PreciseNs() - sent_ns);
    }
  });
  probing_ = true;
}

io::AlignedBuffer RecordReader::TakeSide(std::size_t bytes) {
  if (bytes > side_bytes_) return io::AlignedBuffer(bytes);
  if (free_sides_.empty()) return io::AlignedBuffer(side_bytes_);
  io::AlignedBuffer buffer = std::move(free_sides_.back());
  free_sides_.pop_back();
  return buffer;
}

void RecordReader::ReturnSide(io::AlignedBuffer buffer) {
  if (buffer.size() == side_bytes_ && free_sides_.size() * side_bytes_ < kKeptSideBytes) free_sides_.push_back(std::move(buffer));
}

}  // namespace tierd::ssd
