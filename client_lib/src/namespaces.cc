// Which of the daemon's directories this process has under their names.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "client_lib/src/source_table.h"

namespace tierd::client {
namespace {

// How often somebody said that roots may lead elsewhere.
std::atomic<std::uint32_t> namespace_doubts{0};

}  // namespace

void SourceTable::DoubtNamespaces() const {
  namespace_doubts.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < count_; ++i) sources_[i].where.store(Source::kUnknown, std::memory_order_seq_cst);
}

Source::Namespace FindNamespace(const Source& source) {
  const std::uint32_t doubts = namespace_doubts.load(std::memory_order_seq_cst);
  struct statx st;
  const char* root = source.root_bytes == 0 ? "/" : source.root;
  // A failure is no proof of a difference (the root may be out of reach for a moment): asked again at the next use.
  if (::statx(AT_FDCWD, root, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &st) != 0) return Source::kForeign;
  Source::Namespace found = Source::kForeign;
  if (::makedev(st.stx_dev_major, st.stx_dev_minor) == source.dev && st.stx_ino == source.ino) {
    const MountsBelow::Found below = source.mounts.Look(root);
    found = below == MountsBelow::Found::kNone ? Source::kSame : below == MountsBelow::Found::kSome ? Source::kPierced : Source::kForeign;
  }
  source.where.store(found, std::memory_order_seq_cst);
  // Doubted while it was looked at: what was seen may be from before.
  if (namespace_doubts.load(std::memory_order_seq_cst) != doubts) source.where.store(Source::kUnknown, std::memory_order_release);
  return found;
}

}  // namespace tierd::client
