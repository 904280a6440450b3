// Which accesses begin to read a file: a file of several chunks is one access each, and is still read once. (An order of samples is one of files: 140 MB of UNet3D in
// 35 chunks would look like a file that is read 35 times.)
//
// A chunk goes with the visit that another chunk of its file began, while the reader has begun no more than kOpen files since; the chunk that it began with begins
// another one.
//
// Owner: Engine. Loop thread only. Memory: 64 bytes per session that has read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "tierd/engine/catalogue/ids.h"
#include "tierd/engine/fetch/requests.h"

namespace tierd::engine {

class FileVisits {
 public:
  static constexpr std::size_t kOpen = 8;  // threads of a reader may read several files at a time
  static constexpr std::size_t kMostReaders = 1 << 16;

  bool Begins(SessionId session, FileId file, ObjectId chunk) {
    if (readers_.size() >= kMostReaders) readers_.clear();
    Reader& reader = readers_[static_cast<std::uint32_t>(session)];
    const auto known = std::find_if(reader.latest.begin(), reader.latest.end(), [file](const Visit& visit) { return visit.file == file; });
    if (known != reader.latest.end()) return known->begun_with == chunk;
    reader.latest[reader.next++ % kOpen] = {file, chunk};
    return true;
  }
  void OnSessionEnd(SessionId session) { readers_.erase(static_cast<std::uint32_t>(session)); }

 private:
  struct Visit {
    FileId file = kNoFile;
    ObjectId begun_with = kNoObject;
  };
  struct Reader {
    std::array<Visit, kOpen> latest;
    std::uint32_t next = 0;
  };
  std::unordered_map<std::uint32_t, Reader> readers_;
};

}  // namespace tierd::engine
