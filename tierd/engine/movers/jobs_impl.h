// What jobs consist of; shared by jobs.cc (prefetch, warm-up), jobs_count.cc (bytes of them), jobs_verify.cc (the second look), jobs_links.cc (names that lead elsewhere) and jobs_audit.cc (walk, verify).
#pragma once

#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tierd/engine/movers/distinct_files.h"
#include "tierd/engine/movers/jobs.h"

namespace tierd::engine {

// For so long jobs wait for an SSD tier that does not answer.
inline constexpr std::int64_t kSsdPatienceNs = 60'000'000'000;

// A name that is still to be asked for.
struct Jobs::Name {
  enum class Kind : std::uint8_t {
    kFile,   // a regular file, by the walk
    kLink,   // a symbolic link, by the walk
    kAsked,  // asked for by itself, and no directory: may be a link or go through some
  };
  SourceUnit* unit = nullptr;
  std::string path;
  Kind kind = Kind::kFile;
};

// A file on its way: its chunks end one by one.
struct Jobs::File {
  SourceUnit* unit = nullptr;
  std::string name;  // as it was queued
  std::string path;  // once its first chunk is there: its own, not that of a link to it
  Name::Kind kind = Name::Kind::kFile;
  bool linked = false;  // the name led to another path
  FileId id = kNoFile;
  std::uint32_t chunks = 1;
  std::uint32_t next = 1;
  std::uint32_t under_way = 0;
  std::uint32_t ended = 0;
  BringResult worst;  // of its chunks so far
  bool closed = false;
  bool counts = false;  // it is in Job::counted, by this key, and with this version and size
  abi::FileKey key;
  std::uint64_t version_tag = 0;
  std::uint64_t size = 0;
  std::uint64_t landed = 0;  // of its bytes
  bool in_turn = false;  // its chunks are being asked for: answers that come at once are only noted
};

// An entry that a walk has come by.
struct Jobs::Seen {
  SourceUnit* unit = nullptr;
  std::string path;
  io::FileStat stat;
  std::int64_t begun_ns = 0;
};

struct Jobs::Job {
  JobStatus status;
  PrefetchOptions options;
  std::vector<Item> items;
  std::deque<Name> queue;
  std::deque<std::shared_ptr<File>> paused;  // have had their share of a turn
  std::size_t files_under_way = 0;
  std::size_t walks_under_way = 0;  // those of items to come, too
  std::size_t next_item = 0;        // its walk begins next
  std::vector<std::pair<SourceUnit*, source::WalkId>> walks;
  bool rests = false;  // its walks do: it has found more than it may have waiting
  std::uint64_t refusals = 0;
  std::uint64_t requeued = 0;
  bool awaits_ssd = false;  // some of its files found no room while the SSD stalled
  SourceUnit* warm_unit = nullptr;
  std::uint64_t bytes_seen = 0, files_seen = 0;
  std::uint64_t bytes_landed = 0;  // what status.bytes_done shows, if it did not have to fall for that
  std::uint64_t bytes_met = 0;     // the same of bytes_known
  std::deque<Seen> unplaced;      // walk: the index had no room for them yet
  std::vector<std::pair<SourceUnit*, std::string>> walked;
  struct KeyHash {
    std::size_t operator()(const abi::FileKey& key) const { return static_cast<std::size_t>(key.lo); }
  };
  // Prefetch. What links led to besides `items`, each file once.
  std::unordered_set<abi::FileKey, KeyHash> linked;
  std::unordered_map<abi::FileKey, std::shared_ptr<File>, KeyHash> counted;  // files of several chunks that are on their way, by their own names
  bool synced = false;  // what was brought is on the SSD: the second look has begun
  std::uint64_t known_before = 0;  // Catalogue::NextSequence() then
  DistinctFiles shown;             // by the second walk
  std::unordered_map<abi::FileKey, std::int64_t, KeyHash> missing_since_ns;  // files seen before that second walks were not shown
  // Whether it was known before and the second walk, which comes by its directory, was not shown it.
  bool IsMissing(FileId file, const FileRecord& record, std::int64_t now_ns);
  std::set<std::pair<const SourceUnit*, std::string>> places;  // `items`, to be looked up
  std::set<std::pair<const SourceUnit*, std::string>> asked;   // those of the request
  // Whether the walks of the items come by it.
  bool ComesBy(const SourceUnit* unit, std::string_view path) const;
  bool IsPlace(const SourceUnit* unit, const std::string& path) const { return places.size() > 1 && places.contains({unit, path}); }
  // Whether `path`, at or below `item`, is left to the walk of another place, between the two.
  bool IsDeeper(const SourceUnit* unit, std::string_view path, const std::string& item) const;
  // Whether a path of the request lies in this directory.
  bool LeadsUp(const SourceUnit* unit, const std::string& directory) const;
  std::vector<ObjectId> records;  // verify: what is still to be read
  std::size_t looked_at = 0;      // verify: objects of the catalogue; prefetch: files that the second walk may not have been shown
  std::size_t reads_under_way = 0;
  std::int64_t heard_ns = 0;       // verify: when the tier last answered, or the job began
  std::int64_t rests_until_ns = 0;  // verify: there was no memory, or thread, for a read, and no answer since; 0: there was
  bool over() const { return status.ended_ns != 0; }
  bool has_names() const { return !queue.empty() || !linked.empty(); }
};

}  // namespace tierd::engine
