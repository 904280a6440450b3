// What tierd knows: files, directories, their chunks ("objects") and where each chunk is. The metadata of a file (size, times, inode,
// attributes, deadline) lives once, in its slot of the shared index; the private record holds only what clients do not need.
// A file of one chunk has one object; a larger one has ceil(size / chunk_bytes), made when it becomes known.
//
// Owner: Engine. Loop thread only. It decides nothing and does no I/O: placement and freshness do.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/engine/catalogue/ids.h"
#include "tierd/engine/catalogue/name_arena.h"
#include "tierd/engine/catalogue/paged_vector.h"
#include "tierd/io/io_engine.h"
#include "tierd/ram/ram_tier.h"
#include "tierd/ram/shared_index.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::engine {

enum FileFlags : std::uint16_t {
  kFileUsed = 1,
  kFileChunked = 2,
  kFileRacy = 4,      // stamps too young when read: re-read at the deadline, not re-stated (HAZARDS 2.12)
  kFilePinned = 8,
  kFileDirectory = 16,
  kFileSymlink = 32,
  kFileAlias = 64,    // a path through symlinks; its slot names the target's key
  kFileChecked = 128, // compared with the source in this daemon's life (HAZARDS 2.16)
  kFileDemanded = 256,  // a reader asked for it (warm-up counts distinct files)
  kFileUnproven = 512,  // racy, and in the making when it was read, or read ahead of use: compared with the source at each use, until it is older
  kFileOther = 1024,  // FIFO, socket, device: metadata alone, the client opens the real one
  kFileBare = 2048,   // has no objects though it has bytes: too large (Catalogue::Takes), or no memory for them. Compared with the source at each use, and read there
  kFileHeld = 4096,   // tiers have, or had, bytes of this version
  kFileRefused = 8192,  // the source refused it: served only after it has opened it again
};
// What has no bytes that could be cached.
inline constexpr std::uint16_t kFileNotRegular = kFileDirectory | kFileSymlink | kFileAlias | kFileOther;

struct FileRecord {
  abi::FileKey key;
  std::uint32_t dir = 0;      // DirId of the parent path
  std::uint32_t name = 0;     // NameArena reference; for a chunked file the same
  std::uint32_t objects = 0;  // ObjectId of the only chunk; for a chunked file an index into chunk lists; kNoObject if none
  std::uint16_t source = 0;
  std::uint16_t flags = 0;
  std::uint64_t version_tag = 0;  // sequence at which this version was adopted; names it in chunk slots
};

enum ObjectFlags : std::uint32_t {
  kObjectUsed = 1,
  kObjectListing = 2,
  kObjectOnSsd = 4,      // `ssd` is valid
  kObjectUnread = 8,     // brought ahead of use and not read yet
};

struct ObjectRecord {
  FileId file = kNoFile;
  std::uint32_t chunk = 0;             // of one that is not used: the next such one
  ram::FrameId frame = ram::kNoFrame;  // published frame
  std::uint32_t flags = 0;
  std::uint32_t bytes = 0;  // payload of this chunk; of a listing: of its present frame
  std::uint32_t epoch_mark = 0;  // of a file's first chunk: EpochCounter
  ssd::SsdLocation ssd;
};
static_assert(sizeof(FileRecord) == 40 && sizeof(ObjectRecord) == 48, "a million files cost what A9 allows");

// Whether `path` is `above` or below it; "" is above everything.
inline bool AtOrBelow(std::string_view path, std::string_view above) {
  return above.empty() || (path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/'));
}

// A slot as a ring entry names it (hostile).
struct SlotPlace {
  std::uint8_t generation = 0;  // the lowest byte
  std::uint32_t ordinal = 0;
};

class Catalogue {
 public:
  // `index` is filled in before the first call and outlives the catalogue.
  explicit Catalogue(const std::unique_ptr<ram::SharedIndex>& index) : index_(index) {}

  // SharedIndex::NoteSegmentGone.
  std::uint32_t NoteSegmentGone(std::uint32_t serial, std::uint32_t oldest) { return index_->NoteSegmentGone(serial, oldest); }

  // The key of a path of a source, with the index's secret.
  abi::FileKey KeyOf(std::uint32_t wire_id, std::string_view relative) const;

  // All objects of a file are made in one turn of the loop, ~40 ns each: of 4 TiB at 4 MiB a chunk that is 40 ms, once in the life of the version.
  static constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 20;
  // Whether a file has few enough chunks, and a size and times that a slot can say. (A sparse file may have 8 EiB, and a time may lie outside 1677 to 2262.)
  // Nor does it take what DeniesSome().
  static bool Takes(const io::FileStat& stat, std::uint64_t chunk_bytes);
  // Whether a client that has more groups than this process may be refused the bytes, or names,
  // that this process may read: the file's group may read less than others may.
  static bool DeniesSome(const io::FileStat& stat);

  const std::uint8_t* hash_secret() const { return index_->hash_secret(); }

  // The file, directory, symlink or alias with that key; kNoFile if unknown.
  FileId Find(abi::FileKey key) const;
  // Adds a file record with its slot (deadline expired) and, for a regular file of size > 0, its objects. The key must be unknown, the file one
  // that Takes() says yes to. None when the index cannot take it right now (growth under way and full), or there is no memory: the caller serves without caching.
  std::optional<FileId> Add(std::uint16_t source, std::string_view relative, abi::FileKey key, const io::FileStat& stat, std::uint64_t chunk_bytes);
  // An alias slot that leads to `target`.
  std::optional<FileId> AddAlias(std::uint16_t source, std::string_view relative, abi::FileKey key, abi::FileKey target);
  // Aliases may take so much memory beside what the files take: clients make up paths through a
  // link that leads above itself, and there is no end of such paths.
  static constexpr std::uint64_t kAliasBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kAliasBytesOfFile = 512;
  bool TooManyAliases() const { return alias_bytes_ > kAliasBytes + kAliasBytesOfFile * (file_count_ - alias_count_); }
  // The one that was added first. kNoFile: there is none.
  FileId OldestAlias();
  // It comes after all the others again. May run out of memory.
  void PutAliasLast(FileId alias);
  std::uint64_t alias_bytes() const { return alias_bytes_; }
  // Removes record, slots and objects; no object may be in a tier any more.
  void Remove(FileId file);
  // Rewrites the slot for another version of the same path; objects are made anew, unless it becomes kFileBare. What is no file any more is not pinned either. No object may be in a tier any more.
  void ChangeVersion(FileId file, const io::FileStat& stat, std::uint64_t chunk_bytes);

  // The metadata in the slot, as clients see it.
  io::FileStat StatOf(FileId file) const;
  std::uint32_t DeadlineOf(FileId file) const;
  // The file that the index's slot `ordinal` (below index_slots()) is about, kNoFile if it is about none; and the deadline of that slot. Slots in their order come from
  // memory as fast as it streams, while DeadlineOf has to find each file's.
  FileId FileAt(std::uint32_t ordinal) const;
  std::uint32_t DeadlineAt(std::uint32_t ordinal) const { return index_->Deadline(ordinal); }
  std::uint64_t index_slots() const { return index_->total_slots(); }
  void SetDeadline(FileId file, std::uint32_t ticks);
  // When (ticks) the source was asked to open the file, the last time that it did; 0: it has not in this daemon's life.
  std::uint32_t OpenedAt(FileId file) const { return opened_[Raw(file)]; }
  void SetOpenedAt(FileId file, std::uint32_t ticks) { opened_[Raw(file)] = ticks; }
  // Somebody told of a change of files that may not be known.
  void NoteChange() { index_->NoteChange(); }
  std::uint64_t SizeOf(FileId file) const;
  // Ordinal of the slot that locates the object's bytes, for the access ring.
  std::uint32_t OrdinalOf(ObjectId object) const;
  std::uint32_t OrdinalOf(FileId file) const;

  // Key whose lease protects the object's bytes.
  abi::FileKey KeyOf(ObjectId object) const;
  // Whether the object needs a slot of its own for which there will be room in the index soon: SetLocation would fail now.
  bool SlotWaits(ObjectId id) const;
  // Makes the object's bytes visible at `word`, or invisible (0). Chunk slots come and go with it.
  // False when no slot could be had; the object then stays invisible.
  bool SetLocation(ObjectId object, std::uint64_t word);

  // Until when the published listing may be served.
  void SetListingDeadline(ObjectId listing, std::uint32_t ticks);
  std::uint32_t ListingDeadline(ObjectId listing) const;
  // The listing object of a directory, made on demand; kNoObject if the directory has none and `make` is false.
  ObjectId ListingOf(FileId directory, bool make);

  std::string PathOf(FileId file) const;        // relative to the source root
  ObjectId ObjectOf(FileId file, std::uint32_t chunk) const;
  std::uint32_t ChunkCount(FileId file) const;  // objects of a regular file

  FileRecord& file(FileId id) { return files_[Raw(id)]; }
  const FileRecord& file(FileId id) const { return files_[Raw(id)]; }
  ObjectRecord& object(ObjectId id) { return objects_[Raw(id)]; }
  const ObjectRecord& object(ObjectId id) const { return objects_[Raw(id)]; }
  abi::SlotKind KindOf(FileId file) const;
  std::uint32_t generation() const { return index_->generation(); }
  // The index is being enlarged, or about to be: an Add that failed may succeed soon.
  bool growing() const { return index_->growing() || (index_->WantsGrowth() && !growth_failed_); }
  void set_growth_failed(bool failed) { growth_failed_ = failed; }
  // What an index slot belongs to; kNoObject when the slot is empty or metadata only.
  ObjectId ObjectAt(SlotPlace place) const;
  // Asks memory for all that ObjectAt of these (at most kMostAtOnce) and a look at their objects and files read, side by side. Writes which objects are meant
  // (as many as places at most) and returns how many: hints, which hold until anything changes.
  static constexpr std::size_t kMostAtOnce = 32;
  std::size_t PrefetchObjects(std::span<const SlotPlace> places, std::span<std::uint32_t> objects) const;
  // Whether the file's path is `path` or below it; "" is above everything.
  bool IsBelow(FileId file, std::string_view path) const;
  // The path that FileRecord::dir names.
  const std::string& DirectoryPath(std::uint32_t dir) const { return dirs_[dir].path; }
  // Whether the file's parent is `path`.
  bool IsChild(FileId file, std::string_view path) const { return dirs_[files_[Raw(file)].dir].path == path && !names_.Get(files_[Raw(file)].name).empty(); }
  std::uint64_t files_of(std::uint16_t source) const { return source < files_per_source_.size() ? files_per_source_[source] : 0; }
  // Once a stat has confirmed the version: fills in what a record recovered from the SSD does not know (mode, owner, links), and the atime as it is by now.
  void CompleteAttributes(FileId file, const io::FileStat& stat);

  // Known names of regular files that have several (hard links), so far as they are kept: of so many files, so many of each. Those of another file with that
  // inode number may be among them.
  static constexpr std::size_t kMostLinkedFiles = std::size_t{1} << 18;  // ~100 B each
  static constexpr std::size_t kMostNames = 64;
  bool KnowsLinked() const { return !linked_.empty(); }
  std::vector<FileId> NamesOf(std::uint64_t inode) const;

  std::size_t file_slots() const { return files_.size(); }  // ids below this may be used; check flags
  std::size_t object_slots() const { return objects_.size(); }
  std::size_t file_count() const { return file_count_; }
  std::size_t directory_names() const { return dir_ids_.size(); }
  // Moves whenever a FileRecord::dir may come to mean another path.
  std::uint64_t directories_left() const { return directories_left_; }

  // Sequence for version tags and fill sequences; continues behind what a restart recovered.
  std::uint64_t NextSequence() { return ++sequence_; }
  void RaiseSequence(std::uint64_t at_least) { sequence_ = sequence_ < at_least ? at_least : sequence_; }

 private:
  struct Alias {
    FileId file;
    abi::FileKey key;
  };
  bool IsThere(const Alias& alias) const;
  std::uint64_t AliasBytes(FileId alias) const;
  FileId NewFile(std::uint16_t source, std::string_view relative, abi::FileKey key, std::uint16_t flags);
  ObjectId NewObject(FileId file, std::uint32_t chunk, std::uint32_t bytes, std::uint32_t flags);
  void MakeObjects(FileId file, std::uint64_t size, std::uint64_t chunk_bytes);
  void DropObjects(FileId file);
  void DropObject(ObjectId object);
  std::uint32_t DirOf(std::string_view dir);
  void LeaveDir(std::uint32_t id);
  ram::SlotValues ValuesFor(FileId file, const io::FileStat& stat);
  void JoinInode(FileId file, const io::FileStat& stat);
  void LeaveInode(FileId file);

  const std::unique_ptr<ram::SharedIndex>& index_;
  PagedVector<FileRecord> files_;
  PagedVector<std::uint32_t> opened_;  // by FileId
  PagedVector<ObjectRecord> objects_;
  std::vector<std::uint32_t> free_files_;
  std::uint32_t free_object_ = Raw(kNoObject);  // chain through ObjectRecord::chunk: to give one back takes no memory
  std::vector<std::vector<ObjectId>> chunk_lists_;
  std::vector<std::uint32_t> free_chunk_lists_;
  std::unordered_map<std::uint32_t, ObjectId> listings_;  // by FileId of the directory
  std::unordered_map<std::uint64_t, std::vector<FileId>> linked_;  // by inode
  NameArena names_;
  struct Dir {
    std::string path;
    std::uint32_t files = 0;  // records that name it; 0: its place is free
  };
  std::deque<Dir> dirs_;  // never move: the keys of dir_ids_ point into them
  std::vector<std::uint32_t> free_dirs_;
  std::uint64_t directories_left_ = 0;
  std::unordered_map<std::string_view, std::uint32_t> dir_ids_;
  std::size_t file_count_ = 0;
  std::deque<Alias> aliases_;  // in the order of AddAlias; some are gone
  std::size_t alias_count_ = 0;
  std::uint64_t alias_bytes_ = 0;  // about
  std::vector<std::uint64_t> files_per_source_;
  std::uint64_t sequence_ = 0;
  bool growth_failed_ = false;  // the last time; tried again now and then
};

}  // namespace tierd::engine
