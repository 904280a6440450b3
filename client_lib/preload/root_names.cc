#include "client_lib/preload/root_names.h"

#include <fcntl.h>

#include <atomic>
#include <cstring>

#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/clock.h"

namespace tierd::preload {
namespace {

constexpr std::uint32_t kNames = client::Prefixes::kMax;
constexpr std::size_t kLongest = 1024;
constexpr std::int64_t kLookEveryNs = 1'000'000'000;

// Written once. A root that leads elsewhere by now keeps its old name too: one change too many is told.
struct RootName {
  std::atomic<bool> known;
  char real[kLongest];
  char text[kLongest];
};
RootName names[kNames];
constinit std::atomic<std::uint32_t> given{0};
constinit std::atomic<std::int64_t> looked_ns{0};

std::uint32_t Given() {
  const std::uint32_t count = given.load(std::memory_order_acquire);
  return count < kNames ? count : kNames;
}

bool IsKnown(const char* real, const char* text) {
  for (std::uint32_t i = 0, count = Given(); i < count; ++i) {
    if (names[i].known.load(std::memory_order_acquire) && std::strcmp(names[i].real, real) == 0 && std::strcmp(names[i].text, text) == 0) return true;
  }
  return false;
}

void LookAt(const char* root, client::PathText& real) {
  const int fd = root[0] == '\0' ? -1 : raw::Open(AT_FDCWD, root, O_PATH | O_CLOEXEC);
  if (fd < 0) return;
  const bool named = NameOfDescriptor(fd, real) && std::strcmp(real.text, root) != 0;
  raw::Close(fd);
  if (!named || std::strlen(real.text) >= kLongest || std::strlen(root) >= kLongest || IsKnown(real.text, root)) return;
  const std::uint32_t index = given.load(std::memory_order_relaxed) < kNames ? given.fetch_add(1, std::memory_order_acq_rel) : kNames;
  if (index >= kNames) return;
  std::strcpy(names[index].real, real.text);
  std::strcpy(names[index].text, root);
  names[index].known.store(true, std::memory_order_release);
}

const client::SourceTable* KnownSources() {
  const client::Session* const session = process.client->session();
  return session == nullptr ? nullptr : session->sources.load(std::memory_order_acquire);
}

void LookAtRoots() {
  const std::int64_t now_ns = client::CoarseNs();
  const std::int64_t before_ns = looked_ns.load(std::memory_order_acquire);
  if (before_ns != 0 && (Given() == 0 || now_ns - before_ns < kLookEveryNs)) return;
  Room room;
  client::PathText* const real = room.Get();
  if (real == nullptr) return;
  for (std::size_t i = 0; i < process.roots.count; ++i) LookAt(process.roots.text[i], *real);
  const client::SourceTable* const sources = process.roots.count == 0 ? KnownSources() : nullptr;
  if (process.roots.count == 0 && sources == nullptr) return;  // no source is known yet
  for (std::uint32_t i = 0; sources != nullptr && i < sources->count(); ++i) LookAt(sources->at(i).root, *real);
  looked_ns.store(now_ns, std::memory_order_release);
}

bool HasPart(const char* path, const char* part, std::size_t bytes) {
  for (const char* at = path; *at != '\0';) {
    if (*at == '/') ++at;
    const char* const end = at + std::strcspn(at, "/");
    if (static_cast<std::size_t>(end - at) == bytes && std::memcmp(at, part, bytes) == 0) return true;
    at = end;
  }
  return false;
}

}  // namespace

bool IsPartOfRoot(const char* entry, std::size_t bytes) {
  const client::SourceTable* const sources = KnownSources();
  if (sources == nullptr) return false;
  for (std::uint32_t i = 0; i < sources->count(); ++i) {
    if (HasPart(sources->at(i).root, entry, bytes)) return true;
  }
  for (std::uint32_t i = 0, count = Given(); i < count; ++i) {
    if (names[i].known.load(std::memory_order_acquire) && HasPart(names[i].real, entry, bytes)) return true;
  }
  return false;
}

void DoubtRoots() {
  if (const client::SourceTable* const sources = KnownSources(); sources != nullptr) sources->DoubtNamespaces();
}

bool NameInSource(client::PathText& name) {
  if (BelowRoots(name.text)) return true;
  LookAtRoots();
  const std::size_t bytes = std::strlen(name.text);
  for (std::uint32_t i = 0, count = Given(); i < count; ++i) {
    const RootName& root = names[i];
    if (!root.known.load(std::memory_order_acquire)) continue;
    const std::size_t real_bytes = std::strlen(root.real), text_bytes = std::strlen(root.text);
    if (bytes < real_bytes || std::memcmp(name.text, root.real, real_bytes) != 0) continue;
    const std::size_t rest = bytes - real_bytes;
    if ((rest != 0 && name.text[real_bytes] != '/') || text_bytes + rest >= sizeof name.text) continue;
    std::memmove(name.text + text_bytes, name.text + real_bytes, rest + 1);
    std::memcpy(name.text, root.text, text_bytes);
    return true;
  }
  return false;
}

}  // namespace tierd::preload
