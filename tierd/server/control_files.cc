// The end points about paths: files, du, prefetch, evict, pin, walk, verify. (One file: control_file.cc.)
#include <boost/asio/post.hpp>

#include <algorithm>
#include <charconv>

#include "tierd/engine/movers/distinct_files.h"
#include "tierd/server/control_body.h"
#include "tierd/server/control_files.h"
#include "tierd/server/control_json.h"

namespace tierd::server {
namespace {

constexpr std::int64_t kSliceNs = 500'000;    // of a list of places
constexpr std::size_t kMaxPage = 10'000;
constexpr std::size_t kDefaultPage = 1000;
constexpr std::int64_t kPageNs = 500'000;     // then a page ends, however short it is; to write it takes as long again
constexpr std::size_t kCostPerLook = 512;     // at the clock, in catalogue entries passed by
constexpr std::size_t kCostPerEntry = 16;     // a listed one: about 5 us

}  // namespace

HttpResponse Busy() { return JsonError(429, "busy", "too much is waiting to be done, or memory has run out; try again"); }

Residency ResidencyOf(engine::Engine& engine, engine::FileId file) {
  Residency r;
  r.size = engine.catalogue().SizeOf(file);
  r.chunks = engine.catalogue().ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < r.chunks; ++chunk) {
    const engine::ObjectId object = engine.catalogue().ObjectOf(file, chunk);
    const std::uint64_t bytes = engine.catalogue().object(object).bytes;
    const bool in_ram = engine.placement().InRam(object);
    const bool on_ssd = engine.placement().OnSsd(object);
    if (in_ram) r.ram += bytes, ++r.chunks_ram;
    if (on_ssd) r.ssd += bytes, ++r.chunks_ssd;
    if (!in_ram && !on_ssd) r.missing += bytes;
  }
  return r;
}

const char* KindName(std::uint16_t flags) {
  if ((flags & engine::kFileDirectory) != 0) return "directory";
  if ((flags & engine::kFileOther) != 0) return "other";
  return (flags & (engine::kFileSymlink | engine::kFileAlias)) != 0 ? "symlink" : "file";
}

std::string Absolute(const engine::SourceUnit& unit, const std::string& relative) {
  const std::string& root = unit.source->root();
  if (relative.empty()) return root;
  return root == "/" ? root + relative : root + "/" + relative;
}

// ---- paths of requests -----------------------------------------------------------------------------------------------------

bool ControlApi::PlaceOf(const Query& query, Place* place, Response* error) {
  const auto path = query.find("path");
  if (path == query.end()) {
    *error = JsonError(400, "bad_request", "the query lacks path=");
    return false;
  }
  return PlaceOf(path->second, place, error);
}

// ---- looking ---------------------------------------------------------------------------------------------------------------

ControlApi::Json ControlApi::EntryJson(engine::SourceUnit& unit, engine::FileId file) const {
  const engine::FileRecord& record = engine_.catalogue().file(file);
  Json entry{{"kind", KindName(record.flags)}};
  PutPath(entry, Absolute(unit, engine_.catalogue().PathOf(file)));
  if (!IsRegular(record.flags)) return entry;
  const Residency r = ResidencyOf(engine_, file);
  entry.update({{"size_bytes", r.size}, {"ram_bytes", r.ram}, {"ssd_bytes", r.ssd}, {"missing_bytes", r.missing}, {"pinned", (record.flags & engine::kFilePinned) != 0}});
  return entry;
}

ControlApi::Response ControlApi::Files(const Query& query) {
  Place place;
  Response error;
  if (!PlaceOf(query, &place, &error)) return error;
  std::size_t limit = kDefaultPage, position = 0;
  const auto number = [&](const char* name, int base, std::size_t* value) {
    const auto it = query.find(name);
    if (it == query.end()) return true;
    const auto [end, failed] = std::from_chars(it->second.data(), it->second.data() + it->second.size(), *value, base);
    return failed == std::errc() && end == it->second.data() + it->second.size();
  };
  if (!number("limit", 10, &limit) || limit < 1 || limit > kMaxPage) return JsonError(400, "bad_request", "limit must be 1..10000");
  if (!number("after", 16, &position)) return JsonError(400, "bad_request", "after must be the `next` of a page before");
  const auto recursive_it = query.find("recursive");
  if (recursive_it != query.end() && recursive_it->second != "0" && recursive_it->second != "1") return JsonError(400, "bad_request", "recursive must be 0 or 1");
  const bool recursive = recursive_it != query.end() && recursive_it->second == "1";
  engine::Catalogue& catalogue = engine_.catalogue();
  const engine::FileId exact = catalogue.Find(catalogue.KeyOf(place.unit->wire_id, place.relative));
  const bool directory = exact == engine::kNoFile || (catalogue.file(exact).flags & engine::kFileDirectory) != 0;
  Json entries = Json::array();
  const std::size_t slots = catalogue.file_slots();
  if (!directory) {
    entries.push_back(EntryJson(*place.unit, exact));
    position = slots;
  }
  // The cursor is a position in the catalogue: a file that stays keeps its place.
  const std::int64_t end_ns = clock_.PreciseNs() + kPageNs;
  std::size_t cost = 0;
  for (bool in_time = true; position < slots && entries.size() < limit && in_time; ++position) {
    if (++cost >= kCostPerLook) {
      cost = 0;
      in_time = clock_.PreciseNs() < end_ns;
    }
    const auto id = static_cast<engine::FileId>(position);
    const engine::FileRecord& record = catalogue.file(id);
    if ((record.flags & engine::kFileUsed) == 0 || record.source != place.unit->index || id == exact) continue;
    if (!(recursive ? catalogue.IsBelow(id, place.relative) : catalogue.IsChild(id, place.relative))) continue;
    entries.push_back(EntryJson(*place.unit, id));
    cost += kCostPerEntry;
  }
  const bool file = !directory && IsRegular(catalogue.file(exact).flags);
  Json answer{{"entries", entries}, {"walked", file || place.unit->Walked(place.relative, clock_.MonotonicNs())}};
  PutPath(answer, place.absolute);
  char cursor[24];
  answer["next"] = position < slots ? Json(std::string(cursor, std::to_chars(cursor, cursor + sizeof cursor, position, 16).ptr)) : Json(nullptr);
  return Ok(answer);
}

struct ControlApi::Usage {
  std::uint64_t files = 0, files_missing = 0;
  Residency sum;
  void Add(const Residency& r) {
    ++files;
    files_missing += r.missing > 0 ? 1 : 0;
    sum.size += r.size;
    sum.ram += r.ram;
    sum.ssd += r.ssd;
    sum.missing += r.missing;
  }
};

void ControlApi::DiskUse(const Query& query, Answer answer) {
  Place place;
  Response error;
  if (!PlaceOf(query, &place, &error)) return answer(std::move(error));
  auto usage = std::make_shared<Usage>();  // shared by the two halves of the sweep
  engine_.Sweep({.unit = place.unit,
                 .path = place.relative,
                 .visit = [this, usage](engine::FileId file) {
                   const bool counts = IsRegular(engine_.catalogue().file(file).flags);
                   if (counts) usage->Add(ResidencyOf(engine_, file));
                   return counts;
                 },
                 .done = [this, usage, place, answer](bool complete, std::uint64_t) { answer(complete ? DiskUseJson(place, *usage) : Busy()); }});
}

ControlApi::Response ControlApi::DiskUseJson(const Place& place, const Usage& usage) const {
  Json answer{{"source", place.unit->options.name}, {"files", usage.files}, {"size_bytes", usage.sum.size}, {"ram_bytes", usage.sum.ram}, {"ssd_bytes", usage.sum.ssd},
              {"missing_bytes", usage.sum.missing}, {"files_missing", usage.files_missing}};
  PutPath(answer, place.absolute);
  const bool complete = place.unit->Walked(place.relative, clock_.MonotonicNs());
  const std::uint64_t job = complete ? 0 : engine_.jobs().WalkOf(*place.unit, place.relative);
  answer["walk"] = complete ? "complete" : job != 0 ? "running" : "none";
  answer["job"] = job != 0 ? Json(job) : Json(nullptr);
  return Ok(answer);
}

// ---- ordering --------------------------------------------------------------------------------------------------------------

struct ControlApi::Slices : std::enable_shared_from_this<Slices> {
  Slices(ControlApi& the_api, std::vector<engine::Jobs::Item> the_places, std::function<void(const engine::Jobs::Item&)> the_each)
      : api(the_api), places(std::move(the_places)), each(std::move(the_each)) {}
  void Go() {
    constexpr std::size_t kPerLook = 16;  // at the clock
    const std::int64_t begin = api.clock_.PreciseNs();
    while (next < places.size()) {
      each(places[next++]);
      if (next % kPerLook == 0 && api.clock_.PreciseNs() - begin > kSliceNs) break;
    }
    api.engine_.Kick();
    if (next == places.size()) return;
    boost::asio::post(api.loop_, [self = shared_from_this()] {
      const auto turn = self->api.CountHandler();
      self->Go();
    });
  }
  ControlApi& api;
  const std::vector<engine::Jobs::Item> places;
  const std::function<void(const engine::Jobs::Item&)> each;
  std::size_t next = 0;
};

void ControlApi::InSlices(std::vector<engine::Jobs::Item> places, std::function<void(const engine::Jobs::Item&)> each) {
  std::make_shared<Slices>(*this, std::move(places), std::move(each))->Go();  // shared with the turns to come
}

ControlApi::Response ControlApi::Prefetch(Body body) {
  if (auto lack = LackOfPaths(body)) return *std::move(lack);
  engine::Jobs::PrefetchOptions options;
  const Json& members = body.members;
  const std::string tier = members.value("tier", Json("ram")).is_string() ? members.value("tier", std::string("ram")) : "";
  if (tier != "ram" && tier != "ssd") return JsonError(400, "bad_request", "\"tier\" must be \"ram\" or \"ssd\"");
  for (const char* name : {"pin", "evict"})
    if (members.contains(name) && !members[name].is_boolean()) return JsonError(400, "bad_request", std::string("\"") + name + "\" must be true or false");
  options.ssd_only = tier == "ssd";
  options.pin = members.value("pin", false);
  options.evict = members.value("evict", true);
  if (options.ssd_only && engine_.ssd() == nullptr) return JsonError(409, "conflict", "there is no SSD tier");
  const std::uint64_t id = engine_.jobs().Prefetch(std::move(body.places), options);
  engine_.Kick();
  return JobStarted(id);
}

ControlApi::Response ControlApi::Walk(Body body) {
  if (auto lack = LackOfPaths(body)) return *std::move(lack);
  const std::uint64_t id = engine_.jobs().Walk(std::move(body.places));
  engine_.Kick();
  return JobStarted(id);
}

ControlApi::Response ControlApi::RestWarmUps(const Json& body) {
  constexpr std::uint64_t kLongestS = 600;  // whoever asked may be gone
  const auto rest_s = body.find("rest_s");
  if (rest_s == body.end() || !rest_s->is_number_unsigned() || rest_s->get<std::uint64_t>() > kLongestS) return JsonError(400, "bad_request", "\"rest_s\" must be 0 to 600 seconds");
  engine_.jobs().RestWarmUps(clock_.MonotonicNs() + rest_s->get<std::int64_t>() * 1'000'000'000);
  return Ok({{"rest_s", *rest_s}});
}

ControlApi::Response ControlApi::Verify(Body body) {
  if (engine_.ssd() == nullptr) return JsonError(409, "conflict", "there is no SSD tier");
  if (engine_.recovering()) return JsonError(409, "conflict", "the SSD index is still being read");
  const std::uint64_t id = engine_.jobs().VerifyRecords(std::move(body.places));
  engine_.Kick();
  return JobStarted(id);
}

void ControlApi::GiveBack(Answer answer) {
  ssd::SsdTier* const ssd = engine_.ssd();
  if (ssd == nullptr) return answer(Ok({{"ssd_bytes", 0}, {"ssd_allocated_bytes", 0}}));
  if (engine_.recovering()) return answer(JsonError(409, "conflict", "the SSD index is still being read"));
  ssd->GiveBack([ssd, answer = std::move(answer)](std::uint64_t bytes) { answer(Ok({{"ssd_bytes", bytes}, {"ssd_allocated_bytes", ssd->status().allocated_bytes}})); });
  engine_.Kick();
}

struct ControlApi::Tally {
  Tally(std::size_t pieces, Answer the_answer) : left(pieces), answer(std::move(the_answer)) {}
  std::size_t left;
  std::size_t begun = 0;             // pieces, in the order of the request
  engine::DistinctFiles files;       // regular ones that were known
  std::uint64_t found = 0;           // more, behind names that were not
  std::optional<Usage> usage;        // of the files, where that is told
  std::vector<std::size_t> unknown;  // pieces that have met nothing known
  bool complete = true;
  Answer answer;
  void End(std::size_t piece, bool piece_complete, std::uint64_t known) {
    complete &= piece_complete;
    if (known == 0) unknown.push_back(piece);
    if (--left != 0) return;
    if (!complete) return answer(Busy());
    Json body{{"files", files.count() + found}};
    std::sort(unknown.begin(), unknown.end());
    if (!unknown.empty()) body["unknown"] = unknown;
    if (usage) body.update({{"size_bytes", usage->sum.size}, {"ram_bytes", usage->sum.ram}, {"ssd_bytes", usage->sum.ssd}, {"missing_bytes", usage->sum.missing}, {"files_missing", usage->files_missing}});
    answer(Ok(body));
  }
};

void ControlApi::EvictOne(const engine::Jobs::Item& place, bool invalidate, const std::function<void(bool complete, std::uint64_t known)>& end) {
  engine::Engine::AdviceReach reach(true);
  reach.resolve = true;
  if (!invalidate) {
    engine_.Advise(*place.unit, abi::AdviseOp::kEvict, place.path, reach, [end](int failed, std::uint64_t known) { end(failed == 0, known); });
    return;
  }
  // Generations are kept per dataset: one that loses a file to `invalidate` loses all records of earlier lives. When no frame with the old bytes is left,
  // so that none of them is written to the SSD under the new generation (HAZARDS 2.16).
  engine_.Advise(*place.unit, abi::AdviseOp::kInvalidate, place.path, reach, [this, end, unit = place.unit](int failed, std::uint64_t known) {
    const bool asked = engine::Survives([&] {
      engine_.VoidRecords(*unit, [end, failed, known](bool durable) { end(failed == 0 && durable, known); });
    });
    if (!asked) end(false, known);
  });
}

void ControlApi::Evict(Body body, Answer answer) {
  if (auto lack = LackOfPaths(body)) return answer(*std::move(lack));
  if (body.members.contains("invalidate") && !body.members["invalidate"].is_boolean()) return answer(JsonError(400, "bad_request", "\"invalidate\" must be true or false"));
  const bool invalidate = body.members.value("invalidate", false);
  auto tally = std::make_shared<Tally>(body.places.size(), std::move(answer));  // shared by all of them
  InSlices(std::move(body.places), [this, invalidate, tally](const engine::Jobs::Item& place) {
    const std::size_t piece = tally->begun++;
    // Counted first: sweeps that others want as well are one, and do not tell whose files they have met before.
    const auto evict = [this, place, piece, invalidate, tally](bool counted, std::uint64_t known) {
      const auto end = [piece, tally, known](bool complete, std::uint64_t concerned) {
        if (known == 0) tally->found += concerned;
        tally->End(piece, complete, known + concerned);
      };
      // Without memory for this one the others are answered for all the same.
      if (!counted || !engine::Survives([&] { EvictOne(place, invalidate, end); })) tally->End(piece, false, 0);
    };
    const bool begun = engine::Survives([&] {
      engine_.Sweep({.unit = place.unit,
                     .path = place.path,
                     .visit = [this, tally](engine::FileId file) {
                       if (const engine::FileId behind = engine_.BehindAlias(file); behind != engine::kNoFile) file = behind;
                       if (IsRegular(engine_.catalogue().file(file).flags)) tally->files.Add(file);
                       return true;
                     },
                     .done = evict});
    });
    if (!begun) tally->End(piece, false, 0);
  });
}

void ControlApi::Pin(Body body, bool pin, Answer answer) {
  if (auto lack = LackOfPaths(body)) return answer(*std::move(lack));
  auto tally = std::make_shared<Tally>(body.places.size(), std::move(answer));  // shared by all of them
  if (pin) tally->usage.emplace();
  InSlices(std::move(body.places), [this, pin, tally](const engine::Jobs::Item& place) {
    const std::size_t piece = tally->begun++;
    // What was pinned through a link is let go by its name, too.
    const auto end = [this, place, pin, piece, tally](bool complete, std::uint64_t known) {
      if (pin || !complete) return tally->End(piece, complete, known);
      engine::Engine::AdviceReach reach(true);
      reach.resolve = true;
      const auto let_go = [piece, known, tally](int failed, std::uint64_t concerned) {
        if (known == 0) tally->found += concerned;
        tally->End(piece, failed == 0, known + concerned);
      };
      if (!engine::Survives([&] { engine_.Advise(*place.unit, abi::AdviseOp::kUnpin, place.path, reach, let_go); })) tally->End(piece, false, 0);
    };
    engine_.Sweep({.unit = place.unit,
                   .path = place.path,
                   .visit = [this, pin, tally](engine::FileId file) {
                     if (const engine::FileId behind = engine_.BehindAlias(file); behind != engine::kNoFile) file = behind;
                     if (!IsRegular(engine_.catalogue().file(file).flags)) return false;
                     engine_.placement().SetPinned(file, pin);
                     if (tally->usage && !tally->files.Has(file)) tally->usage->Add(ResidencyOf(engine_, file));
                     tally->files.Add(file);
                     return true;
                   },
                   .done = end});
  });
}

}  // namespace tierd::server
