// tier_get_batch: hits at once, then one round trip for everything that is not in RAM, then whatever needs a second look.
#include <errno.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/ask.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/process.h"
#include "client_lib/src/views.h"
#include "client_lib/src/whole.h"

namespace tierd::client {
namespace {

// One path of a batch that the daemon is asked for. A file of one chunk is all that is taken here; anything else goes the way of tier_get.
struct Miss {
  std::size_t at;
  Target target;
  Piece whole;
  Piece first;  // chunk 0, should the file have several
  bool taken;   // the answer was all there is to do
};

// Bytes that one round trip asks for at most, as far as their size is known: all of them are in memory at a time, beside what other readers asked for.
std::uint64_t AskAtMost(const Session& session) {
  constexpr std::uint64_t kMost = 16 << 20;
  const std::uint64_t share = session.pin_cap_bytes / 4;
  return share < kMost ? share : kMost;
}

bool ClaimAny(Session& session, abi::FileKey key, Piece& piece) {
  piece = {};
  piece.session = &session;
  piece.epoch = ForkWord();
  piece.lease = ClaimForView(*session.page, abi::EncodeLease(abi::LeaseKeyOf(key), 0));
  return piece.held();
}

class Batch {
 public:
  Batch(Client& client, const char* const* paths, tier_view* views, int* errors, unsigned flags)
      : client_(client), paths_(paths), views_(views), errors_(errors), flags_(flags) {}

  // Room for up to kMaxBatch questions at a time.
  bool Allocate(std::size_t paths) {
    const std::size_t room = paths < abi::kMaxBatch ? paths : abi::kMaxBatch;
    misses_ = static_cast<Miss*>(std::malloc(room * sizeof(Miss)));
    waiters_ = static_cast<Waiter*>(std::malloc(room * sizeof(Waiter)));
    questions_ = static_cast<Question*>(std::malloc(room * sizeof(Question)));
    return misses_ != nullptr && waiters_ != nullptr && questions_ != nullptr;
  }
  ~Batch() {
    std::free(misses_);
    std::free(waiters_);
    std::free(questions_);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Set(std::size_t at, int error) {
    if (errors_ != nullptr) errors_[at] = error;
    if (error == 0) ++got_;
  }
  std::size_t got() const { return got_; }

  // A path that was no hit: asked for with the next round trip, if that makes sense, else read right away.
  void Add(std::size_t at) {
    if (Collect(at)) {
      if (++count_ == abi::kMaxBatch || asked_bytes_ >= AskAtMost(*misses_[0].target.session)) Flush();
    } else {
      One(at);
    }
  }

  void Flush() {
    if (count_ == 0) return;
    const Call call(client_, "", flags_);
    Session* const session = misses_[0].target.session;
    for (std::uint32_t i = 0; i < count_; ++i) {
      questions_[i] = {};
      questions_[i].target = &misses_[i].target;
      new (&waiters_[i]) Waiter;
    }
    const std::uint32_t count = count_;
    count_ = 0;
    asked_bytes_ = 0;
    {
      const SlowPath slow;  // until the last answer is taken: that may need the lock, to map a segment
      abi::Fallback why;
      if (slow.entered() && client_.MayAsk(*session, call.now_ns, &why)) (void)Ask(client_, *session, questions_, waiters_, count, call.deadline_ns());
      for (std::uint32_t i = 0; i < count; ++i) {
        Miss& miss = misses_[i];
        miss.taken = waiters_[i].done && Take(call, miss, waiters_[i].fetch);
        miss.whole.Free();
        miss.first.Free();
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!misses_[i].taken) One(misses_[i].at);
    }
  }

 private:
  void One(std::size_t at) { Set(at, GetSlow(client_, paths_[at], flags_, views_[at])); }

  // kMiss, kKnown: the daemon is to be asked for the file, by the key that `target` has then. Not of what is in RAM: it was no hit as a copy is wanted, or no lease could be had.
  static Look LookAt(const Call& call, Target& target, FileFacts& facts) {
    const IndexView& index = *target.session->index.load(std::memory_order_acquire);
    const LookUp look_up{*target.session, index, call.now_ns, false, &facts};
    Look look = LookUpFacts(look_up, target.path_key, false);
    if (look == Look::kAlias) {  // its slot names the key of the file behind the link
      target.file_key = {static_cast<std::uint64_t>(facts.mtime_ns), static_cast<std::uint64_t>(facts.ctime_ns)};
      look = LookUpFacts(look_up, target.file_key, false);
    }
    if (look == Look::kOther && facts.kind == abi::SlotKind::kSymlink) return Look::kMiss;  // known as the link that it is: where it leads the daemon finds out
    if (look != Look::kKnown) return look;
    const SlotRef ref = FindSlot(index, target.file_key);
    return ref && ref.slot->location.load(std::memory_order_acquire) != 0 ? Look::kHit : look;
  }

  // Puts the path on the list of what the daemon is asked for; false when it is a case for tier_get.
  bool Collect(std::size_t at) {
    if ((flags_ & TIER_NOWAIT) != 0) return false;
    Miss& miss = *new (&misses_[count_]) Miss{};
    miss.at = at;
    const Call call(client_, paths_[at], flags_);
    {
      const SlowPath slow;
      if (!slow.entered() || FindTarget(call, miss.target, nullptr) != abi::Fallback::kNone || miss.target.needs_check() || miss.target.pierced) return false;
    }
    Session& session = *miss.target.session;
    if (count_ > 0 && misses_[0].target.session != &session) return false;
    FileFacts facts;
    const Look look = LookAt(call, miss.target, facts);
    if (look != Look::kMiss && look != Look::kKnown) return false;
    if (ClaimAny(session, miss.target.file_key, miss.whole) && ClaimAny(session, abi::ChunkKeyOf(miss.target.file_key, 0), miss.first)) {
      if (look == Look::kKnown) asked_bytes_ += facts.size;
      return true;
    }
    miss.whole.Free();
    return false;
  }

  // The answer is a whole file in RAM: a view. Otherwise false, and tier_get's way is taken.
  bool Take(const Call& call, Miss& miss, const abi::FetchReply& reply) {
    Session& session = *miss.target.session;
    if (static_cast<abi::FetchStatus>(reply.status) != abi::FetchStatus::kFrame || static_cast<abi::SlotKind>(reply.kind) != abi::SlotKind::kFile) return false;
    const abi::Location location = abi::DecodeLocation(reply.location);
    if (location.segment == 0 || location.fill == 0 || reply.length != reply.size || reply.length == 0 || reply.tier >= abi::kTiers) return false;
    if (client_.Map(session, location.segment, call.deadline_ns()) != abi::Fallback::kNone) return false;
    Piece& piece = miss.whole;
    piece.data = session.arena->Find(location, reply.length);
    if (piece.data == nullptr || !session.serves()) return false;
    NarrowLease(*session.page, piece.lease, miss.target.file_key, location.fill);
    piece.bytes = reply.length;
    piece.ordinal = reply.ordinal;
    piece.generation = reply.generation;
    piece.tier = static_cast<abi::Tier>(reply.tier);
    Cached cached;
    cached.outcome = Outcome::kPiece;
    cached.piece = piece;
    piece = {};
    Call own = call;
    own.path = paths_[miss.at];
    Set(miss.at, ViewOf(own, cached, views_[miss.at]));
    return true;
  }

  Client& client_;
  const char* const* paths_;
  tier_view* views_;
  int* errors_;
  const unsigned flags_;
  Miss* misses_ = nullptr;
  Waiter* waiters_ = nullptr;
  Question* questions_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint64_t asked_bytes_ = 0;
  std::size_t got_ = 0;
};

}  // namespace
}  // namespace tierd::client

using namespace tierd::client;

ssize_t tier_get_batch(tier_client* client, const char* const* paths, size_t count, tier_view* views, int* errors, unsigned flags) noexcept {
  if (count != 0 && (paths == nullptr || views == nullptr)) return -EINVAL;
  if (count > SSIZE_MAX) return -EINVAL;
  for (std::size_t i = 0; i < count; ++i) views[i] = {};
  if ((flags & ~(TIER_CACHED | TIER_NOWAIT | TIER_COPY)) != 0) return -EINVAL;
  const KeepErrno keep;
  Client& c = ClientOf(client);
  Batch batch(c, paths, views, errors, flags);
  const bool room = batch.Allocate(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (paths[i] == nullptr) {
      batch.Set(i, -EINVAL);
    } else if ((flags & TIER_COPY) == 0 && HitView(c, paths[i], views[i])) {
      batch.Set(i, 0);
    } else if (room) {
      batch.Add(i);
    } else {
      batch.Set(i, GetSlow(c, paths[i], flags, views[i]));
    }
  }
  if (room) batch.Flush();
  return static_cast<ssize_t>(batch.got());
}
