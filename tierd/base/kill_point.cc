#include "tierd/base/kill_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tierd/base/check.h"

namespace tierd {

namespace {

constexpr const char* kNames[] = {
    "ssd.superblock.before_rename", "ssd.superblock.after_rename", "ssd.region.before_open_record", "ssd.region.after_open_record",
    "ssd.append.before_copy",       "ssd.append.after_copy",       "ssd.write.before_submit",       "ssd.write.after_complete",
    "ssd.region.before_close",      "ssd.region.before_index",     "ssd.region.after_index",        "ssd.reclaim.before_move",
    "ssd.reclaim.after_move",       "ssd.reclaim.before_free",     "ssd.recover.before_scan",       "ssd.recover.before_rebuild",
    "ssd.recover.during_rebuild",   "ssd.recover.after_scan",      "ssd.invalidate.before_write",   "ssd.invalidate.after_write",
};

struct Choice {
  std::string name;
  long count = 0;
};

Choice ReadChoice() {
  const char* text = std::getenv("TIERD_KILL_POINT");
  if (text == nullptr) return {};
  const char* colon = std::strrchr(text, ':');
  if (colon == nullptr) return {text, 1};
  return {std::string(text, colon), std::strtol(colon + 1, nullptr, 10)};
}

}  // namespace

std::span<const char* const> KillPointNames() { return kNames; }

void ReachKillPoint(const char* name) {
  // Read once; the environment of a test build does not change under it.
  static const Choice choice = ReadChoice();
  static std::atomic<long> reached{0};
  bool known = false;
  for (const char* candidate : kNames) known = known || std::strcmp(candidate, name) == 0;
  TIERD_CHECK(known);
  if (choice.name != name) return;
  if (reached.fetch_add(1) + 1 != choice.count) return;
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace tierd
