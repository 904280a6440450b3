// What the engine is built from. Plain structs with defaults; tierd/config turns a file and a command line into these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tierd/io/engine_faults.h"
#include "tierd/ram/memory_pressure.h"
#include "tierd/ram/segment.h"

namespace tierd::engine {

enum class EngineChoice : std::uint8_t { kAuto, kUring, kThreads };
// What may be known of the order of reads.
enum class OrderMode : std::uint8_t { kSeeded, kObserved, kBlind };
inline constexpr const char* kOrderModeNames[] = {"seeded", "observed", "blind"};
enum class PagesChoice : std::uint8_t { kAuto, kHugetlb, kShmem, kTmpfs, k4KiB };

struct SourceOptions {
  std::string path;                    // absolute
  std::string name;                    // label; default: last component of the path
  abi::Staleness staleness = abi::Staleness::kTtl;
  std::uint32_t ttl_ms = 60'000;       // how old an answer may be (C1)
  std::uint32_t racy_window_ms = 10'000;  // HAZARDS 2.12
  std::uint32_t access_recheck_ms = 0;  // how old the source's word may be that a file may be read; 0: by the mode
  std::int64_t AccessRecheckNs() const {
    constexpr std::uint32_t kUsualMs = 600'000, kUsualOfImmutableMs = 86'400'000;
    const std::uint32_t usual_ms = staleness == abi::Staleness::kImmutable ? kUsualOfImmutableMs : kUsualMs;
    return std::int64_t{access_recheck_ms != 0 ? access_recheck_ms : usual_ms} * 1'000'000;
  }
  std::uint64_t chunk_bytes = 4 << 20; // power of two, 64 KiB..64 MiB
  EngineChoice engine = EngineChoice::kAuto;
  std::uint32_t max_inflight = 448;    // requests to the source at a time, at most
  std::uint64_t bytes_per_s = 0;       // budget, 0 = none
  std::uint64_t requests_per_s = 0;    // budget, 0 = none
  std::uint32_t demand_timeout_ms = 800;  // then a waiting reader is told to read the source itself
  std::uint32_t hung_cap = 64;
  bool warm = true;                    // warm-up on first touch
  bool ahead = true;                   // what a plan says is read next is brought before
  bool offline_ok = false;             // with `immutable`: serve recovered records without asking the source
  std::uint32_t check_reads = 0;       // every Nth chunk read from the source is read twice and compared; 0: none
  OrderMode mode = OrderMode::kSeeded;
  std::string policy = "auto";
  std::string policy_parameters;
};

struct RamOptions {
  std::uint64_t capacity_bytes = std::uint64_t{1} << 30;  // of all segments together
  std::uint64_t segment_bytes = 0;     // 0: capacity / 16 within 16..256 MiB; in any case enough for the largest chunk
  PagesChoice pages = PagesChoice::kAuto;
  ram::SegmentSeal seal = ram::SegmentSeal::kAuto;
  const ram::PrivateTmpfs* tmpfs = nullptr;  // for segments and large indexes; outlives the engine
  std::string no_tmpfs_reason = "there is no private tmpfs";
  std::uint64_t pin_cap_bytes = 0;     // leased bytes per client; 0: a quarter of the capacity
  std::uint64_t min_available_bytes = std::uint64_t{512} << 20;  // memory left to everybody else; below it the tier shrinks
  ram::MemoryRoots memory_roots;       // where the kernel says what memory there is
};

struct SsdOptions {
  std::string directory;               // "" = no SSD tier
  std::uint64_t capacity_bytes = std::uint64_t{16} << 30;
  std::uint64_t region_bytes = (16 << 20) + (256 << 10);  // ssd::SsdOptions says why a little more
  std::uint64_t min_free_bytes = std::uint64_t{1} << 30;
  std::uint64_t min_free_inodes = 1000;
  EngineChoice engine = EngineChoice::kAuto;
};

struct EngineOptions {
  std::vector<SourceOptions> sources;
  RamOptions ram;
  SsdOptions ssd;
  std::uint64_t policy_seed = 1;
  // Tests only; outlive the engine and every request it abandoned.
  io::EngineFaults* source_faults = nullptr;
  io::EngineFaults* ssd_faults = nullptr;
};

}  // namespace tierd::engine
