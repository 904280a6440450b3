#include "tierctl/run/option_notes.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "tierctl/client/control_client.h"
#include "tierd/config/units.h"

namespace tierctl::run {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

// The daemon speaks of keys, and the user wrote an option.
std::string AsWritten(const RunOptions& options, std::string note) {
  constexpr std::string_view kKey = "ram.capacity ";
  if (!options.ram.empty() && note.starts_with(kKey)) note.replace(0, kKey.size(), "--ram ");
  return note;
}

// A size that the machine has, and of which others hold a part. "": it is there.
std::string TakenByOthers(const RunOptions& options, const json& ram) {
  const std::uint64_t wanted = NumberOf(ram, "capacity_bytes"), allowed = NumberOf(ram, "allowed_bytes");
  if (options.ram.empty() || options.ram == "auto" || allowed >= wanted - wanted / 16) return "";
  const std::string bound = TextOf(ram, "bound_by");
  return "--ram " + options.ram + ": " + HumanSize(allowed) + " are free for it now" +
         (bound.empty() ? "" : " (" + bound + ")") +
         ", and the tier grows as more comes free; name a smaller size, or ask for more memory";
}

}  // namespace

std::vector<std::string> OptionNotes(const RunOptions& options, const json& status) {
  std::vector<std::string> notes;
  bool said = false;
  for (const std::string& one : TextsOf(status, "option_notes")) {
    notes.push_back(AsWritten(options, one));
    said = said || notes.back().starts_with("--ram ");
  }
  const json& tiers = PartOf(status, "tiers");
  if (const std::string taken = TakenByOthers(options, PartOf(tiers, "ram")); !said && !taken.empty()) notes.push_back(taken);
  if (options.keep && TextOf(PartOf(tiers, "ssd"), "state") == "off")
    notes.push_back("--keep: there is no SSD tier that could stay for the next run; name a directory with --ssd");
  if (options.real_fds && options.no_preload)
    notes.push_back("--real-fds: has no effect with --no-preload, which leaves all descriptors as they are");
  return notes;
}

}  // namespace tierctl::run
