#include "tierd/engine/epoch_counter.h"

#include <algorithm>
#include <limits>

namespace tierd::engine {
namespace {

constexpr std::uint64_t kShareAgain = 4;

void AddTo(EpochCounter::Epoch& sum, const EpochCounter::Epoch& part) {
  for (std::size_t i = 0; i < EpochCounter::kOrigins; ++i) sum.reads[i] += part.reads[i];
}

}  // namespace

void EpochCounter::OnRead(std::uint32_t& mark, std::size_t origin) {
  if (origin >= kOrigins) return;
  if (used_ == 0) used_ = 1;
  Epoch& now = epochs_[used_ - 1];
  if (mark < first_ || mark > again_) {
    // New to this epoch, and so was all that came before it of this epoch.
    AddTo(now, since_);
    since_ = {};
    if (files_again_ != 0 && again_ != std::numeric_limits<std::uint32_t>::max()) ++again_;
    files_again_ = 0;
    mark = again_ - 1;
    ++now.files;
    ++now.reads[origin];
    return;
  }
  ++since_.reads[origin];
  if (mark == again_) return;
  mark = again_;
  ++files_again_;
  if (now.files >= kLeastFiles && files_again_ >= std::max(kLeastFiles / kShareAgain, now.files / kShareAgain)) BeginNext();
}

EpochCounter::Epoch EpochCounter::epoch(std::size_t number) const {
  Epoch epoch = epochs_[number];
  if (number + 1 == used_) AddTo(epoch, since_);
  return epoch;
}

void EpochCounter::BeginNext() {
  if (used_ < kMost) ++used_;
  Epoch& next = epochs_[used_ - 1];
  next.files = files_again_;
  AddTo(next, since_);
  since_ = {};
  files_again_ = 0;
  if (again_ == std::numeric_limits<std::uint32_t>::max()) return;
  first_ = again_;
  ++again_;
}

}  // namespace tierd::engine
