// One region of the index.
#include <leveldb/db.h>

#include <string>

#include "tierd/ssd/record_index.h"

namespace tierd::ssd {

Status RecordIndex::VisitContents(std::uint32_t region, std::uint64_t epoch, const RecordVisitor& visit) const {
  const std::string what = "contents of region " + std::to_string(region) + " in index";
  std::string key = "C";
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(region >> shift));
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;
  std::string value;
  const leveldb::Status got = db_->Get(options, key, &value);
  if (got.IsNotFound()) return Status(Code::kNotFound, "no " + what);
  if (!got.ok()) return Status(got.IsCorruption() ? Code::kCorrupt : Code::kIo, what + ": " + got.ToString());
  std::uint64_t of_epoch = 0;
  if (!DecodeIndexValue(salt_, region, value, &of_epoch, visit)) return Status(Code::kCorrupt, what + " do not hold");
  return of_epoch == epoch ? Status::Ok() : Status(Code::kNotFound, what + " are of another epoch");
}

}  // namespace tierd::ssd
