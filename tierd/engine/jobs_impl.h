// What jobs consist of; shared by jobs.cc (prefetch, warm-up) and jobs_audit.cc (walk, verify).
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tierd/engine/jobs.h"

namespace tierd::engine {

// A file on its way: its chunks end one by one.
struct Jobs::File {
  SourceUnit* unit = nullptr;
  std::string path;
  FileId id = kNoFile;
  std::uint32_t chunks = 1;
  std::uint32_t next = 1;
  std::uint32_t under_way = 0;
  std::uint32_t ended = 0;
  BringResult worst;  // of its chunks so far
  bool closed = false;
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
  std::deque<std::pair<SourceUnit*, std::string>> queue;
  std::deque<std::shared_ptr<File>> paused;  // have had their share of a turn
  std::size_t files_under_way = 0;
  std::size_t walks_under_way = 0;  // those of items to come, too
  std::size_t next_item = 0;        // its walk begins next
  std::vector<std::pair<SourceUnit*, source::WalkId>> walks;
  std::uint64_t refusals = 0;
  std::uint64_t requeued = 0;
  SourceUnit* warm_unit = nullptr;
  std::uint64_t bytes_seen = 0, files_seen = 0;
  std::deque<Seen> unplaced;      // walk: the index had no room for them yet
  std::vector<std::pair<SourceUnit*, std::string>> walked;
  std::vector<ObjectId> records;  // verify: what is still to be read
  std::size_t looked_at = 0;      // verify: objects of the catalogue
  std::size_t reads_under_way = 0;
  bool over() const { return status.ended_ns != 0; }
};

}  // namespace tierd::engine
