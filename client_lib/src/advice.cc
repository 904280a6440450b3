#include "client_lib/src/advice.h"

#include <errno.h>
#include <limits.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"
#include "client_lib/src/spellings.h"

namespace tierd::client {
namespace {

struct Place {
  const Source* source;
  const char* relative;
  std::size_t relative_bytes;
  bool again;  // another name of what the place before is
};

// What is said of a place.
struct Word {
  abi::AdviseOp op;
  bool recursive;
  std::uint32_t said_ticks;  // AdviseEntry
};

std::size_t EntryBytes(const Place& place) { return abi::PadTo8(sizeof(abi::AdviseEntry) + place.relative_bytes); }

void Encode(const Place& place, const Word& word, std::uint64_t request_id, std::byte* out) {
  const std::size_t bytes = EntryBytes(place);
  abi::AdviseEntry entry{};
  entry.entry_bytes = static_cast<std::uint32_t>(bytes);
  entry.op = static_cast<std::uint8_t>(word.op);
  entry.flags = word.recursive ? abi::kAdviseRecursive : 0;
  entry.said_ticks = word.said_ticks;
  entry.path_bytes = static_cast<std::uint16_t>(place.relative_bytes);
  entry.request_id = request_id;
  entry.source_id = place.source->id;
  std::memset(out + bytes - 8, 0, 8);
  std::memcpy(out, &entry, sizeof entry);
  std::memcpy(out + sizeof entry, place.relative, place.relative_bytes);
}

// One entry, one answer: files concerned or -errno.
std::int64_t AdviseOne(Session& session, const Place& place, const Word& word, std::int64_t deadline_ns) {
  alignas(8) std::byte datagram[sizeof(abi::MessageHeader) + sizeof(abi::AdviseEntry) + PATH_MAX + 8];
  Waiter waiter;
  waiter.answer = abi::MessageType::kAdviseReply;
  Group group;
  session.channel.Register(group, &waiter, 1);
  const abi::MessageHeader header{abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kAdvise), session.channel.version(),
                                  static_cast<std::uint32_t>(sizeof(abi::MessageHeader) + EntryBytes(place)), 1};
  std::memcpy(datagram, &header, sizeof header);
  Encode(place, word, waiter.id, datagram + sizeof header);
  const bool sent = session.channel.Send(datagram, header.bytes, deadline_ns) == SendOutcome::kSent;
  const WaitOutcome outcome = session.channel.Wait(group, &waiter, 1, sent ? deadline_ns : 0);
  if (outcome == WaitOutcome::kDead) return -ENOTCONN;
  if (outcome == WaitOutcome::kTimeout) return -ETIMEDOUT;
  return waiter.advise.error != 0 ? -std::int64_t{waiter.advise.error < 0 ? -waiter.advise.error : waiter.advise.error}
                                  : static_cast<std::int64_t>(waiter.advise.affected);
}

// Whether the daemon has not done what it was told and has not refused it either: it may not have heard it, or had no room for it just now.
bool NotDone(std::int64_t result) { return result == -ENOTCONN || result == -ETIMEDOUT || result == -EAGAIN || result == -ENOMEM; }

// Many entries with one wait: the sum, or the first error; of what was not done, whatever else was refused.
std::int64_t AdviseMany(Session& session, const Place* places, std::size_t count, const Word& word, std::int64_t deadline_ns) {
  auto* const waiters = static_cast<Waiter*>(std::malloc(count * sizeof(Waiter)));
  auto* const buffer = static_cast<std::byte*>(std::malloc(abi::kMaxMessageBytes));
  if (waiters == nullptr || buffer == nullptr) {
    std::free(waiters);
    std::free(buffer);
    return -ENOMEM;
  }
  for (std::size_t i = 0; i < count; ++i) {
    new (&waiters[i]) Waiter;
    waiters[i].answer = abi::MessageType::kAdviseReply;
  }
  Group group;
  session.channel.Register(group, waiters, count);
  bool sent = true;
  for (std::size_t i = 0; i < count && sent;) {
    abi::MessageHeader header{abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kAdvise), session.channel.version(), sizeof header, 0};
    for (; i < count && header.count < abi::kMaxBatch && header.bytes + EntryBytes(places[i]) <= abi::kMaxMessageBytes; ++i, ++header.count) {
      Encode(places[i], word, waiters[i].id, buffer + header.bytes);
      header.bytes += static_cast<std::uint32_t>(EntryBytes(places[i]));
    }
    std::memcpy(buffer, &header, sizeof header);
    sent = session.channel.Send(buffer, header.bytes, deadline_ns) == SendOutcome::kSent;
  }
  const WaitOutcome outcome = session.channel.Wait(group, waiters, count, sent ? deadline_ns : 0);
  std::int64_t result = outcome == WaitOutcome::kDead ? -ENOTCONN : outcome == WaitOutcome::kTimeout ? -ETIMEDOUT : 0;
  std::int64_t files = 0;  // of the path at hand, by the name that concerns most
  for (std::size_t i = 0; i < count && !NotDone(result); ++i) {
    const abi::AdviseReply& reply = waiters[i].advise;
    const std::int64_t error = -std::int64_t{reply.error < 0 ? -reply.error : reply.error};
    const auto affected = static_cast<std::int64_t>(reply.affected);
    const std::int64_t counted = places[i].again ? files : 0;
    files = affected > counted ? affected : counted;
    if (error != 0 && (result >= 0 || NotDone(error))) result = error;
    else if (error == 0 && result >= 0) result += files - counted;
  }
  std::free(waiters);
  std::free(buffer);
  return result;
}

}  // namespace

bool ConfirmInvalidation(Session& session, const Invalidation& said, std::int64_t deadline_ns) {
  const SourceTable& sources = *session.sources.load(std::memory_order_acquire);
  const char* const path = said.path;
  const Word word{abi::AdviseOp::kInvalidate, said.recursive || path == nullptr, abi::TicksOf(said.said_ns) + 1};
  if (path == nullptr) {
    for (std::uint32_t i = 0; i < sources.count(); ++i) {
      if (AdviseOne(session, {&sources.at(i), "", 0, false}, word, deadline_ns) < 0) return false;
    }
    return true;
  }
  Place place{};
  place.source = sources.Match(path, std::strlen(path), &place.relative, &place.relative_bytes);
  if (place.source == nullptr) return true;
  return !NotDone(AdviseOne(session, place, word, deadline_ns));
}

namespace {

std::int64_t DoubtAt(Session& session, std::int64_t said_ns, std::int64_t deadline_ns) {
  const SourceTable& sources = *session.sources.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < sources.count(); ++i) {
    const std::int64_t result = AdviseOne(session, {&sources.at(i), "", 0, false}, {abi::AdviseOp::kDoubt, true, 0}, deadline_ns);
    // An older daemon does not know the word.
    if (result == -EINVAL) return ConfirmInvalidation(session, {nullptr, true, said_ns}, deadline_ns) ? 0 : -EAGAIN;
    if (NotDone(result)) return result;
  }
  return 0;
}

constexpr unsigned kAdviceFlags = TIER_RECURSIVE;

// One round of up to kMaxBatch paths.
class Advice {
 public:
  // `ask_kernel`: for the other names of what it is said of.
  Advice(Client& client, abi::AdviseOp op, bool recursive, bool ask_kernel) : client_(client), op_(op), recursive_(recursive), ask_kernel_(ask_kernel) {}

  std::int64_t Tell(const char* const* paths, std::size_t count) {
    if (client_.settings().disabled && op_ == abi::AdviseOp::kInvalidate) return 0;
    const std::size_t most = count * Spellings::kMost;
    Place* const places = static_cast<Place*>(std::malloc(most * sizeof(Place)));
    Spellings* const names = static_cast<Spellings*>(std::malloc(count * sizeof(Spellings)));
    std::int64_t result = -ENOMEM;
    if (names != nullptr) {
      // The daemon follows the links that it knows; what ends something must be told of also by names that it never met.
      for (std::size_t i = 0; i < count; ++i) FindSpellings(paths[i], ask_kernel_, names[i]);
      result = places != nullptr ? Locate(names, count, places) : Unheard(names, count, CoarseNs(), -ENOMEM);
    } else if (op_ == abi::AdviseOp::kInvalidate) {
      RememberInvalidation(client_.settings().socket, {nullptr, true, said_ns_});
      Distrust(CoarseNs());
    }
    std::free(places);
    std::free(names);
    return result;
  }

 private:
  std::int64_t Locate(const Spellings* names, std::size_t count, Place* places) {
    std::size_t found = 0;
    std::int64_t error = 0;
    abi::Fallback why;
    const std::int64_t now_ns = CoarseNs();
    Session* const session = client_.Acquire(now_ns, &why);
    if (session == nullptr) return Unheard(names, count, now_ns, -ENOTCONN);
    const SourceTable& sources = *session->sources.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      if (names[i].count == 0) error = -EINVAL;
      bool first = true;
      for (std::size_t k = 0; k < names[i].count; ++k) {
        Place& place = places[found];
        place.source = sources.Match(names[i].text[k].text, names[i].bytes[k], &place.relative, &place.relative_bytes);
        if (place.source == nullptr) continue;
        place.again = !std::exchange(first, false);
        ++found;
      }
      if (first && names[i].count != 0 && op_ != abi::AdviseOp::kInvalidate) error = -ENOENT;
    }
    std::int64_t result = 0;
    if (found > 0) {
      const bool may = client_.MayAsk(*session, now_ns, &why);
      const std::int64_t deadline_ns = PreciseNs() + std::int64_t{client_.settings().timeout_ms} * 1'000'000;
      result = may ? AdviseMany(*session, places, found, {op_, recursive_, 0}, deadline_ns) : why == abi::Fallback::kHung ? -ETIMEDOUT : -ENOTCONN;
      if (result == -ENOTCONN) client_.NoteDead(*session, now_ns);
      if (may && result == -ETIMEDOUT) client_.NoteTimeout(now_ns);
      if (NotDone(result)) return Unheard(names, count, now_ns, result);
    }
    return result >= 0 && error != 0 ? error : result;
  }

  // Nobody has heard it. An invalidation must not be lost: hits stop, of all clients of this process, and the next daemon is told first of all.
  std::int64_t Unheard(const Spellings* names, std::size_t count, std::int64_t now_ns, std::int64_t error) {
    if (op_ != abi::AdviseOp::kInvalidate) return error;
    bool understood = true;
    for (std::size_t i = 0; i < count; ++i) {
      understood = understood && names[i].count != 0;
      for (std::size_t k = 0; k < names[i].count; ++k) RememberInvalidation(client_.settings().socket, {names[i].text[k].text, recursive_, said_ns_});
    }
    Distrust(now_ns);
    if (error != -ENOTCONN) return error;
    return understood ? 0 : -EINVAL;
  }

  void Distrust(std::int64_t now_ns) const {
    for (Client* any = FirstClient(); any != nullptr; any = any->next_client) any->Distrust(client_.settings().socket, now_ns);
  }

  Client& client_;
  const abi::AdviseOp op_;
  const bool recursive_;
  const bool ask_kernel_;
  const std::int64_t said_ns_ = PreciseNs();
};

std::int64_t Advise(tier_client* client, abi::AdviseOp op, const char* const* paths, std::size_t count, unsigned flags) {
  if ((paths == nullptr && count != 0) || (flags & ~kAdviceFlags) != 0) return -EINVAL;
  for (std::size_t i = 0; i < count; ++i) {
    if (paths[i] == nullptr) return -EINVAL;
  }
  const KeepErrno keep;
  const SlowPath slow;
  if (!slow.entered()) return -EDEADLK;
  Advice advice(ClientOf(client), op, (flags & TIER_RECURSIVE) != 0, op != abi::AdviseOp::kPrefetch && op != abi::AdviseOp::kPin);
  std::int64_t sum = 0;
  std::int64_t error = 0;
  for (std::size_t at = 0; at < count;) {
    const std::size_t part = count - at < abi::kMaxBatch ? count - at : abi::kMaxBatch;
    const std::int64_t affected = advice.Tell(paths + at, part);
    if (affected >= 0) sum += affected;
    else if (error == 0) error = affected;
    if (NotDone(affected) && op != abi::AdviseOp::kInvalidate) break;  // every path of an invalidation is told, or remembered
    at += part;
  }
  return error != 0 ? error : sum;
}

}  // namespace

std::int64_t DoubtSources(Client& client) {
  const KeepErrno keep;
  const SlowPath slow;
  if (!slow.entered()) return -EDEADLK;
  if (client.settings().disabled) return 0;
  const std::int64_t said_ns = PreciseNs(), now_ns = CoarseNs();
  abi::Fallback why;
  std::int64_t result = -ENOTCONN;
  Session* const session = client.Acquire(now_ns, &why);
  if (session != nullptr && client.MayAsk(*session, now_ns, &why)) {
    result = DoubtAt(*session, said_ns, PreciseNs() + std::int64_t{client.settings().timeout_ms} * 1'000'000);
    if (result == -ENOTCONN) client.NoteDead(*session, now_ns);
    if (result == -ETIMEDOUT) client.NoteTimeout(now_ns);
  }
  if (result == 0) return 0;
  RememberInvalidation(client.settings().socket, {nullptr, true, said_ns});
  for (Client* any = FirstClient(); any != nullptr; any = any->next_client) any->Distrust(client.settings().socket, now_ns);
  return result;
}

std::int64_t InvalidateName(Client& client, const char* name, bool recursive) {
  const KeepErrno keep;
  const SlowPath slow;
  if (!slow.entered()) return -EDEADLK;
  return Advice(client, abi::AdviseOp::kInvalidate, recursive, false).Tell(&name, 1);
}

}  // namespace tierd::client

using tierd::abi::AdviseOp;
using tierd::client::Advise;

int64_t tier_prefetch(tier_client* client, const char* const* paths, size_t count, unsigned flags) noexcept {
  return Advise(client, AdviseOp::kPrefetch, paths, count, flags);
}
int64_t tier_evict(tier_client* client, const char* const* paths, size_t count, unsigned flags) noexcept {
  return Advise(client, AdviseOp::kEvict, paths, count, flags);
}
int64_t tier_pin(tier_client* client, const char* const* paths, size_t count, unsigned flags) noexcept {
  return Advise(client, AdviseOp::kPin, paths, count, flags);
}
int64_t tier_unpin(tier_client* client, const char* const* paths, size_t count, unsigned flags) noexcept {
  return Advise(client, AdviseOp::kUnpin, paths, count, flags);
}
int64_t tier_invalidate(tier_client* client, const char* const* paths, size_t count, unsigned flags) noexcept {
  return Advise(client, AdviseOp::kInvalidate, paths, count, flags);
}
