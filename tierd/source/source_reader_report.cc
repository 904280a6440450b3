// What a source reader tells people: names, counters, the line for `doctor`.
#include <cstdio>
#include <string_view>

#include "tierd/source/source_reader_impl.h"

namespace tierd::source {

const char* ReadErrorName(ReadError error) {
  constexpr std::array kNames = {"ok",      "errno", "not_regular", "outside", "changed",
                                 "timeout", "hung",  "no_buffer",   "stopped"};
  static_assert(kNames.size() == kReadErrors);
  const auto index = static_cast<std::size_t>(error);
  return index < kNames.size() ? kNames[index] : "unknown";
}

const char* SourceStateName(SourceState state) {
  switch (state) {
    case SourceState::kUp: return "up";
    case SourceState::kSlow: return "slow";
    case SourceState::kHung: return "hung";
  }
  return "unknown";
}

SourceState SourceReaderImpl::state() const {
  if (Refusing()) return SourceState::kHung;
  return hung_ > 0 ? SourceState::kSlow : SourceState::kUp;
}

SourceCounters SourceReaderImpl::counters() const {
  SourceCounters copy = counters_;
  copy.queued = queued_;
  copy.in_flight = in_flight_;
  copy.hung = hung_;
  copy.window = window_.size();
  copy.window_cuts = window_.cuts();
  copy.state = state();
  copy.engine = EngineInUse();
  return copy;
}

const char* SourceReaderImpl::EngineInUse() const { return engines_[static_cast<std::size_t>(trial_.chosen())]->name(); }

std::string SourceReaderImpl::Report() const {
  char text[256];
  const bool lost_workers = std::string_view(EngineInUse()) != EngineKindName(trial_.chosen());
  std::snprintf(text, sizeof text, "engine %s (%s), window %u of %u..%u, O_DIRECT %s", EngineInUse(),
                lost_workers ? io::kNoWorkers : trial_.Report().c_str(), window_.size(), options_.window_min, options_.window_max,
                options_.direct && source_->direct_alignment() != 0 && !direct_refused_ ? "for large files" : "off");
  std::string line = text;
  if (const auto offset = stamps_.offset_ns(); offset && *offset < 0) {
    line += ", source clock up to " + std::to_string(-*offset / 1'000'000) + " ms behind";
  }
  if (counters_.weak_versions > 0) {
    line += ", ctime or inode numbers unstable: " + std::to_string(counters_.weak_versions) + " reads checked by size and mtime";
  }
  if (hung_ > 0) line += ", " + std::to_string(hung_) + " requests hang";
  return line;
}

}  // namespace tierd::source
