// Sizes, durations and shares as people write them ("800 GB", "4 MiB", "60s", "25%") and back. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tierd::config {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// A number, an optional fraction, a unit: B, kB, MB, GB, TB, PB (powers of 1000), KiB, MiB, GiB, TiB, PiB and K, M, G, T, P (powers of 1024, the latter as in Slurm's
// --mem); case does not matter. A bare "0" needs no unit. Bytes, rounded down; nullopt if it does not parse or does not fit 63 bits.
std::optional<std::uint64_t> ParseSize(std::string_view text);
// Exact: ParseSize(FormatSize(n)) == n. The shortest of the above ("800 GB", "4 MiB", "1234 B").
std::string FormatSize(std::uint64_t bytes);
// For people: three digits, binary units ("12.3 GiB"); bytes as they are ("1000 B").
std::string HumanSize(std::uint64_t bytes);

// "250ms", "60s", "5min", "2h", "1d"; "0". Milliseconds; nullopt if it does not parse or exceeds 32 bits (49 days).
std::optional<std::uint32_t> ParseDurationMs(std::string_view text);
// Exact: in ms, s or h.
std::string FormatDurationMs(std::uint32_t ms);

// "25%", "12.5%": 0 < value <= 100.
std::optional<double> ParsePercent(std::string_view text);
std::string FormatPercent(double percent);

}  // namespace tierd::config
