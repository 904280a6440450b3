// Notes a live stream of reads as a trace (TRACE.md), in a file that a worker writes: the thread that notes never waits for a disk. What cannot be noted,
// because the disk is slow or full or the file has become as large as it may, is counted and said in the trace where it can be; no read suffers.
//
// Owner: whoever watches a stream (the engine). TraceRecorder: one thread. TraceFile: any one thread at a time (a worker).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "policies/sim/trace.h"

namespace tierd::sim {

// A new file that is appended to. Blocks.
class TraceFile {
 public:
  // Never an existing one, nor through a link; mode 0600. kExists, or what the system says.
  static Result<std::unique_ptr<TraceFile>> Create(const std::string& path);
  // In an open directory; `path` is what messages call it.
  static Result<std::unique_ptr<TraceFile>> Create(int directory, const std::string& name, const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  Status Append(const std::string& bytes);
  Status Close();

 private:
  explicit TraceFile(int fd) : fd_(fd) {}
  int fd_;
};

struct TraceProgress {
  std::uint64_t bytes = 0;      // handed to the file so far
  std::uint64_t objects = 0;
  std::uint64_t accesses = 0;   // noted
  std::uint64_t lost = 0;       // not noted
  bool full = false;            // as large as it may be: notes nothing more
};

class TraceRecorder {
 public:
  static constexpr std::size_t kMostWaiting = 4 << 20;  // bytes noted and not taken yet
  static constexpr std::size_t kWorthWriting = 64 << 10;

  explicit TraceRecorder(std::uint64_t most_bytes) : most_bytes_(most_bytes), writer_(&waiting_) {}

  struct Read {
    std::uint64_t key = 0;       // of the object; not two alike
    std::uint64_t file_key = 0;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
    std::uint32_t consumer = 0;
    std::int64_t time_ns = 0;
    std::uint32_t epoch = 0;
  };
  void Note(const Read& read);
  void NoteLost(std::uint64_t accesses) { lost_ += accesses; }
  // What is ready to be written; empty while it is not worth it. `all`: also what is not, the block that is begun included.
  std::string Take(bool all);
  const TraceProgress& progress() const { return progress_; }

 private:
  void SayLost();

  const std::uint64_t most_bytes_;
  std::string waiting_;
  TraceWriter writer_;
  struct Known {
    std::uint32_t id;
    std::uint64_t bytes;
  };
  std::unordered_map<std::uint64_t, Known> objects_;
  std::unordered_map<std::uint64_t, std::uint32_t> files_;
  std::int64_t began_ns_ = -1;
  std::uint64_t last_us_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint64_t lost_ = 0;  // not said yet
  TraceProgress progress_;
};

}  // namespace tierd::sim
