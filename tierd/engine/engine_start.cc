// Start and stop: sources, policies, tiers, recovery. What blocks here blocks before anybody is served.
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "client_lib/abi/path_hash.h"
#include "tierd/base/directory_identity.h"
#include "tierd/base/check.h"
#include "tierd/engine/descriptor_share.h"
#include "tierd/engine/engine.h"
#include "tierd/engine/segment_size.h"
#include "tierd/io/engine_probe.h"
#include "tierd/ram/unleased_memory.h"

namespace tierd::engine {
namespace {

constexpr std::size_t kToldPerTurn = 8192;  // objects, to a policy that takes over: ~1 ms

std::uint64_t DigestOf(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string BaseName(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::optional<abi::PageKind> ForcedKind(PagesChoice choice) {
  switch (choice) {
    case PagesChoice::kAuto: return std::nullopt;
    case PagesChoice::kHugetlb: return abi::PageKind::kHugetlb;
    case PagesChoice::kShmem: return abi::PageKind::kShmemHuge;
    case PagesChoice::kTmpfs: return abi::PageKind::kTmpfsHuge;
    case PagesChoice::k4KiB: return abi::PageKind::k4KiB;
  }
  return std::nullopt;
}

std::optional<io::EngineKind> ForcedEngine(EngineChoice choice) {
  if (choice == EngineChoice::kAuto) return std::nullopt;
  return choice == EngineChoice::kUring ? io::EngineKind::kUring : io::EngineKind::kThreads;
}

void BoundByDescriptors(source::SourceOptions& reader, std::size_t sources) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::uint32_t share = RequestsOfASource(limit.rlim_cur, sources);
  reader.demand_reserve = std::clamp<std::uint32_t>(share / 4, 1, reader.demand_reserve);
  reader.window_max = std::clamp<std::uint32_t>(share - std::min(share, reader.demand_reserve), reader.window_min, reader.window_max);
}

source::SourceOptions ReaderOptions(const SourceOptions& options, const source::FsKind& fs, std::size_t sources) {
  source::SourceOptions reader;
  // A local file may still be dirty in this node's page cache; read through it there is one truth, and nothing to gain by going around.
  reader.direct = fs.is_network;
  reader.window_max = std::clamp<std::uint32_t>(options.max_inflight, reader.window_min, 448);
  BoundByDescriptors(reader, sources);
  reader.window_start = std::min(reader.window_start, reader.window_max);
  reader.bytes_per_second = options.bytes_per_s;
  reader.requests_per_second = options.requests_per_s;
  reader.hung_cap = options.hung_cap;
  reader.racy_window_ns = std::int64_t{options.racy_window_ms} * 1'000'000;
  reader.engine = ForcedEngine(options.engine);
  return reader;
}

}  // namespace

Status Engine::Start(ReplySink& replies) {
  if (Status status = workers_.Start(); !status.ok()) return status;
  (void)KeepMemoryReserve();
  asleep_ns_ = clock_.AsleepNs();
  if (::getrandom(instance_.data(), instance_.size(), 0) != static_cast<ssize_t>(instance_.size())) return Status::FromErrno(errno, "getrandom");
  if (options_.ram.pin_cap_bytes == 0) options_.ram.pin_cap_bytes = options_.ram.capacity_bytes / 4;
  pin_cap_bytes_ = options_.ram.pin_cap_bytes;
  for (std::size_t i = 0; i < options_.sources.size(); ++i) {
    if (Status status = OpenSource(options_.sources[i], static_cast<std::uint16_t>(i)); !status.ok()) return status;
  }
  std::uint64_t largest = 64 << 10;
  for (const auto& unit : sources_) largest = std::max(largest, unit->options.chunk_bytes);
  ram::RamTierOptions ram_options;
  ram_options.budget_bytes = options_.ram.capacity_bytes;
  options_.ram.segment_bytes = SegmentBytes(options_.ram, largest);
  ram_options.segment_bytes = std::min(options_.ram.segment_bytes, std::max<std::uint64_t>(options_.ram.capacity_bytes, 64 << 10));
  ram_options.max_frame_bytes = largest;
  ram_options.largest_bytes = Fetcher::kLargestListing;
  ram_ = std::make_unique<ram::RamTier>(ram_options, [this](ram::OwnerId owner, ram::FrameId from, ram::FrameId to) {
    placement_->OnFrameMoved(static_cast<ObjectId>(owner), from, to);
  });
  segments_ = std::make_unique<ram::SegmentFactory>(
      ram::SegmentOptions{.force_kind = ForcedKind(options_.ram.pages),
                          .seal = options_.ram.seal,
                          .tmpfs = options_.ram.tmpfs,
                          .no_tmpfs_reason = options_.ram.no_tmpfs_reason,
                          .shmem_enabled_path = ram::kShmemEnabledPath});
  // The catalogue needs the index, the index the hash key of the SSD directory, the SSD tier an owner: placement, which takes its index through
  // the catalogue only when it is called, that is after this function.
  catalogue_ = std::make_unique<Catalogue>(index_);
  placement_ = std::make_unique<Placement>(Placement::Parts{*catalogue_, *ram_, *segments_, sources_, workers_, clock_, counters_}, options_.ram);
  placement_->SetLargestChunk(largest);
  if (!options_.ssd.directory.empty()) {
    if (Status status = OpenSsd(); !status.ok()) return status;
  }
  if (Status status = CreateIndex(); !status.ok()) return status;
  if (Status status = placement_->CreateFirstSegment(); !status.ok()) return status;
  fetcher_ = std::make_unique<Fetcher>(Fetcher::Parts{*catalogue_, *placement_, replies, workers_, clock_, counters_});
  jobs_ = std::make_unique<Jobs>(*catalogue_, *placement_, *fetcher_, sources_, clock_);
  refresher_ = std::make_unique<Refresher>(*catalogue_, *placement_, *fetcher_, sources_, clock_);
  sweeps_ = std::make_unique<Sweeps>(*catalogue_, clock_);
  sweeps_->on_invalidated = [this](FileId file) { Forget(file); };
  placement_->SetSsd(ssd_.get());
  fetcher_->SetSsd(ssd_.get());
  for (const auto& unit : sources_) fetcher_->NoteRoot(*unit);
  jobs_->SetSsd(ssd_.get());
  workers_.on_lost = [this] { NoteLost(); };
  placement_->on_space = [this] {
    fetcher_->Resume();
    ScheduleTurn();
  };
  placement_->on_memory_look = [this] { HeedMemory(); };
  placement_->on_pinned_gone = [this](ObjectId object) {
    Log("pinned_evicted first=\"" + catalogue_->PathOf(catalogue_->object(object).file) + "\" reason=\"ram is smaller than what is pinned\"");
  };
  fetcher_->on_mismatch = [this](const std::string& line) { Log(line); };
  fetcher_->on_dataset_void = [this](SourceUnit& unit) { VoidDataset(unit); };
  fetcher_->on_first_demand = [this](SourceUnit& unit, FileId file) {
    unit.watch->Begin(TiersForWatch().resident_bytes);
    // A plan says what comes first; a walk does not.
    if (unit.options.ahead && !foresights_[unit.index]->empty()) return;
    if (!unit.options.warm) return;
    const std::optional<std::string> directory = unit.warmup.OnFirstRead(catalogue_->PathOf(file), clock_.MonotonicNs());
    if (!directory) return;
    jobs_->WarmUp(unit, *directory);
    ScheduleTurn();
  };
  for (const auto& unit : sources_) {
    auto policy = PreparePolicy(unit->options.policy, unit->options.policy_parameters);
    if (!policy.ok()) return policy.status();
    unit->policy.Set(std::move(policy).value());
    unit->watch = std::make_unique<AccessWatch>(workers_, TiersForWatch(), [unit = unit.get()] {
      return AccessWatch::SourceBytes{.read = unit->reader->bytes_read(), .unread = unit->look_ahead.waiting()};
    });
    unit->policy.on_plan = [this, &source = *unit](std::uint32_t epoch, std::span<const std::uint32_t> ids, std::uint32_t) { TellWatch(source, epoch, ids); };
    Watch(unit->reader->event_fd());
    Watch(unit->walker->event_fd());
    Watch(unit->job_walker->event_fd());
    Watch(unit->resolver->event_fd());
  }
  for (const auto& unit : sources_) {
    foresights_.push_back(std::make_unique<Foresight>(Foresight::Parts{*unit, *catalogue_, *fetcher_, workers_, clock_, [this, &source = *unit] { return RenewPolicy(source); },
                                                                            [this] { ScheduleTurn(); }}));
    forerunners_.push_back(std::make_unique<Forerunner>(
        Forerunner::Parts{*unit, *foresights_.back(), *catalogue_, *placement_, *fetcher_, clock_, counters_, [this] { ScheduleTurn(); }}));
    observers_.push_back(std::make_unique<Observer>(Observer::Parts{*unit, *foresights_.back(), *catalogue_, *fetcher_, workers_, clock_, last_plan_}));
  }
  fetcher_->on_bypass = [this](SessionId session, ObjectId object) {
    ++counters_.bypass_seen;
    NoteRead(session, object, static_cast<std::uint8_t>(abi::Tier::kBypass), clock_.MonotonicNs());
  };
  if (ssd_) {
    Watch(ssd_io_->event_fd());
    Watch(ssd_->wake_fd());
    Recover();
  }
  Heartbeat(0);
  if (Status status = heart_.Start(); !status.ok()) return status;
  TellStates(clock_.MonotonicNs());
  ArmTimer();
  return Status::Ok();
}

Status Engine::OpenSource(const SourceOptions& options, std::uint16_t index) {
  auto opened = source::Source::Open(options.path);
  if (!opened.ok()) return opened.status();
  auto unit = std::make_unique<SourceUnit>();
  unit->index = index;
  unit->options = options;
  if (unit->options.name.empty()) unit->options.name = BaseName(options.path);
  unit->source = *opened;
  unit->persistent_id = DigestOf(unit->source->identity());
  unit->dataset_id = DigestOf(unit->options.name + "\n" + unit->source->identity());
  unit->wire_id = static_cast<std::uint32_t>(unit->persistent_id);
  if (FindSource(unit->wire_id) != nullptr) return Status(Code::kInvalid, "source " + options.path + " is given twice");
  const auto make_io = [faults = options_.source_faults](io::EngineKind kind, io::EngineOptions io_options) {
    io_options.faults = faults;
    return io::MakeEngine(kind, io_options);
  };
  auto reader = source::SourceReader::Create(unit->source, make_io, clock_, ReaderOptions(options, unit->source->fs(), options_.sources.size()));
  if (!reader.ok()) return reader.status();
  unit->reader = std::move(reader).value();
  const auto budget = unit->reader->request_budget();  // shared by all that ask this source, and their threads
  unit->walker = std::make_unique<source::TreeWalker>(unit->source, clock_, source::WalkerOptions{.threads = 8, .budget = budget});
  unit->job_walker = std::make_unique<source::TreeWalker>(unit->source, clock_, source::WalkerOptions{.budget = budget, .low_priority = true});
  unit->resolver = std::make_unique<source::PathResolver>(unit->source, clock_, source::ResolverOptions{.budget = budget});
  sources_.push_back(std::move(unit));
  return Status::Ok();
}

Status Engine::OpenSsd() {
  std::vector<DirectoryIdentity> roots;
  for (const auto& unit : sources_) roots.push_back({unit->source->root_stat().dev, unit->source->root_stat().ino});
  const auto root = RootOf(options_.ssd.directory, roots);
  if (!root.ok()) return Status(root.status().code(), "ssd.directory " + options_.ssd.directory + ": " + root.status().message());
  if (root->has_value())
    return Status(Code::kInvalid, "ssd.directory " + options_.ssd.directory + " is inside the source " + sources_[**root]->options.path + "; the cache must not be cached");
  io::EngineOptions io_options{.depth = 256, .workers = 32, .max_replacements = 32};
  std::optional<io::EngineKind> kind = ForcedEngine(options_.ssd.engine);
  if (!kind) {
    const io::EngineChoice choice = io::ChooseEngine({.directory = options_.ssd.directory, .engine = io_options});
    kind = choice.kind;
    ssd_engine_reason_ = choice.reason;
  }
  io_options.faults = options_.ssd_faults;
  auto io = io::MakeEngine(*kind, io_options);
  if (!io.ok() && !ForcedEngine(options_.ssd.engine)) io = io::MakeEngine(io::EngineKind::kThreads, io_options);
  if (!io.ok()) return io.status();
  ssd_io_ = std::move(io).value();
  ssd::SsdOptions ssd_options;
  ssd_options.directory = options_.ssd.directory;
  ssd_options.capacity_bytes = options_.ssd.capacity_bytes;
  ssd_options.min_free_bytes = options_.ssd.min_free_bytes;
  ssd_options.min_free_inodes = options_.ssd.min_free_inodes;
  ssd_options.region_bytes = static_cast<std::uint32_t>(options_.ssd.region_bytes);
  for (const auto& unit : sources_) ssd_options.largest_payload_bytes = std::max(ssd_options.largest_payload_bytes, static_cast<std::uint32_t>(unit->options.chunk_bytes));
  auto tier = ssd::SsdTier::Open(ssd_options, *ssd_io_, clock_, *placement_);
  if (!tier.ok()) return tier.status();
  ssd_ = std::move(tier).value();
  if (!ssd_engine_reason_.empty()) Log(std::string("ssd engine=") + ssd_engine_name() + " reason=\"" + ssd_engine_reason_ + "\"");
  ssd_note_ = ssd_->note();
  if (!ssd_note_.empty()) Log("ssd note=\"" + ssd_note_ + "\"");
  return Status::Ok();
}

Status Engine::CreateIndex() {
  ram::IndexOptions index_options;
  std::memcpy(index_options.instance, instance_.data(), instance_.size());
  std::array<std::uint8_t, 32> key{};
  if (ssd_) {
    key = ssd_->path_hash_key();
  } else if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return Status::FromErrno(errno, "getrandom");
  }
  abi::DeriveHashSecret(key.data(), index_options.hash_secret);
  index_options.tmpfs = options_.ram.tmpfs;
  auto index = ram::SharedIndex::Create(index_options);
  if (!index.ok()) return index.status();
  index_ = std::move(index).value();
  return Status::Ok();
}

// ---- policies --------------------------------------------------------------------------------------------------------------

Result<policies::PolicyInstance> Engine::PreparePolicy(const std::string& name, const std::string& parameters) {
  const auto ops = policies_.Find(name);
  if (!ops.ok()) return ops.status();
  policies::PolicyInstance::Options options;
  options.seed = options_.policy_seed;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) options.capacity_bytes[tier] = placement_->told_capacity(tier);
  options.parameters = parameters;
  return policies::PolicyInstance::Create(**ops, options);
}

void Engine::SwitchPolicy(SourceUnit& unit, policies::PolicyInstance policy, const std::string& name, const std::string& parameters) {
  unit.policy.Begin(std::move(policy));
  unit.options.policy = name;
  unit.options.policy_parameters = parameters;
  if (TellPolicy(unit)) ScheduleTurn();
}

// The same policy, knowing all but plans.
bool Engine::RenewPolicy(SourceUnit& unit) {
  auto policy = PreparePolicy(unit.options.policy, unit.options.policy_parameters);
  if (!policy.ok()) return false;
  unit.policy.Begin(std::move(policy).value());
  ScheduleTurn();
  return true;
}

// A slice. True: it has not been told everything yet.
bool Engine::TellPolicy(SourceUnit& unit) {
  if (!unit.policy.changing()) return false;
  policies::PolicyInstance& next = unit.policy.next();
  std::size_t& position = unit.policy.told();
  const std::size_t objects = catalogue_->object_slots();
  const std::size_t end = std::min(objects, position + kToldPerTurn);
  for (; position < end; ++position) {
    const auto id = static_cast<ObjectId>(position);
    const ObjectRecord& record = catalogue_->object(id);
    if ((record.flags & kObjectUsed) == 0 || (record.flags & kObjectListing) != 0 || catalogue_->file(record.file).source != unit.index) continue;
    next.ObjectKnown({Raw(id), Raw(record.file), record.chunk, record.bytes});
    if (placement_->InRam(id)) next.Inserted(TIERD_TIER_RAM, Raw(id));
    if (placement_->HasSsdRecord(id)) next.Inserted(TIERD_TIER_SSD, Raw(id));
  }
  if (position < objects) return true;
  unit.policy.TakeOver();
  return false;
}

// ---- recovery --------------------------------------------------------------------------------------------------------------

void Engine::Recover() {
  recovering_ = true;
  fetcher_->BeginRecovery();
  ssd_->Recover([this](std::span<const ssd::RecoveredRecord> batch) { OnRecovered(batch); },
                [this](const ssd::RecoveryReport& report) {
                  recovering_ = false;
                  doubts_.Clear();
                  for (const auto& unit : sources_) {
                    if (unit->void_before == std::numeric_limits<std::uint64_t>::max()) VoidDataset(*unit);
                  }
                  fetcher_->EndRecovery();
                  recovery_ = report;
                  Log("recovered records=" + std::to_string(report.records) + " seconds=" + std::to_string(report.seconds) +
                      (report.status.ok() ? "" : " error=\"" + report.status.message() + "\"") + (report.note.empty() ? "" : " note=\"" + report.note + "\""));
                },
                [this](std::uint64_t records) {
                  // A table for all of them is made while the scan goes on: growing by halves would copy everything several times.
                  if (records > index_->slot_count() / 2) GrowIndexInBackground(records);
                });
}

void Engine::OnRecovered(std::span<const ssd::RecoveredRecord> batch) {
  for (const ssd::RecoveredRecord& record : batch) {
    SourceUnit* owner = nullptr;
    for (const auto& unit : sources_) {
      if (unit->persistent_id == record.identity.source_id && unit->dataset_id == record.identity.dataset_id &&
          unit->options.chunk_bytes == record.identity.chunk_bytes)
        owner = unit.get();
    }
    if (owner == nullptr) ssd_->Forget(record.location);  // of a source that is not configured any more
    else AdoptRecord(*owner, record);
  }
}

void Engine::AdoptRecord(SourceUnit& unit, const ssd::RecoveredRecord& record) {
  const abi::FileKey key = record.identity.key;
  if (doubts_.Cover(unit.index, key, record.path)) return ssd_->Forget(record.location);
  FileId file = catalogue_->Find(key);
  if (file == kNoFile) {
    io::FileStat stat;
    stat.dev = unit.source->root_stat().dev;
    stat.ino = record.identity.version.ino;
    stat.size = record.identity.version.size;
    stat.mtime_ns = record.identity.version.mtime_ns;
    stat.ctime_ns = record.identity.version.ctime_ns;
    if (!Catalogue::Takes(stat, unit.options.chunk_bytes)) return ssd_->Forget(record.location);
    auto added = catalogue_->Add(unit.index, record.path, key, stat, unit.options.chunk_bytes);
    if (!added) {
      GrowIndexNow();
      added = catalogue_->Add(unit.index, record.path, key, stat, unit.options.chunk_bytes);
    }
    if (!added) return ssd_->Forget(record.location);
    file = *added;
    const std::uint32_t chunks = catalogue_->ChunkCount(file);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const ObjectId object = catalogue_->ObjectOf(file, chunk);
      unit.policy.ObjectKnown({Raw(object), Raw(file), chunk, catalogue_->object(object).bytes});
    }
  }
  const io::FileStat known = catalogue_->StatOf(file);
  const ssd::StoredVersion version{known.ino, known.size, known.mtime_ns, known.ctime_ns};
  const ObjectId object = catalogue_->ObjectOf(file, record.identity.chunk);
  // Filled by ourselves since the start, or a leftover of another version: the record is not needed.
  if (version != record.identity.version || object == kNoObject || placement_->HasSsdRecord(object) || record.location.stored_bytes != catalogue_->object(object).bytes)
    return ssd_->Forget(record.location);
  placement_->ForgetSourceBytes(object);
  placement_->AdoptSsd(object, record.location);
  fetcher_->OnRecovered(unit, file);
}

// During recovery nobody may wait for a growth in the background: the batch is at hand now.
void Engine::GrowIndexNow() {
  if (!index_->growing()) {
    auto table = ram::SharedIndex::CreateTable(index_->NextTable());
    if (!table.ok() || !index_->AdoptTable(std::move(table).value()).ok()) return;
  }
  while (index_->growing() && !index_->GrowStep(1 << 20)) {
  }
  EndIndexGrowth();
}

// ---- stop ------------------------------------------------------------------------------------------------------------------

void Engine::Stop(int timeout_ms) {
  if (stopping_ || fetcher_ == nullptr) return;
  stopping_ = true;
  pending_->ended = true;
  heart_.Stop();
  timer_.cancel();
  CancelWatches();
  index_->Retire();
  // However many sources hang, they get a quarter of the time together; what is in the SSD tier's buffers needs the rest.
  const std::int64_t begin = clock_.PreciseNs();
  const auto left_of = [&](int budget_ms) { return std::max(0, budget_ms - static_cast<int>((clock_.PreciseNs() - begin) / 1'000'000)); };
  for (const auto& unit : sources_) {
    if (const std::size_t left = unit->reader->Stop(left_of(timeout_ms / 4)); left != 0)
      Log("stop source=" + unit->options.name + " unfinished_requests=" + std::to_string(left));
  }
  while (fetcher_->has_landed()) fetcher_->HandleLanded();
  if (ssd_) {
    if (Status status = ssd_->Stop(left_of(timeout_ms)); !status.ok()) return Log("stop ssd reason=\"" + status.message() + "\"");
    // The directory is free for the next tierd even where the kernel does not let this process end: a thread that opens a file of a FUSE source, one of whose
    // pages another process's hung read has locked, cannot be killed.
    placement_->SetSsd(nullptr);
    fetcher_->SetSsd(nullptr);
    jobs_->SetSsd(nullptr);
    ssd_.reset();
  }
  // Clients that call nothing map the segments for as long as they like: what they hold no lease of is nobody's now.
  const std::size_t sessions = ram_->leases().sessions();
  if (sessions == 0) return;  // the memory ends with this process
  const std::uint64_t given = ram::GiveBackUnleased(*ram_, [&] { return left_of(timeout_ms) > 0; });
  Log("stop sessions=" + std::to_string(sessions) + " bytes_given_back=" + std::to_string(given));
}

}  // namespace tierd::engine
