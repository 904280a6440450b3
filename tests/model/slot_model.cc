#include "tests/model/slot_model.h"

#include "tests/model/slot_cells.h"

namespace tierd::model {

using namespace slot;

std::string SlotModel::CellName(int cell) const {
  static const char* const kFieldNames[] = {"seq", "key", "version", "deadline", "location", "retired"};
  if (cell < kPublished) return std::string(kFieldNames[cell % kFields]) + (cell < kFields ? "[old]" : "[new]");
  if (cell == kPublished) return "new_index";
  if (cell == kClock) return "clock";
  if (cell < LeaseHigh(0)) return "frame" + std::to_string(cell - Frame(0));
  const int session = (cell - LeaseHigh(0)) / 3;
  const int word = (cell - LeaseHigh(0)) % 3;
  return (word == 0 ? "lease_high" : "lease" + std::to_string(word - 1)) + "[session " + std::to_string(session) + "]";
}

std::string SlotModel::ThreadName(int thread) const { return thread == daemon() ? "daemon" : "reader " + std::to_string(thread); }

std::string SlotModel::ViolationText(std::uint8_t code) const {
  switch (code) {
    case kWrongBytes: return "a reader accepted bytes that are not those of its key and version";
    case kExpired: return "a reader accepted a version after its time";
    case kChangedUnderLease: return "bytes changed under a valid lease";
    default: return "none";
  }
}

}  // namespace tierd::model
