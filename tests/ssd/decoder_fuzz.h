// One input through every decoder of the SSD directory. Checksums are made right first, so that what is behind them is reached too: a
// directory can only be written by somebody who has the superblock, but a decoder must not trust even him with memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tierd::ssd {

// Crashes (or a sanitizer complains) if a decoder is wrong; returns how many decoders accepted the input.
int RunDecoders(std::span<const std::uint8_t> input);

}  // namespace tierd::ssd
