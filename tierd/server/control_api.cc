#include "tierd/server/control_api.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "tierd/ram/segment.h"
#include "tierd/server/control_body.h"
#include "tierd/server/control_json.h"

namespace tierd::server {
namespace {

constexpr const char* kTierNames[abi::kTiers] = {"ram", "ssd", "source", "bypass"};
constexpr std::size_t kReadAtOnce = 16 * 1024;  // of a body: some 150 us; what is longer is read by a worker

double Seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string Hex(const std::array<std::uint8_t, 16>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Whether a list such as "GET, PATCH" has exactly this method.
bool Lists(std::string_view allowed, std::string_view method) {
  while (!allowed.empty()) {
    const std::string_view one = allowed.substr(0, allowed.find(','));
    if (one == method) return true;
    allowed.remove_prefix(std::min(allowed.size(), one.size() + 2));
  }
  return false;
}

nlohmann::json EpochJson(const engine::EpochCounter& epochs) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < epochs.count(); ++i) {
    const engine::EpochCounter::Epoch epoch = epochs.epoch(i);
    nlohmann::json reads, bytes;
    for (std::size_t origin = 0; origin < engine::EpochCounter::kOrigins; ++origin) reads[kTierNames[origin]] = epoch.reads[origin], bytes[kTierNames[origin]] = epoch.bytes[origin];
    list.push_back({{"files", epoch.files}, {"file_bytes", epoch.file_bytes}, {"reads", reads}, {"bytes", bytes}, {"seconds", Seconds(epoch.last_ns - epoch.first_ns)}});
  }
  return list;
}

nlohmann::json JobJson(const engine::JobStatus& job, const Clock& clock) {
  const std::int64_t now_ns = clock.MonotonicNs();
  nlohmann::json json{{"id", job.id},
          {"kind", engine::kJobKindNames[static_cast<std::size_t>(job.kind)]},
          {"owner", engine::kJobOwnerNames[static_cast<std::size_t>(job.owner)]},
          {"pid", job.pid != 0 ? nlohmann::json(job.pid) : nlohmann::json(nullptr)},
          {"paths", job.paths},
          {"started_s", Seconds(clock.RealtimeNs() - (now_ns - job.started_ns))},
          {"state", engine::kJobStateNames[static_cast<std::size_t>(job.state)]},
          {"walking", job.walking},
          {"elapsed_s", Seconds((job.ended_ns != 0 ? job.ended_ns : now_ns) - job.started_ns)},
          {"files_total", job.files_total},
          {"files_done", job.files_done},
          {"files_failed", job.files_failed},
          {"files_no_room", job.files_no_room},
          {"bytes_total", job.sizes_known() ? nlohmann::json(job.bytes_known) : nlohmann::json(nullptr)},
          {"bytes_done", job.bytes_done},
          {"bytes_known", job.brings() ? nlohmann::json(job.bytes_known) : nlohmann::json(nullptr)},
          {"files_sized", job.brings() ? nlohmann::json(job.files_sized) : nlohmann::json(nullptr)},
          {"files_expected", job.expected_files},
          {"files_verified", job.verified_files},
          {"bytes_verified", job.verified_bytes},
          {"error", job.error}};
  PutPath(json, job.path);
  return json;
}

}  // namespace

ControlApi::ControlApi(boost::asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, const Clock& clock, ConfigHost& config)
    : loop_(loop), engine_(engine), sessions_(sessions), clock_(clock), config_(config), started_ns_(clock.MonotonicNs()) {}

// ---- routing ---------------------------------------------------------------------------------------------------------------

namespace {

struct EndPoint {
  std::string_view methods;
  std::vector<std::string_view> query;    // names that a query may have
  std::vector<std::string_view> members;  // and the body
};

constexpr std::string_view kJobPrefix = "/v1/jobs/", kPlanPrefix = "/v1/plans/";

const EndPoint* Find(std::string_view path) {
  static const std::map<std::string_view, EndPoint> kEndPoints = {
      {"/v1/version", {"GET", {}, {}}},
      {"/v1/status", {"GET", {}, {}}},
      {"/v1/files", {"GET", {"path", "recursive", "limit", "after"}, {}}},
      {"/v1/file", {"GET", {"path", "ask"}, {}}},
      {"/v1/du", {"GET", {"path"}, {}}},
      {"/v1/walk", {"POST", {}, {"paths"}}},
      {"/v1/prefetch", {"POST", {}, {"paths", "tier", "pin", "evict"}}},
      {"/v1/jobs", {"GET", {}, {}}},
      {kJobPrefix, {"GET, DELETE", {}, {}}},
      {"/v1/evict", {"POST", {}, {"paths", "invalidate"}}},
      {"/v1/pin", {"POST", {}, {"paths"}}},
      {"/v1/unpin", {"POST", {}, {"paths"}}},
      {"/v1/verify", {"POST", {}, {"paths"}}},
      {"/v1/warmup", {"POST", {}, {"rest_s"}}},
      {"/v1/gc", {"POST", {}, {}}},
      {"/v1/policies", {"GET", {}, {}}},
      {"/v1/policies/try", {"POST", {}, {"source", "policy", "parameters", "stop"}}},
      {"/v1/policies/priorities", {"POST", {}, {"paths", "priorities"}}},
      {"/v1/trace", {"POST", {}, {"source", "path", "most_bytes", "stop"}}},
      {"/v1/plans", {"GET, POST", {}, {"plan", "list", "path", "keep", "follow", "process"}}},
      {kPlanPrefix, {"GET, DELETE", {}, {}}},
      {"/v1/metrics", {"GET", {}, {}}},
      {"/v1/config", {"GET, PATCH", {}, {"key", "value"}}},
      {"/v1/config/reload", {"POST", {}, {}}},
      {"/v1/doctor", {"GET", {}, {}}}};
  const auto known = kEndPoints.find(path.starts_with(kJobPrefix) ? kJobPrefix : path.starts_with(kPlanPrefix) ? kPlanPrefix : path);
  return known == kEndPoints.end() ? nullptr : &known->second;
}

bool Has(const std::vector<std::string_view>& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

}  // namespace

void ControlApi::Handle(std::string_view method, std::string_view target, std::string_view body, const Caller& caller, Answer answer) {
  const auto timed = CountHandler();
  const auto parsed = ParseTarget(target);
  if (!parsed) return answer(JsonError(400, "bad_request", "the query of " + std::string(target) + " cannot be decoded"));
  const std::string& path = parsed->path;
  const EndPoint* const end_point = Find(path);
  if (end_point == nullptr) return answer(JsonError(404, "not_found", "no end point " + path));
  if (!Lists(end_point->methods, method)) {
    Response response = JsonError(405, "method", path + " answers " + std::string(end_point->methods));
    response.allow = end_point->methods;
    return answer(std::move(response));
  }
  for (const auto& [name, value] : parsed->query) {
    if (!Has(end_point->query, name)) return answer(JsonError(400, "bad_request", "unknown member \"" + name + "\" of the query"));
  }
  if (path.starts_with(kJobPrefix)) return answer(OneJob(std::string_view(path).substr(kJobPrefix.size()), method == "DELETE"));
  if (path.starts_with(kPlanPrefix)) return answer(OnePlan(std::string_view(path).substr(kPlanPrefix.size()), method == "DELETE"));
  if (path == "/v1/file") return File(parsed->query, std::move(answer));
  if (path == "/v1/du") return DiskUse(parsed->query, std::move(answer));
  if (method == "GET") return answer(Get(path, parsed->query));
  if (body.size() <= kReadAtOnce) return Order(path, ReadBody(body, end_point->members), caller, std::move(answer));
  (void)engine_.workers().Run([this, text = std::string(body), end_point] { return std::optional<Body>(ReadBody(text, end_point->members)); },
                              [this, path, caller, answer = std::move(answer)](std::optional<Body> read) {
                                const auto turn = CountHandler();
                                if (read) Order(path, *std::move(read), caller, answer);
                                else answer(JsonError(429, "busy", "memory has run out; try again"));
                              });
}

ControlApi::Response ControlApi::Get(std::string_view path, const Query& query) {
  if (path == "/v1/version") return Version();
  if (path == "/v1/plans") return PlanList();
  if (path == "/v1/status") return Status();
  if (path == "/v1/files") return Files(query);
  if (path == "/v1/jobs") return JobList();
  if (path == "/v1/doctor") return Doctor();
  if (path == "/v1/policies") return Policies();
  if (path == "/v1/metrics") return metrics_text ? Response{200, metrics_text(), "", "text/plain; version=0.0.4"} : JsonError(404, "not_found", "no metrics here");
  return Config();
}

void ControlApi::Order(std::string_view path, Body read, const Caller& caller, Answer answer) {
  if (read.refused) return answer(*std::move(read.refused));
  const Json& body = read.members;
  if (path == "/v1/config") return answer(PatchConfig(body));
  if (path == "/v1/config/reload") return Reload(std::move(answer));
  if (path == "/v1/plans") return TellPlan(body, caller, std::move(answer));
  if (path == "/v1/walk") return answer(Walk(std::move(read)));
  if (path == "/v1/prefetch") return answer(Prefetch(std::move(read)));
  if (path == "/v1/evict") return Evict(std::move(read), std::move(answer));
  if (path == "/v1/trace") return Trace(body, std::move(answer));
  if (path == "/v1/policies/try") return answer(Try(body));
  if (path == "/v1/policies/priorities") return answer(Prioritize(read));
  if (path == "/v1/pin") return Pin(std::move(read), true, std::move(answer));
  if (path == "/v1/unpin") return Pin(std::move(read), false, std::move(answer));
  if (path == "/v1/warmup") return answer(RestWarmUps(body));
  if (path == "/v1/gc") return GiveBack(std::move(answer));
  return answer(Verify(std::move(read)));
}

// ---- status ----------------------------------------------------------------------------------------------------------------

ControlApi::Response ControlApi::Version() const {
  return Ok({{"version", TIERD_VERSION}, {"api", 1}, {"pid", ::getpid()}, {"instance", Hex(engine_.instance())}});
}

ControlApi::Response ControlApi::Policies() const {
  Json list = Json::array();
  if (policies != nullptr) {
    for (const policies::Registry::Entry& entry : policies->entries())
      list.push_back({{"name", entry.ops->name}, {"summary", entry.ops->summary}, {"path", entry.path.empty() ? Json(nullptr) : Json(entry.path)}});
  }
  return Ok({{"policies", list}});
}

ControlApi::Json ControlApi::TierJson() {
  engine::Placement& placement = engine_.placement();
  const ram::RamTierStats ram = engine_.ram().stats();
  Json tiers;
  tiers["ram"] = {{"state", engine_.ram_state()},
                  {"capacity_bytes", placement.ram_capacity()},
                  {"allowed_bytes", engine_.ram().budget()},
                  {"used_bytes", placement.ram_resident_bytes()},
                  {"allocated_bytes", engine_.ram().segment_bytes()},
                  {"limbo_bytes", ram.allocator.limbo_bytes},
                  {"objects", placement.ram_resident_objects()},
                  {"pinned_bytes", placement.pinned_bytes(0)},
                  {"pages", ram::PageKindName(placement.page_kind())},
                  {"pages_reason", placement.page_reason()},
                  {"bound_by", placement.memory_bound_by()}};
  ssd::SsdTier* ssd = engine_.ssd();
  if (ssd == nullptr) {
    tiers["ssd"] = {{"state", engine_.ssd_state()}};
    if (!config_.ssd_refused().empty()) tiers["ssd"]["note"] = config_.ssd_refused();
    return tiers;
  }
  const ssd::SsdStatus status = ssd->status();
  tiers["ssd"] = {{"state", engine_.ssd_state()},
                  {"directory", engine_.options().ssd.directory},
                  {"capacity_bytes", status.configured_bytes},
                  {"allowed_bytes", status.capacity_bytes},
                  {"used_bytes", placement.ssd_resident_bytes()},
                  {"allocated_bytes", status.allocated_bytes},
                  {"objects", placement.ssd_resident_objects()},
                  {"pinned_bytes", placement.pinned_bytes(1)},
                  {"write_amplification_ratio", ssd->counters().WriteAmplification()},
                  {"retired_regions", status.retired_regions},
                  {"slow_reads", engine_.counters().ssd_slow_bypass},
                  {"engine", engine_.ssd_engine_name()},
                  {"note", engine_.ssd_note()}};
  return tiers;
}

ControlApi::Json ControlApi::SourceJson(const engine::SourceUnit& unit) const {
  Json others = Json::array();
  if (const std::string other = engine_.OtherName(unit); !other.empty()) PutPath(others.emplace_back(Json::object()), other);
  const source::SourceCounters counters = unit.reader->counters();
  std::uint64_t requests = 0;
  for (const std::uint64_t sent : counters.sent) requests += sent;
  std::uint64_t queued = 0;
  for (const std::uint64_t waiting : counters.queued) queued += waiting;
  Json json{{"name", unit.options.name},
            {"other_names", std::move(others)},
            {"fs", unit.source->fs().name},
            {"state", source::SourceStateName(counters.state)},
            {"staleness", StalenessName(unit.options.staleness)},
            {"ttl_s", unit.options.ttl_ms / 1000.0},
            {"policy", unit.options.policy},
            {"policy_dropped_answers", unit.policy.dropped()},
            {"mode", engine::kOrderModeNames[static_cast<std::size_t>(unit.options.mode)]},
            {"plans", engine_.foresight(unit).List().size()},
            {"observation", engine_.observer(unit).Report()},
            {"look_ahead", {{"brought_bytes", unit.look_ahead.brought}, {"used_bytes", unit.look_ahead.used}, {"unused_bytes", unit.look_ahead.unused}, {"resting", engine_.forerunner(unit).resting()}}},
            {"same_orders", engine_.observer(unit).same_orders()},
            {"engine", counters.engine},
            {"window", counters.window},
            {"in_flight", counters.in_flight},
            {"queued", queued},
            {"hung", counters.hung},
            {"files", engine_.KnownFiles(unit)},
            {"requests", requests},
            {"read_bytes", counters.bytes_read},
            {"epochs", EpochJson(unit.epochs)},
            {"regret", RegretJson(*unit.watch)},
            {"tried", TriedJson(unit)},
            {"trace", TraceJson(*unit.watch)}};
  PutPath(json, unit.source->root());
  return json;
}

ControlApi::Json ControlApi::ReadJson() {
  const engine::ReadTotals totals = sessions_.Totals();
  Json reads, fallback = Json::object();
  for (std::uint32_t tier = 0; tier < abi::kTiers; ++tier) reads[kTierNames[tier]] = {{"count", totals.reads[tier]}, {"bytes", totals.bytes[tier]}};
  for (std::uint32_t i = 1; i < abi::kFallbacks; ++i)
    if (totals.fallback[i] != 0) fallback[abi::FallbackName(static_cast<abi::Fallback>(i))] = totals.fallback[i];
  Json real_opens = Json::object();
  for (std::uint32_t i = 0; i < abi::kRealOpens; ++i)
    if (totals.real_opens[i] != 0) real_opens[abi::kRealOpenNames[i]] = totals.real_opens[i];
  return {{"reads", reads}, {"fallback", fallback}, {"real_opens", real_opens}, {"real_reads", {{"count", totals.real_reads}, {"bytes", totals.real_bytes}}}, {"source_mappings", totals.source_mappings}};
}

ControlApi::Response ControlApi::Status() {
  sessions_.DrainRings();
  Json status{{"version", TIERD_VERSION}, {"pid", ::getpid()}, {"instance", Hex(engine_.instance())},
              {"uptime_s", Seconds(clock_.MonotonicNs() - started_ns_)}, {"runtime_directory", config_.runtime_directory()},
              {"config_file", config_.file().empty() ? Json(nullptr) : Json(config_.file())},
              {"metrics_address", config_.metrics_address().empty() ? Json(nullptr) : Json(config_.metrics_address())}};
  status["option_notes"] = config_.option_notes();
  status["tiers"] = TierJson();
  status["sources"] = Json::array();
  bool sound = status["tiers"]["ram"]["state"] == "ok" && (status["tiers"]["ssd"]["state"] == "ok" || status["tiers"]["ssd"]["state"] == "off" || engine_.recovering());
  for (const auto& unit : engine_.sources()) {
    status["sources"].push_back(SourceJson(*unit));
    sound &= status["sources"].back()["state"] == "up";
  }
  status["state"] = !sound ? "degraded" : engine_.recovering() ? "recovering" : "ok";
  status.update(ReadJson());
  const SessionTotals sessions = sessions_.Sessions();
  std::size_t running = 0;
  for (const engine::JobStatus& job : engine_.jobs().List()) running += job.ended_ns == 0 ? 1 : 0;
  status["integrity_failures"] = engine_.counters().integrity_ssd + engine_.counters().integrity_ram + engine_.counters().integrity_source;
  status.update({{"sessions", sessions.sessions}, {"leases", sessions.leases}, {"leases_frozen", sessions.frozen_leases}});
  status["jobs_running"] = running;
  status["ring_lost"] = engine_.counters().ring_lost;
  status["loop_lag_max_us"] = engine_.lag().max_ns / 1000;
  return Ok(status);
}

ControlApi::Response ControlApi::Doctor() {
  Json checks = Json::array();
  const auto add = [&](const std::string& name, const char* state, const std::string& detail, const std::string& remedy) {
    checks.push_back({{"name", name}, {"state", state}, {"detail", detail}, {"remedy", remedy}});
  };
  engine::Placement& placement = engine_.placement();
  const bool huge = placement.page_kind() != abi::PageKind::k4KiB;
  const std::string bound_by = placement.memory_bound_by().empty() ? "" : "; memory bound by " + placement.memory_bound_by();
  add("daemon.ram", huge ? "ok" : "warn", std::string(ram::PageKindName(placement.page_kind())) + " pages: " + placement.page_reason() + bound_by,
      huge ? "" : "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (!placement.segment_failure().empty()) add("daemon.memory", "warn", placement.segment_failure(), "lower ram.capacity, or free memory on the node");
  if (ssd::SsdTier* ssd = engine_.ssd()) {
    const ssd::SsdStatus status = ssd->status();
    const bool sound = status.health == ssd::SsdHealth::kHealthy && status.writable;
    add("daemon.ssd", sound ? "ok" : "fail",
        std::string(ssd::SsdHealthName(status.health)) + ", " + engine_.ssd_engine_name() + (engine_.ssd_engine_reason().empty() ? "" : " (" + engine_.ssd_engine_reason() + ")") + ", " + (status.direct_io ? "O_DIRECT" : "buffered") + ", " +
            std::to_string(status.record_alignment) + "-byte alignment, mean read " + std::to_string(status.read_latency_ns / 1000) + " us",
        sound ? "" : "check the device and the kernel log; the cache may be moved by ssd.directory");
  } else {
    add("daemon.ssd", config_.ssd_refused().empty() ? "ok" : "warn", config_.ssd_refused().empty() ? "off" : config_.ssd_refused(),
        config_.ssd_refused().empty() ? "" : "set ssd.directory to a local file system");
  }
  for (const std::string& note : config_.option_notes()) add("daemon.options", "warn", note, "");
  for (const auto& unit : engine_.sources()) {
    const source::SourceState state = unit->reader->state();
    add("daemon.source." + unit->options.name, state == source::SourceState::kUp ? "ok" : "warn", unit->reader->Report(),
        state == source::SourceState::kUp ? "" : "check " + unit->options.path + " with stat(1); reads bypass the cache meanwhile");
  }
  const SessionTotals sessions = sessions_.Sessions();
  std::string refused;
  for (std::size_t i = 0; i < kTurnedAways; ++i) {
    if (sessions.turned_away[i] == 0) continue;
    refused += (refused.empty() ? "" : ", ") + std::string(kTurnedAwayNames[i]) + " " + std::to_string(sessions.turned_away[i]);
  }
  add("daemon.clients", refused.empty() ? "ok" : "warn",
      std::to_string(sessions.sessions) + " connected, turned away since the start: " + (refused.empty() ? "none" : refused),
      refused.empty() ? "" : "those programs read the source; docs/metrics.md explains the reasons (tierd_sessions_turned_away_total)");
  return Ok({{"checks", checks}});
}

// ---- jobs ------------------------------------------------------------------------------------------------------------------

ControlApi::Response ControlApi::JobStarted(std::uint64_t id) const {
  if (id == 0) return JsonError(429, "busy", "too many jobs run; wait for one, or cancel it");
  return Ok({{"job", id}}, 202);
}

ControlApi::Response ControlApi::JobList() const {
  Json jobs = Json::array();
  for (const engine::JobStatus& job : engine_.jobs().List()) jobs.push_back(JobJson(job, clock_));
  return Ok({{"jobs", jobs}});
}

ControlApi::Response ControlApi::OneJob(std::string_view text, bool cancel) {
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return JsonError(400, "bad_request", "a job is named by its number");
  const engine::JobStatus* job = engine_.jobs().Find(id);
  if (job == nullptr) return JsonError(404, "not_found", "no job " + std::string(text) + " (finished ones are remembered for a while)");
  if (cancel && !engine_.jobs().Cancel(id)) return JsonError(409, "conflict", "job " + std::string(text) + " is over");
  return Ok(JobJson(*engine_.jobs().Find(id), clock_));
}

// ---- configuration ---------------------------------------------------------------------------------------------------------

namespace {

nlohmann::json ChangesJson(const std::vector<ConfigHost::Change>& changes) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& change : changes) list.push_back({{"key", change.key}, {"from", change.from}, {"to", change.to}});
  return list;
}

ControlApi::Response AppliedOrError(const Result<ConfigHost::Applied>& result) {
  if (result.ok()) return Ok({{"applied", ChangesJson(result->applied)}, {"restart", ChangesJson(result->restart)}, {"notes", result->notes}});
  const std::string& message = result.status().message();
  if (result.status().code() == Code::kBusy) return JsonError(409, "conflict", message);
  if (result.status().code() == Code::kNotFound) return JsonError(400, "bad_request", message);
  std::vector<std::string> details;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t end = std::min(message.find('\n', at), message.size());
    details.push_back(message.substr(at, end - at));
    at = end + 1;
  }
  return JsonError(422, "invalid_config", details.empty() ? message : details.front(), details);
}

}  // namespace

ControlApi::Response ControlApi::Config() const {
  Json values = Json::array();
  for (const ConfigHost::Value& value : config_.values()) {
    values.push_back({{"key", value.key}, {"value", value.value}, {"origin", value.origin}, {"reloadable", value.reloadable}});
    if (value.pending) values.back()["pending"] = *value.pending;
    if (value.effective) values.back()["effective"] = *value.effective;
  }
  return Ok({{"file", config_.file().empty() ? Json(nullptr) : Json(config_.file())}, {"values", values}});
}

ControlApi::Response ControlApi::PatchConfig(const Json& body) {
  if (!body.contains("key") || !body.contains("value") || !body["key"].is_string() || !body["value"].is_string())
    return JsonError(400, "bad_request", "the body must be {\"key\": \"...\", \"value\": \"...\"}");
  return AppliedOrError(config_.Set(body["key"].get<std::string>(), body["value"].get<std::string>()));
}

void ControlApi::Reload(Answer answer) {
  config_.Reload([answer = std::move(answer)](const Result<ConfigHost::Applied>& result) { answer(AppliedOrError(result)); });
}

}  // namespace tierd::server
