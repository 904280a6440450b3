#include "client_lib/preload/links.h"

#include <fcntl.h>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"

namespace tierd::preload {

namespace links_detail {
constinit std::atomic<std::uint32_t> remembered[kRemembered] = {};
__thread std::uint32_t to_pass __attribute__((tls_model("initial-exec"))) = 0;
}  // namespace links_detail

namespace {

using namespace links_detail;

constexpr std::uint32_t kLinks = 16;
constexpr std::uint32_t kFileLinks = 8;  // of them to single files at most: a directory full of such does not use up the others
constexpr std::size_t kLongest = 1024;
constexpr int kMostTries = 8;            // of making out the link in a name

// Written once, by whoever it was given to; only `state` and `deadline_ns` change afterwards.
struct Link {
  enum State : std::uint32_t { kMaking = 0, kKnown = 1, kGone = 2 };
  std::atomic<std::uint32_t> state;
  std::uint32_t from_bytes;
  std::int64_t ttl_ns;
  std::atomic<std::int64_t> deadline_ns;
  char link[kLongest];  // the link's own name: `from`, or a directory above it
  char text[kLongest];  // what it says
  char from[kLongest];  // what is below this ...
  char to[kLongest];    // ... is below that, which is below a source
};
constinit Link links[kLinks] = {};
constinit std::atomic<std::uint32_t> file_links{0};

// Of a name's ends and its middle: two names with one hash only cost the cache.
std::uint64_t HashOf(const char* path, std::size_t bytes) {
  std::uint64_t words[3] = {};
  if (bytes < sizeof *words) {
    std::memcpy(words, path, bytes);
  } else {
    std::memcpy(&words[0], path, sizeof *words);
    std::memcpy(&words[1], path + bytes / 2 - 4, sizeof *words);
    std::memcpy(&words[2], path + bytes - sizeof *words, sizeof *words);
  }
  return ((bytes + words[0]) * 0x9e3779b97f4a7c15u) ^ (words[1] * 0xc2b2ae3d27d4eb4fu) ^ (words[2] * 0x165667b19e3779f9u);
}
bool IsRemembered(std::uint64_t hash) {
  return remembered[hash >> 56].load(std::memory_order_relaxed) == static_cast<std::uint32_t>(hash >> 24);
}

constexpr std::uint32_t kPasses = 64;       // after a look, or after many known ones
constexpr std::uint32_t kFirstLooks = 32, kKnownInARow = 32;  // of a thread, before any pass
__thread std::uint32_t looks __attribute__((tls_model("initial-exec"))) = 0;
__thread std::uint32_t known_in_a_row __attribute__((tls_model("initial-exec"))) = 0;

std::uint32_t Known() {
  const std::uint32_t count = process.links.load(std::memory_order_acquire);
  return count < kLinks ? count : kLinks;
}

bool GoesThrough(const Link& link, const char* path, std::size_t bytes) {
  if (link.state.load(std::memory_order_acquire) != Link::kKnown) return false;
  const std::size_t end = link.from_bytes;
  if (bytes < end || path[end - 1] != link.from[end - 1] || (path[end] != '/' && path[end] != '\0')) return false;
  return std::memcmp(path, link.from, end) == 0;
}

// What a link says, in `text`; false: it is none, or says too much.
bool Read(const char* link, client::PathText& text) {
  const ssize_t got = raw::ReadLink(link, text.text, kLongest);
  if (got <= 0 || static_cast<std::size_t>(got) >= kLongest) return false;
  text.text[got] = '\0';
  return true;
}

// Whether the kernel calls what a name leads to `to`.
bool LeadsTo(const char* name, const char* to) {
  Room room;
  client::PathText* const found = room.Get();
  const int fd = found == nullptr ? -1 : raw::Open(AT_FDCWD, name, O_PATH | O_CLOEXEC);
  if (fd < 0) return false;
  const bool same = NameOfDescriptor(fd, *found) && std::strcmp(found->text, to) == 0;
  raw::Close(fd);
  return same;
}

bool Holds(Link& link) {
  const std::int64_t now_ns = client::CoarseNs();
  Room room;
  if (room.Get() == nullptr || !Read(link.link, *room.Get()) || std::strcmp(room.Get()->text, link.text) != 0) return false;
  if (now_ns < link.deadline_ns.load(std::memory_order_acquire)) return true;
  if (!LeadsTo(link.from, link.to)) return false;
  link.deadline_ns.store(now_ns + link.ttl_ns, std::memory_order_release);
  return true;
}

}  // namespace

bool links_detail::GoesThroughOne(const char* path) {
  const std::size_t bytes = std::strlen(path);
  for (std::uint32_t i = 0, count = Known(); i < count; ++i) {
    if (GoesThrough(links[i], path, bytes)) return true;
  }
  return false;
}

bool links_detail::IsNew(const char* path) {
  if (!IsRemembered(HashOf(path, std::strlen(path)))) {
    known_in_a_row = 0;
    return true;
  }
  if (++known_in_a_row > kKnownInARow) to_pass = kPasses;
  return false;
}

void links_detail::DoubtAll() {
  for (std::uint32_t i = 0, count = Known(); i < count; ++i) links[i].deadline_ns.store(0, std::memory_order_release);
}

bool LinkIsBelow(const char* directory, std::size_t bytes) {
  for (std::uint32_t i = 0, count = Known(); i < count; ++i) {
    if (links[i].state.load(std::memory_order_acquire) == Link::kKnown && std::strncmp(links[i].from, directory, bytes) == 0 && links[i].from[bytes] == '/') return true;
  }
  return false;
}

bool FollowLink(client::PathText& path, bool follow) {
  const std::size_t bytes = std::strlen(path.text);
  for (std::uint32_t i = 0, count = Known(); i < count; ++i) {
    Link& link = links[i];
    if (!GoesThrough(link, path.text, bytes)) continue;
    const std::size_t rest = bytes - link.from_bytes, to_bytes = std::strlen(link.to);
    if ((rest == 0 && !follow) || to_bytes + rest >= sizeof path.text) return false;
    if (!Holds(link)) {
      link.state.store(Link::kGone, std::memory_order_release);
      continue;
    }
    std::memmove(path.text + to_bytes, path.text + link.from_bytes, rest + 1);
    std::memcpy(path.text, link.to, to_bytes);
    Count(counters.links);
    return true;
  }
  return false;
}

// ---- learning --------------------------------------------------------------------------------------------------------------

namespace {

// How long what was seen of a link to that place may be believed; 0: not at all, each use of that source asks it.
std::int64_t TtlOf(const char* path) {
  if (StackIsSmall()) return 0;
  const SlowPath slow;
  abi::Fallback why;
  const client::Session* const session = slow.entered() ? process.client->Acquire(client::CoarseNs(), &why) : nullptr;
  if (session == nullptr || session->check_all) return 0;
  const char* relative;
  std::size_t relative_bytes;
  const client::Source* const source = session->sources.load(std::memory_order_acquire)->Match(path, std::strlen(path), &relative, &relative_bytes);
  return source == nullptr || source->staleness == abi::Staleness::kOpen ? 0 : std::int64_t{source->ttl_ms} * 1'000'000;
}

// The beginnings of two names that lead to the same, without the components that they end with alike; then with one more of these at a time.
class Beginnings {
 public:
  Beginnings(char* name, char* found) : name_(name), found_(found), name_end_(std::strlen(name)), found_end_(std::strlen(found)) {
    std::size_t alike = 0;
    for (std::size_t back = 1; back <= name_end_ && back <= found_end_ && name_[name_end_ - back] == found_[found_end_ - back]; ++back) {
      if (name_[name_end_ - back] == '/') alike = back;
    }
    name_end_ -= alike;
    found_end_ -= alike;
  }
  bool Longer() {
    if (name_[name_end_] == '\0') return false;
    do ++name_end_;
    while (name_[name_end_] != '\0' && name_[name_end_] != '/');
    do ++found_end_;
    while (found_[found_end_] != '\0' && found_[found_end_] != '/');
    return true;
  }
  bool whole() const { return name_[name_end_] == '\0'; }
  bool Fits() const { return name_end_ > 0 && found_end_ > 0 && name_end_ < kLongest && found_end_ < kLongest; }
  // With both cut off there.
  template <typename What>
  bool Of(What what) {
    const char name_kept = name_[name_end_], found_kept = found_[found_end_];
    name_[name_end_] = found_[found_end_] = '\0';
    const bool result = what(name_, found_);
    name_[name_end_] = name_kept;
    found_[found_end_] = found_kept;
    return result;
  }

 private:
  char* const name_;
  char* const found_;
  std::size_t name_end_;
  std::size_t found_end_;
};

bool IsKnown(const char* from, const char* to) {
  for (std::uint32_t i = 0, count = Known(); i < count; ++i) {
    if (links[i].state.load(std::memory_order_acquire) == Link::kKnown && std::strcmp(links[i].from, from) == 0 && std::strcmp(links[i].to, to) == 0) return true;
  }
  return false;
}

void MakeKnown(const char* link, const char* text, const char* from, const char* to, std::int64_t asked_ns, std::int64_t ttl_ns) {
  if (IsKnown(from, to)) return;
  const std::uint32_t index = process.links.load(std::memory_order_relaxed) < kLinks ? process.links.fetch_add(1, std::memory_order_acq_rel) : kLinks;
  if (index >= kLinks) return;
  Link& made = links[index];
  std::strcpy(made.link, link);
  std::strcpy(made.text, text);
  std::strcpy(made.from, from);
  std::strcpy(made.to, to);
  made.from_bytes = static_cast<std::uint32_t>(std::strlen(from));
  made.ttl_ns = ttl_ns;
  made.deadline_ns.store(asked_ns + ttl_ns, std::memory_order_relaxed);
  made.state.store(Link::kKnown, std::memory_order_release);
  ForgetWorkingDirectory();
  ForgetDirectories();
}

// The link is where the name's beginning leads to the other's and the component before does not: that beginning is a link itself.
void MakeOut(char* name, char* found, std::int64_t asked_ns, std::int64_t ttl_ns) {
  Room link_room, text_room;
  client::PathText *const link = link_room.Get(), *const text = text_room.Get();
  if (link == nullptr || text == nullptr) return;
  link->text[0] = '\0';
  Beginnings at(name, found);
  for (int tries = 0; tries < kMostTries; ++tries) {
    const bool done = at.Fits() && at.Of([&](const char* from, const char* to) {
      if (link->text[0] == '\0') {
        if (!Read(from, *text) || !LeadsTo(from, to)) return false;
        std::strcpy(link->text, from);
      }
      return BelowRoots(to);
    });
    if (done) {
      if (at.whole() && file_links.fetch_add(1, std::memory_order_relaxed) >= kFileLinks) return;
      at.Of([&](const char* from, const char* to) { return MakeKnown(link->text, text->text, from, to, asked_ns, ttl_ns), true; });
      return;
    }
    if (!at.Longer()) return;
  }
}

// No data, as a rule.
bool IsCode(const char* path) {
  const std::size_t bytes = std::strlen(path);
  const auto ends = [&](const char* with) { return bytes >= std::strlen(with) && std::strcmp(path + bytes - std::strlen(with), with) == 0; };
  return ends(".py") || ends(".pyc") || ends(".so");
}

}  // namespace

bool LearnLink(int directory, const char* path, int fd, client::PathText& found) {
  const std::int64_t asked_ns = client::CoarseNs();
  const std::uint64_t hash = HashOf(path, std::strlen(path));
  bool inside = false;
  if (!IsSystem(path) && !IsCode(path)) {
    if (looks < kFirstLooks) ++looks;
    else to_pass = kPasses;
    inside = NameOfDescriptor(fd, found) && BelowRoots(found.text);
  }
  Room room, other;
  client::PathText *const name = room.Get(), *const copy = other.Get();
  if (!inside || name == nullptr || copy == nullptr || !AbsoluteName(directory, path, *name) || BelowRoots(name->text)) {
    remembered[hash >> 56].store(static_cast<std::uint32_t>(hash >> 24), std::memory_order_relaxed);
    return false;
  }
  std::strcpy(copy->text, found.text);
  if (const std::int64_t ttl_ns = TtlOf(found.text); ttl_ns != 0) MakeOut(name->text, copy->text, asked_ns, ttl_ns);
  return true;
}

void LearnLink(const char* path, int fd) {
  const client::KeepErrno keep;
  Room room;
  if (room.Get() != nullptr) (void)LearnLink(AT_FDCWD, path, fd, *room.Get());
}

}  // namespace tierd::preload
