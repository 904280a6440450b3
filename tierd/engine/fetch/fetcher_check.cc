// A second look at what was just read: nothing tells whether the bytes of a source are the right ones, but two reads of one version must give the same.
// For hunts (SourceOptions::check_reads): it costs a read more, and whoever waits for the bytes waits for that too.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

struct Difference {
  std::size_t first = 0;
  std::size_t bytes = 0;
  std::size_t zeros = 0;  // of those: 0 in what would have been kept
};

Difference Compare(const std::byte* kept, const std::byte* again, std::size_t bytes) {
  Difference difference;
  for (std::size_t at = 0; at < bytes; ++at) {
    if (kept[at] == again[at]) continue;
    if (difference.bytes++ == 0) difference.first = at;
    difference.zeros += kept[at] == std::byte{0} ? 1 : 0;
  }
  return difference;
}

}  // namespace

void Fetcher::Keep(SourceUnit& unit, const FillPtr& fill) {
  const std::uint32_t every = unit.options.check_reads;
  const ObjectRecord& record = catalogue_.object(fill->object);
  fill->landed = true;
  const bool framed = fill->grant.outcome == Placement::Outcome::kGranted;
  const std::byte* const bytes = framed ? placement_.FrameSpan(fill->grant.frame).data() : fill->staging.data();
  placement_.NoteSourceBytes(fill->object, {bytes, record.bytes});
  const bool check = every != 0 && unit.chunks_read++ % every == 0;
  auto again = std::make_shared<io::AlignedBuffer>(check ? staging_->Take(record.bytes) : io::AlignedBuffer());  // shared with the read
  if (again->empty()) return CompleteFromSource(unit, fill);
  source::ReadRequest request;
  request.path = catalogue_.PathOf(fill->file);
  request.offset = std::uint64_t{record.chunk} * unit.options.chunk_bytes;
  request.capacity = record.bytes;
  request.buffer = again->data();
  request.expected = catalogue_.StatOf(fill->file);
  request.priority = fill->priority;
  const auto give = [staging = staging_, again] { staging->Give(std::exchange(*again, {})); };
  request.done = [this, &unit, fill, again, give](const source::ReadResult& result) {
    if (result.buffer_held) return;  // the daemon stops
    Guard([&] { OnReadTwice(unit, fill, *again, result); });
    give();
  };
  request.on_buffer_free = [give](const source::ReadResult&) { give(); };
  unit.reader->Read(std::move(request));
}

void Fetcher::OnReadTwice(SourceUnit& unit, const FillPtr& fill, const io::AlignedBuffer& again, const source::ReadResult& result) {
  if (fill->orphan) return ReleaseMemory(fill);
  const ObjectRecord& record = catalogue_.object(fill->object);
  const bool framed = fill->grant.outcome == Placement::Outcome::kGranted;
  const std::byte* const kept = framed ? placement_.FrameSpan(fill->grant.frame).data() : fill->staging.data();
  const bool told = result.error == source::ReadError::kNone && result.bytes == record.bytes;
  if (!told || std::memcmp(kept, again.data(), record.bytes) == 0) return CompleteFromSource(unit, fill);
  const Difference difference = Compare(kept, again.data(), record.bytes);
  ++counters_.integrity_source;
  if (on_mismatch)
    on_mismatch("integrity source=" + unit.options.name + " path=\"" + catalogue_.PathOf(fill->file) + "\" chunk=" + std::to_string(record.chunk) + " of=" + std::to_string(record.bytes) +
                " first=" + std::to_string(difference.first) + " differing=" + std::to_string(difference.bytes) + " zeros=" + std::to_string(difference.zeros));
  Fail(fill, abi::Fallback::kChanged, BringOutcome::kFailed);
}

}  // namespace tierd::engine
