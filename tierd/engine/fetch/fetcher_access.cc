// Access: how the source is asked whether a file may still be read. A stat does not tell that where
// the server refuses the open and nothing else (an ACL, an export rule, a user that it maps), so
// bytes that not everybody may read are confirmed by an open: the first time in the daemon's life,
// and then at least every access_recheck. Files that anybody may read (o+r, and o+x on each
// directory on the way) are confirmed by stats alone. Whether a directory may be searched by
// anybody is asked once for all its files.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "tierd/engine/fetch/fetcher_impl.h"

namespace tierd::engine {
namespace {

// Directories remembered; when there are more, all are asked about anew. ~16 MB.
constexpr std::size_t kMostDirectories = std::size_t{1} << 18;

// A file is confirmed by an open rather than a stat when less than this is left. It covers what a
// stat would have bought.
std::int64_t MarginNs(const SourceUnit& unit) {
  const std::int64_t half_ns = unit.options.AccessRecheckNs() / 2;
  if (unit.options.staleness == abi::Staleness::kImmutable) return half_ns;
  return std::min(half_ns, std::int64_t{unit.options.ttl_ms} * 1'000'000);
}

}  // namespace

Fetcher::Way Fetcher::WayTo(const SourceUnit& unit, FileId file) const {
  const std::string_view directory = catalogue_.DirectoryPath(catalogue_.file(file).dir);
  const std::int64_t oldest_ns = clock_.MonotonicNs() - (unit.options.AccessRecheckNs() - MarginNs(unit));
  Way way{Way::State::kOpen, std::numeric_limits<std::int64_t>::max(), {}};
  for (std::size_t end = 0;; end = std::min(directory.find('/', end + 1), directory.size())) {
    const std::string_view above = directory.substr(0, end);
    const auto known = directories_.find(catalogue_.KeyOf(unit.wire_id, above));
    if (known == directories_.end() || known->second.asked_ns < oldest_ns) {
      if (way.state == Way::State::kOpen) way = {Way::State::kUnknown, 0, above};
    } else if (!known->second.open) {
      return {Way::State::kClosed, 0, {}};
    } else {
      way.asked_ns = std::min(way.asked_ns, known->second.asked_ns);
    }
    if (end == directory.size()) return way;
  }
}

void Fetcher::NoteDirectory(const SourceUnit& unit, std::string_view path, std::uint32_t mode, std::int64_t asked_ns) {
  if (directories_.size() >= kMostDirectories) directories_.clear();
  directories_[catalogue_.KeyOf(unit.wire_id, path)] = {asked_ns, S_ISDIR(mode) && (mode & S_IXOTH) != 0};
}

void Fetcher::NoteOpened(FileId file, std::int64_t asked_ns) {
  std::uint16_t& flags = catalogue_.file(file).flags;
  flags = static_cast<std::uint16_t>((flags | kFileHeld) & ~kFileRefused);
  catalogue_.SetOpenedAt(file, std::max(catalogue_.OpenedAt(file), std::max<std::uint32_t>(1, abi::TicksOf(asked_ns))));
}

void Fetcher::DoubtAccess(FileId file) { catalogue_.SetOpenedAt(file, 0); }

std::uint32_t Fetcher::OpenedUntil(const SourceUnit& unit, FileId file) const {
  const std::uint32_t opened = catalogue_.OpenedAt(file);
  return opened == 0 ? abi::kDeadlineExpired : opened + abi::TicksOf(unit.options.AccessRecheckNs());
}

// A confirmation that would hold until `deadline` holds no longer than access was confirmed.
std::uint32_t Fetcher::BoundByAccess(const SourceUnit& unit, FileId file, std::uint32_t deadline) const {
  if ((catalogue_.file(file).flags & kFileHeld) == 0) return deadline;
  const std::uint32_t opened_until = OpenedUntil(unit, file);
  if (deadline <= opened_until || (catalogue_.StatOf(file).mode & S_IROTH) == 0) return std::min(deadline, opened_until);
  const Way way = WayTo(unit, file);
  if (way.state != Way::State::kOpen) return opened_until;
  if (unit.options.staleness == abi::Staleness::kImmutable) return deadline;
  return std::min(deadline, std::max(opened_until, abi::TicksOf(way.asked_ns + unit.options.AccessRecheckNs())));
}

bool Fetcher::OpenIsDue(const SourceUnit& unit, FileId file) const {
  if ((catalogue_.file(file).flags & kFileHeld) == 0) return false;
  return abi::TicksOf(clock_.MonotonicNs() + MarginNs(unit)) >= OpenedUntil(unit, file);
}

bool Fetcher::StatWillDo(const SourceUnit& unit, FileId file, const source::StatReply& reply) const {
  if (reply.opened || !OpenIsDue(unit, file)) return true;
  return (reply.stat.mode & S_IROTH) != 0 && WayTo(unit, file).state == Way::State::kOpen;
}

void Fetcher::AskSource(SourceUnit& unit, FileId file) {
  bool open = false;
  if (OpenIsDue(unit, file)) {
    const std::uint32_t mode = catalogue_.StatOf(file).mode;  // 0: a record of the SSD does not say it
    open = mode != 0 && (mode & S_IROTH) == 0;
    const Way way = open ? Way{} : WayTo(unit, file);
    if (!open && way.state == Way::State::kUnknown) return AskDirectory(unit, way.unknown, file);
    open |= way.state == Way::State::kClosed;
  }
  SendQuestion(unit, file, open);
}

// What was known of the directories may have grown too old while the stat was under way. They are
// asked about once more, and not again: a slow source would make each answer too old.
void Fetcher::AskFurther(SourceUnit& unit, FileId file, const source::StatReply& reply) {
  const Way way = WayTo(unit, file);
  const bool helps = (reply.stat.mode & S_IROTH) != 0 && way.state == Way::State::kUnknown;
  if (helps && !std::exchange(revalidations_.at(Raw(file)).asked_way_again, true)) return AskDirectory(unit, way.unknown, file);
  SendQuestion(unit, file, true);
}

void Fetcher::SendQuestion(SourceUnit& unit, FileId file, bool open) {
  Revalidation& revalidation = revalidations_.at(Raw(file));
  source::StatQuery query;
  query.path = catalogue_.PathOf(file);
  query.open = open;
  query.priority = revalidation.priority;
  query.deadline_ns = revalidation.deadline_ns;
  query.done = [this, &unit, file, open, tag = revalidation.tag, asked = revalidation.asked](const source::StatReply& reply) {
    Guard([&] { OnRevalidated(unit, file, tag, reply, open); });
  };
  revalidation.request = unit.reader->Stat(std::move(query));
}

// One question for all files that wait for it.
void Fetcher::AskDirectory(SourceUnit& unit, std::string_view path, FileId file) {
  Revalidation& revalidation = revalidations_.at(Raw(file));
  const abi::FileKey key = catalogue_.KeyOf(unit.wire_id, path);
  DirectoryQuestionPtr question = directory_questions_[key].lock();
  const bool first = question == nullptr;
  if (first) question = std::make_shared<DirectoryQuestion>();
  question->files.push_back({file, revalidation.tag, revalidation.asked});
  if (first) {
    directory_questions_[key] = question;
    source::StatQuery query;
    query.path = std::string(path);
    query.priority = revalidation.priority;
    query.deadline_ns = revalidation.deadline_ns;
    query.done = [this, &unit, question, directory = query.path](const source::StatReply& reply) {
      Guard([&] { OnDirectory(unit, directory, *question, reply); });
    };
    question->request = unit.reader->Stat(std::move(query));
  } else {
    unit.reader->Promote(question->request, revalidation.priority, revalidation.deadline_ns);
  }
  revalidation.request = question->request;
}

void Fetcher::OnDirectory(SourceUnit& unit, const std::string& path, DirectoryQuestion& question, const source::StatReply& reply) {
  directory_questions_.erase(catalogue_.KeyOf(unit.wire_id, path));
  const bool told = reply.error == source::ReadError::kNone;
  if (told) NoteDirectory(unit, path, reply.stat.mode, reply.stat_sent_ns);
  const auto files = std::exchange(question.files, {});
  for (const DirectoryQuestion::File& one : files) {
    const auto it = revalidations_.find(Raw(one.file));
    if (it == revalidations_.end() || it->second.tag != one.tag) continue;  // the file was forgotten meanwhile
    const Way way = told ? WayTo(unit, one.file) : Way{};
    const bool helps = way.state != Way::State::kUnknown || way.unknown != path;  // an answer may be too old when it comes
    if (told && helps) AskSource(unit, one.file);
    else if (told || (reply.error == source::ReadError::kErrno && !Unreachable(reply))) SendQuestion(unit, one.file, true);  // the file itself says more
    else OnRevalidated(unit, one.file, one.tag, reply, false);
  }
}

// The source has refused what it allowed before. The bytes stay, unserved: it may be a ticket that
// has run out.
void Fetcher::Refused(FileId file) {
  ++counters_.access_refused;
  catalogue_.file(file).flags |= kFileRefused;
  catalogue_.SetOpenedAt(file, 0);
  catalogue_.SetDeadline(file, abi::kDeadlineExpired);
}

}  // namespace tierd::engine
