#include "tierd/source/read_ahead.h"

#include <algorithm>

namespace tierd::source {

ChunkRange ReadAhead::Advance(Stream& stream, std::uint32_t chunk, std::uint32_t chunk_count) {
  calm_ = std::min(calm_ + 1, kCalm);
  if (longest_ < options_.max_chunks && calm_ == kCalm) {
    ++longest_;
    calm_ = 0;
  }
  stream.last = chunk;
  stream.next = std::max(stream.next, chunk + 1);
  // Ask again only when half of the last window is used up: one larger request instead of one per chunk.
  const std::uint32_t ahead = stream.next - (chunk + 1);
  if (stream.run > 0 && ahead > stream.window / 2) return {};
  stream.window = std::min(stream.window == 0 ? 1 : stream.window * 2, longest_);
  const std::uint32_t end = std::min<std::uint64_t>(std::uint64_t{chunk} + 1 + stream.window, chunk_count);
  if (end <= stream.next) return {};
  const ChunkRange range{stream.next, end - stream.next};
  stream.next = end;
  return range;
}

// A reader that begins at the beginning will mostly go on; any other first access says nothing yet, unless the reader does.
ChunkRange ReadAhead::Begin(Stream& stream, std::uint32_t chunk, std::uint32_t chunk_count, Hint hint) {
  stream = Stream{stream.key, chunk, 0, 0, chunk + 1};
  return chunk == 0 || hint == Hint::kSequential ? Advance(stream, chunk, chunk_count) : ChunkRange{};
}

ChunkRange ReadAhead::OnAccess(StreamKey key, std::uint32_t chunk, std::uint32_t chunk_count, Hint hint) {
  if (options_.max_chunks == 0 || options_.max_streams == 0 || chunk_count <= 1) return {};
  const auto found = streams_.find(key);
  if (found == streams_.end()) {
    if (streams_.size() >= options_.max_streams) {
      streams_.erase(order_.back().key);
      order_.pop_back();
    }
    order_.push_front(Stream{.key = key});
    streams_.emplace(key, order_.begin());
    return Begin(order_.front(), chunk, chunk_count, hint);
  }
  order_.splice(order_.begin(), order_, found->second);
  Stream& stream = order_.front();
  if (chunk == stream.last) return {};
  if (chunk < stream.last || chunk > stream.next) return Begin(stream, chunk, chunk_count, hint);
  const ChunkRange range = Advance(stream, chunk, chunk_count);
  ++stream.run;
  return range;
}

void ReadAhead::NoteMissing(StreamKey key, std::uint32_t chunk) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  Stream& stream = *found->second;
  if (chunk <= stream.last || chunk >= stream.next) return;
  stream.next = chunk;
  if (calm_ < kOneLoss) return;
  longest_ /= 2;
  calm_ = 0;
}

void ReadAhead::ForgetSession(std::uint64_t session) {
  for (auto it = order_.begin(); it != order_.end();) {
    if (it->key.session == session) {
      streams_.erase(it->key);
      it = order_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace tierd::source
