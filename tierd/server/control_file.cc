// The end point about one file: what is known of it, why it is where it is, and, when that is wanted, what its source says of it now.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tierd/server/control_body.h"
#include "tierd/server/control_files.h"
#include "tierd/server/control_json.h"

namespace tierd::server {
namespace {

constexpr std::int64_t kAskNs = 1'000'000'000;  // for each question to the source, three at most: people wait for the answer

constexpr const char* kNoAnswer = "The source did not answer when it was asked just now: it is slow, hung or unreachable.";
constexpr const char* kNoBytes = "Not a regular file: there are no bytes to cache.";

std::string Refusal(int sys_errno) { return std::string("The source refuses it: ") + std::strerror(sys_errno) + "."; }

// A sentence on what the source said to a read; "" where the read went well.
std::string SaidToRead(const source::ReadResult& result) {
  switch (result.error) {
    case source::ReadError::kNone: return "";
    case source::ReadError::kErrno: return Refusal(result.sys_errno);
    case source::ReadError::kNotRegular: return kNoBytes;
    case source::ReadError::kOutside: return "It lies on another file system, mounted below the source: reads of it bypass the cache.";
    case source::ReadError::kChanged: return "It changes all the time: no read of it was of one version.";
    case source::ReadError::kNoBuffer: return "The source was not asked: too much waits for it.";
    default: return kNoAnswer;
  }
}

// The same of a link that could not be followed.
std::string SaidOfLink(const Status& status) {
  const int error = status.sys_errno();
  if (error == EXDEV) return "It leads out of the source, or to another file system: reads of it bypass the cache.";
  if (error == ENOENT || error == ELOOP) return std::string("It leads nowhere: ") + std::strerror(error) + ".";
  return error == 0 ? kNoAnswer : Refusal(error);
}

std::string ChunksOf(std::uint32_t some, std::uint32_t all) { return std::to_string(some) + " of " + std::to_string(all) + " chunks"; }

}  // namespace

// What is told of a path: shared by the turns of the loop that it takes to find out.
struct ControlApi::Look {
  Place place;
  std::string relative;      // where the bytes are
  bool by_link = false;      // it is not the path that was asked for
  bool asked = false;        // the source was
  std::string said;          // what it said; "" if it gives the bytes, or was not asked
  Answer answer;
  std::byte byte{};          // of a read, for its answer alone

  engine::FileId FileIn(engine::Catalogue& catalogue) const { return catalogue.Find(catalogue.KeyOf(place.unit->wire_id, relative)); }
};

void ControlApi::File(const Query& query, Answer answer) {
  const auto look = std::make_shared<Look>();
  Response error;
  if (!PlaceOf(query, &look->place, &error)) return answer(std::move(error));
  const auto ask = query.find("ask");
  if (ask != query.end() && ask->second != "0" && ask->second != "1") return answer(JsonError(400, "bad_request", "ask must be 0 or 1"));
  look->relative = look->place.relative;
  look->answer = std::move(answer);
  engine::Catalogue& catalogue = engine_.catalogue();
  if (const engine::FileId link = look->FileIn(catalogue); link != engine::kNoFile) {
    if (const engine::FileId behind = engine_.BehindAlias(link); behind != engine::kNoFile) {
      look->relative = catalogue.PathOf(behind);
      look->by_link = true;
    }
  }
  if (ask == query.end() || ask->second == "0") return look->answer(FileJson(*look));
  AskSource(look);
}

// Of what lies in RAM nothing has to be asked. Of all else a byte of the first chunk that does not is read: a stat would not tell of a file that may not be read, or cannot.
void ControlApi::AskSource(const std::shared_ptr<Look>& look) {
  engine::SourceUnit& unit = *look->place.unit;
  engine::Catalogue& catalogue = engine_.catalogue();
  const engine::FileId file = look->FileIn(catalogue);
  std::uint64_t chunk = 0;
  if (file != engine::kNoFile && (catalogue.file(file).flags & (engine::kFileAlias | engine::kFileSymlink)) == 0) {
    const std::uint32_t chunks = IsRegular(catalogue.file(file).flags) ? catalogue.ChunkCount(file) : 0;
    while (chunk < chunks && engine_.placement().InRam(catalogue.ObjectOf(file, static_cast<std::uint32_t>(chunk)))) ++chunk;
    if (chunk == chunks) return look->answer(FileJson(*look));
  }
  look->asked = true;
  if (look->relative.empty()) {  // the root of the source
    look->said = kNoBytes;
    return look->answer(FileJson(*look));
  }
  source::ReadRequest request;
  request.path = look->relative;
  request.offset = chunk * unit.options.chunk_bytes;
  request.buffer = &look->byte;
  request.capacity = 1;
  request.deadline_ns = clock_.MonotonicNs() + kAskNs;
  request.done = [this, look](const source::ReadResult& result) {
    if (!engine::Survives([&] { OnAsked(look, result); })) look->answer(Busy());
  };
  request.on_buffer_free = [look](const source::ReadResult&) {};  // the byte stays until then
  unit.reader->Read(std::move(request));
  engine_.Kick();
}

void ControlApi::OnAsked(const std::shared_ptr<Look>& look, const source::ReadResult& result) {
  const auto turn = CountHandler();
  const bool link = result.error == source::ReadError::kErrno && (result.sys_errno == ELOOP || result.sys_errno == ENOTDIR);
  if (!link || look->by_link) {
    look->said = SaidToRead(result);
    return look->answer(FileJson(*look));
  }
  look->place.unit->resolver->Resolve(look->relative, clock_.MonotonicNs() + kAskNs, [this, look](const Result<source::ResolvedPath>& resolved) {
    const bool survived = engine::Survives([&] {
      const auto step = CountHandler();
      if (!resolved.ok()) {
        look->said = SaidOfLink(resolved.status());
        return look->answer(FileJson(*look));
      }
      look->relative = resolved->canonical;
      look->by_link = true;
      AskSource(look);
    });
    if (!survived) look->answer(Busy());
  });
  engine_.Kick();
}

ControlApi::Response ControlApi::FileJson(const Look& look) const {
  engine::SourceUnit& unit = *look.place.unit;
  engine::Catalogue& catalogue = engine_.catalogue();
  Json answer{{"source", unit.options.name}, {"relative", look.place.relative}, {"staleness", StalenessName(unit.options.staleness)}, {"policy", unit.options.policy}};
  PutPath(answer, look.place.absolute);
  if (look.by_link) PutPath(answer["target"], Absolute(unit, look.relative));
  const engine::FileId file = look.FileIn(catalogue);
  // The slot of an alias says where it leads and nothing else.
  const bool known = file != engine::kNoFile && (catalogue.file(file).flags & engine::kFileAlias) == 0;
  answer["known"] = known;
  if (look.asked) answer["answered"] = look.said != kNoAnswer;
  answer["why"] = Why(look, known ? file : engine::kNoFile);
  if (!known) return Ok(answer);
  const engine::FileRecord& record = catalogue.file(file);
  const io::FileStat stat = catalogue.StatOf(file);
  const Residency r = ResidencyOf(engine_, file);
  const std::uint32_t deadline = catalogue.DeadlineOf(file);
  const std::int64_t left = (std::int64_t{deadline} << abi::kTickShift) - clock_.MonotonicNs();
  answer.update({{"kind", look.by_link ? "symlink" : KindName(record.flags)}, {"size_bytes", r.size}, {"ram_bytes", r.ram}, {"ssd_bytes", r.ssd}, {"missing_bytes", r.missing},
                 {"pinned", (record.flags & engine::kFilePinned) != 0}, {"chunk_bytes", unit.options.chunk_bytes}, {"chunks", r.chunks},
                 {"chunks_ram", r.chunks_ram}, {"chunks_ssd", r.chunks_ssd}, {"leased", engine_.Leased(file)}, {"mtime_ns", stat.mtime_ns}, {"ctime_ns", stat.ctime_ns},
                 {"inode", stat.ino}, {"checked", (record.flags & engine::kFileChecked) != 0}, {"racy", (record.flags & engine::kFileRacy) != 0}});
  if (stat.mode != 0) answer["mode"] = stat.mode;  // records of the SSD tier do not have it
  answer["valid_for_s"] = deadline == abi::kDeadlineNever ? Json(nullptr) : Json(left > 0 ? static_cast<double>(left) * 1e-9 : 0.0);
  return Ok(answer);
}

std::string ControlApi::WhyNotOnSsd(engine::FileId file) const {
  if ((engine_.catalogue().file(file).flags & engine::kFileRacy) != 0) return "the tier takes no file that was written just before it was read.";
  if (engine_.ssd()->ailing()) return "the tier is not well and takes nothing just now (tierctl doctor).";
  if (engine_.placement().SsdFree() < engine_.catalogue().SizeOf(file)) return "the tier is full.";
  return "it is written there when it is read from the source, or when it leaves RAM.";
}

std::vector<std::string> ControlApi::WhyInTiers(const engine::SourceUnit& unit, engine::FileId file) const {
  const Residency r = ResidencyOf(engine_, file);
  if (r.size == 0) return {"The file has 0 bytes: nothing to cache."};
  std::vector<std::string> why;
  if (r.ram == r.size) {
    why.push_back("In RAM: yes, reads are served without the daemon while the version is confirmed.");
  } else {
    const bool full = engine_.placement().FreeForResidents() < r.size - r.ram;
    // Of the file as a whole: which of its chunks were asked for nobody knows.
    const bool asked_for = r.ram == 0 && (engine_.catalogue().file(file).flags & engine::kFileDemanded) != 0;
    const std::string some = r.ram > 0 ? ChunksOf(r.chunks_ram, r.chunks) : "no";
    const std::string decides = "the policy " + unit.options.policy + " decides who may enter and leave.";
    why.push_back("In RAM: " + some + (full        ? std::string("; ") + (asked_for ? "a reader has asked for it, but " : "") + "the tier is full and " + decides
                                       : asked_for ? "; a reader has asked for it, and it found no room or has left since: " + decides
                                                   : std::string("; no read and no prefetch has brought ") + (r.ram > 0 ? "the others since they were" : "it since it was") + " last there."));
  }
  if (engine_.ssd() == nullptr) why.push_back("On SSD: no; there is no SSD tier.");
  else if (r.ssd == r.size) why.push_back("On SSD: yes, checked by its checksum at each load.");
  else if (engine_.ssd()->status().recovering) why.push_back("On SSD: not known yet; the tier's index is still being read.");
  else why.push_back("On SSD: " + (r.ssd > 0 ? ChunksOf(r.chunks_ssd, r.chunks) : "no") + "; " + WhyNotOnSsd(file));
  return why;
}

// `file`: that of the look, or kNoFile.
std::vector<std::string> ControlApi::Why(const Look& look, engine::FileId file) const {
  const engine::SourceUnit& unit = *look.place.unit;
  std::vector<std::string> why;
  if (look.by_link) why.push_back("A link to " + Absolute(unit, look.relative) + ".");
  const std::uint16_t flags = file == engine::kNoFile ? std::uint16_t{0} : engine_.catalogue().file(file).flags;
  if (file == engine::kNoFile) {
    why.push_back("Not known: nothing has brought it since the daemon started or it was last invalidated, and it is not on the SSD tier.");
    if (look.said.empty()) why.push_back(look.asked ? "The source gives it: a read or a prefetch makes it known." : "A read or a prefetch makes it known, if its source gives it.");
  } else if ((flags & engine::kFileSymlink) != 0) {
    why.push_back("A link: the bytes are cached under the name of what it leads to.");
  } else if (!IsRegular(flags)) {
    why.push_back(kNoBytes);
  } else {
    std::vector<std::string> tiers = WhyInTiers(unit, file);
    why.insert(why.end(), tiers.begin(), tiers.end());
    if ((flags & engine::kFileChecked) == 0) why.push_back("Recovered from the SSD tier and not yet compared with the source: the first read does that.");
    if ((flags & engine::kFileRacy) != 0) why.push_back("It was written just before it was read: it is read again when its deadline is over.");
    if ((flags & engine::kFilePinned) != 0) why.push_back("Pinned: it leaves by evict or change only.");
  }
  if (!look.said.empty()) why.push_back(look.said);
  const source::SourceCounters counters = unit.reader->counters();
  if (counters.state == source::SourceState::kSlow) why.push_back("The source is slow: " + std::to_string(counters.hung) + " of the requests to it hang (tierctl status).");
  if (counters.state == source::SourceState::kHung) why.push_back("The source hangs: reads bypass the cache until it answers again (tierctl status).");
  if (clock_.MonotonicNs() < unit.unreachable_until_ns) why.push_back("The source could not be reached a moment ago: what is cached is served meanwhile.");
  return why;
}

}  // namespace tierd::server
