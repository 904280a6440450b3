// The index beside the regions: which regions are closed and what is in them. It may be lost or wrong at any time: every entry is
// checked against the record itself when it is read, and all of it can be rebuilt from the regions. LevelDB is behind this file.
//
// Owner: the index worker; every call is made there (calls block for as long as LevelDB likes). Survives kill -9 without fsync.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tierd/base/status.h"
#include "tierd/ssd/record.h"
#include "tierd/ssd/region_toc.h"

namespace leveldb {
class DB;
class Env;
}  // namespace leveldb

namespace tierd::ssd {

struct IndexedRegion {
  std::uint32_t region = 0;
  std::uint64_t epoch = 0;
  bool closed = false;  // false: being written when last heard of; its records are found by walking it
  std::uint32_t entries = 0;  // when it was closed
};

struct IndexKey {
  std::uint32_t region = 0;
  std::uint32_t epoch = 0;  // low 32 bits, as in a location
  std::uint32_t place = 0;
};

class RecordIndex {
 public:
  // Opens or creates the index in `path`. kCorrupt: damaged, or of another superblock: Destroy() it and open again.
  static Result<std::unique_ptr<RecordIndex>> Open(const std::string& path, const RecordSalt& salt, leveldb::Env* env);
  static Status Destroy(const std::string& path, leveldb::Env* env);
  ~RecordIndex();

  // True if Open() made it new.
  bool fresh() const { return fresh_; }
  // The region will be overwritten under `epoch`: its entries are removed.
  Status BeginRegion(std::uint32_t region, std::uint64_t epoch);
  // All records of a region that is complete on the device, as one value. What was removed of it stays removed.
  Status EndRegion(const TocBuilder& contents);
  // A key of another epoch than its region's says nothing.
  Status Remove(std::span<const IndexKey> keys);

  // kCorrupt: a value or block does not hold; whatever was visited is to be forgotten.
  Status VisitRegions(const std::function<void(const IndexedRegion&)>& visit);
  // What is in a closed region of that epoch, removed records too. Not ok: nothing that holds; whatever was visited is to be forgotten.
  Status VisitContents(std::uint32_t region, std::uint64_t epoch, const RecordVisitor& visit) const;
  // What was not removed, in order of region and place. Record and epoch of its region. kStopped: `stop` has become true.
  Status VisitRecords(const std::function<void(const RecoveredRecord&, std::uint64_t epoch)>& visit, const std::atomic<bool>& stop);

 private:
  RecordIndex(std::unique_ptr<leveldb::Env> own_env, std::unique_ptr<leveldb::DB> db, const RecordSalt& salt);
  Status CheckOwner();

  std::unique_ptr<leveldb::Env> own_env_;  // outlives db_
  std::unique_ptr<leveldb::DB> db_;
  RecordSalt salt_;
  bool fresh_ = false;
};

}  // namespace tierd::ssd
