// Which of the daemon's directories this process has under their names.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "client_lib/src/source_table.h"

namespace tierd::client {
namespace {

// How often somebody said that roots may lead elsewhere.
std::atomic<std::uint32_t> namespace_doubts{0};

struct Directory {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
};

bool FindDirectory(const char* path, Directory& found) {
  struct statx stx;
  if (::statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &stx) == 0) {
    found = {::makedev(stx.stx_dev_major, stx.stx_dev_minor), stx.stx_ino};
    return true;
  }
  struct stat st;  // a kernel before 4.11 has no statx, and a filter may refuse it, with whatever error
  if (::fstatat(AT_FDCWD, path, &st, AT_NO_AUTOMOUNT) != 0) return false;
  found = {st.st_dev, st.st_ino};
  return true;
}

const char* RootOf(const Source& source) { return source.root_bytes == 0 ? "/" : source.root; }

}  // namespace

void SourceTable::DoubtNamespaces() const {
  namespace_doubts.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < count_; ++i) sources_[i].where.store(Source::kUnknown, std::memory_order_seq_cst);
}

void SourceTable::DoubtMounts() const {
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (sources_[i].mounts.AreAsLookedAt(RootOf(sources_[i]))) continue;
    namespace_doubts.fetch_add(1, std::memory_order_seq_cst);
    sources_[i].where.store(Source::kUnknown, std::memory_order_seq_cst);
  }
}

Source::Namespace FindNamespace(const Source& source) {
  const std::uint32_t doubts = namespace_doubts.load(std::memory_order_seq_cst);
  const char* const root = RootOf(source);
  // The mounts first: what comes after them differs from what was looked at.
  const MountsBelow::Found below = source.mounts.Look(root);
  Directory here;
  // A failure is no proof of a difference (the root may be out of reach for a moment): asked again at the next use.
  if (below == MountsBelow::Found::kUnknown || !FindDirectory(root, here)) return Source::kForeign;
  Source::Namespace found = Source::kForeign;
  if (here.dev == source.dev && here.ino == source.ino) {
    found = below == MountsBelow::Found::kNone ? Source::kSame : below == MountsBelow::Found::kSome ? Source::kPierced : Source::kForeign;
  }
  source.where.store(found, std::memory_order_seq_cst);
  // Doubted while it was looked at: what was seen may be from before.
  if (namespace_doubts.load(std::memory_order_seq_cst) != doubts) source.where.store(Source::kUnknown, std::memory_order_release);
  return found;
}

}  // namespace tierd::client
