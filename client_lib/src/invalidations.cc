#include "client_lib/src/invalidations.h"

#include <cstdlib>
#include <cstring>

#include "client_lib/src/advice.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/mutex.h"

namespace tierd::client {
namespace {

constexpr std::uint32_t kMost = 256;  // more become one of everything

struct Remembered {
  Invalidation said;
  Remembered* next;
  char* socket;
};

constinit Mutex mutex;
Remembered* first = nullptr;
std::uint32_t count = 0;
std::int64_t lost_ns = 0;  // there was no memory for one that was said then; 0: for each there was

// One that says it already: of everything at that socket, or of the same path.
Remembered* Covering(const char* socket, const Invalidation& said) {
  for (Remembered* link = first; link != nullptr; link = link->next) {
    if (std::strcmp(link->socket, socket) != 0) continue;
    if (link->said.path == nullptr || (link->said.recursive == said.recursive && std::strcmp(link->said.path, said.path) == 0)) return link;
  }
  return nullptr;
}

void Free(Remembered* gone) {
  std::free(const_cast<char*>(gone->said.path));
  std::free(gone->socket);
  std::free(gone);
}

bool Add(const char* socket, const Invalidation& said, bool whole) {
  auto* const made = static_cast<Remembered*>(std::calloc(1, sizeof(Remembered)));
  char* const its_socket = ::strdup(socket);
  char* const path = whole ? nullptr : ::strdup(said.path);
  if (made == nullptr || its_socket == nullptr || (path == nullptr && !whole)) {
    std::free(made);
    std::free(its_socket);
    std::free(path);
    return false;
  }
  *made = {{path, said.recursive, said.said_ns}, first, its_socket};
  first = made;
  ++count;
  return true;
}

bool Tell(const char* socket, Session& session, std::uint32_t timeout_ms) {
  const auto confirmed = [&](const Invalidation& said) { return ConfirmInvalidation(session, said, PreciseNs() + std::int64_t{timeout_ms} * 1'000'000); };
  if (lost_ns != 0 && !confirmed({nullptr, true, lost_ns})) return false;
  for (const Remembered* link = first; link != nullptr; link = link->next) {
    if (std::strcmp(link->socket, socket) == 0 && !confirmed(link->said)) return false;
  }
  lost_ns = 0;
  for (Remembered** link = &first; *link != nullptr;) {
    Remembered* const told = *link;
    if (std::strcmp(told->socket, socket) != 0) {
      link = &told->next;
      continue;
    }
    *link = told->next;
    --count;
    Free(told);
  }
  return true;
}

}  // namespace

void RememberInvalidation(const char* socket, const Invalidation& said) {
  const MutexLock lock(mutex);
  if (Remembered* const covering = said.path == nullptr ? nullptr : Covering(socket, said); covering != nullptr) covering->said.said_ns = said.said_ns;
  else if (said.path == nullptr || !Add(socket, said, count >= kMost)) lost_ns = said.said_ns;
}

bool TellInvalidations(const char* socket, Session& session, std::uint32_t timeout_ms) {
  const MutexLock lock(mutex);
  return Tell(socket, session, timeout_ms);
}

void TakeOverInvalidations() { mutex.Reset(); }

}  // namespace tierd::client
