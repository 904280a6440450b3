#include "tierd/engine/engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

namespace tierd::engine {
namespace {

constexpr std::int64_t kResolveNs = 1'000'000'000;
constexpr std::int64_t kAskNamesNs = 400'000'000;  // who has written a file waits for it, a second in all

// A worker's: it may wait for the file system. False: it was not there.
bool RemoveList(const std::string& path) { return ::unlink(path.c_str()) == 0; }

SlotPlace PlaceIn(std::uint64_t ring_entry) { return {static_cast<std::uint8_t>(ring_entry >> 32), static_cast<std::uint32_t>(ring_entry)}; }

}  // namespace

// ---- clients ---------------------------------------------------------------------------------------------------------------

SourceUnit* Engine::FindSource(std::uint32_t wire_id) {
  for (const auto& unit : sources_)
    if (unit->wire_id == wire_id) return unit.get();
  return nullptr;
}

SourceUnit* Engine::Locate(std::string_view absolute, std::string* relative) {
  SourceUnit* best = nullptr;
  const auto find_below = [&](const auto& root_of) {
    for (const auto& unit : sources_) {
      std::string_view rest;
      if (!source::RelativeTo(root_of(*unit), absolute, &rest)) continue;
      if (best != nullptr && root_of(*best).size() >= root_of(*unit).size()) continue;
      best = unit.get();
      *relative = std::string(rest);
    }
  };
  find_below([](const SourceUnit& unit) -> const std::string& { return unit.source->root(); });
  // A working directory has the name behind all links.
  if (best == nullptr) find_below([](const SourceUnit& unit) -> const std::string& { return unit.source->canonical_root(); });
  return best;
}

std::string Engine::OtherName(const SourceUnit& unit) {
  const std::string& own = unit.source->canonical_root();
  std::string rest;
  return own != unit.source->root() && Locate(own, &rest) == &unit ? own : "";
}

bool Engine::Prefetch(std::vector<Jobs::Item> items, Jobs::PrefetchOptions options) {
  return jobs_->Prefetch(std::move(items), options) != 0;
}

void Engine::Advise(SourceUnit& unit, abi::AdviseOp op, std::string_view path, AdviceReach reach, AdviceDone done) {
  if (op == abi::AdviseOp::kDoubt) return Doubt(unit, path, {.done = std::move(done)});
  if (reach.resolve) return AdviseResolved(unit, op, path, reach, std::move(done));
  if (op == abi::AdviseOp::kInvalidate) NoteChange(unit, path, reach.recursive);
  const FileId file = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, path));
  // Nothing lies below a regular file: no sweep over the catalogue for each one that is evicted or unpinned.
  const bool is_file = op != abi::AdviseOp::kInvalidate && file != kNoFile && S_ISREG(catalogue_->StatOf(file).mode);
  if (!reach.recursive || is_file) {
    const bool linked = op == abi::AdviseOp::kInvalidate && catalogue_->KnowsLinked();
    // What was not looked at since it was told of, or for the time that it is believed, may be another inode by now.
    const bool ask = linked && (file == kNoFile || catalogue_->DeadlineOf(file) <= abi::TicksOf(clock_.MonotonicNs()));
    if (linked && file != kNoFile) NoteOtherNames(catalogue_->StatOf(file), file);
    if (file != kNoFile) Apply(unit, op, file);
    if (op == abi::AdviseOp::kInvalidate && file != kNoFile) ForgetLater(file);
    const std::uint64_t files = file != kNoFile ? 1 : 0;
    return ask ? AskForOtherNames(unit, path, files, std::move(done)) : done(0, files);
  }
  const bool linked = op == abi::AdviseOp::kInvalidate && catalogue_->KnowsLinked();
  if (linked && file == kNoFile) {
    done = [this, &unit, path = std::string(path), done = std::move(done)](int error, std::uint64_t files) {
      if (error != 0 || !Survives([&] { AskForOtherNames(unit, path, files, done); })) done(error != 0 ? error : EAGAIN, files);
    };
  }
  if (op == abi::AdviseOp::kInvalidate) done = ForgetAliases(unit, std::move(done));
  Sweep({.unit = &unit,
         .path = std::string(path),
         .kind = op == abi::AdviseOp::kEvict ? Sweeps::Kind::kEvict : op == abi::AdviseOp::kUnpin ? Sweeps::Kind::kUnpin : Sweeps::Kind::kInvalidate,
         .said_ns = reach.said_ns,
         .visit =
             [this, &unit, op, linked](FileId below) {
               if (linked) NoteOtherNames(catalogue_->StatOf(below), below);
               return Apply(unit, op, below);
             },
         .done = [done = std::move(done)](bool complete, std::uint64_t files) { done(complete ? 0 : EAGAIN, files); }});
}

// Each file is asked about anew, and what was asked before proves nothing.
void Engine::Doubt(SourceUnit& unit, std::string_view path, Doubts doubts) {
  unit.walked = WalkedTrees();
  unit.links_doubted_ns = clock_.PreciseNs();
  fetcher_->NoteInvalidation(unit, path, true);
  fetcher_->SpoilListings(path);
  Sweep({.unit = &unit,
         .path = std::string(path),
         .kind = Sweeps::Kind::kDoubt,
         .visit =
             [this, access = doubts.access](FileId file) {
               catalogue_->SetDeadline(file, abi::kDeadlineExpired);
               if (access) fetcher_->DoubtAccess(file);
               if (const ObjectId listing = catalogue_->ListingOf(file, false); listing != kNoObject) catalogue_->SetListingDeadline(listing, abi::kDeadlineExpired);
               return true;
             },
         .done = [done = std::move(doubts.done)](bool complete, std::uint64_t files) { done(complete ? 0 : EAGAIN, files); },
         .always = doubts.always});
}

// A chain of links is known by the name that it begins with: where any of them leads may have changed with what lies in the middle, be it a link or a directory. What
// is forgotten costs one look at the source. The result is called like `done`, which then waits for both.
Engine::AdviceDone Engine::ForgetAliases(SourceUnit& unit, AdviceDone done) {
  unit.links_doubted_ns = clock_.PreciseNs();
  if (!unit.has_aliases) return done;
  struct Both {
    AdviceDone done;
    int error = 0;
    std::uint64_t files = 0;
    int left = 2;
    void End(int its_error, std::uint64_t its_files) {
      if (its_error != 0) error = its_error;
      files += its_files;
      if (--left == 0) done(error, files);
    }
  };
  const auto both = std::make_shared<Both>(Both{std::move(done)});  // of the two sweeps
  Sweep({.unit = &unit,
         .path = "",
         .kind = Sweeps::Kind::kAliases,
         .visit =
             [this, &unit](FileId file) {
               if ((catalogue_->file(file).flags & kFileAlias) != 0) fetcher_->Invalidate(unit, file, EvictCause::kChanged);
               return false;
             },
         .done = [both](bool complete, std::uint64_t) { both->End(complete ? 0 : EAGAIN, 0); }});
  return [both](int error, std::uint64_t files) { both->End(error, files); };
}

void Engine::AdviseResolved(SourceUnit& unit, abi::AdviseOp op, std::string_view path, AdviceReach reach, AdviceDone done) {
  reach.resolve = false;
  const FileId file = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, path));
  if (file != kNoFile && (catalogue_->file(file).flags & (kFileAlias | kFileSymlink)) == 0) return Advise(unit, op, path, reach, std::move(done));
  auto resolved = [this, &unit, op, path = std::string(path), reach, done = std::move(done)](const Result<source::ResolvedPath>& found) {
    const bool survived = Survives([&] {
      if (!found.ok() || !found->was_alias) return Advise(unit, op, path, reach, done);
      Advise(unit, op, path, reach, [this, &unit, op, reach, done, canonical = found->canonical](int error, std::uint64_t files) {
        const AdviceDone both = [done, error, files](int second, std::uint64_t behind) { done(error != 0 ? error : second, std::max(files, behind)); };
        if (!Survives([&] { Advise(unit, op, canonical, reach, both); })) done(EAGAIN, files);
      });
    });
    if (!survived) done(EAGAIN, 0);
  };
  unit.resolver->Resolve(std::string(path), clock_.MonotonicNs() + kResolveNs, std::move(resolved));
}

// What was read or listed before is older than a change that somebody has told of.
void Engine::NoteChange(SourceUnit& unit, std::string_view path, bool recursive) {
  if (recovering_) doubts_.Add(unit.index, catalogue_->KeyOf(unit.wire_id, path), path, recursive);
  fetcher_->NoteInvalidation(unit, path, recursive);
  // The directory's listing says what was: it goes with the file.
  const std::size_t slash = path.rfind('/');
  const std::string_view parent = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  unit.listings.Forget(parent);
  fetcher_->SpoilListings(path);
  if (const FileId dir = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, parent)); dir != kNoFile) fetcher_->Invalidate(unit, dir, EvictCause::kChanged);
}

// A file changes by all its names (hard links) at once. `told`: the one that this is said of.
void Engine::NoteOtherNames(const io::FileStat& stat, FileId told) {
  const std::vector<FileId> names = catalogue_->NamesOf(stat.ino);
  if (S_ISDIR(stat.mode)) return;  // its links are its own and its subdirectories'
  if (stat.nlink < 2 && names.empty()) return;        // it may have got a name since it was looked at
  fetcher_->NoteInvalidation(stat.ino);               // a name that is being read for the first time is not known yet
  for (const FileId name : names) {
    if (name == told || (catalogue_->file(name).flags & kFileUsed) == 0) continue;
    SourceUnit& its = *sources_[catalogue_->file(name).source];
    NoteChange(its, catalogue_->PathOf(name), false);
    Apply(its, abi::AdviseOp::kInvalidate, name);
  }
}

// Where the source does not say which file it was: whatever has several names may be it.
void Engine::VoidLinked(std::uint64_t files, AdviceDone done) {
  struct All {
    AdviceDone done;
    std::size_t left;
    int error = 0;
  };
  const auto all = std::make_shared<All>(All{std::move(done), sources_.size()});  // of the sweeps
  for (const auto& unit : sources_) {
    Sweep({.unit = unit.get(),
           .path = "",
           .visit =
               [this, &its = *unit](FileId file) {
                 const io::FileStat stat = catalogue_->StatOf(file);
                 if (stat.nlink < 2 || S_ISDIR(stat.mode)) return false;
                 fetcher_->NoteInvalidation(stat.ino);
                 return Apply(its, abi::AdviseOp::kInvalidate, file);
               },
           .done =
               [all, files](bool complete, std::uint64_t) {
                 if (!complete) all->error = EAGAIN;
                 if (--all->left == 0) all->done(all->error, files);
               }});
  }
}

// Of a name that nobody knows the file of: the source does. One that is gone has changed no bytes of the others.
void Engine::AskForOtherNames(SourceUnit& unit, std::string_view path, std::uint64_t files, AdviceDone done) {
  unit.resolver->Resolve(std::string(path), clock_.MonotonicNs() + kAskNamesNs, [this, &unit, files, done = std::move(done)](const Result<source::ResolvedPath>& found) {
    const bool answered = found.ok() || (found.status().code() != Code::kBusy && found.status().code() != Code::kTimeout);
    const bool noted = Survives([&] {
      if (found.ok()) NoteOtherNames(found->stat, kNoFile);
      else if (!answered) VoidLinked(files, done);
    });
    if (answered || !noted) done(noted ? 0 : EAGAIN, files);
  });
}

FileId Engine::BehindAlias(FileId file) const {
  if ((catalogue_->file(file).flags & kFileAlias) == 0) return kNoFile;
  const io::FileStat link = catalogue_->StatOf(file);
  const FileId behind = catalogue_->Find({static_cast<std::uint64_t>(link.mtime_ns), static_cast<std::uint64_t>(link.ctime_ns)});
  return behind == kNoFile || (catalogue_->file(behind).flags & kFileAlias) != 0 ? kNoFile : behind;
}

bool Engine::Apply(SourceUnit& unit, abi::AdviseOp op, FileId file) {
  if (const FileId behind = BehindAlias(file); behind != kNoFile) {  // the bytes are its own
    if (op == abi::AdviseOp::kInvalidate) NoteChange(unit, catalogue_->PathOf(behind), false);
    Apply(unit, op, behind);
  }
  switch (op) {
    case abi::AdviseOp::kUnpin: placement_->SetPinned(file, false); return BehindAlias(file) != kNoFile || (catalogue_->file(file).flags & kFileNotRegular) == 0;
    case abi::AdviseOp::kEvict: fetcher_->Invalidate(unit, file, EvictCause::kRequest); break;
    default:
      ++counters_.invalidated_request;
      fetcher_->Invalidate(unit, file, EvictCause::kChanged);
      break;
  }
  return true;
}

// What plans speak of stays known, and so does everything while records of the SSD come in. Of a set that was declared immutable a change has to be noticed, by what was
// known before, for its records on the SSD to become void (HAZARDS 2.16).
void Engine::Forget(FileId file) {
  SourceUnit& unit = *sources_[catalogue_->file(file).source];
  const bool declared = ssd_ != nullptr && unit.options.staleness == abi::Staleness::kImmutable;
  if (recovering_ || declared || foresights_[unit.index]->Names(file) || observers_[unit.index]->Names(file)) return;
  fetcher_->Forget(unit, file);
}

// It may be gone for good: who makes, reads and removes files all day would have the daemon know them all. Not at once: mostly it is read again.
void Engine::ForgetLater(FileId file) {
  if (perhaps_gone_.size() < kMostPerhapsGone) (void)Survives([&] { perhaps_gone_.push_back({file, catalogue_->file(file).key, clock_.MonotonicNs() + kGoneNs}); });
}

void Engine::ForgetGone(std::int64_t now_ns) {
  for (int i = 0; i < kForgottenAtOnce && !perhaps_gone_.empty() && perhaps_gone_.front().due_ns <= now_ns; ++i) {
    const PerhapsGone gone = perhaps_gone_.front();
    perhaps_gone_.pop_front();
    const FileRecord& record = catalogue_->file(gone.file);
    const bool regular = (record.flags & kFileUsed) != 0 && (record.flags & kFileNotRegular) == 0;
    if (regular && record.key == gone.key && catalogue_->DeadlineOf(gone.file) == abi::kDeadlineExpired) Forget(gone.file);
  }
}

// An alias whose time is over is resolved anew by whoever asks for it: it serves nobody.
void Engine::ForgetExpiredAliases(std::int64_t now_ns) {
  for (int i = 0; i < kForgottenAtOnce; ++i) {
    const FileId alias = catalogue_->OldestAlias();
    if (alias == kNoFile || catalogue_->DeadlineOf(alias) > abi::TicksOf(now_ns)) return;
    if (fetcher_->Forget(*sources_[catalogue_->file(alias).source], alias)) continue;
    (void)Survives([&] { catalogue_->PutAliasLast(alias); });  // somebody asks for it just now
    return;
  }
}

void Engine::Sweep(Sweeps::Request request) {
  sweeps_->Start(std::move(request));
  ScheduleTurn();
}

// Hints for what OnAccess of each of these looks at.
void Engine::PrefetchFor(std::span<const RingAccess> accesses) {
  std::array<SlotPlace, kAccessesAtOnce> places;
  std::array<std::uint32_t, kAccessesAtOnce> objects;
  const std::size_t count = std::min(accesses.size(), kAccessesAtOnce);
  for (std::size_t i = 0; i < count; ++i) places[i] = PlaceIn(accesses[i].entry);
  const std::size_t known = catalogue_->PrefetchObjects({places.data(), count}, objects);
  for (const auto& unit : sources_) unit->policy.Soon({objects.data(), known});
  std::array<FileId, kAccessesAtOnce> files;
  for (std::size_t i = 0; i < known; ++i) files[i] = catalogue_->object(static_cast<ObjectId>(objects[i])).file;
  for (const auto& foresight : foresights_) foresight->Soon({files.data(), known});
  for (const auto& observer : observers_) observer->Soon({files.data(), known});
}

void Engine::OnAccesses(std::span<const RingAccess> accesses) {
  if (accesses.size() > 1) PrefetchFor(accesses);  // for one alone there is nothing to come side by side
  const std::int64_t now_ns = clock_.MonotonicNs();
  for (const RingAccess& access : accesses) {
    if (!Survives([&] { OnAccess(access, now_ns); })) CountRingLost(1);
  }
}

void Engine::OnAccess(const RingAccess& access, std::int64_t now_ns) {
  const auto tier = static_cast<std::uint8_t>((access.entry >> 52) & 3);
  ++counters_.ring_entries;
  const ObjectId object = catalogue_->ObjectAt(PlaceIn(access.entry));
  if (object == kNoObject) {
    ++counters_.ring_stale;
    return;
  }
  const ObjectRecord& record = catalogue_->object(object);
  if ((record.flags & kObjectListing) != 0) return;
  const FileRecord& file = catalogue_->file(record.file);
  SourceUnit& unit = *sources_[file.source];
  placement_->NoteRead(object);
  refresher_->OnRead(unit, now_ns);
  NoteRead(access.session, object, tier, now_ns);
  if (fetcher_->OnRead(unit, access.session, object)) ScheduleTurn();
}

// A read, wherever its bytes came from.
void Engine::NoteRead(SessionId session, ObjectId object, std::uint8_t tier, std::int64_t now_ns) {
  const ObjectRecord& record = catalogue_->object(object);
  const FileRecord& file = catalogue_->file(record.file);
  SourceUnit& unit = *sources_[file.source];
  const std::uint32_t chunks = catalogue_->ChunkCount(record.file);
  if (const ObjectId first = chunks == 1 ? object : catalogue_->ObjectOf(record.file, 0); first != kNoObject) {
    ObjectRecord& of_file = catalogue_->object(first);
    const std::uint64_t ended = unit.epochs.ended();
    unit.epochs.OnRead(of_file.epoch_mark, tier, {.chunk = record.bytes, .file = std::uint64_t{of_file.bytes} * chunks, .now_ns = now_ns});
    if (unit.epochs.ended() != ended) unit.policy.EpochBoundary(TIERD_CONSUMER_ALL, static_cast<std::uint32_t>(unit.epochs.ended()));
  }
  const AccessWatch::Read read{.key = file.key, .chunk = record.chunk, .bytes = record.bytes, .consumer = static_cast<std::uint32_t>(session), .time_ns = now_ns, .tier = tier};
  if (!Survives([&] { unit.watch->OnRead(read, unit.epochs); })) unit.watch->GiveUp();
  NoteAccess(session, object, tier, now_ns);
}

void Engine::TellWatch(SourceUnit& unit, std::uint32_t epoch, std::span<const std::uint32_t> ids) {
  if (!unit.watch->wants_plan()) return;
  const bool told = Survives([&] {
    std::vector<AccessWatch::Planned> reads;
    for (const std::uint32_t id : ids) {
      if (id == Raw(kNoObject)) continue;
      const ObjectRecord& record = catalogue_->object(static_cast<ObjectId>(id));
      reads.push_back({.key = catalogue_->file(record.file).key, .chunk = record.chunk, .bytes = record.bytes});
    }
    unit.watch->OnPlan(epoch, reads);
  });
  if (!told) unit.watch->GiveUp();
}

std::uint64_t Engine::Prioritize(SourceUnit& unit, std::span<const std::string_view> paths, std::span<const double> priorities) {
  std::vector<std::uint32_t> ids;
  std::vector<double> values;
  std::uint64_t files = 0;
  for (std::size_t i = 0; i < std::min(paths.size(), priorities.size()); ++i) {
    const FileId file = catalogue_->Find(catalogue_->KeyOf(unit.wire_id, paths[i]));
    if (file == kNoFile) continue;
    ++files;
    const std::uint32_t chunks = catalogue_->ChunkCount(file);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      ids.push_back(Raw(catalogue_->ObjectOf(file, chunk)));
      values.push_back(priorities[i]);
    }
  }
  unit.policy.Prioritize(ids, values);
  return files;
}

// A read by a client, as its ring tells it; or one that it was told to do itself, which leaves no trace there.
void Engine::NoteAccess(SessionId session, ObjectId object, std::uint8_t tier, std::int64_t now_ns) {
  const FileId file = catalogue_->object(object).file;
  SourceUnit& unit = *sources_[catalogue_->file(file).source];
  placement_->NoteUse(unit, now_ns);
  unit.policy.Accessed({Raw(object), static_cast<std::uint32_t>(session), now_ns, tier});
  forerunners_[unit.index]->OnAccess(object);
  if (tier != static_cast<std::uint8_t>(abi::Tier::kRam)) observers_[unit.index]->OnMiss();
  if (!visits_.Begins(session, file, object)) return;
  foresights_[unit.index]->OnAccess(session, file);
  observers_[unit.index]->OnAccess(session, file);
}

void Engine::CountRingLost(std::uint64_t entries) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // clients say how many: no wrap
  entries = std::min(entries, kMost - std::min(counters_.ring_lost, kMost));
  counters_.ring_lost += entries;
  for (const auto& unit : sources_) unit->watch->NoteLost(entries);
}

// Of several sources nobody knows which one they were of: each counts them as missing.
void Engine::NoteAround(std::uint64_t total) {
  const std::uint64_t unseen = total - std::min(total, counters_.bypass_seen);
  if (unseen <= counters_.unseen) return;
  for (const auto& unit : sources_) unit->watch->NoteLost(unseen - counters_.unseen);
  counters_.unseen = unseen;
}

AccessWatch::Tiers Engine::TiersForWatch() const {
  return {.capacity_bytes = {placement_->ram_capacity(), ssd_ ? ssd_->status().configured_bytes : 0}, .resident_bytes = placement_->ram_resident_bytes() + placement_->ssd_resident_bytes()};
}

void Engine::OnSessionEnd(SessionId session) {
  fetcher_->OnSessionEnd(session);
  visits_.OnSessionEnd(session);
  for (const auto& unit : sources_) {
    unit->read_ahead.ForgetSession(static_cast<std::uint64_t>(session));
    foresights_[unit->index]->OnSessionEnd(session);
  }
}

void Engine::TellPlan(SourceUnit& unit, ToldPlan told, std::function<void(Result<std::uint64_t>)> done) {
  if (unit.options.mode != OrderMode::kSeeded) {
    const Status refused(Code::kBusy, "source " + unit.options.name + " takes no plans: its mode is " + kOrderModeNames[static_cast<std::size_t>(unit.options.mode)]);
    const bool removed = workers_.Run([file = std::move(told.list_file)] { return RemoveList(file); }, [refused, done](bool) { done(refused); });
    if (!removed) done(refused);
    return;
  }
  SampleMap::Where where{.roots = {unit.source->root(), unit.source->canonical_root()}, .wire_id = unit.wire_id, .secret = {}, .sha256 = told.plan.list_sha256};
  std::copy_n(catalogue_->hash_secret(), where.secret.size(), where.secret.begin());
  auto shared = std::make_shared<ToldPlan>(std::move(told));  // shared with the worker that reads its list
  const bool handed = workers_.Run([shared, where = std::move(where)] { return SampleMap::MakeFromFile(shared->list_file, where); },
                                   [this, &unit, shared, done](Result<SampleMap::List> list) {
                                     if (!list.ok()) return done(list.status());
                                     const std::uint64_t id = ++last_plan_;
                                     Foresight::Consumer consumer;
                                     consumer.id = id;
                                     consumer.plan = shared->plan;
                                     consumer.document = shared->document;
                                     consumer.list = SampleMap::Share(std::move(list).value(), workers_);
                                     consumer.keep = shared->keep;
                                     consumer.process = std::move(shared->process);
                                     const Status status = foresights_[unit.index]->Add(std::move(consumer));
                                     ScheduleTurn();
                                     if (!status.ok()) return done(status);
                                     done(id);
                                   });
  if (!handed) done(Status(Code::kNoSpace, "out of memory"));
}

// ---- the control plane ---------------------------------------------------------------------------------------------------------

bool Engine::Leased(FileId file) {
  const ram::LeaseSet& leased = ram_->leases().Scan();
  const std::uint32_t chunks = leased.empty() ? 0 : catalogue_->ChunkCount(file);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const ObjectId object = catalogue_->ObjectOf(file, chunk);
    const ObjectRecord& record = catalogue_->object(object);
    if (record.frame == ram::kNoFrame) continue;
    const std::uint16_t fill = abi::DecodeLocation(ram_->LocationWord(record.frame)).fill;
    if (leased.Covers(abi::EncodeLease(abi::LeaseKeyOf(catalogue_->KeyOf(object)), fill))) return true;
  }
  return false;
}

void Engine::VoidRecords(SourceUnit& unit, std::function<void(bool durable)> done) {
  if (!ssd_) return done(true);
  ssd_->InvalidateDataset(unit.dataset_id, [this, done = std::move(done)](const Status& status) {
    if (!status.ok()) Log("invalidate error=\"" + status.message() + "\"");
    done(status.ok());
  });
  (void)Survives([&] { VoidDataset(unit); });  // they are void whether or not there is memory to sweep them up
}

// From now on no record written before is read (Placement::OnSsd looks); that they are gone is noted by and by.
void Engine::VoidDataset(SourceUnit& unit) {
  if (!ssd_) return;
  // While records are still coming in, whatever has come is void, and what comes later too: they are swept up when all are there.
  unit.void_before = recovering_ ? std::numeric_limits<std::uint64_t>::max() : ssd_->NextFillSequence();
  if (recovering_ || unit.voiding) return;  // the sweep under way is followed by another
  const std::uint64_t before = unit.void_before;
  Sweep({.unit = &unit,
         .path = "",
         .visit = [this, &unit](FileId file) {
           const std::uint32_t chunks = catalogue_->ChunkCount(file);
           for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
             const ObjectId object = catalogue_->ObjectOf(file, chunk);
             if (!placement_->OnSsd(object)) placement_->EvictSsd(object, EvictCause::kChanged);
           }
           return true;
         },
         .done = [this, &unit, before](bool complete, std::uint64_t) {
           unit.voiding = false;
           if (!complete || unit.void_before != before) VoidDataset(unit);
         },
         .always = true});
  unit.voiding = true;
}

}  // namespace tierd::engine
