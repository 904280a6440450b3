#include "client_lib/preload/cached_open.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "client_lib/abi/time_ns.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/own_words.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/src/accounting.h"
#include "client_lib/src/cached_file.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/copy.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/hit.h"
#include "client_lib/src/source_io.h"
#include "client_lib/src/thread_state.h"
#include "client_lib/src/views.h"

namespace tierd::preload {
namespace {

using client::Piece;

// The kernel's bit: in programs of 64 bits O_LARGEFILE is 0, and the kernel sets it by itself.
#if defined(__x86_64__)
constexpr int kLargeFile = 0100000;
#else
constexpr int kLargeFile = 0400000;
#endif
int ShownFlags(int flags) { return (flags & (O_NOATIME | O_NONBLOCK | O_NOFOLLOW)) | kLargeFile; }

// The bytes that a small read wants first, asked of memory in parts of as many lines as a core waits for at a time, between the steps of the open: asked for all at
// once they would hold it up until the last but one part is there.
constexpr std::uint64_t kLine = 64, kLinesAtATime = 12;
inline void AskAhead(const Piece& piece, unsigned part) {
  const std::uint64_t from = part * kLinesAtATime * kLine;
  const std::uint64_t end = std::min(from + kLinesAtATime * kLine, piece.bytes);
  for (std::uint64_t at = from; at < end; at += kLine) __builtin_prefetch(piece.data + at);
}

// ---- what has changed --------------------------------------------------------------------------

constinit std::atomic<std::uint64_t> no_daemon{0};

// Where the index of the daemon that there is says that some file has changed.
const std::atomic<std::uint64_t>& ChangesNow() {
  const client::Session* const session = process.client->session();
  return session == nullptr ? no_daemon
                            : session->index.load(std::memory_order_acquire)->header->changes;
}

// As it was before what is being opened was looked up. A change under way is none that was seen.
struct Changes {
  const std::atomic<std::uint64_t>* word;
  std::uint64_t seen;

  void Put(Description& d) const {
    d.changes.store(word, std::memory_order_relaxed);
    d.seen_changes.store(seen & ~std::uint64_t{1}, std::memory_order_relaxed);
  }
};

// HDF5's superblock (versions 2 and 3) says whether the file is open for writing, bit 0, or to one
// who writes while others read (SWMR), bit 2. Its readers look at the same bytes again and want
// them as they are by then.
constexpr std::uint64_t kHdf5Head = 12;
bool IsOpenHdf5(const std::byte* data, std::uint64_t bytes) {
  constexpr unsigned char kSignature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  constexpr std::uint64_t kFlags = 11;
  return bytes >= kHdf5Head && std::memcmp(data, kSignature, sizeof kSignature) == 0 &&
         (static_cast<unsigned char>(data[8]) >= 2) &&
         (static_cast<unsigned char>(data[kFlags]) & 5) != 0;
}

// Makes a descriptor of a leased piece; gives the lease back when it cannot.
int InstallPiece(const char* path, int flags, Piece& piece, const client::FileFacts& facts,
                 std::uint64_t dev, const Changes& changes, NotServed& not_served) {
  int fd = -1;
  AskAhead(piece, 0);
  Description* const d = NewDescription(&fd);
  if (d == nullptr) {
    not_served.why = RealOpen::kNoDescriptor;
    if (piece.held()) client::GiveLeaseBack(*piece.session, piece.lease, piece.epoch, piece.bytes);
    return -1;
  }
  AskAhead(piece, 1);
  d->whole = true;
  d->flags = ShownFlags(flags);
  d->client = process.client;
  d->session = piece.session;
  d->piece = piece;
  d->facts = facts;
  d->dev = facts.attrs.dev != 0 ? facts.attrs.dev : dev;
  d->tier.store(static_cast<std::uint8_t>(piece.tier), std::memory_order_relaxed);
  std::strcpy(d->path, path);  // canonical: shorter than PATH_MAX
  AskAhead(piece, 2);
  changes.Put(*d);
  if (IsOpenHdf5(piece.data, piece.bytes)) [[unlikely]] {
    client::GiveLeaseBack(*piece.session, piece.lease, piece.epoch, piece.bytes);
    Discard(*d, fd);
    not_served.why = RealOpen::kWriter;
    return -1;
  }
  Count(counters.opened);
  Publish(*d, fd, (flags & O_CLOEXEC) != 0);
  AskAhead(piece, 3);
  return fd;
}

int InstallFile(const char* path, int flags, const client::Call& call, client::Cached& cached,
                const Changes& changes, NotServed& not_served) {
  int fd = -1;
  Description* const d = NewDescription(&fd);
  if (d == nullptr) {
    not_served.why = RealOpen::kNoDescriptor;
    cached.piece.Free();
    return -1;
  }
  d->whole = false;
  d->flags = ShownFlags(flags);
  d->client = process.client;
  d->session = nullptr;
  d->facts = cached.facts;
  d->dev = cached.facts.attrs.dev != 0 ? cached.facts.attrs.dev : cached.target.source->dev;
  std::strcpy(d->path, path);
  changes.Put(*d);
  client::File* const file = new (d->file_memory) client::File(*process.client, d->path, 0);
  file->Bind(cached);
  if (file->Keep(call) != 0) {  // the source has another version by now, or an error that the application shall see itself
    file->Close();
    not_served = {RealOpen::kNotCached, abi::Fallback::kChanged};
    Discard(*d, fd);
    return -1;
  }
  std::byte head[kHdf5Head];
  if (file->Peek(head, sizeof head) && IsOpenHdf5(head, sizeof head)) {
    file->Close();
    Discard(*d, fd);
    not_served.why = RealOpen::kWriter;
    return -1;
  }
  Count(counters.opened);
  Publish(*d, fd, (flags & O_CLOEXEC) != 0);
  return fd;
}

__attribute__((noinline)) int OpenSlow(const char* path, int flags, NotServed& not_served) {
  LookAtLibraries();
  if (!MayMakeDescriptors()) {
    not_served.why = RealOpen::kMode;
    return -1;
  }
  const abi::Fallback without = process.client->WithoutDaemon(client::CoarseNs());
  if (without != abi::Fallback::kNone || StackIsSmall()) {
    not_served = {RealOpen::kNotCached, without};
    return -1;
  }
  const SlowPath slow;
  if (!slow.entered()) return -1;
  const std::atomic<std::uint64_t>* const before = &ChangesNow();
  Changes changes{before, before->load(std::memory_order_acquire)};
  const client::Call call(*process.client, path, 0);
  client::Cached cached;
  client::Wish wish;
  wish.use = client::LeaseUse::kView;
  client::FindCached(call, wish, cached);
  // What was brought for this open has been waited for here, and not by its first read.
  if (cached.outcome == client::Outcome::kPiece && cached.piece.tier != abi::Tier::kRam)
    client::CountLatency(cached.piece.session->page->counters, cached.piece.tier, client::PreciseNs() - call.start_ns);
  // By another index than before: the first read looks at the file.
  if (&ChangesNow() != before) changes = {&ChangesNow(), ~std::uint64_t{0}};
  const bool usable = cached.outcome == client::Outcome::kPiece || cached.outcome == client::Outcome::kEmpty || cached.outcome == client::Outcome::kChunked;
  if (usable && cached.facts.has_attrs) {
    if (cached.outcome == client::Outcome::kChunked)
      return InstallFile(path, flags, call, cached, changes, not_served);
    if (cached.outcome == client::Outcome::kEmpty || client::Account(*cached.piece.session, cached.piece.bytes)) {
      if (cached.outcome == client::Outcome::kEmpty) cached.piece = {};
      return InstallPiece(path, flags, cached.piece, cached.facts, cached.target.source->dev,
                          changes, not_served);
    }
    cached.reason = abi::Fallback::kPinCap;
  }
  cached.piece.Free();
  if (cached.outcome != client::Outcome::kOther && cached.outcome != client::Outcome::kError) not_served = {RealOpen::kNotCached, cached.reason};
  return -1;
}

}  // namespace

void CountNotServed(const NotServed& not_served) {
  if (not_served.why == RealOpen::kCount) return;
  Count(not_served.why);
  if (not_served.reason != abi::Fallback::kNone) client::CountFallback(process.client->Counters(process.client->session()), not_served.reason);
}

int OpenCached(const char* path, int flags, NotServed& not_served) {
  Piece piece;
  client::HitPlace place;
  client::FileFacts facts;
  if (client::Hit<client::LeaseUse::kView>(*process.client, path, piece, place, &facts)) {
    if (facts.has_attrs && client::Account(*piece.session, piece.bytes)) [[likely]]
      return InstallPiece(path, flags, piece, facts, place.source->dev,
                          {&place.index->header->changes, place.changes}, not_served);
    piece.Free();
  }
  return OpenSlow(path, flags, not_served);
}

// ---- reading ---------------------------------------------------------------------------------------------------------------

namespace {

// The daemon that it was opened of is gone: what changes, its successor says.
__attribute__((noinline)) void FollowAnother(Description& d) {
  const std::atomic<std::uint64_t>* const now = &ChangesNow();
  if (d.changes.exchange(now, std::memory_order_relaxed) != now)
    d.seen_changes.store(~std::uint64_t{0}, std::memory_order_relaxed);
}

}  // namespace

void CountPieceRead(Description& d, std::uint64_t bytes) {
  if (!d.session->serves()) return FollowAnother(d);
  auto tier = abi::Tier::kRam;
  if (d.tier.load(std::memory_order_relaxed) != static_cast<std::uint8_t>(abi::Tier::kRam))
    tier = static_cast<abi::Tier>(d.tier.exchange(static_cast<std::uint8_t>(abi::Tier::kRam), std::memory_order_relaxed));
  abi::SessionPage& page = *d.session->page;
  std::uint32_t none = 0;
  // The daemon hears of a file once for each time it is opened, however small the pieces are that it is read in.
  if (d.noted.load(std::memory_order_relaxed) == 0 && ExchangeOwn(d.noted, none, std::uint32_t{1}) && d.piece.ordinal != 0xffffffffu)
    client::AppendToRing(page, d.piece.ordinal, d.piece.generation, client::CoarseNs(), tier);
  client::CountRead(page.counters, tier, bytes);
}

namespace {

// What is neither held nor in shared memory. -ESTALE: the file has been written to, and no chunk of its version is there any more.
__attribute__((noinline)) ssize_t ReadElsewhere(Description& d, void* buffer, std::size_t count, std::uint64_t offset) {
  const client::KeepErrno keep;  // a new segment is mapped here, with advice that kernels and filters may refuse
  const bool small = StackIsSmall();
  const SlowPath slow;
  client::Call call(*process.client, d.path, 0);
  if (small || !slow.entered()) {
    int error = 0;
    const ssize_t got = client::ReadSource(d.file().descriptor(), buffer, count, static_cast<std::int64_t>(offset), 0, &error);
    return got >= 0 && !d.file().DescriptorKeepsVersion() ? -ESTALE : got;
  }
  const client::File::Done done = d.file().Read(call, buffer, count, offset, true);
  if (done.changed) return -ESTALE;
  if (done.bytes > 0) client::CountSlowRead(call, done.tier, static_cast<std::uint64_t>(done.bytes), done.reason);
  return done.bytes;
}

// One read of a leased piece in abi::kLatencySampling.
__attribute__((noinline)) ssize_t ReadTimed(Description& d, void* buffer, std::size_t count, std::uint64_t offset) {
  const bool from_ram = d.tier.load(std::memory_order_relaxed) == static_cast<std::uint8_t>(abi::Tier::kRam);
  const std::int64_t start_ns = client::PreciseNs();
  client::CopyOut(buffer, d.piece.data + offset, count, count);
  const std::int64_t took_ns = client::PreciseNs() - start_ns;
  if (from_ram && d.session->serves()) client::CountLatency(d.session->page->counters, abi::Tier::kRam, took_ns);
  CountPieceRead(d, count);
  return static_cast<ssize_t>(count);
}

__attribute__((noinline)) ssize_t ReadFile(Description& d, void* buffer, std::size_t count,
                                           std::uint64_t offset) {
  std::size_t done = 0;
  while (done < count) {
    const std::int64_t start_ns = client::SampleThisHit() ? client::PreciseNs() : 0;
    const client::File::Done here = d.file().ReadHere(static_cast<char*>(buffer) + done, count - done, offset + done);
    if (here.bytes == 0) break;
    abi::SessionCounters& all = process.client->Counters(process.client->session());
    client::CountRead(all, here.tier, static_cast<std::uint64_t>(here.bytes));
    if (start_ns != 0 && here.tier == abi::Tier::kRam) client::CountLatency(all, here.tier, client::PreciseNs() - start_ns);
    done += static_cast<std::size_t>(here.bytes);
  }
  // What was not here at the open is looked at now: such a file is the source's, as it is by now.
  const auto checked = [&](std::size_t bytes) -> ssize_t {
    if (offset != 0 || !IsOpenHdf5(static_cast<const std::byte*>(buffer), bytes))
      return static_cast<ssize_t>(bytes);
    d.seen_changes.store(Description::kLookAtSource, std::memory_order_relaxed);
    return -ESTALE;
  };
  if (done == count) return checked(done);
  const ssize_t rest = ReadElsewhere(d, static_cast<char*>(buffer) + done, count - done, offset + done);
  if (rest < 0) return rest == -ESTALE || done == 0 ? rest : static_cast<ssize_t>(done);
  return checked(done + static_cast<std::size_t>(rest));
}

}  // namespace

ssize_t ReadCached(Description& d, void* buffer, std::size_t count, std::uint64_t offset) {
  if (offset >= d.size()) return 0;
  if (count > d.size() - offset) count = static_cast<std::size_t>(d.size() - offset);
  if (count > kMostBytes) count = kMostBytes;
  if (count == 0) return 0;
  if (!d.whole) return ReadFile(d, buffer, count, offset);
  if (client::SampleThisHit()) [[unlikely]] return ReadTimed(d, buffer, count, offset);
  client::CopyOut(buffer, d.piece.data + offset, count, count);
  CountPieceRead(d, count);
  return static_cast<ssize_t>(count);
}

// ---- describing ------------------------------------------------------------------------------------------------------------

void StatOfFacts(const client::FileFacts& facts, std::uint64_t dev, struct stat& st) {
  st = {};
  st.st_dev = dev;
  st.st_ino = facts.ino;
  st.st_mode = facts.attrs.mode;
  st.st_nlink = facts.attrs.nlink;
  st.st_uid = facts.attrs.uid;
  st.st_gid = facts.attrs.gid;
  st.st_size = static_cast<off_t>(facts.size);
  st.st_blksize = facts.attrs.blksize != 0 ? facts.attrs.blksize : 4096;
  // What the size takes in 4 KiB blocks; a link lies in its inode.
  st.st_blocks = facts.kind == abi::SlotKind::kSymlink ? 0 : static_cast<blkcnt_t>((facts.size + 4095) / 4096 * 8);
  const auto time = [](std::int64_t ns) {
    std::int64_t seconds = ns / 1'000'000'000;
    std::int64_t rest = ns % 1'000'000'000;
    if (rest < 0) --seconds, rest += 1'000'000'000;
    return timespec{seconds, static_cast<long>(rest)};
  };
  st.st_atim = time(facts.atime_ns);
  st.st_mtim = time(facts.mtime_ns);
  st.st_ctim = time(facts.ctime_ns);
}

namespace {

// Whether those are all of it: which device a node stands for the cache does not know.
bool SaysAll(const client::FileFacts& facts) { return facts.has_attrs && !S_ISCHR(facts.attrs.mode) && !S_ISBLK(facts.attrs.mode); }

__attribute__((noinline)) bool StatSlow(const char* path, bool follow, struct stat& st) {
  if (process.client->WithoutDaemon(client::CoarseNs()) != abi::Fallback::kNone || StackIsSmall()) return false;
  const SlowPath slow;
  if (!slow.entered()) return false;
  const client::Call call(*process.client, path, 0);
  client::Cached cached;
  client::Wish wish;
  wish.bytes = false;
  wish.follow = follow;
  client::FindCached(call, wish, cached);
  if (cached.outcome != client::Outcome::kKnown && cached.outcome != client::Outcome::kOther) return false;
  if (!SaysAll(cached.facts) || (follow && cached.facts.kind == abi::SlotKind::kSymlink)) return false;
  StatOfFacts(cached.facts, cached.facts.attrs.dev != 0 ? cached.facts.attrs.dev : cached.target.source->dev, st);
  return true;
}

}  // namespace

bool StatPath(const char* path, bool follow, struct stat& st) {
  client::HitPlace place;
  client::FileFacts facts;
  if (client::FindHitPlace(*process.client, path, place)) {
    const client::LookUp look_up{*place.session, *place.index, place.now_ns, false, &facts};
    const client::Look look = client::LookUpFacts(look_up, place.key, follow);
    const bool known = look == client::Look::kKnown || look == client::Look::kEmpty || look == client::Look::kChunked || look == client::Look::kOther;
    if (known && SaysAll(facts) && !(follow && facts.kind == abi::SlotKind::kSymlink)) {
      StatOfFacts(facts, facts.attrs.dev != 0 ? facts.attrs.dev : place.source->dev, st);
      Count(counters.stats);
      return true;
    }
    if (look == client::Look::kAlias) return false;  // the link itself is meant
  }
  if (!StatSlow(path, follow, st)) return false;
  Count(counters.stats);
  return true;
}

namespace {


// The number of an inode is used again at once by many file systems: a file that was made after the
// last change of the one that was opened is another. `fd`, or `path` where it is AT_FDCWD.
bool HasTakenNumberOf(const client::FileFacts& opened, int fd, const char* path) {
  struct statx st;
  const int flags = path[0] == '\0' ? AT_EMPTY_PATH : 0;
  if (raw::Call(SYS_statx, fd, raw::Address(path), flags, STATX_BTIME | STATX_CTIME, raw::Address(&st)) != 0 || (st.stx_mask & STATX_BTIME) == 0) return false;
  const auto ns = [](const struct statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
  return ns(st.stx_btime) > opened.ctime_ns && ns(st.stx_btime) <= ns(st.stx_ctime);
}

// Whether the source's file by its path is the one that was opened, with other bytes by its size or
// times.
bool SourceSaysChanged(const Description& d) {
  struct stat st;
  if (raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(d.path), raw::Address(&st), 0) != 0 ||
      st.st_ino != d.facts.ino)
    return false;
  const bool other = static_cast<std::uint64_t>(st.st_size) != d.facts.size ||
                     abi::TimeNs(st.st_mtim) != d.facts.mtime_ns || abi::TimeNs(st.st_ctim) != d.facts.ctime_ns;
  return other && !HasTakenNumberOf(d.facts, AT_FDCWD, d.path);
}

// The index that the description goes by, and what it says of the file.
bool IndexSaysUnchanged(const Description& d) {
  client::HitPlace place;
  client::FileFacts facts;
  if (!client::FindHitPlace(*process.client, d.path, place, true) || place.index->Retired())
    return false;
  return !client::SaysChanged({*place.session, *place.index, place.now_ns, false, &facts},
                              place.key, d.facts);
}

}  // namespace

__attribute__((noinline)) bool HasChanged(Description& d) {
  const client::KeepErrno keep;
  const bool look = d.seen_changes.load(std::memory_order_relaxed) == Description::kLookAtSource;
  struct stat st;
  // A retired index says nothing more: a stat through the cache fetches the one that came after it.
  if (const client::Session* const session = process.client->session();
      session != nullptr && session->index.load(std::memory_order_acquire)->Retired())
    (void)StatPath(d.path, true, st);
  const std::atomic<std::uint64_t>* const word = &ChangesNow();
  const std::uint64_t now = word->load(std::memory_order_acquire);
  if ((look || !IndexSaysUnchanged(d)) && SourceSaysChanged(d)) return true;
  d.changes.store(word, std::memory_order_relaxed);
  // A change that is under way is looked at again.
  d.seen_changes.store(now & ~std::uint64_t{1}, std::memory_order_relaxed);
  return false;
}

void NoteShown(const struct stat& st) {
  if (!S_ISREG(st.st_mode)) return;
  for (int fd = 0; fd < kTable; ++fd) {
    if (!IsOurs(fd)) continue;
    const Using use(fd);
    if (!use || use->facts.ino != st.st_ino) continue;
    if (static_cast<std::uint64_t>(st.st_size) == use->facts.size &&
        abi::TimeNs(st.st_mtim) == use->facts.mtime_ns)
      continue;
    use->seen_changes.store(Description::kLookAtSource, std::memory_order_relaxed);
  }
}

bool HasGrown(Description& d) {
  constexpr std::int64_t kLookEveryNs = 1'000'000'000;
  // What the daemon was told of (a child's write, a command's) is in the index by now, whenever the
  // source was looked at last.
  if (MayHaveChanged(d)) return HasChanged(d);
  client::HitPlace place;
  client::FileFacts facts;
  const auto look_up = [&] { return client::LookUp{*place.session, *place.index, place.now_ns, false, &facts}; };
  // A daemon that does not count changes: the slot itself is looked at.
  const auto* const word = d.changes.load(std::memory_order_relaxed);
  const bool says_nothing = word->load(std::memory_order_relaxed) == 0;
  const bool told = says_nothing && client::FindHitPlace(*process.client, d.path, place, true) &&
                    client::SaysChanged(look_up(), place.key, d.facts);
  if (!told) {
    const std::int64_t now_ns = client::CoarseNs();
    std::int64_t looked_ns = d.looked_ns.load(std::memory_order_relaxed);
    if (now_ns - looked_ns < kLookEveryNs || !d.looked_ns.compare_exchange_strong(looked_ns, now_ns, std::memory_order_relaxed)) return false;
    if (client::FindHitPlace(*process.client, d.path, place)) {
      const client::Look look = client::LookUpFacts(look_up(), place.key, true);
      if (look != client::Look::kMiss && look != client::Look::kRetired && facts.SameVersion(d.facts)) return false;
    }
  }
  return SourceSaysChanged(d);
}

// ---- the source behind it --------------------------------------------------------------------------------------------------

int OpenSourceFile(const char* path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
  const int fd = raw::Open(AT_FDCWD, path, kFlags | O_NONBLOCK);
  if (fd != -EWOULDBLOCK) return fd;
  // A regular file under another process's write lease is waited for, as open(2) does.
  struct stat st;
  const bool regular = raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(path), raw::Address(&st), 0) == 0 && S_ISREG(st.st_mode);
  return regular ? raw::Open(AT_FDCWD, path, kFlags) : fd;
}

SourceVersion VersionBehind(const client::FileFacts& opened, int source) {
  struct stat st;
  if (raw::Stat(source, st) != 0 || st.st_ino != opened.ino) return SourceVersion::kOtherFile;
  const bool same = static_cast<std::uint64_t>(st.st_size) == opened.size && abi::TimeNs(st.st_mtim) == opened.mtime_ns && abi::TimeNs(st.st_ctim) == opened.ctime_ns;
  if (same) return SourceVersion::kOpened;
  return HasTakenNumberOf(opened, source, "") ? SourceVersion::kOtherFile : SourceVersion::kLater;
}

int SourceOf(Description& d, SourceUse use) {
  Count(use);
  if (const int known = d.source.load(std::memory_order_acquire); known >= 0) return known;
  const int low = OpenSourceFile(d.path);
  if (low < 0) return low;
  if (VersionBehind(d.facts, low) != SourceVersion::kOpened) {
    CloseOwnFile(low);
    return -ESTALE;
  }
  int fd = raw::DupFrom(low, OwnBase());
  if (fd < 0) fd = low;
  else CloseOwnFile(low);
  if (HoldOwn(fd, d.source)) return fd;
  CloseOwnFile(fd);
  return d.source.load(std::memory_order_acquire);
}

}  // namespace tierd::preload
