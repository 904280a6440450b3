// What is learned from reads: traces, policies that are tried, regret.
#include <algorithm>

#include "tierd/server/control_body.h"
#include "tierd/server/control_json.h"

namespace tierd::server {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostTraceBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kTraceBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMostPriorities = 1000;

Json CountsJson(const sim::CacheCounts& counts, std::uint64_t missed) {
  return {{"reads", counts.all_reads()}, {"ram_hits", counts.reads[0]}, {"ssd_hits", counts.reads[1]}, {"misses", counts.reads[2]}, {"daemon_misses", missed}};
}

ControlApi::Response ErrorOf(const tierd::Status& status) {
  const char* code = status.code() == Code::kNotFound ? "not_found" : status.code() == Code::kBusy || status.code() == Code::kExists ? "conflict" : "bad_request";
  const unsigned number = status.code() == Code::kNotFound ? 404 : status.code() == Code::kBusy || status.code() == Code::kExists ? 409 : 400;
  return JsonError(number, code, status.message());
}

bool TextMember(const Json& body, const char* name, std::string* text) {
  const auto member = body.find(name);
  if (member == body.end()) return true;
  if (!member->is_string()) return false;
  *text = member->get<std::string>();
  return true;
}

}  // namespace

// Misses of the sample, told to the whole: `share` of the objects were looked at.
Json ControlApi::RegretJson(const engine::AccessWatch& watch) {
  const sim::Hindsight::Epoch judged = watch.judged();
  Json epochs = Json::array();
  for (const engine::AccessWatch::PastEpoch& past : watch.past()) {
    Json epoch{{"epoch", past.number}, {"source_bytes", past.regret.source_bytes}, {"least_bytes", past.regret.least_bytes}, {"regret_bytes", past.regret.bytes()}};
    const sim::Hindsight::Epoch seen = watch.hindsight() != nullptr && past.number < sim::Hindsight::kEpochs - 1 ? watch.hindsight()->epochs()[past.number] : sim::Hindsight::Epoch{};
    epoch["judged_reads"] = seen.reads;
    epoch["judged_misses"] = seen.missed;
    epoch["least_misses"] = seen.least;
    epochs.push_back(std::move(epoch));
  }
  return {{"source_bytes", watch.regret().source_bytes}, {"least_bytes", watch.regret().least_bytes}, {"regret_bytes", watch.regret().bytes()}, {"share", watch.share()},
          {"judged_reads", judged.reads},                {"judged_misses", judged.missed},            {"least_misses", judged.least},           {"epochs", epochs}};
}

Json ControlApi::TriedJson(const engine::SourceUnit& unit) {
  Json list = Json::array();
  for (const engine::AccessWatch::Tried& tried : unit.watch->tried()) {
    const char* mode = tried.planned ? engine::kOrderModeNames[static_cast<std::size_t>(unit.options.mode)] : "blind";
    list.push_back({{"policy", tried.policy}, {"parameters", tried.parameters}, {"takes_plans", tried.takes_plans}, {"mode", mode}, {"share", tried.share}, {"seen_ratio", tried.seen}, {"dropped_answers", tried.dropped}, {"all", CountsJson(tried.counts, tried.missed)},
                    {"last_epoch", CountsJson(tried.last_epoch, tried.last_epoch_missed)}});
  }
  return list;
}

Json ControlApi::TraceJson(const engine::AccessWatch& watch) {
  const engine::AccessWatch::TraceState trace = watch.trace();
  if (trace.path.empty()) return nullptr;
  return {{"path", trace.path},         {"running", trace.running},         {"error", trace.error},        {"bytes", trace.progress.bytes}, {"objects", trace.progress.objects},
          {"accesses", trace.progress.accesses}, {"lost", trace.progress.lost}, {"seen_ratio", trace.seen()}, {"full", trace.progress.full}};
}

engine::SourceUnit* ControlApi::NamedSource(const Json& body, Response* error) {
  std::string name;
  if (!TextMember(body, "source", &name)) {
    *error = JsonError(400, "bad_request", "source is not a text");
    return nullptr;
  }
  std::string known;
  for (const auto& unit : engine_.sources()) {
    if (unit->options.name == name || (name.empty() && engine_.sources().size() == 1)) return unit.get();
    known += (known.empty() ? "" : ", ") + unit->options.name;
  }
  *error = name.empty() ? JsonError(400, "bad_request", "which source? There are: " + known) : JsonError(404, "not_found", "no source " + name + "; there are: " + known);
  return nullptr;
}

void ControlApi::Trace(const Json& body, Answer answer) {
  Response error;
  engine::SourceUnit* const unit = NamedSource(body, &error);
  if (unit == nullptr) return answer(std::move(error));
  const auto done = [unit, answer](const tierd::Status& status) { answer(status.ok() ? Ok({{"trace", TraceJson(*unit->watch)}}) : ErrorOf(status)); };
  sessions_.DrainRings();  // what was read before counts as read before
  if (body.contains("stop")) {
    if (body["stop"] != true) return answer(JsonError(400, "bad_request", "stop is true or is not there"));
    return unit->watch->StopTrace(done);
  }
  engine::AccessWatch::TraceOrder order{.path = "", .most_bytes = kTraceBytes, .roots = {}};
  if (!TextMember(body, "path", &order.path) || !order.path.starts_with('/')) return answer(JsonError(400, "bad_request", "path is not absolute"));
  if (const auto most = body.find("most_bytes"); most != body.end()) {
    if (!most->is_number_unsigned() || *most < 1 || *most > kMostTraceBytes) return answer(JsonError(400, "bad_request", "most_bytes is a number of bytes, 1 to 2^40"));
    order.most_bytes = most->get<std::uint64_t>();
  }
  for (const auto& source : engine_.sources()) order.roots.push_back({source->source->root(), {source->source->root_stat().dev, source->source->root_stat().ino}});
  unit->watch->StartTrace(std::move(order), done);
}

ControlApi::Response ControlApi::Try(const Json& body) {
  Response error;
  engine::SourceUnit* const unit = NamedSource(body, &error);
  if (unit == nullptr) return error;
  std::string name, parameters;
  if (!TextMember(body, "policy", &name) || !TextMember(body, "parameters", &parameters)) return JsonError(400, "bad_request", "policy and parameters are texts");
  sessions_.DrainRings();
  if (body.contains("stop")) {
    if (body["stop"] != true) return JsonError(400, "bad_request", "stop is true or is not there");
    if (!unit->watch->StopTrying(name)) return JsonError(404, "not_found", "no policy " + name + " is tried");
    return Ok({{"tried", TriedJson(*unit)}});
  }
  if (policies == nullptr) return JsonError(404, "not_found", "no policies here");
  const auto ops = policies->Find(name);
  if (!ops.ok()) return ErrorOf(ops.status());
  if (const tierd::Status status = unit->watch->Try(**ops, parameters); !status.ok()) return ErrorOf(status);
  return Ok({{"tried", TriedJson(*unit)}});
}

ControlApi::Response ControlApi::Prioritize(const Body& body) {
  if (auto lack = LackOfPaths(body)) return *std::move(lack);
  const std::vector<engine::Jobs::Item>& places = body.places;
  if (places.size() > kMostPriorities) return JsonError(413, "too_large", "more than 1,000 paths");  // some 1 us each, in one turn of the loop
  const Json priorities = body.members.value("priorities", Json());
  if (!priorities.is_array() || priorities.size() != places.size()) return JsonError(400, "bad_request", "\"priorities\" must be as many numbers as there are paths");
  std::uint64_t files = 0, heard = 0;
  for (const auto& unit : engine_.sources()) {
    std::vector<std::string_view> paths;
    std::vector<double> values;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!priorities[i].is_number() || !(priorities[i].get<double>() >= 0)) return JsonError(400, "bad_request", "a priority is a number, 0 or more");
      if (places[i].unit != unit.get()) continue;
      paths.push_back(places[i].path);
      values.push_back(priorities[i].get<double>());
    }
    if (paths.empty()) continue;
    const std::uint64_t known = engine_.Prioritize(*unit, paths, values);
    files += known;
    heard += unit->policy.takes_priorities() ? known : 0;
  }
  return Ok({{"files", files}, {"heard", heard}});
}

}  // namespace tierd::server
