// Gets regions back: looks at the few with the fewest live bytes and at some others in turn, asks the owner what their records are
// worth, takes the one of least future value, moves what is worth keeping into the open region and, when that is on the device, frees the
// region. Reads go on until the end. It begins with nothing that there is no room to move, unless no region will ever come otherwise: a tier that was
// killed while the last one was being filled, or that lost its index, has none to spare. Then the region of least value of many is dropped.
// A region that cannot be read is not an empty one: its table of contents, or the index, says what lives there; each record is moved, or the owner hears
// that it is damaged, and none is judged by what failed for all.
// A move that does not come off costs nothing either: the region stays closed, and what could not be written elsewhere is where it was.
//
// Part of the tier; loop thread only. Regions are read on the maintenance worker; records are asked about and copied some at a turn (HAZARDS 5).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "tierd/io/aligned_buffer.h"
#include "tierd/ssd/region_scan.h"
#include "tierd/ssd/region_writer.h"
#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class Reclaimer {
 public:
  Reclaimer(TierContext& context, RegionWriter& writer) : context_(context), writer_(writer) {}

  // One bounded piece of work. `wanted`: a region is needed. `shrink`: regions are given back to the file system, nothing is moved.
  void Step(bool wanted, bool shrink);
  // Step would go on at once.
  bool has_work() const { return (phase_ == Phase::kMoving && !stalled_) || phase_ == Phase::kChoosing; }
  bool idle() const { return phase_ == Phase::kIdle; }
  // Bytes became dead; enough of them make another look worth while.
  void OnForgotten(std::uint32_t bytes) { forgotten_ += bytes; }
  // The record, which lies in a region that could not be written, was copied there and is still where it came from, as its owner has been told: true.
  bool TakeBack(const SsdRecord& copy);
  // Where a record comes from whose copy is there, while that region is not free yet. Else null. Valid until the next call of any method.
  const SsdLocation* OriginOf(const SsdLocation& copy) const;
  // Worth may have changed by itself: look again. Called about once a second.
  void Tick() { looks_ = kLooks; }

 private:
  enum class Phase : std::uint8_t { kIdle, kLooking, kChoosing, kLoading, kMoving, kSettling, kSettled };
  struct Candidate {
    std::uint32_t region = 0;
    RegionContents contents;
    bool listed = false;  // all records that may live there are in it, whether they can be read or not
  };
  // What has been found out about the candidates so far.
  struct Choice {
    std::vector<Candidate> candidates;
    std::size_t candidate = 0, record = 0;  // asked about next
    double value = 0;                       // of this candidate's records so far
    std::uint32_t live = 0;                 // of them, those that the owner has
    std::uint64_t kept_bytes = 0, longest_kept = 0;  // what they will take
    std::size_t best = 0;
    // Of the best one: records worth keeping are lost, and what the records are worth.
    std::pair<bool, double> least{true, std::numeric_limits<double>::infinity()};
    bool best_keeps = false;
  };
  struct Copy {
    SsdLocation to;
    std::size_t number = 0;  // of the record
  };
  struct Image {
    Status status;
    io::AlignedBuffer bytes;
    std::vector<bool> sound;   // by number of the record
    std::vector<Copy> copies;  // in the order in which they were appended; has room for all
  };

  void Look(bool shrink);
  void List(const std::shared_ptr<Choice>& choice);
  // There is a place for so many bytes of records that are moved.
  bool HasRoomFor(std::uint64_t bytes) const { return writer_.has_spare() || bytes <= writer_.room(RegionWriter::Use::kMove); }
  // Nor will one come without a region that is reclaimed.
  bool IsStuck() const;
  // The next of the candidates' records. False: the turn has had its share.
  bool Ask();
  void Choose();
  void Compare();
  // It could not be read a short while ago.
  bool IsSpared(std::uint32_t region) const;
  void Load(bool shrink);
  void OnLoaded();
  void Move();
  // Record by number. False: not now.
  bool MoveOne(std::size_t number);
  void Lose(const SsdRecord& record, SsdGone why);
  void Settle();
  void End();
  void Free();
  void PutBack();
  void Discard();

  TierContext& context_;
  RegionWriter& writer_;
  Phase phase_ = Phase::kIdle;
  std::shared_ptr<Choice> choice_;    // shared with the worker that made or frees it
  std::shared_ptr<Candidate> chosen_;  // shared with the worker that reads or frees it
  Image image_;
  std::map<std::uint32_t, std::int64_t> spared_;  // until when
  std::size_t next_ = 0;              // record of chosen_ that is moved next
  bool drop_all_ = false;
  bool put_back_ = false;             // not all of it could be moved
  bool stalled_ = false;              // waits for a region buffer
  std::uint64_t forgotten_ = 0;       // since the last look
  static constexpr unsigned kLooks = 4;
  unsigned looks_ = kLooks;           // left until bytes are forgotten or a second has passed
  std::uint32_t cursor_ = 0;          // of the regions looked at in turn
};

}  // namespace tierd::ssd
