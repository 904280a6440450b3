#include "client_lib/src/ask.h"

#include <cstdlib>
#include <cstring>

#include "client_lib/src/clock.h"

namespace tierd::client {
namespace {

std::size_t PaddedBytes(const Question& question) { return abi::PadTo8(sizeof(abi::FetchEntry) + question.target->relative_bytes); }
std::size_t EntryBytes(const Question& question) { return PaddedBytes(question) + (question.part.bytes != 0 ? sizeof question.part : 0); }

void Encode(const Question& question, std::uint64_t request_id, std::byte* out) {
  const std::size_t bytes = EntryBytes(question);
  abi::FetchEntry entry{};
  entry.entry_bytes = static_cast<std::uint32_t>(bytes);
  entry.op = static_cast<std::uint8_t>(question.op);
  entry.flags = question.flags;
  entry.path_bytes = static_cast<std::uint16_t>(question.target->relative_bytes);
  entry.request_id = request_id;
  entry.source_id = question.target->source->id;
  entry.chunk = question.chunk;
  if (question.expected != nullptr) {
    entry.expected_ino = question.expected->ino;
    entry.expected_mtime_ns = question.expected->mtime_ns;
    entry.expected_ctime_ns = question.expected->ctime_ns;
    entry.expected_size = question.expected->size;
  }
  if (question.target->is_alias()) {
    // The daemon must know which lease we hold; versions are compared when the answer is here.
    entry.flags = static_cast<std::uint8_t>((entry.flags & ~abi::kFetchHandle) | abi::kFetchAlias);
    entry.expected_ino = question.target->file_key.lo;
    entry.expected_size = question.target->file_key.hi;
  }
  std::memset(out + PaddedBytes(question) - 8, 0, 8);  // the padding
  if (question.part.bytes != 0) {
    entry.flags |= abi::kFetchPart;
    std::memcpy(out + PaddedBytes(question), &question.part, sizeof question.part);
  }
  std::memcpy(out, &entry, sizeof entry);
  std::memcpy(out + sizeof entry, question.target->relative, question.target->relative_bytes);
}

// Sends questions in as few datagrams as they fit into.
SendOutcome SendAll(Channel& channel, const Question* questions, const Waiter* waiters, std::size_t count, std::int64_t deadline_ns) {
  alignas(8) std::byte small[sizeof(abi::MessageHeader) + sizeof(abi::FetchEntry) + PATH_MAX + 8 + sizeof(abi::FetchPart)];
  std::byte* large = count == 1 ? nullptr : static_cast<std::byte*>(std::malloc(abi::kMaxMessageBytes));
  std::byte* const buffer = large != nullptr ? large : small;
  const std::size_t capacity = large != nullptr ? abi::kMaxMessageBytes : sizeof small;
  SendOutcome outcome = SendOutcome::kSent;
  for (std::size_t i = 0; i < count && outcome == SendOutcome::kSent;) {
    abi::MessageHeader header{abi::kMessageMagic, static_cast<std::uint16_t>(abi::MessageType::kFetch), channel.version(), sizeof header, 0};
    while (i < count && header.count < abi::kMaxBatch && header.bytes + EntryBytes(questions[i]) <= capacity) {
      Encode(questions[i], waiters[i].id, buffer + header.bytes);
      header.bytes += static_cast<std::uint32_t>(EntryBytes(questions[i]));
      ++header.count;
      ++i;
    }
    std::memcpy(buffer, &header, sizeof header);
    outcome = channel.Send(buffer, header.bytes, deadline_ns);
  }
  std::free(large);
  return outcome;
}

}  // namespace

FileFacts FactsOf(const abi::FetchReply& reply) {
  FileFacts facts;
  facts.size = reply.size;
  facts.ino = reply.ino;
  facts.mtime_ns = reply.mtime_ns;
  facts.ctime_ns = reply.ctime_ns;
  facts.deadline = reply.deadline;
  facts.kind = static_cast<abi::SlotKind>(reply.kind);
  facts.has_attrs = reply.mode != 0;
  facts.attrs.dev = reply.dev;
  facts.attrs.mode = reply.mode;
  facts.attrs.uid = reply.uid;
  facts.attrs.gid = reply.gid;
  facts.attrs.nlink = reply.nlink;
  return facts;
}

abi::Fallback Ask(Client& client, Session& session, const Question* questions, Waiter* waiters, std::size_t count, std::int64_t deadline_ns) {
  const std::int64_t left_ns = deadline_ns - PreciseNs();
  if (left_ns <= 0) return abi::Fallback::kTimeout;  // spent on questions that were answered: nothing is held against the daemon
  Group group;
  for (std::size_t i = 0; i < count; ++i) waiters[i].answer = abi::MessageType::kFetchReply;
  session.channel.Register(group, waiters, count);
  const SendOutcome sent = SendAll(session.channel, questions, waiters, count, deadline_ns);
  const WaitOutcome waited = session.channel.Wait(group, waiters, count, sent == SendOutcome::kSent ? deadline_ns : 0);
  if (waited == WaitOutcome::kAll) {
    client.NoteAnswer();
    return abi::Fallback::kNone;
  }
  const std::int64_t now_ns = CoarseNs();
  if (waited == WaitOutcome::kDead || sent == SendOutcome::kDead) {
    client.NoteDead(session, now_ns);
    return session.channel.protocol_error() ? abi::Fallback::kProtocol : abi::Fallback::kNoDaemon;
  }
  if (client.IsFair(left_ns)) client.NoteTimeout(now_ns);
  return abi::Fallback::kTimeout;
}

}  // namespace tierd::client
