// Where reads came from. Every share that tierctl shows is computed here, so that `status`, `top` and `run` agree. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tierctl {

struct ReadOrigin {
  const char* name;   // in documents
  const char* words;  // in sentences
};
inline constexpr ReadOrigin kReadOrigins[] = {{"ram", "ram"}, {"ssd", "ssd"}, {"source", "source"}, {"bypass", "bypass"}};

// The sum over all origins of `what` ("count", "bytes") in a `reads` object of the daemon.
std::uint64_t AllReads(const nlohmann::json& reads, const char* what);
// `what` of each origin, by name.
nlohmann::json ByOrigin(const nlohmann::json& reads, const char* what);
// "ram 40.1%, source 1.7%, bypass 58.2%", in tenths that are 100% together; "nothing". Of numbers by origin.
std::string Shares(const nlohmann::json& numbers);
// Why reads and opens bypassed the cache, of a status or summary: numbers by reason, in the words of
// tierctl(1). An open that found no room is counted under two names in documents, and once here.
nlohmann::json BypassReasons(const nlohmann::json& document);
// "no room 3, timeout 4", or "none".
std::string Listed(const nlohmann::json& numbers);
// What the reads of a status leave out, as lines; "" if they are complete.
std::string LeftOut(const nlohmann::json& status);

}  // namespace tierctl
