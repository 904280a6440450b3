#include "client_lib/src/cached_file.h"

#include <errno.h>

#include "client_lib/src/clock.h"
#include "client_lib/src/source_io.h"

namespace tierd::client {
namespace {

constexpr int kRounds = 6;  // of looking again after the index, a mapping or the session changed under us

Look LookUpPath(const LookUp& look_up, Target& target, LeaseUse use, Piece& piece) {
  target.file_key = target.path_key;
  abi::FileKey named;
  const SlotRef ref = FindSlot(look_up.index, target.path_key);
  const Look look = LookUpFile(look_up, target.path_key, use, piece, &named);
  if (look != Look::kAlias || !ref || target.pierced) return look;
  target.file_key = named;
  const Look there = LookUpFile(look_up, named, use, piece, nullptr);
  if (ref.Unchanged()) return there;
  piece.Free();
  return Look::kMiss;
}

// Deals with what stands in the way of looking again. kNone: look again.
abi::Fallback Overcome(const Call& call, Target& target, PathText& text, Look look, const Piece& piece) {
  if (look == Look::kLeasesTaken) return abi::Fallback::kPinCap;
  if (!call.may_ask_where()) return abi::Fallback::kNoFrame;
  Session& session = *target.session;
  if (look == Look::kUnmapped) return call.client.Map(session, piece.segment, call.where_deadline_ns(), call.may_ask());
  if (look == Look::kRetired) return call.client.NewerIndex(session, call.where_deadline_ns(), call.may_ask());
  if (!call.may_ask()) return abi::Fallback::kNoFrame;
  return FindTarget(call, target, &text);  // kClosed: another session took over
}

// Leases for an answer: "any fill" of the key, taken before asking (HAZARDS 2.4).
bool ClaimAny(Session& session, abi::FileKey key, LeaseUse use, Piece& piece) {
  piece = {};
  piece.epoch = ForkWord();
  const std::uint64_t word = abi::EncodeLease(abi::LeaseKeyOf(key), 0);
  piece.lease = use == LeaseUse::kView ? ClaimForView(*session.page, word) : ClaimForCall(*session.page, word);
  piece.session = &session;
  return piece.held();
}

// The frame of a reply, under the lease in `piece` that was taken before the question (HAZARDS 2.3).
abi::Fallback TakeFrame(const Call& call, Session& session, const abi::FetchReply& reply, abi::FileKey key, Piece& piece) {
  const abi::Location location = abi::DecodeLocation(reply.location);
  if (location.segment == 0 || location.fill == 0 || reply.tier >= abi::kTiers) return abi::Fallback::kProtocol;
  if (const abi::Fallback reason = call.client.Map(session, location.segment, call.deadline_ns()); reason != abi::Fallback::kNone) return reason;
  piece.data = session.arena->Find(location, reply.length);
  if (piece.data == nullptr) return abi::Fallback::kProtocol;
  if (!session.serves()) return abi::Fallback::kNoDaemon;
  NarrowLease(*session.page, piece.lease, key, location.fill);
  piece.bytes = reply.length;
  piece.begin = reply.begin;
  piece.ordinal = reply.ordinal;
  piece.generation = reply.generation;
  piece.segment = location.segment;
  piece.tier = static_cast<abi::Tier>(reply.tier);
  return abi::Fallback::kNone;
}

std::uint64_t ChunkLength(const FileFacts& facts, std::uint64_t chunk_bytes, std::uint32_t chunk) {
  const std::uint64_t begin = std::uint64_t{chunk} * chunk_bytes;
  if (begin >= facts.size) return 0;
  return facts.size - begin < chunk_bytes ? facts.size - begin : chunk_bytes;
}

// Whether a frame of a chunk of `length` bytes is all of it, or has the part that was asked for.
bool HasPart(const abi::FetchReply& reply, abi::FetchPart part, std::uint64_t length) {
  if (part.bytes == 0) return reply.begin == 0 && reply.length == length;
  const std::uint64_t end = reply.begin + reply.length;
  return reply.length <= length && end <= length && reply.begin <= part.begin && std::uint64_t{part.begin} + part.bytes <= end;
}

abi::Fallback ReasonOfError(int error) {
  switch (error) {
    case EACCES: case EPERM: return abi::Fallback::kPermission;
    case ENOENT: case ENOTDIR: case ELOOP: case ESTALE: return abi::Fallback::kChanged;
    case ETIMEDOUT: return abi::Fallback::kSourceSlow;
    default: return abi::Fallback::kDegraded;
  }
}

abi::Fallback ReasonOf(const abi::FetchReply& reply) {
  if (static_cast<abi::FetchStatus>(reply.status) == abi::FetchStatus::kError) return ReasonOfError(reply.sys_errno);
  return reply.reason > 0 && reply.reason < abi::kFallbacks ? static_cast<abi::Fallback>(reply.reason) : abi::Fallback::kNoFrame;
}

class Finder {
 public:
  Finder(const Call& call, const Wish& wish, Cached& cached) : call_(call), wish_(wish), cached_(cached) {}

  void Run() {
    cached_.outcome = Outcome::kFallback;
    cached_.reason = FindTarget(call_, cached_.target, &cached_.text);
    if (cached_.reason != abi::Fallback::kNone) return;
    check_ = cached_.target.needs_check();
    if (check_ && !AskSource()) return;
    for (int round = 0; round < kRounds; ++round) {
      Look look = LookInMemory();
      if (Outcome outcome; Answers(look, outcome)) {
        cached_.outcome = outcome;
        if (!check_ || cached_.facts.SameVersion(at_source_)) return;
        cached_.outcome = Outcome::kFallback;
        cached_.piece.Free();
        look = Look::kMiss;
      }
      if (look == Look::kAlias) {  // whoever means the link itself: of that the source knows more
        cached_.reason = abi::Fallback::kNotRegular;
        return;
      }
      if (look != Look::kMiss) {
        cached_.reason = Overcome(call_, cached_.target, cached_.text, look, cached_.piece);
        if (cached_.reason != abi::Fallback::kNone) return;
      } else if (!AskDaemon()) {
        return;
      }
    }
    cached_.outcome = Outcome::kFallback;
    cached_.reason = abi::Fallback::kChanged;
  }

 private:
  // The source's own word on the version, with our credentials.
  bool AskSource() {
    tier_attr attr;
    if (!call_.may_read_source()) {
      cached_.reason = cached_.target.session->foreign_clock ? abi::Fallback::kClock : abi::Fallback::kNotAdmitted;
      return false;
    }
    cached_.error = StatSource(call_.path, wish_.follow, attr);
    // Whether its bytes may be read is for an open to say. What is no regular file is left alone: an open of a FIFO is noticed.
    if (cached_.error == 0 && wish_.bytes && S_ISREG(attr.mode)) cached_.error = ProbeSourceFile(call_.path, attr);
    if (cached_.error == 0) {
      at_source_ = FactsFromAttr(attr);
      return true;
    }
    cached_.outcome = Outcome::kError;
    return false;
  }

  Look LookInMemory() {
    Target& target = cached_.target;
    const LookUp look_up{*target.session, *target.session->index.load(std::memory_order_acquire), call_.now_ns, check_, &cached_.facts};
    const Look look = wish_.bytes ? LookUpPath(look_up, target, wish_.use, cached_.piece) : LookUpFacts(look_up, target.path_key, wish_.follow && !target.pierced);
    // The facts of the link itself, which somebody asked for, are not those of what it names.
    return look == Look::kOther && wish_.follow && cached_.facts.kind == abi::SlotKind::kSymlink ? Look::kMiss : look;
  }

  bool Answers(Look look, Outcome& outcome) const {
    switch (look) {
      case Look::kHit: outcome = Outcome::kPiece; return true;
      case Look::kEmpty: outcome = wish_.bytes ? Outcome::kEmpty : Outcome::kKnown; return true;
      case Look::kChunked: outcome = wish_.bytes ? Outcome::kChunked : Outcome::kKnown; return true;
      case Look::kKnown: outcome = Outcome::kKnown; return true;
      case Look::kOther: outcome = Outcome::kOther; return true;
      default: return false;
    }
  }

  // False: `cached_` says the end of it. True: look again.
  bool AskDaemon() {
    Target& target = cached_.target;
    Session& session = *target.session;
    cached_.outcome = Outcome::kFallback;
    cached_.reason = abi::Fallback::kNoFrame;
    if (!call_.may_ask() || ++questions_ > 3) return false;
    if (target.pierced && !wish_.bytes) {  // the answer would not say that a link was followed
      cached_.reason = abi::Fallback::kNamespace;
      return false;
    }
    if (!call_.client.MayAsk(session, CoarseNs(), &cached_.reason)) return false;
    Question question;
    question.target = &target;
    // Whether the file has one chunk or several is not known: both leases are taken.
    const bool meta = !wish_.bytes || (wish_.offset >= target.source->chunk_bytes && !meta_known_);
    question.op = meta ? abi::FetchOp::kStat : abi::FetchOp::kChunk;
    question.flags = wish_.follow ? abi::kFetchForeground : abi::kFetchNoFollow;
    Piece whole;
    Piece first;
    if (!meta && !(ClaimAny(session, target.file_key, wish_.use, whole) && ClaimAny(session, abi::ChunkKeyOf(target.file_key, 0), wish_.use, first))) {
      whole.Free();
      cached_.reason = abi::Fallback::kPinCap;
      return false;
    }
    Waiter waiter;
    cached_.asked = true;
    cached_.reason = session.serves() ? Ask(call_.client, session, &question, &waiter, 1, call_.deadline_ns()) : abi::Fallback::kNoDaemon;
    const bool again = cached_.reason == abi::Fallback::kNone && Interpret(waiter.fetch, meta, whole, first);
    whole.Free();
    first.Free();
    return again;
  }

  // Keeps the piece that is used; the other lease is freed by the caller.
  bool Interpret(const abi::FetchReply& reply, bool meta, Piece& whole, Piece& first) {
    Target& target = cached_.target;
    const FileFacts facts = FactsOf(reply);
    switch (static_cast<abi::FetchStatus>(reply.status)) {
      case abi::FetchStatus::kRetry: return true;
      case abi::FetchStatus::kMeta:
      case abi::FetchStatus::kFrame: break;
      default: cached_.reason = ReasonOf(reply); return false;
    }
    cached_.facts = facts;
    cached_.facts.has_attrs = facts.has_attrs && FindAtime(*target.session->index.load(std::memory_order_acquire), target.file_key, cached_.facts);
    if (check_ && !facts.SameVersion(at_source_)) {
      cached_.reason = abi::Fallback::kChanged;
      return false;
    }
    const bool regular = facts.kind == abi::SlotKind::kFile || facts.kind == abi::SlotKind::kChunked;
    if (static_cast<abi::FetchStatus>(reply.status) == abi::FetchStatus::kMeta) {
      if (target.pierced) return meta_known_ = true;  // what is known now is found in memory, by the name that it has
      if (!regular) cached_.outcome = Outcome::kOther;
      else if (!wish_.bytes) cached_.outcome = Outcome::kKnown;
      else if (facts.size == 0) cached_.outcome = Outcome::kEmpty;
      else if (facts.kind == abi::SlotKind::kChunked) cached_.outcome = Outcome::kChunked;
      else if (meta) return meta_known_ = true;  // one chunk: ask for it
      else cached_.reason = abi::Fallback::kNoFrame;
      return false;
    }
    const bool chunked = facts.kind == abi::SlotKind::kChunked;
    if (!regular || meta || !HasPart(reply, {}, ChunkLength(facts, chunked ? target.source->chunk_bytes : facts.size, 0)) || reply.length == 0) {
      cached_.reason = abi::Fallback::kProtocol;
      return false;
    }
    Piece& kept = chunked ? first : whole;
    cached_.reason = TakeFrame(call_, *target.session, reply, chunked ? abi::ChunkKeyOf(target.file_key, 0) : target.file_key, kept);
    if (cached_.reason != abi::Fallback::kNone) return false;
    cached_.outcome = chunked ? Outcome::kChunked : Outcome::kPiece;
    cached_.piece = kept;
    kept = {};
    return false;
  }

  const Call& call_;
  const Wish& wish_;
  Cached& cached_;
  bool check_ = false;
  FileFacts at_source_;
  bool meta_known_ = false;
  int questions_ = 0;
};

}  // namespace

void FindCached(const Call& call, const Wish& wish, Cached& cached) { Finder(call, wish, cached).Run(); }

abi::Fallback FindChunk(const Call& call, Target& target, PathText& text, const FileFacts& facts, const ChunkWish& wish, Piece& piece) {
  const std::uint64_t chunk_bytes = target.source->chunk_bytes;
  const std::uint64_t length = ChunkLength(facts, chunk_bytes, wish.chunk);
  for (int round = 0; round < kRounds; ++round) {
    if (target.source->chunk_bytes != chunk_bytes) return abi::Fallback::kChanged;  // another session, of a daemon that cuts files differently
    Session& session = *target.session;
    // The version is what the caller compares: of an open file at its opening, else a moment ago at the source.
    const bool any_age = wish.any_age || target.needs_check();
    const LookUp look_up{session, *session.index.load(std::memory_order_acquire), call.now_ns, any_age, nullptr};
    const Look look = LookUpChunk(look_up, target.file_key, wish.chunk, facts, wish.use, piece);
    if (look == Look::kHit) {
      if (piece.bytes == length) return abi::Fallback::kNone;
      piece.Free();
      return abi::Fallback::kProtocol;
    }
    if (look != Look::kMiss) {
      const abi::Fallback reason = Overcome(call, target, text, look, piece);
      if (reason != abi::Fallback::kNone) return reason;
      continue;
    }
    abi::Fallback reason = abi::Fallback::kNoFrame;
    if (!call.may_ask() || !call.client.MayAsk(session, CoarseNs(), &reason)) return reason;
    const abi::FileKey key = abi::ChunkKeyOf(target.file_key, wish.chunk);
    if (!ClaimAny(session, key, wish.use, piece)) return abi::Fallback::kPinCap;
    Question question;
    question.target = &target;
    question.chunk = wish.chunk;
    question.flags = static_cast<std::uint8_t>(abi::kFetchHandle | (wish.sequential ? abi::kFetchSequential : 0));
    question.expected = &facts;
    if (session.takes_parts && wish.part.bytes < length) question.part = wish.part;
    Waiter waiter;
    reason = session.serves() ? Ask(call.client, session, &question, &waiter, 1, call.deadline_ns()) : abi::Fallback::kNoDaemon;
    if (reason == abi::Fallback::kNone) {
      const abi::FetchReply& reply = waiter.fetch;
      if (static_cast<abi::FetchStatus>(reply.status) != abi::FetchStatus::kFrame) reason = ReasonOf(reply);
      else if (!FactsOf(reply).SameVersion(facts)) reason = abi::Fallback::kChanged;
      else if (!HasPart(reply, question.part, length)) reason = abi::Fallback::kProtocol;
      else reason = TakeFrame(call, session, reply, key, piece);
    }
    if (reason != abi::Fallback::kNone) piece.Free();
    return reason;
  }
  return abi::Fallback::kChanged;
}

abi::Fallback FindListing(const Call& call, Target& target, PathText& text, Piece& piece, FileFacts* facts) {
  abi::Fallback reason = FindTarget(call, target, &text);
  if (reason != abi::Fallback::kNone) return reason;
  for (int round = 0; round < kRounds; ++round) {
    Session& session = *target.session;
    const abi::FileKey key = abi::ListingKeyOf(target.path_key);
    // A directory that is read through its own stat each time is not worth caching: those go to the daemon or the source.
    const LookUp look_up{session, *session.index.load(std::memory_order_acquire), call.now_ns, false, facts};
    const Look look = target.needs_check() ? Look::kMiss : LookUpFile(look_up, key, LeaseUse::kView, piece, nullptr);
    if (look == Look::kHit) return abi::Fallback::kNone;
    if (look != Look::kMiss && look != Look::kOther && look != Look::kEmpty && look != Look::kChunked) {
      reason = Overcome(call, target, text, look, piece);
      if (reason != abi::Fallback::kNone) return reason;
      continue;
    }
    reason = abi::Fallback::kNoFrame;
    if (!call.may_ask() || !call.client.MayAsk(session, CoarseNs(), &reason)) return reason;
    if (!ClaimAny(session, key, LeaseUse::kView, piece)) return abi::Fallback::kPinCap;
    Question question;
    question.target = &target;
    question.op = abi::FetchOp::kList;
    Waiter waiter;
    reason = session.serves() ? Ask(call.client, session, &question, &waiter, 1, call.deadline_ns()) : abi::Fallback::kNoDaemon;
    if (reason == abi::Fallback::kNone) {
      const auto status = static_cast<abi::FetchStatus>(waiter.fetch.status);
      if (status == abi::FetchStatus::kFrame) {
        reason = TakeFrame(call, session, waiter.fetch, key, piece);
        if (reason == abi::Fallback::kNone) return reason;
      } else if (status == abi::FetchStatus::kMeta && waiter.fetch.kind == static_cast<std::uint8_t>(abi::SlotKind::kDirectory)) {
        piece.Free();
        piece = {};
        piece.tier = abi::Tier::kSource;
        return abi::Fallback::kNone;
      } else {
        reason = ReasonOf(waiter.fetch);
      }
    }
    piece.Free();
    return reason;
  }
  return abi::Fallback::kChanged;
}

}  // namespace tierd::client
