// Reads of the source: a chunk each, or neighbours in one file together. What the daemon brings ahead comes in the order of its use, often chunk after chunk of
// a large file, and the source is spared an open, two stats and a close for each of them.
//
// A fill stands in the reader's line until its turn comes; until then its neighbours may join it. When a reader has come to wait for one of them by then,
// it goes alone: the others would only make it longer.
#include <algorithm>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

constexpr std::uint64_t kMostTogether = std::uint64_t{16} << 20;  // long enough for a source at its pace, short enough to begin with what is used first
constexpr std::uint64_t kBytesAtOnce = std::uint64_t{4} << 20;    // are copied and summed for the SSD tier in half a millisecond (HAZARDS 5)
constexpr std::size_t kPage = 4096;                               // what O_DIRECT wants addresses and lengths to be multiples of

}  // namespace

void Fetcher::FillFromSource(SourceUnit& unit, const FillPtr& fill) {
  if (HungFramesFull() && fill->priority != source::Priority::kPrefetch) return Fail(fill, abi::Fallback::kSourceSlow, BringOutcome::kFailed);
  fill->generation = GenerationOf(unit);
  if (JoinNeighbour(fill)) return;
  const ObjectRecord& record = catalogue_.object(fill->object);
  const bool chunked = (catalogue_.file(fill->file).flags & kFileChunked) != 0;
  const auto read = std::make_shared<SourceRead>();
  read->pieces.push_back({fill, record.bytes - fill->head});
  read->bytes = record.bytes - fill->head;
  fill->read = read;
  source::ReadRequest request;
  request.path = catalogue_.PathOf(fill->file);
  request.capacity = read->bytes;
  if (chunked || fill->head != 0) request.expected = catalogue_.StatOf(fill->file);
  request.priority = fill->priority;
  request.deadline_ns = DeadlineOf(fill->waiters);
  request.acquire = [this, &unit, read](source::ReadRequest& sent) {
    bool acquired = false;
    Guard([&] { acquired = AcquireAll(unit, *read, sent); });
    return acquired;
  };
  request.done = [this, &unit, read](const source::ReadResult& result) { Guard([&] { OnSourceRead(unit, read, result); }); };
  request.on_buffer_free = [this, &unit, read](const source::ReadResult& result) { Guard([&] { OnLateRead(unit, read, result); }); };
  read->timing = {unit.pace.Begin(), read->bytes, clock_.PreciseNs()};
  read->request = unit.reader->Read(std::move(request));
}

// The chunk before or behind it is still in the line, and nobody waits for this one.
bool Fetcher::JoinNeighbour(const FillPtr& fill) {
  if (fill->priority != source::Priority::kPrefetch || fill->head != 0) return false;
  const ObjectRecord& record = catalogue_.object(fill->object);
  for (const std::uint32_t chunk : {record.chunk - 1, record.chunk + 1}) {  // none is behind the largest number
    const ObjectId neighbour = catalogue_.ObjectOf(fill->file, chunk);
    const auto at = neighbour == kNoObject ? fills_.end() : fills_.find(Raw(neighbour));
    if (at == fills_.end() || at->second->head != 0) continue;
    const SourceReadPtr read = at->second->read.lock();
    if (read == nullptr || read->sent_ns != 0 || read->bytes + record.bytes > kMostTogether || read->pieces.size() > io::FileReadRequest::kMaxFurther) continue;
    read->pieces.insert(chunk < record.chunk ? read->pieces.end() : read->pieces.begin(), {fill, record.bytes});
    read->bytes += record.bytes;
    fill->read = read;
    return true;
  }
  return false;
}

// Its turn has come: memory for as many pieces in a row as can have it, and the request for those. The others stand in line again.
bool Fetcher::AcquireAll(SourceUnit& unit, SourceRead& read, source::ReadRequest& request) {
  read.sent_ns = clock_.PreciseNs();
  auto& pieces = read.pieces;
  std::vector<SourceRead::Piece> others;
  const auto leave = [&](auto begin, auto end) {
    others.insert(others.end(), begin, end);
    pieces.erase(begin, end);
  };
  const auto is_awaited = [](const SourceRead::Piece& piece) { return piece.fill->is_awaited(); };
  if (std::any_of(pieces.begin(), pieces.end(), is_awaited)) leave(std::stable_partition(pieces.begin(), pieces.end(), is_awaited), pieces.end());
  const auto acquire = [&](const SourceRead::Piece& piece) {
    bool acquired = false;
    return !piece.fill->orphan && !HungFramesFull() && Survives([&] { acquired = AcquireFor(piece.fill); }) && acquired;
  };
  const auto first = std::find_if(pieces.begin(), pieces.end(), acquire);
  const bool any = first != pieces.end();
  if (any) {  // else all of them hear that there is no room
    leave(pieces.begin(), first);
    std::uint32_t next = catalogue_.object(pieces.front().fill->object).chunk;
    leave(std::find_if_not(pieces.begin() + 1, pieces.end(), [&](const auto& piece) { return catalogue_.object(piece.fill->object).chunk == ++next && acquire(piece); }), pieces.end());
    Compose(unit, read, request);
    for (const SourceRead::Piece& piece : pieces) piece.fill->sent_ns = read.sent_ns;
  }
  for (const SourceRead::Piece& piece : others) {
    if (!piece.fill->orphan) Guard([&] { RunFill(unit, piece.fill); });
  }
  return any;
}

void Fetcher::Compose(const SourceUnit& unit, SourceRead& read, source::ReadRequest& request) {
  read.bytes = 0;
  for (const SourceRead::Piece& piece : read.pieces) {
    Fill& fill = *piece.fill;
    std::byte* const to = (fill.staging.size() != 0 ? fill.staging.data() : placement_.FrameSpan(fill.grant.frame).data()) + fill.head;
    if (read.bytes == 0) {
      request.offset = std::uint64_t{catalogue_.object(fill.object).chunk} * unit.options.chunk_bytes + fill.head;
      request.buffer = to;
      request.capacity = piece.bytes;
    } else {
      request.further.push_back({to, piece.bytes});
    }
    read.bytes += piece.bytes;
  }
  // The last piece of a file has room for O_DIRECT behind it, unless it is small.
  if (const SourceRead::Piece& end = read.pieces.back(); end.fill->head == 0 && end.bytes >= 64 * 1024) {
    std::size_t& room = request.further.empty() ? request.capacity : request.further.back().iov_len;
    room = (room + kPage - 1) / kPage * kPage;
  }
  read.timing.bytes = read.bytes;
  counters_.source_joined += read.pieces.size() - 1;
}

void Fetcher::OnSourceRead(SourceUnit& unit, const SourceReadPtr& read, const source::ReadResult& result) {
  read->timing.End(unit.pace, result.error, clock_.PreciseNs());
  if (!result.buffer_held) return OnLateRead(unit, read, result);
  for (const SourceRead::Piece& piece : read->pieces) BeginHung(*piece.fill, result.error);  // a late success may still be published (OnLateRead)
}

void Fetcher::BeginHung(Fill& fill, source::ReadError error) {
  fill.late = true;
  if (fill.grant.outcome == Placement::Outcome::kGranted) {
    fill.hung_bytes = placement_.FrameSpan(fill.grant.frame).size();
    hung_bytes_ += fill.hung_bytes;
    ++hung_frames_;
  }
  GiveUp(fill.waiters, fill.orphan ? kNoFile : fill.file, error);
}

void Fetcher::EndHung(Fill& fill) {
  fill.late = false;
  if (fill.hung_bytes == 0) return;
  hung_bytes_ -= std::exchange(fill.hung_bytes, 0);
  --hung_frames_;
}

void Fetcher::OnLateRead(SourceUnit& unit, const SourceReadPtr& read, const source::ReadResult& result) {
  std::size_t before = 0;
  for (const SourceRead::Piece& piece : read->pieces) {
    const FillPtr& fill = piece.fill;
    EndHung(*fill);
    source::ReadResult own = result;
    own.bytes = std::min(result.bytes - std::min(before, result.bytes), piece.bytes);
    before += piece.bytes;
    Guard([&] {
      if (own.error == source::ReadError::kNone && handled_bytes_ >= kBytesAtOnce) landed_.push_back({&unit, fill, own});
      else Handle({&unit, fill, own});
    });
  }
}

void Fetcher::Handle(const Landed& landed) {
  handled_bytes_ += landed.result.bytes;
  OnFilled(*landed.unit, landed.fill, landed.result);
}

void Fetcher::HandleLanded() {
  handled_bytes_ = 0;
  while (!landed_.empty() && handled_bytes_ < kBytesAtOnce) {
    const Landed next = std::move(landed_.front());
    landed_.pop_front();
    Guard([&] { Handle(next); });
  }
}

}  // namespace tierd::engine
