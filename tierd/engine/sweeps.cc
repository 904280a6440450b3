#include "tierd/engine/sweeps.h"

#include <utility>

#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

constexpr std::int64_t kSliceNs = 1'000'000;
constexpr std::size_t kSlotsPerLook = 64;  // at the clock

}  // namespace

void Sweeps::Start(Request request) {
  const FileId exact = catalogue_.Find(catalogue_.KeyOf(request.unit->wire_id, request.path));
  if (exact != kNoFile && (catalogue_.file(exact).flags & (kFileDirectory | kFileAlias)) == 0) {
    const bool counts = request.visit(exact);
    return request.done(true, counts ? 1 : 0);
  }
  if (waiting_.size() >= kMost && !request.always) return request.done(false, 0);
  waiting_.push_back({std::move(request)});
}

bool Sweeps::Step() {
  if (waiting_.empty()) return false;
  bool ended = true;
  const bool survived = Survives([&] { ended = Slice(waiting_.front()); });
  if (!ended && survived) return true;
  const Sweep sweep = std::move(waiting_.front());
  waiting_.pop_front();
  sweep.request.done(survived, sweep.counted);
  return !waiting_.empty();
}

bool Sweeps::Slice(Sweep& sweep) {
  const Request& request = sweep.request;
  const std::int64_t begin_ns = clock_.PreciseNs();
  const std::size_t slots = catalogue_.file_slots();
  for (std::size_t looked = 0; sweep.position < slots; ++looked) {
    if (looked == kSlotsPerStep || (looked % kSlotsPerLook == 0 && clock_.PreciseNs() - begin_ns > kSliceNs)) return false;
    const auto id = static_cast<FileId>(sweep.position++);
    const FileRecord& record = catalogue_.file(id);
    if ((record.flags & kFileUsed) == 0 || record.source != request.unit->index || !catalogue_.IsBelow(id, request.path)) continue;
    if (request.visit(id)) ++sweep.counted;
  }
  return true;
}

}  // namespace tierd::engine
