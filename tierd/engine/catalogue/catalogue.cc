#include "tierd/engine/catalogue/catalogue.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "client_lib/abi/path_hash.h"
#include "client_lib/abi/time_ns.h"
#include "tierd/base/check.h"
#include "tierd/base/prefetch.h"
#include "tierd/base/read_capability.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

// Owners in the index: a FileId, or an ObjectId with this bit (slots of chunks and listings).
constexpr std::uint32_t kOwnerIsObject = 0x80000000u;

abi::SlotKind KindFor(const FileRecord& file) {
  if ((file.flags & kFileAlias) != 0) return abi::SlotKind::kAlias;
  if ((file.flags & (kFileDirectory | kFileOther)) != 0) return abi::SlotKind::kDirectory;
  if ((file.flags & kFileSymlink) != 0) return abi::SlotKind::kSymlink;
  return (file.flags & kFileChunked) != 0 ? abi::SlotKind::kChunked : abi::SlotKind::kFile;
}

std::uint16_t FlagsFor(const io::FileStat& stat, std::uint64_t chunk_bytes) {
  if (S_ISDIR(stat.mode)) return kFileUsed | kFileDirectory;
  if (S_ISLNK(stat.mode)) return kFileUsed | kFileSymlink;
  if (stat.mode != 0 && !S_ISREG(stat.mode)) return kFileUsed | kFileOther;  // records of the SSD have no mode, and are of regular files
  return stat.size > chunk_bytes ? kFileUsed | kFileChunked : kFileUsed;
}

std::pair<std::string_view, std::string_view> SplitPath(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

abi::FileKey Catalogue::KeyOf(std::uint32_t wire_id, std::string_view relative) const {
  return abi::HashPath(index_->hash_secret(), wire_id, relative.data(), relative.size());
}

bool Catalogue::Takes(const io::FileStat& stat, std::uint64_t chunk_bytes) {
  if (!abi::IsTime(stat.mtime_ns) || !abi::IsTime(stat.ctime_ns) || !abi::IsTime(stat.atime_ns)) return false;
  if (S_ISDIR(stat.mode) || S_ISLNK(stat.mode)) return true;
  if (S_ISREG(stat.mode) && DeniesSome(stat)) return false;
  return stat.size <= abi::kMaxFileSize && stat.size / chunk_bytes < kMostChunks;
}

// Its owner goes by the owner's bits, in whatever groups it is. Clients are of our user.
bool Catalogue::DeniesSome(const io::FileStat& stat) {
  const bool group_less = (stat.mode & S_IRGRP) == 0 && (stat.mode & S_IROTH) != 0;
  return group_less && stat.uid != ::geteuid() && !ReadsDespiteModes(0);
}

FileId Catalogue::Find(abi::FileKey key) const {
  const auto found = index_->Find(key);
  if (!found) return kNoFile;
  return static_cast<FileId>(found->owner);
}

FileId Catalogue::NewFile(std::uint16_t source, std::string_view relative, abi::FileKey key, std::uint16_t flags) {
  if (files_per_source_.size() <= source) files_per_source_.resize(source + 1u);
  std::uint32_t id;
  if (!free_files_.empty()) {
    id = free_files_.back();
    free_files_.pop_back();
  } else {
    if (opened_.size() == files_.size()) opened_.PushBack(0);
    id = static_cast<std::uint32_t>(files_.PushBack(FileRecord{}));
  }
  const auto [dir, name] = SplitPath(relative);
  FileRecord& record = files_[id];
  record = FileRecord{};
  opened_[id] = 0;
  record.key = key;
  record.dir = DirOf(dir);
  record.name = names_.Add(name);
  ++dirs_[record.dir].files;
  record.objects = Raw(kNoObject);
  record.source = source;
  record.flags = flags;
  record.version_tag = NextSequence();
  ++file_count_;
  ++files_per_source_[source];
  return static_cast<FileId>(id);
}

ObjectId Catalogue::NewObject(FileId file, std::uint32_t chunk, std::uint32_t bytes, std::uint32_t flags) {
  std::uint32_t id;
  if (free_object_ != Raw(kNoObject)) {
    id = free_object_;
    free_object_ = objects_[id].chunk;
  } else {
    id = static_cast<std::uint32_t>(objects_.PushBack(ObjectRecord{}));
  }
  objects_[id] = ObjectRecord{};
  objects_[id].file = file;
  objects_[id].chunk = chunk;
  objects_[id].bytes = bytes;
  objects_[id].flags = kObjectUsed | flags;
  return static_cast<ObjectId>(id);
}

void Catalogue::MakeObjects(FileId id, std::uint64_t size, std::uint64_t chunk_bytes) {
  FileRecord& record = file(id);
  if (size == 0 || (record.flags & (kFileNotRegular | kFileBare)) != 0) {
    record.objects = Raw(kNoObject);
    return;
  }
  if ((record.flags & kFileChunked) == 0) {
    record.objects = Raw(NewObject(id, 0, static_cast<std::uint32_t>(size), 0));
    return;
  }
  std::uint32_t list;
  if (!free_chunk_lists_.empty()) {
    list = free_chunk_lists_.back();
    free_chunk_lists_.pop_back();
  } else {
    list = static_cast<std::uint32_t>(chunk_lists_.size());
    if (free_chunk_lists_.capacity() <= list) free_chunk_lists_.reserve(2 * list + 16);  // so that each can be given back
    chunk_lists_.emplace_back();
  }
  record.objects = list;  // now: where memory runs out on the way, DropObjects finds what there is
  const auto count = static_cast<std::uint32_t>((size + chunk_bytes - 1) / chunk_bytes);
  std::vector<ObjectId>& chunks = chunk_lists_[list];
  chunks.reserve(count);
  for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
    const std::uint64_t left = size - std::uint64_t{chunk} * chunk_bytes;
    chunks.push_back(NewObject(id, chunk, static_cast<std::uint32_t>(std::min(left, chunk_bytes)), 0));
  }
}

void Catalogue::DropObject(ObjectId id) {
  ObjectRecord& gone = object(id);
  TIERD_CHECK(gone.frame == ram::kNoFrame && (gone.flags & kObjectOnSsd) == 0);
  gone.flags = 0;
  gone.chunk = free_object_;
  free_object_ = Raw(id);
}

void Catalogue::DropObjects(FileId id) {
  FileRecord& record = file(id);
  if (record.objects == Raw(kNoObject)) return;
  if ((record.flags & kFileChunked) != 0) {
    for (ObjectId chunk : chunk_lists_[record.objects]) DropObject(chunk);
    std::vector<ObjectId>().swap(chunk_lists_[record.objects]);
    free_chunk_lists_.push_back(record.objects);
  } else {
    DropObject(static_cast<ObjectId>(record.objects));
  }
  record.objects = Raw(kNoObject);
}

std::uint32_t Catalogue::DirOf(std::string_view dir) {
  if (const auto it = dir_ids_.find(dir); it != dir_ids_.end()) return it->second;
  auto id = static_cast<std::uint32_t>(dirs_.size());
  if (free_dirs_.empty()) {
    dirs_.emplace_back();
    free_dirs_.push_back(id);
  }
  id = free_dirs_.back();
  dirs_[id].path = dir;
  dir_ids_.emplace(dirs_[id].path, id);
  free_dirs_.pop_back();
  return id;
}

void Catalogue::LeaveDir(std::uint32_t id) {
  if (--dirs_[id].files != 0) return;
  ++directories_left_;
  dir_ids_.erase(dirs_[id].path);
  std::string().swap(dirs_[id].path);
  free_dirs_.push_back(id);
}

ram::SlotValues Catalogue::ValuesFor(FileId id, const io::FileStat& stat) {
  const FileRecord& record = file(id);
  ram::SlotValues values;
  values.size = std::min(stat.size, abi::kMaxFileSize);
  values.kind = KindFor(record);
  values.attr_class = index_->AttrClass({stat.dev, stat.mode, stat.uid, stat.gid, stat.nlink, 0, 0});
  values.deadline = abi::kDeadlineExpired;
  values.location = values.kind == abi::SlotKind::kChunked ? record.version_tag : 0;
  values.mtime_ns = stat.mtime_ns;
  values.ctime_ns = stat.ctime_ns;
  values.atime_ns = stat.atime_ns;
  values.ino = stat.ino;
  return values;
}

void Catalogue::JoinInode(FileId id, const io::FileStat& stat) {
  if (stat.nlink < 2 || S_ISDIR(stat.mode)) return;
  if (linked_.size() >= kMostLinkedFiles && !linked_.contains(stat.ino)) return;
  std::vector<FileId>& names = linked_[stat.ino];
  if (names.size() < kMostNames && std::find(names.begin(), names.end(), id) == names.end()) names.push_back(id);
}

void Catalogue::LeaveInode(FileId id) {
  if (linked_.empty()) return;
  const auto slot = index_->Find(file(id).key);
  if (!slot || slot->owner != Raw(id)) return;
  const auto found = linked_.find(index_->Read(slot->ordinal).ino);
  if (found == linked_.end()) return;
  std::erase(found->second, id);
  if (found->second.empty()) linked_.erase(found);
}

std::vector<FileId> Catalogue::NamesOf(std::uint64_t inode) const {
  const auto found = linked_.find(inode);
  return found != linked_.end() ? found->second : std::vector<FileId>();
}

std::optional<FileId> Catalogue::Add(std::uint16_t source, std::string_view relative, abi::FileKey key, const io::FileStat& stat,
                                     std::uint64_t chunk_bytes) {
  const FileId id = NewFile(source, relative, key, FlagsFor(stat, chunk_bytes));
  bool inserted = false;
  const bool survived = Survives([&] {
    inserted = index_->Insert(key, ValuesFor(id, stat), Raw(id)).has_value();
    if (inserted) MakeObjects(id, stat.size, chunk_bytes);
    if (inserted) JoinInode(id, stat);
  });
  if (survived && inserted) return id;
  Remove(id);
  return std::nullopt;
}

std::optional<FileId> Catalogue::AddAlias(std::uint16_t source, std::string_view relative, abi::FileKey key, abi::FileKey target) {
  const FileId id = NewFile(source, relative, key, kFileUsed | kFileAlias);
  ++alias_count_;
  alias_bytes_ += AliasBytes(id);
  ram::SlotValues values;
  values.kind = abi::SlotKind::kAlias;
  values.mtime_ns = static_cast<std::int64_t>(target.lo);
  values.ctime_ns = static_cast<std::int64_t>(target.hi);
  bool inserted = false;
  const bool survived = Survives([&] {
    inserted = index_->Insert(key, values, Raw(id)).has_value();
    if (inserted) PutAliasLast(id);
  });
  if (survived && inserted) return id;
  Remove(id);
  return std::nullopt;
}

// Record, slot and both strings: the directory's may be the alias's alone.
std::uint64_t Catalogue::AliasBytes(FileId alias) const {
  constexpr std::uint64_t kBeside = 256;
  const FileRecord& record = file(alias);
  return kBeside + 2 * dirs_[record.dir].path.size() + names_.Get(record.name).size();
}

bool Catalogue::IsThere(const Alias& alias) const {
  const FileRecord& record = file(alias.file);
  return (record.flags & kFileAlias) != 0 && record.key == alias.key;
}

void Catalogue::PutAliasLast(FileId alias) {
  constexpr std::size_t kSomeMore = 4096;
  if (!aliases_.empty() && aliases_.front().file == alias) aliases_.pop_front();
  if (aliases_.size() > 2 * alias_count_ + kSomeMore)
    std::erase_if(aliases_, [this](const Alias& known) { return !IsThere(known); });
  aliases_.push_back({alias, file(alias).key});
}

FileId Catalogue::OldestAlias() {
  while (!aliases_.empty() && !IsThere(aliases_.front())) aliases_.pop_front();
  return aliases_.empty() ? kNoFile : aliases_.front().file;
}

void Catalogue::Remove(FileId id) {
  FileRecord& record = file(id);
  TIERD_CHECK((record.flags & kFileUsed) != 0);
  if (const auto listing = listings_.find(Raw(id)); listing != listings_.end()) {
    DropObject(listing->second);
    listings_.erase(listing);
  }
  DropObjects(id);
  LeaveInode(id);
  if (const auto found = index_->Find(record.key); found && found->owner == Raw(id)) index_->Erase(found->ordinal);
  if ((record.flags & kFileAlias) != 0) {
    --alias_count_;
    alias_bytes_ -= AliasBytes(id);
  }
  record.flags = 0;
  --file_count_;
  --files_per_source_[record.source];
  // Last: what is free is lost where there is no memory to note it.
  LeaveDir(record.dir);
  names_.Remove(record.name);
  free_files_.push_back(Raw(id));
}

void Catalogue::ChangeVersion(FileId id, const io::FileStat& stat, std::uint64_t chunk_bytes) {
  FileRecord& record = file(id);
  DropObjects(id);
  LeaveInode(id);
  const std::uint16_t becomes = Takes(stat, chunk_bytes) ? FlagsFor(stat, chunk_bytes) : kFileUsed | kFileBare;
  // Pins are of files: nobody would unpin the listing of a directory.
  const std::uint16_t kept = record.flags & ((becomes & kFileNotRegular) == 0 ? kFilePinned | kFileDemanded : kFileDemanded);
  record.flags = becomes | kept;
  opened_[Raw(id)] = 0;
  record.version_tag = NextSequence();
  index_->Update(OrdinalOf(id), ValuesFor(id, stat));
  const bool survived = Survives([&] {
    MakeObjects(id, stat.size, chunk_bytes);
    JoinInode(id, stat);
  });
  if (survived) return;
  DropObjects(id);
  record.flags = static_cast<std::uint16_t>(kFileUsed | kFileBare | kept);
  index_->Update(OrdinalOf(id), ValuesFor(id, stat));
}

io::FileStat Catalogue::StatOf(FileId id) const {
  const ram::SlotValues values = index_->Read(OrdinalOf(id));
  const abi::AttrClass attrs = index_->Attrs(values.attr_class);
  io::FileStat stat;
  stat.dev = attrs.dev;
  stat.ino = values.ino;
  stat.size = values.size;
  stat.mtime_ns = values.mtime_ns;
  stat.ctime_ns = values.ctime_ns;
  stat.atime_ns = values.atime_ns;
  stat.mode = attrs.mode;
  stat.uid = attrs.uid;
  stat.gid = attrs.gid;
  stat.nlink = attrs.nlink;
  return stat;
}

std::uint32_t Catalogue::DeadlineOf(FileId id) const { return index_->Deadline(OrdinalOf(id)); }
FileId Catalogue::FileAt(std::uint32_t ordinal) const {
  const ram::OwnerId owner = index_->Owner(ordinal);
  return owner != ram::kNoOwner && (owner & kOwnerIsObject) == 0 ? static_cast<FileId>(owner) : kNoFile;
}
void Catalogue::SetDeadline(FileId id, std::uint32_t ticks) { index_->SetDeadline(OrdinalOf(id), ticks); }
std::uint64_t Catalogue::SizeOf(FileId id) const { return index_->Size(OrdinalOf(id)); }

std::uint32_t Catalogue::OrdinalOf(FileId id) const {
  const auto found = index_->Find(file(id).key);
  TIERD_CHECK(found && found->owner == Raw(id));
  return found->ordinal;
}

std::uint32_t Catalogue::OrdinalOf(ObjectId id) const {
  const auto found = index_->Find(KeyOf(id));
  return found ? found->ordinal : 0xffffffffu;
}

abi::FileKey Catalogue::KeyOf(ObjectId id) const {
  const ObjectRecord& record = object(id);
  const FileRecord& owner = file(record.file);
  if ((record.flags & kObjectListing) != 0) return abi::ListingKeyOf(owner.key);
  return (owner.flags & kFileChunked) != 0 ? abi::ChunkKeyOf(owner.key, record.chunk) : owner.key;
}

bool Catalogue::SlotWaits(ObjectId id) const {
  const ObjectRecord& record = object(id);
  const bool own_slot = (record.flags & kObjectListing) != 0 || (file(record.file).flags & kFileChunked) != 0;
  return own_slot && growing() && !index_->Find(KeyOf(id));
}

bool Catalogue::SetLocation(ObjectId id, std::uint64_t word) {
  const ObjectRecord& record = object(id);
  const FileRecord& owner = file(record.file);
  const bool own_slot = (record.flags & kObjectListing) != 0 || (owner.flags & kFileChunked) != 0;
  const abi::FileKey key = KeyOf(id);
  const auto found = index_->Find(key);
  if (found && word != 0) {
    index_->SetLocation(found->ordinal, word);
    return true;
  }
  if (word == 0) {
    if (!found) return true;
    index_->ClearLocation(found->ordinal);
    if (own_slot) index_->Erase(found->ordinal);
    return true;
  }
  if (!own_slot) return false;
  ram::SlotValues values;
  const io::FileStat stat = StatOf(record.file);
  values.kind = (record.flags & kObjectListing) != 0 ? abi::SlotKind::kListing : abi::SlotKind::kChunk;
  values.location = word;
  values.mtime_ns = static_cast<std::int64_t>(owner.version_tag);
  values.size = record.bytes;
  values.ino = stat.ino;
  values.deadline = abi::kDeadlineNever;  // the deadline of the file's own slot decides; a listing gets its own by SetListingDeadline()
  return index_->Insert(key, values, Raw(id) | kOwnerIsObject).has_value();
}

ObjectId Catalogue::ListingOf(FileId directory, bool make) {
  if (const auto it = listings_.find(Raw(directory)); it != listings_.end()) return it->second;
  if (!make) return kNoObject;
  const ObjectId id = NewObject(directory, 0, 0, kObjectListing);
  listings_.emplace(Raw(directory), id);
  return id;
}

void Catalogue::SetListingDeadline(ObjectId listing, std::uint32_t ticks) {
  if (const auto found = index_->Find(KeyOf(listing))) index_->SetDeadline(found->ordinal, ticks);
}

std::uint32_t Catalogue::ListingDeadline(ObjectId listing) const {
  const auto found = index_->Find(KeyOf(listing));
  return found ? index_->Deadline(found->ordinal) : abi::kDeadlineExpired;
}

std::string Catalogue::PathOf(FileId id) const {
  const FileRecord& record = file(id);
  const std::string& dir = dirs_[record.dir].path;
  const std::string_view name = names_.Get(record.name);
  if (dir.empty()) return std::string(name);
  std::string path;
  path.reserve(dir.size() + 1 + name.size());
  path.append(dir).append(1, '/').append(name);
  return path;
}

ObjectId Catalogue::ObjectOf(FileId id, std::uint32_t chunk) const {
  const FileRecord& record = file(id);
  if (record.objects == Raw(kNoObject)) return kNoObject;
  if ((record.flags & kFileChunked) == 0) return chunk == 0 ? static_cast<ObjectId>(record.objects) : kNoObject;
  const std::vector<ObjectId>& chunks = chunk_lists_[record.objects];
  return chunk < chunks.size() ? chunks[chunk] : kNoObject;
}

std::uint32_t Catalogue::ChunkCount(FileId id) const {
  const FileRecord& record = file(id);
  if (record.objects == Raw(kNoObject)) return 0;
  return (record.flags & kFileChunked) != 0 ? static_cast<std::uint32_t>(chunk_lists_[record.objects].size()) : 1;
}

abi::SlotKind Catalogue::KindOf(FileId id) const { return KindFor(file(id)); }

ObjectId Catalogue::ObjectAt(SlotPlace place) const {
  const auto owner = index_->OwnerAt(place.generation, place.ordinal);
  if (!owner) return kNoObject;
  if ((*owner & kOwnerIsObject) != 0) {
    const std::uint32_t object_id = *owner & ~kOwnerIsObject;
    return object_id < objects_.size() && (objects_[object_id].flags & kObjectUsed) != 0 ? static_cast<ObjectId>(object_id) : kNoObject;
  }
  if (*owner >= files_.size()) return kNoObject;
  const FileRecord& record = files_[*owner];
  if ((record.flags & kFileUsed) == 0 || (record.flags & kFileChunked) != 0) return kNoObject;
  return static_cast<ObjectId>(record.objects);
}

// Each look says where the next one has to look: all places go one step, then all of them the next.
std::size_t Catalogue::PrefetchObjects(std::span<const SlotPlace> places, std::span<std::uint32_t> objects) const {
  std::array<ram::OwnerId, kMostAtOnce> files;
  std::size_t file_count = 0, object_count = 0;
  const auto note = [&](std::uint32_t object) {
    if (object >= objects_.size()) return;
    PrefetchAll(objects_[object]);
    objects[object_count++] = object;
  };
  for (const SlotPlace& place : places) index_->PrefetchOwnerAt(place.generation, place.ordinal);
  for (const SlotPlace& place : places) {
    const auto owner = index_->OwnerAt(place.generation, place.ordinal);
    if (!owner) continue;
    if ((*owner & kOwnerIsObject) != 0) {
      note(*owner & ~kOwnerIsObject);
    } else if (*owner < files_.size()) {
      PrefetchAll(files_[*owner]);
      files[file_count++] = *owner;
    }
  }
  for (std::size_t i = 0; i < file_count; ++i) {
    const FileRecord& record = files_[files[i]];
    if ((record.flags & kFileUsed) != 0 && (record.flags & kFileChunked) == 0) note(record.objects);
  }
  return object_count;
}

bool Catalogue::IsBelow(FileId id, std::string_view path) const {
  return AtOrBelow(dirs_[file(id).dir].path, path) || PathOf(id) == path;
}

void Catalogue::CompleteAttributes(FileId id, const io::FileStat& stat) {
  const std::uint32_t ordinal = OrdinalOf(id);
  ram::SlotValues values = index_->Read(ordinal);
  const bool complete = index_->Attrs(values.attr_class).mode != 0;
  const std::uint32_t attr_class = complete ? values.attr_class : index_->AttrClass({stat.dev, stat.mode, stat.uid, stat.gid, stat.nlink, 0, 0});  // the same: no class is left for them
  if (attr_class == values.attr_class && values.atime_ns == stat.atime_ns) return;
  const bool completed = attr_class != values.attr_class;
  values.attr_class = attr_class;
  values.atime_ns = stat.atime_ns;
  index_->Update(ordinal, values);
  if (completed) JoinInode(id, stat);
}

}  // namespace tierd::engine
