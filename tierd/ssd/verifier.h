// The `verify` walk: re-reads closed regions one after the other on the maintenance worker and checks every record.
//
// Part of the tier; loop thread only. A region under the walk counts a reader, so that it is not reused meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tierd/ssd/tier_context.h"

namespace tierd::ssd {

class Verifier {
 public:
  explicit Verifier(TierContext& context) : context_(context) {}
  // Calls that come during a walk wait for one of their own.
  void Start(std::function<void(const VerifyReport&)> done);

 private:
  struct Found;  // what the worker saw in one region
  void Next();
  void OnRegion(std::uint32_t region, const Found& found);

  TierContext& context_;
  std::vector<std::function<void(const VerifyReport&)>> waiting_;
  std::function<void(const VerifyReport&)> done_;  // of the walk under way
  std::uint32_t next_ = 0;
  VerifyReport report_;
};

}  // namespace tierd::ssd
