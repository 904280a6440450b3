// Finds sequential readers of chunked files and says which chunks to bring next. Pure: no I/O, no clock.
// Owner: the engine. Loop thread only. It does not know what is already cached (its caller skips those).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace tierd::source {

struct ReadAheadOptions {
  std::uint32_t max_chunks = 8;     // most chunks ahead of the reader (8 x 4 MiB); 0 turns it off
  std::size_t max_streams = 4096;   // remembered (session, file) pairs; the least recently used is forgotten
};

// One reader of one file.
struct StreamKey {
  std::uint64_t session = 0;
  std::uint64_t file = 0;
  bool operator==(const StreamKey&) const = default;
};

// Chunks first .. first + count - 1; count 0: none.
struct ChunkRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// What the reader itself knows of an access.
enum class Hint : std::uint8_t {
  kNone,
  kSequential,  // it comes from the chunk before (kFetchSequential)
};

class ReadAhead {
 public:
  // So many sequential accesses without a loss until windows may be a chunk longer again.
  static constexpr std::uint32_t kCalm = 256;
  // What is lost within so many has one cause: windows are halved once.
  static constexpr std::uint32_t kOneLoss = 8;
  explicit ReadAhead(const ReadAheadOptions& options) : options_(options), longest_(options.max_chunks) {}

  // A read of `chunk` in a file of `chunk_count` chunks. Returns what to bring, never the same chunk twice for one sequential run: nothing
  // for a random access, one chunk after the very first read of chunk 0, then windows of 2, 4, ... max_chunks (fewer after a loss), each asked for when the
  // reader has used half of the one before. What was asked for may be read without a word about it: whatever chunk follows the last one, up
  // to the first that was not asked for, goes on with the run. Reading the same chunk again changes nothing. A jump starts over: like a first
  // read, it asks for one chunk when it leads to chunk 0 or the reader says that it is none.
  ChunkRange OnAccess(StreamKey key, std::uint32_t chunk, std::uint32_t chunk_count, Hint hint = Hint::kNone);
  // The reader has to ask for the chunk, which is nowhere and not on its way either. If it had been asked for ahead it was lost unread: there is no room for so much ahead of
  // so many readers. Windows of all streams are half as long from now on (none at last), for a while; this stream may ask again for what was lost with it.
  void NoteMissing(StreamKey key, std::uint32_t chunk);
  // Forgets every stream of a session that ended. Linear in the number of streams.
  void ForgetSession(std::uint64_t session);
  std::size_t streams() const { return streams_.size(); }

 private:
  struct KeyHash {
    std::size_t operator()(const StreamKey& k) const {
      return static_cast<std::size_t>((k.session * 0x9E3779B97F4A7C15ULL) ^ (k.file + (k.session >> 29)) * 0xBF58476D1CE4E5B9ULL);
    }
  };
  struct Stream {
    StreamKey key;
    std::uint32_t last = 0;       // chunk read last
    std::uint32_t run = 0;        // sequential steps so far
    std::uint32_t window = 0;     // chunks asked for in the last step
    std::uint32_t next = 0;       // first chunk not asked for yet
  };
  ChunkRange Begin(Stream& stream, std::uint32_t chunk, std::uint32_t chunk_count, Hint hint);
  ChunkRange Advance(Stream& stream, std::uint32_t chunk, std::uint32_t chunk_count);

  const ReadAheadOptions options_;
  std::uint32_t longest_;       // window
  std::uint32_t calm_ = kCalm;  // sequential accesses since it changed, at most kCalm
  std::list<Stream> order_;  // most recently used first
  std::unordered_map<StreamKey, std::list<Stream>::iterator, KeyHash> streams_;
};

}  // namespace tierd::source
