// Cells of SlotModel: shared by its reader and its daemon.
#pragma once

#include <cstdint>

#include "tests/model/frame_notes.h"

namespace tierd::model::slot {

// ---- cells
enum Field { kSeq, kKey, kVer, kDeadline, kLocation, kRetired, kFields };
constexpr int Table(int table, Field field) { return table * kFields + field; }
inline constexpr int kPublished = 12;  // the new index can be asked for
inline constexpr int kClock = 13;
constexpr int Frame(int frame) { return 14 + frame; }
inline constexpr int kMaxSlotFrames = 3;
constexpr int LeaseHigh(int session) { return 17 + session * 3; }
constexpr int Lease(int session, int slot) { return 18 + session * 3 + slot; }
inline constexpr int kLeaseSlotsModelled = 2;

// ---- violations
enum Violation : std::uint8_t { kWrongBytes = 1, kExpired = 2, kChangedUnderLease = 3 };

}  // namespace tierd::model::slot
