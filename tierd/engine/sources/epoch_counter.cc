#include "tierd/engine/sources/epoch_counter.h"

#include <algorithm>
#include <limits>

namespace tierd::engine {
namespace {

constexpr std::uint64_t kShareAgain = 4;

void AddTo(EpochCounter::Epoch& sum, const EpochCounter::Epoch& part) {
  for (std::size_t i = 0; i < EpochCounter::kOrigins; ++i) sum.reads[i] += part.reads[i], sum.bytes[i] += part.bytes[i];
  sum.read_bytes += part.read_bytes;
  if (sum.first_ns == 0 || (part.first_ns != 0 && part.first_ns < sum.first_ns)) sum.first_ns = part.first_ns;
  sum.last_ns = std::max(sum.last_ns, part.last_ns);
}

void Count(EpochCounter::Epoch& epoch, std::size_t origin, const EpochCounter::Sizes& sizes) {
  ++epoch.reads[origin];
  epoch.read_bytes += sizes.chunk;
  epoch.bytes[origin] += sizes.chunk;
  if (epoch.first_ns == 0) epoch.first_ns = sizes.now_ns;
  epoch.last_ns = sizes.now_ns;
}

EpochCounter::Epoch Less(EpochCounter::Epoch epoch, const EpochCounter::Epoch& part) {
  for (std::size_t i = 0; i < EpochCounter::kOrigins; ++i) epoch.reads[i] -= part.reads[i], epoch.bytes[i] -= part.bytes[i];
  epoch.files -= part.files;
  epoch.file_bytes -= part.file_bytes;
  epoch.read_bytes -= part.read_bytes;
  return epoch;
}

}  // namespace

void EpochCounter::OnRead(std::uint32_t& mark, std::size_t origin, const Sizes& sizes) {
  if (origin >= kOrigins) return;
  bytes_[origin] += sizes.chunk;
  if (used_ == 0) used_ = 1;
  Epoch& now = epochs_[used_ - 1];
  last_was_new_ = mark < first_ || mark > again_;
  if (last_was_new_) {
    // New to this epoch, and so was all that came before it of this epoch.
    AddTo(now, since_);
    since_ = {};
    if (files_again_ != 0 && again_ != std::numeric_limits<std::uint32_t>::max()) ++again_;
    files_again_ = bytes_again_ = 0;
    mark = again_ - 1;
    ++now.files;
    now.file_bytes += sizes.file;
    Count(now, origin, sizes);
    return;
  }
  Count(since_, origin, sizes);
  if (mark == again_) return;
  mark = again_;
  ++files_again_;
  bytes_again_ += sizes.file;
  if (now.files >= kLeastFiles && files_again_ >= std::max(kLeastFiles / kShareAgain, now.files / kShareAgain)) BeginNext();
}

EpochCounter::Epoch EpochCounter::epoch(std::size_t number) const {
  Epoch epoch = epochs_[number];
  if (number + 1 == used_) AddTo(epoch, since_);
  return epoch;
}

void EpochCounter::BeginNext() {
  last_ended_ = Less(epochs_[used_ - 1], before_);
  ++ended_;
  if (used_ < kMost) {
    ++used_;
    before_ = {};
  } else {
    before_ = epochs_[used_ - 1];
    before_.files = before_.file_bytes = 0;
  }
  Epoch& next = epochs_[used_ - 1];
  next.files = files_again_;
  next.file_bytes = bytes_again_;
  AddTo(next, since_);
  since_ = {};
  files_again_ = bytes_again_ = 0;
  if (again_ == std::numeric_limits<std::uint32_t>::max()) return;
  first_ = again_;
  ++again_;
}

}  // namespace tierd::engine
