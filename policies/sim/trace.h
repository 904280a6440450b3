// Traces: who read which object when, as a file (TRACE.md, format 1), and as CSV. The daemon writes what the simulator reads.
//
// Values and one writer. Thread rule: a writer belongs to one thread. A file comes from outside: a block whose checksum does not hold
// ends the trace there (a daemon that died leaves at most one), anything else that is wrong is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"

namespace tierd::sim {

struct TraceObject {
  std::uint64_t bytes = 0;
  std::uint32_t file = 0;   // chunks of one file share it
  std::uint32_t chunk = 0;
};

struct TraceAccess {
  std::uint32_t id = 0;        // place in objects
  std::uint32_t consumer = 0;  // a training process
  std::uint64_t time_us = 0;   // since the trace began
};

struct Trace {
  std::vector<TraceObject> objects;  // by id
  std::vector<TraceAccess> accesses;
  std::vector<std::uint64_t> epochs; // numbers of accesses before each boundary that was noted
  std::uint64_t lost = 0;            // accesses that the daemon could not note
  bool cut = false;                  // the file ends in the middle of a block
};

// Appends records to a string, block by block; the owner writes it out and clears it whenever it likes.
class TraceWriter {
 public:
  explicit TraceWriter(std::string* out);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Once per id before its first access, and again when its size changes.
  void Object(std::uint32_t id, const TraceObject& object);
  // time_us must not decrease.
  void Access(const TraceAccess& access);
  void Epoch();
  void Lost(std::uint64_t accesses);
  // Ends the block: what was noted up to now can be read back from *out.
  void Flush();

 private:
  void Number(std::uint64_t value);
  void EndRecord();

  std::string* const out_;
  std::string block_;
  std::uint32_t consumer_ = 0;
  std::uint64_t time_us_ = 0;
};

inline constexpr std::uint32_t kMaxTraceObjects = 1u << 29;

// kUnsupported: another format; kCorrupt: not a trace, or a record that cannot be.
Result<Trace> ParseTrace(std::string_view bytes);

// A header line names the columns, in any order: `object` (any text: a path, a key) and `bytes` are needed, `consumer` (any text) and `time_us` may be
// there, others are passed over. No quoting. kInvalid names the line.
Result<Trace> ParseCsv(std::string_view text);

// Either, by what the file begins with.
Result<Trace> ReadTrace(const std::string& path);

}  // namespace tierd::sim
