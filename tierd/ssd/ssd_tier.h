// The SSD tier: a log of regions in preallocated files, written once and sequentially, read with one device read per object;
// LevelDB beside it as an index that may be lost at any time. FORMAT.md says what is on disk, HAZARDS 2.13 and 2.16 why.
//
// Owner: the engine. Thread rule: everything here is called on the loop thread; all callbacks (ReadDone, SsdOwner, ...) run on the
// loop thread inside Poll() (that a read hangs is told inside Tick()), never inside the call that caused them. The tier's own threads (index, maintenance, checksums) take
// values and give values back through wake_fd().
// It does not: decide who may enter or leave (the owner's policy does), compare a version with the source (nothing recovered is
// valid before the engine has done that), enforce deadlines of waiters, keep a table of records (the engine keeps SsdLocation).
//
// Life of an object: Append() -> location, readable at once (from the region's buffer, later from the device) -> any number of
// Read() -> Forget(), or SsdOwner::OnMoved / OnGone when space is reclaimed or a write failed.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/base/clock.h"
#include "tierd/base/status.h"
#include "tierd/io/io_engine.h"
#include "tierd/ssd/record.h"

namespace leveldb {
class Env;
}

namespace tierd::ssd {

// A region holds a payload and so much of its own, a directory that many regions.
inline constexpr std::uint32_t kRegionOverhead = 16u << 10;
inline constexpr std::uint32_t kSsdLeastRegions = 4;

struct SsdOptions {
  // Cache directory: created 0700 if missing; must belong to us, be no symlink, be on a local file system.
  std::string directory;
  // Space for regions, rounded down to whole regions; at least 4 regions. Reloadable: SetCapacity. More costs 41 B of RAM per region.
  std::uint64_t capacity_bytes = std::uint64_t{10} << 30;
  // Left free on the file system, whoever fills it; the tier gives regions back to keep it. Reloadable by SetMinFree.
  std::uint64_t min_free_bytes = std::uint64_t{1} << 30;
  std::uint64_t min_free_inodes = 1000;
  // Unit of space. Range 64 KiB..256 MiB, multiple of 64 KiB, and at least largest payload + 16 KiB. Fixed when the directory is created.
  // A little more than 16 MiB, so that four chunks of 4 MiB fit with their headers and the table of contents.
  std::uint32_t region_bytes = (16u << 20) + (256u << 10);
  // Of what will be written. A directory whose regions do not hold that much, or of which `capacity_bytes` holds fewer than four, is discarded.
  std::uint32_t largest_payload_bytes = 0;
  // Unit of writing. Multiple of 4096, at most region_bytes. Larger: fewer requests, later on disk.
  std::uint32_t write_unit_bytes = 1u << 20;
  // Buffers of region_bytes each, allocated and touched at the start: one is filled while others are written. Range 2..16.
  unsigned region_buffers = 3;
  // Reads accepted at a time; beyond it Read() refuses with kBusy. Range 1..65536.
  unsigned max_reads = 1024;
  // Of them, how many the device has at a time, and how many of those may be background reads; the others wait in order. At least 1. Each costs a
  // bounce buffer. More: deeper queues for devices that need them, and longer waits for a reader behind a prefetch.
  unsigned device_reads = 256;
  unsigned background_reads = 32;
  // The same in bytes; one read may be longer. Few enough that a device of 64 MB/s answers all of them within hung_read_ns: one that works is busy, not hung.
  std::uint64_t device_bytes = std::uint64_t{64} << 20;
  std::uint64_t background_bytes = std::uint64_t{16} << 20;
  // Payloads longer than this are checked by `checksum_threads` workers, shorter ones inline on the loop thread.
  std::uint32_t inline_checksum_bytes = 256u << 10;
  unsigned checksum_threads = 1;
  // Index updates waiting for LevelDB; beyond it updates are dropped (the data stays, found through its region at the next start).
  std::size_t index_queue_bytes = 16u << 20;
  // Identifies this machine; empty: /etc/machine-id. A directory from elsewhere is discarded.
  std::string machine_id;
  // Where LevelDB keeps its files; null: the default environment. Must outlive the tier.
  leveldb::Env* index_env = nullptr;
  // True: no O_DIRECT (file systems without it get this by themselves).
  bool buffered = false;
  // Health: see SsdHealth.
  std::int64_t hung_read_ns = 1'000'000'000;
  std::int64_t error_window_ns = 60'000'000'000;
  unsigned degrade_errors = 3;     // errors in a window: healthy -> degraded
  unsigned out_errors = 12;        // errors in a window: -> out
  std::int64_t probe_interval_ns = 1'000'000'000;
  unsigned recover_successes = 8;  // successful operations in a row: degraded -> healthy (out -> degraded: as many probes)
};

// healthy: everything. degraded: no appends, at most 4 reads at a time, the others are refused with kBusy. out: only the tier's own probes.
enum class SsdHealth : std::uint8_t { kHealthy = 0, kDegraded = 1, kOut = 2 };
const char* SsdHealthName(SsdHealth health);

// One record, as told to and by the owner.
struct SsdRecord {
  RecordIdentity identity;
  SsdLocation location;
};

enum class SsdGone : std::uint8_t {
  kReclaimed,    // its region is reused and Worth() said that it may go
  kNoRoom,       // worth keeping, but there was no region to move it to (capacity was cut; killed while the last one was being filled)
  kWriteFailed,  // it never reached the device
  kDamaged,      // its bytes on the device do not verify
};

// The engine's side. Called inside Poll() only; must not call back into Append/Reclaim (Forget and Read are fine).
class SsdOwner {
 public:
  virtual ~SsdOwner() = default;
  // What keeping this record is worth: < 0 it is not what the owner has at this place (dead), 0 live but may go without being moved,
  // > 0 larger = keep. Asked for whole regions when space is reclaimed; asked again in the turn in which the record is copied.
  virtual double Worth(const SsdRecord& record) = 0;
  // The record is now (also) at `to`; `from` will be overwritten soon. The owner stores `to`. Called only if Worth() > 0 in the same turn, or, of a copy
  // that could not be written and is at its first place again, if Worth() is not negative.
  virtual void OnMoved(const SsdRecord& from, const SsdLocation& to) = 0;
  // The record is no more. Called for records whose Worth() is not negative. The tier has done the Forget() already.
  virtual void OnGone(const SsdRecord& record, SsdGone why) = 0;
};

// A record found at the start. `path` lives during the callback only.
struct RecoveredRecord {
  RecordIdentity identity;
  SsdLocation location;
  std::string_view path;  // relative to the source root
};

struct RecoveryReport {
  Status status;                  // not ok: the tier starts empty or in part; the message says why
  std::uint64_t records = 0;      // handed over
  std::uint64_t superseded = 0;   // older versions, older copies, older dataset generations
  std::uint64_t regions_walked = 0;   // by headers: open at a crash or without a sound table of contents
  std::uint64_t regions_from_toc = 0;
  std::uint64_t bytes_live = 0;
  bool index_rebuilt = false;     // LevelDB was missing or corrupt
  double seconds = 0;
  std::string note;               // one line for the log when the index was rebuilt
};

enum class ReadOutcome : std::uint8_t {
  kOk,
  kMiss,     // the place holds another record by now (region reused, dataset invalidated): not a fault of the device
  kCorrupt,  // checksum or header do not hold: count, forget, read the source
  kIoError,  // the device said no, or there was no memory or thread to ask it (IsShortage); `error` has the errno
  kNoParts,  // parts were asked for, and the record was written before there were any: read all of it
};
// Says nothing about the device or the record, which may be read later.
inline bool IsShortage(int error) { return error == ENOMEM || error == EAGAIN; }
struct ReadResult {
  ReadOutcome outcome = ReadOutcome::kMiss;
  int error = 0;
  std::uint32_t bytes = 0;  // payload delivered when kOk
  bool is_shortage() const { return outcome == ReadOutcome::kIoError && IsShortage(error); }
};
using ReadDone = std::function<void(const ReadResult&)>;

// Who wants a record. The device gets reads that somebody waits for first; of the others it has only a few at a time, so that a reader never
// finds it busy with a whole prefetch.
enum class ReadClass : std::uint8_t { kForeground, kBackground };

// What a RAM frame must offer so that the payload goes from the device straight into it.
struct FrameNeeds {
  std::uint32_t alignment = 1;     // of its address
  std::uint32_t padded_bytes = 0;  // its capacity; bytes behind the payload are zeroed
};

struct SsdCounters {
  std::uint64_t appends = 0, append_payload_bytes = 0;
  std::uint64_t appends_refused_no_space = 0, appends_refused_busy = 0, appends_refused_health = 0;
  std::uint64_t device_write_bytes = 0, device_writes = 0, write_errors = 0, write_no_space = 0;
  std::uint64_t moved_records = 0, moved_bytes = 0, records_lost_to_write_errors = 0;
  std::uint64_t reads = 0, reads_from_buffer = 0, read_bytes = 0, device_read_bytes = 0;
  std::uint64_t read_miss = 0, read_corrupt = 0, read_errors = 0, reads_refused = 0;
  std::uint64_t regions_opened = 0, regions_closed = 0, regions_reclaimed = 0, regions_punched = 0, regions_retired = 0;
  std::uint64_t index_updates = 0, index_updates_dropped = 0, index_errors = 0;
  // (region bytes written) / (payload bytes accepted, moves not counted); 0 before the first append.
  double WriteAmplification() const {
    return append_payload_bytes == 0 ? 0 : static_cast<double>(device_write_bytes) / static_cast<double>(append_payload_bytes);
  }
};

struct SsdStatus {
  SsdHealth health = SsdHealth::kHealthy;
  bool recovering = false;
  bool writable = true;            // false: read-only file system or the directory has gone
  std::uint64_t configured_bytes = 0;  // SetCapacity's
  std::uint64_t capacity_bytes = 0;  // what the tier may use now: the configured capacity, cut by min_free, less retired regions
  std::uint64_t allocated_bytes = 0; // regions that hold disk space
  std::uint64_t retired_regions = 0; // of them; not written for an hour each, as writes to them failed, or as they could not be read at the start
  std::uint64_t live_bytes = 0;      // record bytes (headers and padding included) of what was not forgotten
  std::uint64_t live_payload_bytes = 0;
  std::uint64_t live_records = 0;
  std::uint64_t reads_in_flight = 0;
  std::uint64_t hung_reads = 0;      // older than hung_read_ns
  std::int64_t read_latency_ns = 0;  // moving average of device reads: the engine compares it with the source (F08)
  bool direct_io = false;
  std::uint32_t record_alignment = 0;
};

// Does the directory's file system qualify? kUnsupported names the type of a network or FUSE file system, which would make the cache as
// slow and as hung as the source. A missing directory is judged by its nearest parent. Blocks; for start-up, config check and doctor.
Status CheckDirectoryFileSystem(const std::string& directory);

class SsdTier {
 public:
  // Opens or creates the directory: checks, lock, superblock, region files. Blocks (milliseconds); called before the loop turns.
  // kBusy: another daemon has it (message names its pid). kPermission, kInvalid, kUnsupported: one clear line each. A directory of another
  // format, machine or with a damaged superblock is emptied; note() then says so in one line for the log.
  // `io`, `clock` and `owner` outlive the tier; `io` serves this tier only.
  static Result<std::unique_ptr<SsdTier>> Open(const SsdOptions& options, io::IoEngine& io, const Clock& clock, SsdOwner& owner);
  // Without Stop(): as a kill; open files are closed, threads joined once their present work returns.
  ~SsdTier();
  SsdTier(const SsdTier&) = delete;
  SsdTier& operator=(const SsdTier&) = delete;

  const std::string& note() const;
  // Key for abi::DeriveHashSecret: path hashes of this directory.
  const std::array<std::uint8_t, 32>& path_hash_key() const;

  // --- recovery -------------------------------------------------------------------------------------------------------------
  // Reads the index (or the regions) on a worker. `batch` gets records, each (source, path, chunk) at most once and only of the file's
  // newest version; `done` comes last. Until then Append() refuses with kBusy; reads of what was handed over are served at once.
  // The engine ignores a record of a file that it has filled itself since the start. `expect` gets, some time ahead of the batches, how many
  // records there are at most. Call exactly once.
  void Recover(std::function<void(std::span<const RecoveredRecord>)> batch, std::function<void(const RecoveryReport&)> done,
               std::function<void(std::uint64_t records)> expect = nullptr);

  // --- data path ------------------------------------------------------------------------------------------------------------
  // Larger than every fill sequence of earlier lives, and increasing.
  std::uint64_t NextFillSequence();
  // Copies payload (1..kMaxPayloadBytes) into the open region; it is readable at once and on the device later. The payload may be
  // reused when this returns. identity.dataset_generation must be the current one (else kNotFound: the dataset was invalidated
  // while its bytes were on their way). Errors drop the record, nothing else: kBusy (buffers full, recovering, degraded), kNoSpace
  // (no free region: Forget() something, or let it be), kInvalid (path or payload out of range).
  // `crc`: Crc32c of the payload as it was read, 0 if not known; kCorrupt when the copy differs.
  // One call copies and checksums the payload: 4 MiB cost about 0.5 ms of the loop thread.
  Result<SsdLocation> Append(const RecordIdentity& identity, std::string_view path, std::span<const std::byte> payload, std::uint32_t crc = 0);

  FrameNeeds NeedsOf(std::uint32_t payload_bytes) const;
  // Reads the payload into `dest` (at least location.stored_bytes long), in one device read, everything compared with `expected`
  // (fill sequence included; dataset generation is compared with the current one). If dest.size() >= NeedsOf().padded_bytes and
  // the address is aligned, the device writes straight into it. `dest` belongs to the tier until `done` ran, however long that takes.
  // kBusy: refused (limit or health): go to the source; `done` is not called. kNotFound: known to be a miss already.
  // `on_hung`: called once when the device has had it for hung_read_ns and gives no answer. `done` is still to come, and `dest` the tier's.
  Status Read(const SsdLocation& location, const RecordIdentity& expected, std::span<std::byte> dest, ReadDone done,
              ReadClass read_class = ReadClass::kForeground, std::function<void()> on_hung = nullptr);
  // The same of some parts of a long payload (`range` from WidenToParts, not 0 bytes), for a reader that waits: one device read of just these, and one of the header where
  // the record's is not remembered. `dest` has the alignment that NeedsOf() names, and room for the range rounded up to it.
  Status ReadParts(const SsdLocation& location, const RecordIdentity& expected, PayloadRange range, std::span<std::byte> dest, ReadDone done, std::function<void()> on_hung = nullptr);
  // Somebody waits for that record now: a background read of it that the device does not have yet becomes a foreground one.
  void Hasten(const SsdLocation& location);

  // The record is not wanted any more. Its space comes back with its region. Unknown locations are ignored.
  void Forget(const SsdLocation& location);

  // --- space ----------------------------------------------------------------------------------------------------------------
  // Bytes that appends can take now without any reclaim (free regions + rest of the open one, less the mover's reserve).
  std::uint64_t FreeBytes() const;
  void SetCapacity(std::uint64_t bytes);
  void SetMinFree(std::uint64_t bytes, std::uint64_t inodes);
  // Reclaim runs by itself when free regions run short and regions with enough dead or worthless bytes exist.

  // --- dataset generations --------------------------------------------------------------------------------------------------
  std::uint64_t DatasetGeneration(std::uint64_t dataset_id) const;
  // All records of the dataset are void from now on, also after a crash once `done` came (one fsync). The engine forgets the locations.
  void InvalidateDataset(std::uint64_t dataset_id, std::function<void(Status)> done);

  // --- other ----------------------------------------------------------------------------------------------------------------
  // Writes what is in buffers to the device; `done` when everything appended before is readable after a kill -9 (not a power loss).
  void Sync(std::function<void(Status)> done);
  // Gives the disk space of regions in which nothing lives back to the file system, but for those that are written next. `done` with the bytes that
  // went back, once there is no more of it; of a device that ails, or fails meanwhile, as many as until then.
  void GiveBack(std::function<void(std::uint64_t bytes)> done);

  // Once per loop turn: hands requests to the kernel.
  void Flush();
  // Runs completions and a bounded piece (<= 1 ms) of background work; returns how many callbacks ran. `more_work()` asks for another turn.
  std::size_t Poll(std::size_t budget);
  bool more_work() const;
  // Behind with writing: every append would be refused as busy now.
  bool behind() const;
  // Degraded, out, read-only or without its directory: every append is refused until Tick() finds that the device is well again. Not while recovering.
  bool ailing() const;
  SsdHealth health() const;
  // It is ill because requests hang, or did, and none has failed since: it may be well soon.
  bool stalls() const;
  // Nothing is with the tier's own threads, and no answer of theirs waits for Poll().
  bool at_rest() const;
  // About ten times a second: hung reads, health, free space, probes.
  void Tick();
  // Readable when Poll() has something to do (besides io.event_fd()).
  int wake_fd() const;
  // Closes the open region with its table of contents, waits for requests and the index, at most timeout_ms. Blocks; the last call.
  // kTimeout: what is left is found by its headers at the next start. Threads are joined by the destructor, which a slow disk may hold up.
  Status Stop(int timeout_ms);

  SsdCounters counters() const;
  SsdStatus status() const;

 private:
  class Impl;
  explicit SsdTier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierd::ssd
