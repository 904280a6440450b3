// Salt and place that the seeds of ssd_formats were made with.
#pragma once

#include "tierd/ssd/record.h"
#include "tierd/ssd/region_toc.h"

namespace tierd::fuzz {

inline ssd::RecordSalt Salt() {
  ssd::RecordSalt salt;
  for (std::size_t i = 0; i < salt.uuid.size(); ++i) salt.uuid[i] = static_cast<std::uint8_t>(i + 1);
  for (std::size_t i = 0; i < salt.secret.size(); ++i) salt.secret[i] = abi::Mix64(i + 1);
  return salt;
}

inline ssd::RecordPlace Place() { return {.region = 3, .offset = 4096, .region_epoch = 7, .previous_end = 0}; }

}  // namespace tierd::fuzz
