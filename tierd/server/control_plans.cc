// Plans: the end points /v1/plans of CONTROL.md.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cmath>

#include "policies/orders/plan.h"
#include "tierd/server/control_api.h"
#include "tierd/server/control_json.h"

namespace tierd::server {
namespace {

ControlApi::Response Answered(const nlohmann::json& body, unsigned status = 200) { return {status, body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", ""}; }

nlohmann::json PlanJson(const engine::SourceUnit& unit, const engine::PlanStatus& plan) {
  const nlohmann::json document = nlohmann::json::parse(plan.document, nullptr, false);
  return {{"id", plan.id},
          {"source", unit.options.name},
          {"state", engine::kPlanStateNames[static_cast<std::size_t>(plan.state)]},
          {"from", plan.told ? "told" : "observed"},
          {"plan", document.is_discarded() ? nlohmann::json(nullptr) : document},
          {"samples", plan.samples},
          {"known", plan.known},
          {"epoch", plan.epoch},
          {"position", plan.position},
          {"epoch_samples", plan.epoch_samples},
          {"epochs_begun", plan.epochs_begun},
          {"readers", plan.readers},
          {"recall_ratio", plan.counts.recall()},
          {"precision_ratio", plan.counts.precision()},
          {"samples_per_second", std::llround(plan.pace)}};
}

// A file that a client left in our own directory for us: its name alone is told.
bool IsListName(const std::string& name) { return !name.empty() && name.size() <= 100 && name[0] != '.' && name.find('/') == std::string::npos && name.ends_with(".list"); }

}  // namespace

ControlApi::Response ControlApi::PlanList() const {
  sessions_.DrainRings();  // what was read before counts as read before
  Json plans = Json::array();
  for (const auto& unit : engine_.sources()) {
    for (const engine::PlanStatus& plan : engine_.foresight(*unit).List()) plans.push_back(PlanJson(*unit, plan));
  }
  return Answered({{"plans", plans}});
}

ControlApi::Response ControlApi::OnePlan(std::string_view text, bool remove) {
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return JsonError(400, "bad_request", "a plan is named by its number");
  for (const auto& unit : engine_.sources()) {
    for (const engine::PlanStatus& plan : engine_.foresight(*unit).List()) {
      if (plan.id != id) continue;
      if (remove) engine_.foresight(*unit).Remove(id);
      engine_.Kick();
      return Answered(PlanJson(*unit, plan));
    }
  }
  return JsonError(404, "not_found", "no plan " + std::string(text) + " (those that are over are forgotten)");
}

void ControlApi::TellPlan(const Json& body, const Caller& caller, Answer answer) {
  const auto bad = [&](const std::string& what) { answer(JsonError(400, "bad_request", what)); };
  if (!body.contains("plan") || !body["plan"].is_object()) return bad("\"plan\" must be an object as PLAN.md says");
  if (!body.contains("list") || !body["list"].is_string() || !IsListName(body["list"].get<std::string>()))
    return bad("\"list\" must be the name of a file in the runtime directory that ends with .list");
  const auto path = body.contains("path") ? TakePath(body["path"]) : std::nullopt;
  if (!path) return bad("\"path\" must be a path below the source");
  for (const char* name : {"keep", "follow"})
    if (body.contains(name) && !body[name].is_boolean()) return bad(std::string("\"") + name + "\" must be true or false");
  constexpr std::uint64_t kMostProcesses = std::uint64_t{1} << 22;  // of Linux
  if (body.contains("process") && (!body["process"].is_number_unsigned() || body["process"].get<std::uint64_t>() > kMostProcesses)) return bad("\"process\" must be the number of a process");
  Response failure;
  Place place;
  if (!PlaceOf(*path, &place, &failure)) return answer(std::move(failure));
  engine::Engine::ToldPlan told;
  told.document = body["plan"].dump();
  Result<orders::Plan> plan = orders::ParsePlan(told.document);
  if (!plan.ok()) return bad("plan: " + plan.status().message());
  told.plan = std::move(plan).value();
  told.list_file = config_.runtime_directory() + "/" + body["list"].get<std::string>();
  told.keep = body.value("keep", false);
  const pid_t process = body.value("follow", false) ? caller.process : static_cast<pid_t>(body.value("process", 0u));
  if (process > 0) {
    told.process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!told.process.valid()) return bad("there is no process " + std::to_string(process));
  }
  engine_.TellPlan(*place.unit, std::move(told), [answer = std::move(answer)](const Result<std::uint64_t>& id) {
    if (id.ok()) return answer(Answered({{"plan", *id}}, 201));
    const bool full = id.status().code() == Code::kNoSpace, not_now = id.status().code() == Code::kBusy;
    answer(JsonError(full ? 429 : not_now ? 409 : 400, full ? "busy" : not_now ? "conflict" : "bad_request", id.status().message()));
  });
}

}  // namespace tierd::server
