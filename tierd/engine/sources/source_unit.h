// Everything the engine keeps per source: reader, walker, resolver, policy, warm-up state. A plain holder: behaviour is in fetcher,
// placement and jobs. Owner: Engine. Loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tierd/engine/sources/access_watch.h"
#include "tierd/engine/sources/epoch_counter.h"
#include "tierd/engine/sources/look_ahead.h"
#include "tierd/engine/options.h"
#include "tierd/engine/sources/policy_seat.h"
#include "tierd/engine/sources/service_pace.h"
#include "tierd/engine/sources/ssd_account.h"
#include "tierd/engine/sources/walked_trees.h"
#include "tierd/engine/sources/warmup.h"
#include "tierd/source/listing_memory.h"
#include "tierd/source/path_resolver.h"
#include "tierd/source/read_ahead.h"
#include "tierd/source/source.h"
#include "tierd/source/source_reader.h"
#include "tierd/source/tree_walker.h"

namespace tierd::engine {

struct SourceUnit {
  // Constant after Engine::Start.
  std::uint16_t index = 0;          // position in the table; FileRecord::source
  std::uint32_t wire_id = 0;        // what clients name it by and path hashes contain: low half of persistent_id, made unique
  std::uint64_t persistent_id = 0;  // digest of Source::identity(): the same after a remount or restart
  std::uint64_t dataset_id = 0;     // digest of the name
  SourceOptions options;
  std::shared_ptr<const source::Source> source;  // shared with workers that may hang inside it

  std::unique_ptr<source::SourceReader> reader;
  std::unique_ptr<source::TreeWalker> walker;      // listings that a client waits for
  std::unique_ptr<source::TreeWalker> job_walker;  // prefetch, warm-up, verification
  std::unique_ptr<source::PathResolver> resolver;
  PolicySeat policy;
  source::ReadAhead read_ahead{source::ReadAheadOptions{}};
  source::ListingMemory listings{source::ListingMemoryOptions{}};
  ServicePace pace;
  std::array<SsdAccount, ServicePace::kClasses> ssd_accounts{};
  WarmupTrigger warmup;
  LookAhead look_ahead;
  EpochCounter epochs;
  std::unique_ptr<AccessWatch> watch;
  WalkedTrees walked;  // MonotonicNs
  // Whether all of `path` was walked within the staleness bound.
  bool Walked(std::string_view path, std::int64_t now_ns) const {
    const bool for_ever = options.staleness == abi::Staleness::kImmutable;
    return walked.Covers(path, for_ever ? std::numeric_limits<std::int64_t>::min() : now_ns - std::int64_t{options.ttl_ms} * 1'000'000);
  }

  // What reads by clients have bought in refreshes ahead of the deadline, and when the last of them was (Refresher).
  std::uint64_t refresh_credit = 0;
  std::int64_t last_read_ns = 0;

  // With offline_ok, after the source could not be asked: until then each file is believed once without asking, and not for longer.
  std::int64_t unreachable_until_ns = 0;

  // SSD records with an earlier fill sequence are void, though the catalogue may still name them (Engine::VoidDataset).
  std::uint64_t void_before = 0;
  bool voiding = false;

  bool has_aliases = false;             // there has been one
  std::int64_t links_doubted_ns = 0;    // PreciseNs: what was asked earlier about where a path leads says nothing any more (Engine::ForgetAliases)

  std::uint64_t chunks_read = 0;  // for SourceOptions::check_reads

  // Sizes seen, to guess how much to read of a file whose size is not known yet.
  std::uint64_t files_read = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t MeanFileBytes() const { return files_read == 0 ? 0 : bytes_read / files_read; }
};

}  // namespace tierd::engine
