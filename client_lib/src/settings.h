// What the environment and tier_options ask for. Read once per client; constant afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/src/source_table.h"
#include "tier/tier.h"

namespace tierd::client {

inline constexpr std::uint32_t kDefaultTimeoutMs = 1000;  // also the longest (HAZARDS 2.11, FAULTS F24)

struct Settings {
  char socket[4096] = {};  // empty: no place for a socket
  std::uint32_t timeout_ms = kDefaultTimeoutMs;
  std::uint32_t flags = 0;  // of tier_options
  bool disabled = false;    // TIERD_DISABLE
  bool log = false;         // TIERD_LOG
  char prefix_text[4096] = {};
  Prefixes prefixes;        // point into prefix_text
};

// `options` may be null. False: a field is out of range.
bool ReadSettings(const tier_options* options, Settings& settings);

// One line "libtier: TEXT" on stderr, if TIERD_LOG asks for it.
void Log(const Settings& settings, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace tierd::client
