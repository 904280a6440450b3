// Links outside of every source that lead below one (~/data -> /pfs/data). Where a name leads only the kernel can say, so they are learnt from what was opened for real: whose
// descriptor turns out to be below a source shows which link led there, and the next name through that one is served. What is known of a link holds for one ttl, and at each use
// the link itself is read: it must still say the same (HAZARDS 2.14). What lies behind it, other links and directories that may be renamed, is looked at again when the ttl is
// over, and after this process has changed a name.
//
// To look where a descriptor leads costs a microsecond, so not each is looked at: of a thread's first 32 names that may lead anywhere each, then one in 64. System directories and
// Python's modules are left out, and names that led outside before, which are remembered by a hash. (Who opens nothing but such has the next 64 pass without a thought.)
//
// Any thread, signal handlers too. No lock; errno is left alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "client_lib/preload/process.h"
#include "client_lib/preload/room.h"

namespace tierd::preload {

namespace links_detail {
inline constexpr std::size_t kRemembered = 256;
extern std::atomic<std::uint32_t> remembered[kRemembered];   // of names that led outside
extern __thread std::uint32_t to_pass __attribute__((tls_model("initial-exec")));  // names of this thread, before the next is looked at

bool GoesThroughOne(const char* path);
bool IsNew(const char* path);
void DoubtAll();
}  // namespace links_detail

inline bool AnyLinks() { return process.links.load(std::memory_order_relaxed) != 0; }
// Whether an absolute path goes through a link that is known; FollowLink has the last word.
inline bool MayGoThroughLink(const char* path) { return AnyLinks() && links_detail::GoesThroughOne(path); }
// Whether a known link is somewhere below a directory, whose name has `bytes` bytes (the root: none).
bool LinkIsBelow(const char* directory, std::size_t bytes);

// The canonical `path` without the link that it goes through, in place: below a source then. False: it goes through none, or that leads elsewhere by now. Who does not `follow`
// means the last component itself.
bool FollowLink(client::PathText& path, bool follow);

// Of a name below no source that is about to be opened: it may pass without a thought. Else IsWorthALook, when it was opened.
inline bool MayPass() {
  using namespace links_detail;
  if (to_pass == 0) [[unlikely]] return false;
  --to_pass;
  return true;
}
// Whether to look where a file is that was just opened by that name.
inline bool IsWorthALook(const char* path) { return !MayPass() && links_detail::IsNew(path); }
// Looks. True: below a source, under the name `found`. The link that leads there is known from now on, where it could be made out.
bool LearnLink(int directory, const char* path, int fd, client::PathText& found);
void LearnLink(const char* path, int fd);  // for the next name

// This process is changing a name: what links lead to is looked at again before it is believed.
inline void DoubtLinks() {
  if (AnyLinks()) links_detail::DoubtAll();
}

}  // namespace tierd::preload
