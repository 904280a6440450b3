#include "tierd/ssd/record_index.h"

#include <fcntl.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/write_batch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tierd/base/crc32c.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ssd {

namespace {

// Keys: "V" the owner; "R" + region; "C" + region: what is in it; "C" + region + place: a record of it that was removed. Numbers are
// big-endian, so that the start-up scan reads the tables from front to back and meets removals behind their region in its own order.
constexpr std::string_view kOwnerKey = "V";
// Raised when keys or values change: an index of another format is made anew.
constexpr std::uint32_t kIndexFormat = 2;

void PutBigEndian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

std::uint32_t GetBigEndian(const char* in) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = (value << 8) | static_cast<unsigned char>(in[i]);
  return value;
}

std::string RegionKey(std::uint32_t region) {
  std::string key = "R";
  PutBigEndian(key, region);
  return key;
}

std::string ContentsKey(std::uint32_t region) {
  std::string key = "C";
  PutBigEndian(key, region);
  return key;
}

// A place with the offset leading: keys are in the order of the records.
constexpr std::uint32_t InOrder(std::uint32_t place) { return ((place & 0xffffffu) << 8) | (place >> 24); }

std::string RemovalKey(std::uint32_t region, std::uint32_t place) {
  std::string key = ContentsKey(region);
  PutBigEndian(key, InOrder(place));
  return key;
}
constexpr std::size_t kContentsKeyBytes = 5;
constexpr std::size_t kRemovalKeyBytes = 9;

// Value of a removal: the region's epoch (low 32 bits), checksum.
struct RemovalValue {
  std::uint32_t epoch;
  std::uint32_t crc;
};
static_assert(sizeof(RemovalValue) == 8);

std::uint32_t RemovalCrc(const RecordSalt& salt, const IndexKey& key) {
  const std::uint64_t words[] = {0x43, key.region, key.epoch, key.place};
  return WordsSeed(salt, words);
}

// Value of "R": epoch, entries, state, checksum.
struct RegionValue {
  std::uint64_t epoch;
  std::uint32_t entries;
  std::uint32_t closed;
  std::uint32_t crc;
};
constexpr std::size_t kRegionValueBytes = 20;

std::uint32_t RegionValueCrc(const RecordSalt& salt, std::uint32_t region, const RegionValue& value) {
  const std::uint64_t words[] = {0x52, region};
  return Crc32c(&value, kRegionValueBytes - sizeof(value.crc), WordsSeed(salt, words));
}

std::string EncodeRegion(const RecordSalt& salt, const IndexedRegion& region) {
  RegionValue value{region.epoch, region.entries, region.closed ? 1u : 0u, 0};
  value.crc = RegionValueCrc(salt, region.region, value);
  return std::string(reinterpret_cast<const char*>(&value), kRegionValueBytes);
}

bool DecodeRegion(const RecordSalt& salt, const leveldb::Slice& key, const leveldb::Slice& bytes, IndexedRegion* out) {
  if (key.size() != 5 || bytes.size() != kRegionValueBytes) return false;
  RegionValue value{};
  std::memcpy(&value, bytes.data(), kRegionValueBytes);
  *out = {GetBigEndian(key.data() + 1), value.epoch, value.closed != 0, value.entries};
  return value.closed <= 1 && value.crc == RegionValueCrc(salt, out->region, value);
}

Status FromLevelDb(const leveldb::Status& status, const char* what) {
  if (status.ok()) return Status::Ok();
  const Code code = status.IsCorruption() ? Code::kCorrupt : status.IsNotFound() ? Code::kNotFound : Code::kIo;
  return Status(code, std::string(what) + ": " + status.ToString());
}

// LevelDB maps its tables; mapped pages count as our memory (1 M records: 180 MB). Reading them costs nothing that anybody waits for.
class PreadFile final : public leveldb::RandomAccessFile {
 public:
  explicit PreadFile(UniqueFd fd) : fd_(std::move(fd)) {}
  leveldb::Status Read(std::uint64_t offset, std::size_t n, leveldb::Slice* result, char* scratch) const override {
    std::size_t done = 0;
    while (done < n) {
      const ssize_t got = ::pread(fd_.get(), scratch + done, n - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return leveldb::Status::IOError("read index table", std::strerror(errno));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    *result = leveldb::Slice(scratch, done);
    return leveldb::Status::OK();
  }

 private:
  UniqueFd fd_;
};

// Tables by pread, files for their owner only.
class IndexEnv final : public leveldb::EnvWrapper {
 public:
  using leveldb::EnvWrapper::EnvWrapper;
  leveldb::Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** out) override {
    UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
      return errno == ENOENT ? leveldb::Status::NotFound(name, std::strerror(errno)) : leveldb::Status::IOError(name, std::strerror(errno));
    }
    *out = new PreadFile(std::move(fd));
    return leveldb::Status::OK();
  }
  leveldb::Status NewWritableFile(const std::string& name, leveldb::WritableFile** out) override {
    const leveldb::Status status = target()->NewWritableFile(name, out);
    if (status.ok()) ::chmod(name.c_str(), 0600);
    return status;
  }
  leveldb::Status LockFile(const std::string& name, leveldb::FileLock** out) override {
    const leveldb::Status status = target()->LockFile(name, out);
    if (status.ok()) ::chmod(name.c_str(), 0600);
    return status;
  }
  leveldb::Status NewLogger(const std::string& name, leveldb::Logger** out) override {
    const leveldb::Status status = target()->NewLogger(name, out);
    if (status.ok()) ::chmod(name.c_str(), 0600);
    return status;
  }
};

// For scans: nothing of them is worth caching, and a flipped bit must be noticed.
leveldb::ReadOptions ScanOptions() {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;
  return options;
}

}  // namespace

RecordIndex::RecordIndex(std::unique_ptr<leveldb::Env> own_env, std::unique_ptr<leveldb::DB> db, const RecordSalt& salt)
    : own_env_(std::move(own_env)), db_(std::move(db)), salt_(salt) {}

RecordIndex::~RecordIndex() = default;

Result<std::unique_ptr<RecordIndex>> RecordIndex::Open(const std::string& path, const RecordSalt& salt, leveldb::Env* env) {
  std::unique_ptr<leveldb::Env> own_env;
  if (env == nullptr) own_env = std::make_unique<IndexEnv>(leveldb::Env::Default());
  leveldb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;  // damage is answered by a rebuild, so it must be told
  options.env = env != nullptr ? env : own_env.get();
  options.write_buffer_size = 4u << 20;
  options.max_open_files = 100;
  options.compression = leveldb::kNoCompression;
  // Without CURRENT it was given up: LevelDB would make a new one, and then fill it from the logs that lie there.
  if (!options.env->FileExists(path + "/CURRENT")) {
    (void)leveldb::DestroyDB(path, options);
    ::mkdir(path.c_str(), 0700);  // LevelDB would make it for everybody to look at
  }
  leveldb::DB* raw = nullptr;
  const leveldb::Status opened = leveldb::DB::Open(options, path, &raw);
  if (!opened.ok()) return FromLevelDb(opened, "open index");
  std::unique_ptr<RecordIndex> index(new RecordIndex(std::move(own_env), std::unique_ptr<leveldb::DB>(raw), salt));
  if (Status owner = index->CheckOwner(); !owner.ok()) return owner;
  return index;
}

Status RecordIndex::Destroy(const std::string& path, leveldb::Env* env) {
  leveldb::Options options;
  if (env != nullptr) options.env = env;
  return FromLevelDb(leveldb::DestroyDB(path, options), "destroy index");
}

Status RecordIndex::CheckOwner() {
  std::string mine(reinterpret_cast<const char*>(salt_.uuid.data()), salt_.uuid.size());
  mine.append(reinterpret_cast<const char*>(&kIndexFormat), sizeof(kIndexFormat));
  std::string found;
  const leveldb::Status got = db_->Get(ScanOptions(), leveldb::Slice(kOwnerKey.data(), kOwnerKey.size()), &found);
  if (got.IsNotFound()) {
    std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ScanOptions()));
    it->SeekToFirst();
    if (it->Valid() || !it->status().ok()) return Status(Code::kCorrupt, "index has entries and no owner");
    fresh_ = true;
    return FromLevelDb(db_->Put({}, leveldb::Slice(kOwnerKey.data(), kOwnerKey.size()), mine), "name the owner of the index");
  }
  if (!got.ok()) return FromLevelDb(got, "read the owner of the index");
  return found == mine ? Status::Ok() : Status(Code::kCorrupt, "index of another superblock or format");
}

Status RecordIndex::BeginRegion(std::uint32_t region, std::uint64_t epoch) {
  leveldb::WriteBatch batch;
  const std::string contents = ContentsKey(region);
  batch.Delete(contents);
  std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ScanOptions()));
  // From the first removal on: the contents need not be read to be deleted.
  for (it->Seek(RemovalKey(region, 0)); it->Valid() && it->key().starts_with(contents); it->Next()) batch.Delete(it->key());
  // A damaged block hides entries here; they cannot mislead: their epoch is not that of the region.
  batch.Put(RegionKey(region), EncodeRegion(salt_, {region, epoch, false, 0}));
  return FromLevelDb(db_->Write({}, &batch), "begin region in index");
}

Status RecordIndex::EndRegion(const TocBuilder& contents) {
  leveldb::WriteBatch batch;
  batch.Put(ContentsKey(contents.region()), contents.EncodeIndexValue(salt_));
  batch.Put(RegionKey(contents.region()), EncodeRegion(salt_, {contents.region(), contents.epoch(), true, contents.entries()}));
  return FromLevelDb(db_->Write({}, &batch), "end region in index");
}

Status RecordIndex::Remove(std::span<const IndexKey> keys) {
  leveldb::WriteBatch batch;
  for (const IndexKey& key : keys) {
    const RemovalValue value{key.epoch, RemovalCrc(salt_, key)};
    batch.Put(RemovalKey(key.region, key.place), leveldb::Slice(reinterpret_cast<const char*>(&value), sizeof(value)));
  }
  return FromLevelDb(db_->Write({}, &batch), "remove from index");
}

Status RecordIndex::VisitRegions(const std::function<void(const IndexedRegion&)>& visit) {
  std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ScanOptions()));
  for (it->Seek("R"); it->Valid() && it->key().starts_with("R"); it->Next()) {
    IndexedRegion region;
    if (!DecodeRegion(salt_, it->key(), it->value(), &region)) return Status(Code::kCorrupt, "region value in index does not hold");
    visit(region);
  }
  return FromLevelDb(it->status(), "scan regions in index");
}

namespace {

// The contents of one region, held until its removals are known.
struct HeldRegion {
  std::uint32_t region = 0;
  std::string value;
  std::vector<IndexKey> removals;  // in the order of places
};

// False if the value does not hold.
bool VisitHeld(const RecordSalt& salt, const HeldRegion& held, const std::function<void(const RecoveredRecord&, std::uint64_t)>& visit) {
  std::uint64_t epoch = 0;
  auto removal = held.removals.begin();
  return DecodeIndexValue(salt, held.region, held.value, &epoch, [&](const RecoveredRecord& record) {
    while (removal != held.removals.end() && InOrder(removal->place) < InOrder(record.location.place)) ++removal;
    // One of another epoch was late: its region had been overwritten by then.
    const bool removed = removal != held.removals.end() && removal->place == record.location.place && removal->epoch == record.location.epoch;
    if (!removed) visit(record, epoch);
  });
}

bool DecodeRemoval(const RecordSalt& salt, std::uint32_t region, const leveldb::Slice& key, const leveldb::Slice& bytes, IndexKey* out) {
  RemovalValue value{};
  if (key.size() != kRemovalKeyBytes || bytes.size() != sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  const std::uint32_t in_order = GetBigEndian(key.data() + kContentsKeyBytes);
  *out = {region, value.epoch, (in_order >> 8) | (in_order << 24)};
  return value.crc == RemovalCrc(salt, *out);
}

}  // namespace

Status RecordIndex::VisitRecords(const std::function<void(const RecoveredRecord&, std::uint64_t)>& visit, const std::atomic<bool>& stop) {
  const Status damaged(Code::kCorrupt, "record value in index does not hold");
  HeldRegion held;
  std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(ScanOptions()));
  for (it->Seek("C"); it->Valid() && it->key().starts_with("C"); it->Next()) {
    const leveldb::Slice key = it->key();
    if (key.size() < kContentsKeyBytes) return damaged;
    const std::uint32_t region = GetBigEndian(key.data() + 1);
    if (key.size() == kContentsKeyBytes) {
      if (stop) return Status(Code::kStopped, "scan of the index was stopped");
      if (!held.value.empty() && !VisitHeld(salt_, held, visit)) return damaged;
      held.region = region;
      held.value.assign(it->value().data(), it->value().size());
      held.removals.clear();
      if (held.value.empty()) return damaged;
    } else {
      IndexKey removal;
      if (!DecodeRemoval(salt_, region, key, it->value(), &removal)) return damaged;
      // Of a region that is being overwritten otherwise.
      if (!held.value.empty() && region == held.region) held.removals.push_back(removal);
    }
  }
  if (!held.value.empty() && it->status().ok() && !VisitHeld(salt_, held, visit)) return damaged;
  return FromLevelDb(it->status(), "scan records in index");
}

}  // namespace tierd::ssd
