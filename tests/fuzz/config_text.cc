// A configuration file, and what a parsed one must hold: it prints as a file that parses to the same values.
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tierd/config/config.h"
#include "tierd/config/config_view.h"
#include "tierd/config/units.h"

using namespace tierd;

namespace {

void Units(std::string_view text) {
  if (const auto bytes = config::ParseSize(text)) FUZZ_CHECK(config::ParseSize(config::FormatSize(*bytes)) == bytes);
  if (const auto ms = config::ParseDurationMs(text)) FUZZ_CHECK(config::ParseDurationMs(config::FormatDurationMs(*ms)) == ms);
  if (const auto percent = config::ParsePercent(text)) FUZZ_CHECK(*percent > 0 && *percent <= 100);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Units(text.substr(0, 64));
  const Result<config::Config> parsed = config::Config::Parse(text, "fuzz.toml");
  if (!parsed.ok()) {
    FUZZ_CHECK(!parsed.status().message().empty());
    return 0;
  }
  const std::string printed = config::PrintToml(*parsed, {});
  const Result<config::Config> again = config::Config::Parse(printed, "again.toml");
  if (!again.ok()) std::fprintf(stderr, "%s\n%s\n", again.status().message().c_str(), printed.c_str());
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(config::Diff(*parsed, *again).empty());
  // `config set` with the first line as KEY=VALUE: all or nothing.
  config::Config changed = *parsed;
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t equals = line.find('=');
  if (equals == line.npos) return 0;
  if (!changed.Set(line.substr(0, equals), line.substr(equals + 1)).ok()) FUZZ_CHECK(config::Diff(*parsed, changed).empty());
  return 0;
}
