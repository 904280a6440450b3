#include "policies/merged_future.h"

#include <algorithm>
#include <utility>

namespace tierd::policies {

MergedFuture::MergedFuture(std::vector<Consumer> consumers) {
  const bool paced = std::all_of(consumers.begin(), consumers.end(), [](const Consumer& consumer) { return consumer.pace > 0; });
  for (Consumer& consumer : consumers) {
    const double pace = paced ? consumer.pace : std::max(1.0, static_cast<double>(consumer.now->order().size()));
    heads_.emplace_back(std::move(consumer)).step = 1 / pace;
  }
}

std::size_t MergedFuture::Length(const Head& head) const { return head.consumer.now != nullptr ? head.consumer.now->order().size() : head.order.size(); }

std::uint32_t MergedFuture::Sample(const Head& head) const { return head.consumer.now != nullptr ? head.consumer.now->order()[head.at] : head.order[head.at]; }

void MergedFuture::Refill(Head* head) {
  constexpr int kEmptyEpochs = 64;  // in a row, as of a rank without samples: that is the end of it
  for (int looked = 0; !head->over && head->at >= Length(*head); ++looked) {
    head->consumer.now.reset();
    head->at = 0;
    head->over = looked == kEmptyEpochs || !head->consumer.following.Next(&head->order);
  }
}

MergedFuture::Slice MergedFuture::Next(std::size_t most) {
  Slice slice{.epoch = epoch_, .first = given_, .names = {}};
  while (slice.names.size() < most) {
    Head* earliest = nullptr;
    for (Head& head : heads_) {
      if (head.over) continue;
      if (head.at >= Length(head)) {
        if (&head == &heads_.front() && !slice.names.empty()) {  // the merged epoch ends here
          ++epoch_;
          given_ = 0;
          return slice;
        }
        Refill(&head);
        if (head.over) continue;
        if (&head == &heads_.front() && given_ > 0) {
          slice.epoch = ++epoch_;
          slice.first = given_ = 0;
        }
      }
      if (earliest == nullptr || head.time < earliest->time) earliest = &head;
    }
    if (earliest == nullptr) break;
    const std::uint32_t sample = Sample(*earliest);
    if (sample < earliest->Names().size()) slice.names.push_back(earliest->Names()[sample]);
    ++given_;
    ++earliest->at;
    earliest->time += earliest->step;
  }
  return slice;
}

}  // namespace tierd::policies
