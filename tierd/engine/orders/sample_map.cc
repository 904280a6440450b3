#include "tierd/engine/orders/sample_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "client_lib/abi/path_hash.h"
#include "policies/orders/file_list.h"
#include "policies/orders/sha256.h"
#include "tierd/base/unique_fd.h"
#include "tierd/source/source.h"

namespace tierd::engine {
namespace {

constexpr std::uint32_t kLooksPerTurn = 2048;
constexpr std::uint32_t kAskedAtOnce = 64;
constexpr std::size_t kFreedByWorkers = 4096;  // samples; what is smaller is freed sooner than handed over
constexpr off_t kLongestList = off_t{1} << 30;

// No "." or ".." part, no doubled slash: the form in which files are known.
bool IsPlain(std::string_view relative) {
  if (relative.empty() || relative.front() == '/' || relative.back() == '/') return false;
  for (std::size_t at = 0; at <= relative.size();) {
    const std::size_t end = std::min(relative.find('/', at), relative.size());
    const std::string_view part = relative.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

// An errno that tells what is at a name, and not that nobody could be asked.
bool SaysWhatIsThere(int error) {
  constexpr int kErrors[] = {ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, EPERM, ENAMETOOLONG};
  return std::find(std::begin(kErrors), std::end(kErrors), error) != std::end(kErrors);
}

// An order says nothing of the files when it was drawn for others.
Status CheckDigest(const std::vector<std::string>& paths, std::string digest) {
  orders::Sha256 sha;
  for (const std::string& path : paths) {
    sha.Add(path);
    sha.Add(std::string_view("", 1));
  }
  for (char& digit : digest) digit = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
  const std::string found = sha.Hex();
  if (found == digest) return Status::Ok();
  return Status(Code::kInvalid, "list: its SHA-256 is " + found + ", the plan's list_sha256 is " + digest + ": the plan was made for other paths, or in another order");
}

}  // namespace

Result<SampleMap::List> SampleMap::Make(std::string_view text, const Where& where) {
  Result<std::vector<std::string>> paths = orders::ParseFileList(text);
  if (!paths.ok()) return paths.status();
  if (!where.sha256.empty()) {
    if (Status status = CheckDigest(*paths, where.sha256); !status.ok()) return status;
  }
  List list;
  list.ends.reserve(paths->size());
  list.keys.reserve(paths->size());
  for (const std::string& path : *paths) {
    std::string_view relative;
    const bool below = std::any_of(where.roots.begin(), where.roots.end(), [&](const std::string& root) { return source::RelativeTo(root, path, &relative); });
    if (below && IsPlain(relative)) {
      const abi::FileKey key = abi::HashPath(where.secret.data(), where.wire_id, relative.data(), relative.size());
      list.keys.emplace_back(key.lo, static_cast<std::uint32_t>(list.ends.size()));
      list.text += relative;
    } else {
      ++list.outside;
    }
    list.ends.push_back(list.text.size());
  }
  if (list.keys.empty()) return Status(Code::kInvalid, "list: none of its " + std::to_string(list.size()) + " paths is below the source, the first is " + paths->front());
  std::sort(list.keys.begin(), list.keys.end());
  return list;
}

Result<SampleMap::List> SampleMap::MakeFromFile(const std::string& path, const Where& where) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return Status::FromErrno(errno, "list " + path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Status(Code::kInvalid, "list " + path + ": not a regular file");
  ::unlink(path.c_str());
  if (info.st_size > kLongestList) return Status(Code::kInvalid, "list " + path + ": over " + std::to_string(kLongestList) + " bytes");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t got = ::read(file.get(), text.data() + at, text.size() - at);
    if (got < 0) return Status::FromErrno(errno, "list " + path);
    if (got == 0) return Status(Code::kInvalid, "list " + path + ": became shorter");
    at += static_cast<std::size_t>(got);
  }
  return Make(text, where);
}

SampleMap::SharedList SampleMap::Share(List list, Workers& workers) {
  const auto let_go = [&workers](const List* last) {
    std::unique_ptr<const List> owned(last);
    if (owned->size() >= kFreedByWorkers) (void)workers.Run([owned = std::move(owned)] { return true; });  // without memory for that: here
  };
  return {new List(std::move(list)), let_go};
}

SampleMap::SampleMap(const Parts& parts, SharedList list)
    : unit_(parts.unit), catalogue_(parts.catalogue), fetcher_(parts.fetcher), clock_(parts.clock), count_(static_cast<std::uint32_t>(list->size())), list_(std::move(list)),
      names_(std::make_shared<std::vector<std::uint32_t>>(count_, Raw(kNoFile))), const_names_(names_), done_(count_) {}

SampleMap::~SampleMap() { *alive_ = false; }

std::string SampleMap::PathOf(std::uint32_t sample) const { return list_ == nullptr ? std::string() : std::string(list_->Path(sample)); }

// The file at that path; where an alias stands, the file that it leads to.
FileId SampleMap::Known(std::string_view path) const {
  const FileId file = catalogue_.Find(catalogue_.KeyOf(unit_.wire_id, path));
  if (file == kNoFile || (catalogue_.file(file).flags & kFileAlias) == 0) return file;
  const io::FileStat link = catalogue_.StatOf(file);
  return catalogue_.Find({static_cast<std::uint64_t>(link.mtime_ns), static_cast<std::uint64_t>(link.ctime_ns)});
}

bool SampleMap::Step() {
  if (complete()) return false;
  if (position_ == count_ && asking_ == 0 && !failed_.empty() && clock_.MonotonicNs() >= again_ns_) {
    ++rounds_;
    position_ = *std::min_element(failed_.begin(), failed_.end());  // those in between that are done are passed over
    failed_.clear();
  }
  std::uint32_t looked = 0;
  for (; position_ < count_ && looked < kLooksPerTurn && asking_ < kAskedAtOnce; ++position_, ++looked) {
    if (done_[position_]) continue;
    const std::string_view path = list_->Path(position_);
    const FileId file = path.empty() ? kNoFile : Known(path);
    if (path.empty() || file != kNoFile) Settle(position_, file);
    else Ask(position_);
  }
  return !complete() && looked == kLooksPerTurn;
}

void SampleMap::Ask(std::uint32_t sample) {
  source::StatQuery query;
  query.path = std::string(list_->Path(sample));
  query.priority = source::Priority::kPrefetch;
  query.done = [this, sample, alive = alive_](const source::StatReply& reply) {
    if (!*alive) return;
    --asking_;
    if (done_[sample]) return;
    const bool seen = reply.error == source::ReadError::kNone;
    if (seen ? S_ISLNK(reply.stat.mode) : reply.error == source::ReadError::kErrno && reply.sys_errno == ELOOP) return Follow(sample);
    const bool said = reply.error == source::ReadError::kErrno ? SaysWhatIsThere(reply.sys_errno) : reply.error == source::ReadError::kOutside || reply.error == source::ReadError::kNotRegular;
    if (!seen) return SettleWithout(sample, said);
    See(sample, std::string(list_->Path(sample)), reply.stat, reply.stat_sent_ns);
  };
  ++asking_;
  unit_.reader->Stat(std::move(query));
}

void SampleMap::Follow(std::uint32_t sample) {
  ++asking_;
  unit_.resolver->Resolve(std::string(list_->Path(sample)), 0, [this, sample, alive = alive_](const Result<source::ResolvedPath>& found) {
    if (!*alive) return;
    --asking_;
    if (done_[sample]) return;
    if (!found.ok()) return SettleWithout(sample, SaysWhatIsThere(found.status().sys_errno()));
    See(sample, found->canonical, found->stat, found->stat_sent_ns);
  });
}

void SampleMap::See(std::uint32_t sample, const std::string& path, const io::FileStat& stat, std::int64_t stat_sent_ns) {
  if (!S_ISREG(stat.mode)) return Settle(sample, kNoFile);
  if (fetcher_.Observe(unit_, path, stat, stat_sent_ns) == Fetcher::Observed::kLater) {
    position_ = std::min(position_, sample);  // looked for again when the index has grown
    return;
  }
  Settle(sample, Known(path));
}

void SampleMap::SettleWithout(std::uint32_t sample, bool said) {
  if (said || rounds_ == kMostRounds) return Settle(sample, kNoFile);
  failed_.push_back(sample);
  again_ns_ = clock_.MonotonicNs() + kAgainNs;
}

void SampleMap::Settle(std::uint32_t sample, FileId file) {
  done_[sample] = true;
  ++settled_;
  if (complete()) list_.reset();
  if (file == kNoFile) return;
  ++known_;
  (*names_)[sample] = Raw(file);
  if (sample_of_.size() <= Raw(file)) sample_of_.resize(std::max<std::size_t>(Raw(file) + 1, catalogue_.file_slots()), kNone);
  sample_of_[Raw(file)] = sample;
}

std::uint32_t SampleMap::SampleOf(FileId file) {
  if (const std::uint32_t known = KnownSampleOf(file); known != kNone) return known;
  if (complete()) return kNone;
  const abi::FileKey key = catalogue_.file(file).key;
  for (auto at = std::lower_bound(list_->keys.begin(), list_->keys.end(), std::pair(key.lo, 0u)); at != list_->keys.end() && at->first == key.lo; ++at) {
    if (done_[at->second] || !(catalogue_.KeyOf(unit_.wire_id, list_->Path(at->second)) == key)) continue;
    Settle(at->second, file);
    return sample_of_[Raw(file)];
  }
  return kNone;
}

}  // namespace tierd::engine
