#include "tierd/ssd/region_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/base/crc32c.h"
#include "tierd/base/kill_point.h"

namespace tierd::ssd {
namespace {
// Records of a region that could not be written, of which the owner hears in a turn: below a millisecond.
constexpr std::uint32_t kToldPerTurn = 1024;
// Of its regions a tier does without so many at most: were there more, the device is bad.
constexpr std::uint32_t kRetiredOneIn = 8;
// No number of failures: some of it could not even be sent.
constexpr std::uint64_t kNotAll = ~std::uint64_t{0};
}  // namespace

RegionWriter::RegionWriter(TierContext& context) : context_(context) {
  for (unsigned i = 0; i < context_.options.region_buffers; ++i) {
    buffers_.push_back(std::make_unique<Buffer>());
    buffers_.back()->memory = io::AlignedBuffer(context_.format.region_bytes);
  }
}

bool RegionWriter::has_memory() const {
  return std::none_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->memory.empty(); });
}

void RegionWriter::TouchBuffers() {
  for (const auto& buffer : buffers_) std::memset(buffer->memory.data(), 0, buffer->memory.size());
}

RegionWriter::Buffer* RegionWriter::BufferOf(std::uint32_t region) const {
  for (const auto& buffer : buffers_) {
    if (buffer->used && buffer->region == region) return buffer.get();
  }
  return nullptr;
}

std::uint32_t RegionWriter::StartOf(const TierContext& context, const Buffer& buffer, std::uint32_t payload_bytes) {
  return AlignUp(buffer.fill, context.geometry.AlignmentOf(payload_bytes));
}

bool RegionWriter::Fits(const Buffer& buffer, std::uint32_t payload_bytes, std::size_t path_bytes) const {
  const std::uint64_t end = std::uint64_t{StartOf(context_, buffer, payload_bytes)} + RecordBytes(context_.geometry, payload_bytes, path_bytes);
  return end + buffer.toc.BytesWith(path_bytes, context_.format.alignment) <= context_.format.region_bytes;
}

Result<SsdLocation> RegionWriter::Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, Use use, std::uint32_t crc) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  if (!writable_) return Status(Code::kBusy, "SSD tier is read-only");
  if (use == Use::kNew && IsMovers()) return NoRoomForNew();
  if (current_ == nullptr || !Fits(*current_, bytes, path.size())) {
    if (!Fits(Buffer(), bytes, path.size())) return Status(Code::kInvalid, "record of " + std::to_string(bytes) + " bytes is larger than a region");
    if (current_ != nullptr) CloseBuffer(*current_);
    if (Status taken = TakeRegion(use); !taken.ok()) return taken;
  }
  return Place(*current_, identity, path, payload, crc);
}

// The last region is the mover's; another may be on its way.
Status RegionWriter::NoRoomForNew() const {
  return context_.regions.Count(RegionState::kAllocating) > 0 ? Status(Code::kBusy, "a region is being allocated") : Status(Code::kNoSpace, "SSD tier is full");
}

Status RegionWriter::TakeRegion(Use use) {
  const bool last = context_.regions.Count(RegionState::kFree) == 0 && !growable_;
  if (last && use == Use::kNew) return NoRoomForNew();
  const auto free = std::find_if(buffers_.begin(), buffers_.end(), [](const auto& b) { return !b->used; });
  if (free == buffers_.end()) return Status(Code::kBusy, "all region buffers are being written");
  if (!prepared_) {
    Prepare();
    return last && !preparing_ ? Status(Code::kNoSpace, "SSD tier has no region left") : Status(Code::kBusy, "no region is ready yet");
  }
  Buffer& buffer = **free;
  buffer.region = *prepared_;
  buffer.address = context_.files.AddressOf(buffer.region);
  buffer.toc.Reset(buffer.region, context_.regions.at(buffer.region).epoch);
  buffer.fill = buffer.previous_end = buffer.submitted = 0;
  buffer.closing = buffer.toc_submitted = buffer.failed = buffer.bad = buffer.lost = false;
  buffer.used = true;
  buffer.movers = last;
  current_ = &buffer;
  prepared_.reset();
  context_.regions.Set(buffer.region, RegionState::kOpen);
  buffer.taken = ++context_.counters.regions_opened;
  Prepare();
  return Status::Ok();
}

void RegionWriter::Prepare() {
  if (prepared_ || preparing_ || !writable_) return;
  const std::optional<std::uint32_t> region = context_.regions.OpenFree();
  if (!region) return;
  try {
    // Nothing is written before the index knows that the region is being overwritten: a kill in between must leave it marked for a walk.
    context_.index.BeginRegion(*region, context_.regions.at(*region).epoch, [this, region = *region] {
      preparing_ = false;
      prepared_ = region;
      context_.regions.Set(region, RegionState::kPrepared);
    });
  } catch (const std::bad_alloc&) {
    context_.regions.Set(*region, RegionState::kFree);
    throw;  // to whoever turns the loop: there is room, and no memory
  }
  preparing_ = true;
}

Result<SsdLocation> RegionWriter::Place(Buffer& buffer, const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t wanted_crc) {
  TIERD_KILL_POINT("ssd.append.before_copy");
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  const std::uint32_t start = StartOf(context_, buffer, bytes);
  const std::uint32_t header_bytes = HeaderBytes(context_.geometry, bytes, path.size());
  const std::uint32_t end = start + RecordBytes(context_.geometry, bytes, path.size());
  const std::uint64_t epoch = buffer.toc.epoch();
  const SsdLocation location{identity.fill_sequence, buffer.region, static_cast<std::uint32_t>(epoch), EncodePlace(start, header_bytes), bytes};
  std::byte* const base = buffer.memory.data();
  std::byte* const to = base + start + header_bytes;
  std::memcpy(to, payload.data(), bytes);
  // The payload may lie in memory that others map. Only the copy is ours, so the copy is compared.
  if (wanted_crc != 0 && Crc32c(to, bytes) != wanted_crc) {
    std::memset(base + buffer.fill, 0, start + header_bytes + bytes - buffer.fill);
    return Status(Code::kCorrupt, "bytes of " + std::string(path) + " differ from what was read");
  }
  if (!buffer.toc.Add(identity, location, path)) {
    CloseBuffer(buffer);
    return Status(Code::kBusy, "the region's table of contents is full");
  }
  std::memset(base + buffer.fill, 0, start - buffer.fill);
  std::memset(to + bytes, 0, end - (start + header_bytes + bytes));
  // From the copy, which is in the cache by now.
  std::array<std::uint32_t, kMostSums> sums;
  const std::size_t parts = PayloadSums(context_.format.salt, identity, {to, bytes}, sums);
  const std::uint32_t crc = parts != 0 ? sums[parts - 1] : PayloadCrc(context_.format.salt, identity, {to, bytes});
  const RecordContent content{identity, path, bytes, crc, std::span(sums).first(parts)};
  EncodeHeader(context_.format.salt, context_.geometry, {buffer.region, start, epoch, buffer.previous_end}, content, base + start);
  buffer.fill = buffer.previous_end = end;
  context_.regions.AddLive(location, end - start);
  TIERD_KILL_POINT("ssd.append.after_copy");
  SubmitUnits(buffer);
  return location;
}

std::span<const std::byte> RegionWriter::RecordInBuffer(const SsdLocation& location) const {
  const Buffer* buffer = BufferOf(location.region);
  const std::uint64_t end = std::uint64_t{location.offset()} + location.header_bytes() + location.stored_bytes;
  if (buffer == nullptr || end > buffer->fill) return {};
  return {buffer->memory.data() + location.offset(), location.header_bytes() + location.stored_bytes};
}

void RegionWriter::SubmitUnits(Buffer& buffer) {
  const std::uint32_t unit = context_.options.write_unit_bytes;
  while (!buffer.failed && buffer.fill - buffer.submitted >= unit) {
    if (!Submit(buffer, buffer.submitted, buffer.submitted + unit)) return;
    buffer.submitted += unit;
  }
}

void RegionWriter::SubmitPartial(Buffer& buffer) {
  if (buffer.failed || buffer.fill == buffer.submitted) return;
  // The rest of the block stays empty, so that no block is written twice; the next header says where its predecessor ended.
  const std::uint32_t end = AlignUp(buffer.fill, context_.format.alignment);
  std::memset(buffer.memory.data() + buffer.fill, 0, end - buffer.fill);
  if (Submit(buffer, buffer.submitted, end)) buffer.fill = buffer.submitted = end;
}

// False: there is no memory for it now; the buffer keeps what it has, and Step tries again.
bool RegionWriter::Submit(Buffer& buffer, std::uint32_t from, std::uint32_t to) {
  TIERD_KILL_POINT("ssd.write.before_submit");
  const std::uint64_t number = next_write_;
  const iovec part{buffer.memory.data() + from, to - from};
  try {
    outstanding_.insert(number);
    context_.io.SubmitWritev(buffer.address.fd, {&part, 1}, buffer.address.offset + from,
                             [this, &buffer, number, wanted = part.iov_len](io::IoResult result) { OnWritten(buffer, number, wanted, result); });
  } catch (const std::bad_alloc&) {
    outstanding_.erase(number);
    return false;
  }
  ++next_write_;
  ++buffer.in_flight;
  ++context_.counters.device_writes;
  return true;
}

void RegionWriter::OnWritten(Buffer& buffer, std::uint64_t number, std::size_t wanted, io::IoResult result) {
  TIERD_KILL_POINT("ssd.write.after_complete");
  outstanding_.erase(number);
  --buffer.in_flight;
  context_.counters.device_write_bytes += result.bytes;
  try {
    if (result.error == 0 && result.bytes == wanted) {
      context_.health.OnWriteSuccess();
    } else {
      OnWriteFailed(buffer, result.error != 0 ? result.error : EIO);
    }
    Advance(buffer);
  } catch (const std::bad_alloc&) {
    // The next Step goes on; who waits for this write does not wait for that.
  }
  RunWaiters();
}

void RegionWriter::OnWriteFailed(Buffer& buffer, int error) {
  // What was on its way to one place fails together: that is one error, or a single bad region would take the device out.
  const bool again = std::exchange(buffer.failed, true);
  ++failures_;
  last_error_ = error;
  if (current_ == &buffer) current_ = nullptr;
  if (SpeaksOfSpace(error)) {
    ++context_.counters.write_no_space;
    return;
  }
  ++context_.counters.write_errors;
  if (again) return;
  context_.health.OnError(context_.clock.MonotonicNs());
  buffer.bad = error != EROFS && failed_.OnFailed(buffer.region, context_.counters.regions_opened);
}

void RegionWriter::CloseBuffer(Buffer& buffer) {
  TIERD_KILL_POINT("ssd.region.before_close");
  SubmitPartial(buffer);
  buffer.closing = true;
  if (current_ == &buffer) current_ = nullptr;
  Advance(buffer);
}

void RegionWriter::Advance(Buffer& buffer) {
  if (buffer.in_flight > 0 || buffer.lost) return;
  if (buffer.failed) {
    Abandon(buffer);
  } else if (!buffer.closing) {
    return;
  } else if (buffer.toc_submitted) {
    Finish(buffer);
  } else if (buffer.submitted < buffer.fill) {
    SubmitPartial(buffer);
  } else {
    // Only now: a table of contents promises that what it lists was written.
    const std::uint32_t start = buffer.toc.Finish(context_.format.salt, buffer.previous_end, context_.format.alignment,
                                                  buffer.memory.span().first(context_.format.region_bytes));
    buffer.toc_submitted = Submit(buffer, start, context_.format.region_bytes);
  }
}

void RegionWriter::AdvanceAll() {
  for (const auto& buffer : buffers_) {
    if (buffer->used && buffer.get() != current_) Advance(*buffer);
  }
}

// Where there is no memory to tell the index, the next start walks the region.
void RegionWriter::Finish(Buffer& buffer) {
  context_.regions.Set(buffer.region, RegionState::kClosed);
  ++context_.counters.regions_closed;
  failed_.OnWritten(buffer.region, buffer.taken);
  buffer.used = false;
  context_.index.EndRegion(std::move(buffer.toc));
  buffer.toc = TocBuilder();
}

// Its records stay readable in the buffer until the owner has heard that they are gone.
void RegionWriter::Abandon(Buffer& buffer) {
  buffer.closing = false;
  buffer.lost = true;
  buffer.told = TocCursor();
}

bool RegionWriter::has_work() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->lost; });
}

bool RegionWriter::failing() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->used && b->failed; });
}

void RegionWriter::Retire(std::uint32_t region) {
  failed_.Rest(region, context_.clock.MonotonicNs());
  context_.regions.Set(region, RegionState::kRetired);
  ++context_.counters.regions_retired;
}

void RegionWriter::TryRestedAgain() {
  if (context_.regions.Count(RegionState::kRetired) == 0) return;
  while (const auto region = failed_.NextRested(context_.clock.MonotonicNs())) {
    // Its space may have been given back meanwhile.
    if (context_.regions.at(*region).state == RegionState::kRetired) context_.regions.Set(*region, RegionState::kFree);
  }
}

void RegionWriter::Step(const std::function<bool(const SsdRecord&)>& take_back) {
  TryRestedAgain();
  AdvanceAll();
  if (outstanding_.empty()) RunWaiters();
  const auto at = std::find_if(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->lost; });
  if (at == buffers_.end()) return;
  Buffer& buffer = **at;
  const bool more = buffer.toc.VisitSome(buffer.told, kToldPerTurn, [&](const RecoveredRecord& found) {
    const SsdRecord record{found.identity, found.location};
    if (context_.owner.Worth(record) < 0) return;
    context_.regions.RemoveLive(record.location, context_.RecordBytesOf(record.location));
    if (take_back(record)) return;
    ++context_.counters.records_lost_to_write_errors;
    context_.owner.OnGone(record, SsdGone::kWriteFailed);
  });
  if (more) return;
  context_.index.EndEmpty(buffer.region, buffer.toc.epoch());  // some of them may have been written, and would be found at the next start
  context_.regions.ClearLive(buffer.region);
  const std::uint32_t most = std::max<std::uint32_t>(1, context_.regions.allocated() / kRetiredOneIn);
  const bool retire = buffer.bad && context_.regions.Count(RegionState::kRetired) < most;
  if (retire) Retire(buffer.region);
  else context_.regions.Set(buffer.region, RegionState::kFree);
  buffer.toc = TocBuilder();
  buffer.used = buffer.lost = false;
}

void RegionWriter::Sync(std::function<void(Status)> done) {
  if (current_ != nullptr) SubmitPartial(*current_);
  const bool all = std::none_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->used && !b->failed && b->submitted < b->fill; });
  if (outstanding_.empty()) context_.mailbox.Post([this] { RunWaiters(); });
  waiters_.push_back({next_write_ - 1, all ? failures_ : kNotAll, std::move(done)});
}

void RegionWriter::RunWaiters() {
  while (!waiters_.empty() && (outstanding_.empty() || *outstanding_.begin() > waiters_.front().last_write)) {
    const Waiter waiter = std::move(waiters_.front());
    waiters_.erase(waiters_.begin());
    waiter.done(waiter.failures == failures_ ? Status::Ok() : Status(Code::kIo, "a write to the SSD failed"));
  }
}

void RegionWriter::Close() {
  if (current_ != nullptr && current_->fill > 0) CloseBuffer(*current_);
  AdvanceAll();
  FreePrepared();
}

void RegionWriter::LetGo() {
  if (prepared_) return FreePrepared();
  if (current_ != nullptr && current_->fill > 0) CloseBuffer(*current_);
}

// What the prepared region held is gone.
void RegionWriter::FreePrepared() {
  if (!prepared_) return;
  context_.index.EndEmpty(*prepared_, context_.regions.at(*prepared_).epoch);
  context_.regions.Set(*prepared_, RegionState::kFree);
  prepared_.reset();
}

bool RegionWriter::idle() const {
  if (!outstanding_.empty() || preparing_ || prepared_) return false;
  return std::none_of(buffers_.begin(), buffers_.end(), [](const auto& b) { return b->used && b->closing; });
}

bool RegionWriter::behind() const {
  return current_ == nullptr && std::all_of(buffers_.begin(), buffers_.end(), [](const auto& buffer) { return buffer->used; });
}

std::uint64_t RegionWriter::room(Use use) const {
  if (current_ == nullptr || (use == Use::kNew && IsMovers())) return 0;
  const std::uint64_t taken = std::uint64_t{current_->fill} + current_->toc.BytesWith(0, context_.format.alignment);
  return taken >= context_.format.region_bytes ? 0 : context_.format.region_bytes - taken;
}

}  // namespace tierd::ssd
