// What a path means: the session, the source it is below, the rest of the path, its key. Slow path of every call that takes a path.
#pragma once

#include <limits.h>

#include <cstdint>

#include "client_lib/src/client.h"

namespace tierd::client {

// Not the application's: inside a signal handler that interrupted us no lock may be taken and nothing asked.
inline constexpr unsigned kNeverAsk = 1u << 31;

// One call of the application.
struct Call {
  Client& client;
  const char* path;        // as the application gave it: what is opened when the source must be read
  unsigned flags;
  std::int64_t start_ns;   // PreciseNs
  std::int64_t now_ns;     // CoarseNs
  std::int64_t asked_ns;   // since when the daemon is waited for: from the start, or since the last of several chunks came
  bool in_vain = false;    // one of them was waited for and did not come

  Call(Client& the_client, const char* the_path, unsigned the_flags);
  std::int64_t deadline_ns() const { return asked_ns + std::int64_t{client.settings().timeout_ms} * 1'000'000; }
  // How a chunk was come by. The next one may take as long as one alone, until one was waited for in vain: a long read is not turned to the source for its length.
  void NoteChunk(abi::Fallback outcome);
  bool may_ask() const { return (flags & (TIER_NOWAIT | kNeverAsk)) == 0; }
  // For a segment or a newer index: no reading anywhere, so that a call that waits for nothing may ask too, though not for long.
  bool may_ask_where() const { return (flags & kNeverAsk) == 0; }
  std::int64_t where_deadline_ns() const {
    const std::int64_t until_ns = deadline_ns();
    return may_ask() || until_ns < start_ns + kWhereaboutsNs ? until_ns : start_ns + kWhereaboutsNs;
  }
  bool may_read_source() const { return (flags & (TIER_NOWAIT | TIER_CACHED | kNeverAsk)) == 0; }
};

// Room for a path that had to be put together first.
struct PathText {
  char text[PATH_MAX];
};

struct Target {
  Session* session = nullptr;
  const Source* source = nullptr;
  const char* relative = nullptr;  // canonical, below the source; points into a PathText or the application's path
  std::size_t relative_bytes = 0;
  abi::FileKey path_key;           // of the path
  abi::FileKey file_key;           // of the file behind it: differs when an alias was followed
  bool outside = false;            // below no source: nothing of ours, not counted
  bool pierced = false;            // something is mounted below the source here: where links lead, and whether there, the daemon does not know

  bool is_alias() const { return file_key != path_key; }
  // Every use must be compared with the source by this process.
  bool needs_check() const {
    return session->foreign_clock || source->staleness == abi::Staleness::kOpen || (session->settings->flags & TIER_CHECK_OPEN) != 0;
  }
};

// Fills `target`, which lives no longer than `text` and the application's path. kNone: the path may be looked up; else the reason for leaving it to the
// source. Without `text` only paths that are canonical as they stand.
abi::Fallback FindTarget(const Call& call, Target& target, PathText* text);

// A canonical absolute path for `path`: relative ones through getcwd, "//" and "." taken out. False when it has a "..", a trailing
// '/' or a last "." (who resolves links must decide), or is too long. "." alone is the working directory.
bool MakeCanonical(const char* path, PathText& text, std::size_t* bytes);

}  // namespace tierd::client
