#include "client_lib/src/target.h"

#include <limits.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/src/clock.h"
#include "client_lib/src/path_text.h"

namespace tierd::client {

Call::Call(Client& the_client, const char* the_path, unsigned the_flags)
    : client(the_client), path(the_path), flags(the_flags), start_ns(PreciseNs()), now_ns(CoarseNs()), asked_ns(start_ns) {}

void Call::NoteChunk(abi::Fallback outcome) {
  in_vain = in_vain || outcome == abi::Fallback::kTimeout || outcome == abi::Fallback::kSourceSlow;
  if (!in_vain) asked_ns = PreciseNs();
}

bool MakeCanonical(const char* path, PathText& room, std::size_t* bytes) {
  char (&text)[PATH_MAX] = room.text;
  std::size_t used = 0;
  if (path[0] == '\0') return false;
  if (path[0] != '/') {
    // The kernel's name of the working directory, at use: it may have been renamed, or be another one than a moment ago.
    if (::getcwd(text, sizeof text) == nullptr || text[0] != '/') return false;
    used = std::strlen(text);
    if (used == 1) used = 0;  // the root: the '/' comes with the first component
  }
  const char* at = path;
  while (*at != '\0') {
    while (*at == '/') ++at;
    const char* const begin = at;
    while (*at != '\0' && *at != '/') ++at;
    const auto length = static_cast<std::size_t>(at - begin);
    if (length == 0) return false;  // trailing '/'
    if (length == 2 && begin[0] == '.' && begin[1] == '.') return false;
    if (length == 1 && begin[0] == '.') {
      if (*at == '\0' && (begin != path || used == 0)) return false;  // asks for a directory, and follows a link, as a trailing '/' does
      continue;
    }
    if (used + 1 + length >= sizeof text) return false;
    text[used++] = '/';
    std::memcpy(text + used, begin, length);
    used += length;
  }
  text[used] = '\0';
  *bytes = used;
  return used > 1;
}

abi::Fallback FindTarget(const Call& call, Target& target, PathText* text) {
  abi::Fallback why;
  target.session = call.client.Acquire(call.now_ns, &why, call.may_ask());
  if (target.session == nullptr) return why;
  const char* path = call.path;
  std::size_t bytes = std::strlen(path);
  if (!IsCanonical(path, bytes)) {
    if (text == nullptr || !MakeCanonical(call.path, *text, &bytes)) return abi::Fallback::kPath;
    path = text->text;
  }
  if (bytes >= PATH_MAX) return abi::Fallback::kPath;  // the kernel says what is wrong with it
  const SourceTable* const sources = target.session->sources.load(std::memory_order_acquire);
  target.source = sources->Match(path, bytes, &target.relative, &target.relative_bytes);
  target.outside = target.source == nullptr || (target.source->partly && !target.session->settings->prefixes.Allow(path, bytes));
  if (target.outside) return abi::Fallback::kPath;
  std::uint8_t where = target.source->where.load(std::memory_order_acquire);
  if (where == Source::kUnknown) where = FindNamespace(*target.source);
  target.pierced = where == Source::kPierced;
  if (where == Source::kForeign || (target.pierced && target.source->mounts.Cover(target.relative, target.relative_bytes))) return abi::Fallback::kNamespace;
  const IndexView* const index = target.session->index.load(std::memory_order_acquire);
  target.path_key = index->KeyOf(target.source->id, target.relative, target.relative_bytes);
  target.file_key = target.path_key;
  return abi::Fallback::kNone;
}

}  // namespace tierd::client
