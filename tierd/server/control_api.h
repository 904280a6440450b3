// What the end points of CONTROL.md answer. Turns (method, target, body) into (status, JSON); no sockets, so that tests call it directly.
//
// Owner: main.cc. Loop thread only; one call stays within the loop's quantum: trees are walked by jobs, listings come in pages, long bodies are read by a
// worker, and long lists of paths are gone through in slices.
#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "policies/registry.h"
#include "tierd/base/status.h"
#include "tierd/engine/engine.h"
#include "tierd/server/http.h"
#include "tierd/server/session_hub.h"

namespace tierd::server {

// Configuration belongs to main.cc (floor 5), which knows where it came from.
class ConfigHost {
 public:
  struct Change {
    std::string key, from, to;
  };
  struct Applied {
    std::vector<Change> applied;
    std::vector<Change> restart;  // take effect at the next start only
    std::vector<std::string> notes = {};  // what option_notes has got by it
  };
  struct Value {  // `value` is in effect; "" of a source that comes with a restart
    std::string key, value, origin;
    bool reloadable = false;
    std::optional<std::string> pending = {};  // what the configuration says now, where that takes a restart; "" when its source goes
    std::optional<std::string> effective = {};  // what "auto" or a share has come out as, for people
  };
  virtual ~ConfigHost() = default;
  virtual std::string file() const = 0;  // "" without one
  virtual std::vector<Value> values() const = 0;
  // kInvalid: nothing changed, the message has one line per problem; kBusy: the key needs a restart; kNotFound: no such key.
  virtual Result<Applied> Set(const std::string& key, const std::string& value) = 0;
  // `done` runs once: in the call, or in a later turn of the loop.
  using Reloaded = std::function<void(const Result<Applied>&)>;
  virtual void Reload(Reloaded done) = 0;
  virtual std::string runtime_directory() const = 0;
  virtual std::string metrics_address() const = 0;  // "" when off
  virtual std::string ssd_refused() const = 0;      // why there is no SSD tier although one was looked for; "" if none was
  // A sentence for each option that is not taken as it is written, or that lets others in.
  virtual std::vector<std::string> option_notes() const { return {}; }
};

class ControlApi {
 public:
  using Response = HttpResponse;
  // `loop` is the engine's.
  ControlApi(boost::asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, const Clock& clock, ConfigHost& config);

  // `answer` runs once: inside the call, or later for what takes several turns of the loop (du, evict, pin and unpin of trees; any long body; a file
  // of which the source is asked).
  using Answer = std::function<void(Response)>;
  struct Caller {
    int process = 0;  // who asks, as this process would name it; 0: not known
  };
  void Handle(std::string_view method, std::string_view target, std::string_view body, Answer answer) { Handle(method, target, body, Caller(), std::move(answer)); }
  void Handle(std::string_view method, std::string_view target, std::string_view body, const Caller& caller, Answer answer);
  // What GET /v1/policies lists and GET /v1/metrics answers; to be set before the first request, and to outlive the last.
  const policies::Registry* policies = nullptr;
  std::function<std::string()> metrics_text;

 private:
  using Json = nlohmann::json;
  using Query = std::map<std::string, std::string>;
  struct Place {
    engine::SourceUnit* unit = nullptr;
    std::string relative;
    std::string absolute;
  };

  // What this keeps the loop for counts as one of its turns.
  auto CountHandler() { return engine_.CountHandler("control"); }
  struct Body;  // control_body.h
  // Any thread.
  Body ReadBody(std::string_view text, const std::vector<std::string_view>& members) const;
  bool ReadPaths(const Json& paths, std::vector<engine::Jobs::Item>* places, Response* error) const;
  // Where an end point wants paths: what is said if there are none.
  static std::optional<Response> LackOfPaths(const Body& body);
  // A list of places that is gone through in slices.
  struct Slices;
  void InSlices(std::vector<engine::Jobs::Item> places, std::function<void(const engine::Jobs::Item&)> each);

  struct Usage;
  // The sum of several pieces of work, answered when the last of them has ended.
  struct Tally;
  void EvictOne(const engine::Jobs::Item& place, bool invalidate, const std::function<void(bool complete, std::uint64_t known)>& end);

  Response Get(std::string_view path, const Query& query);
  void Order(std::string_view path, Body read, const Caller& caller, Answer answer);
  Response Status();
  Response Version() const;
  Response Files(const Query& query);
  struct Look;  // control_file.cc
  void File(const Query& query, Answer answer);
  void AskSource(const std::shared_ptr<Look>& look);
  void OnAsked(const std::shared_ptr<Look>& look, const source::ReadResult& result);
  Response FileJson(const Look& look) const;
  void DiskUse(const Query& query, Answer answer);
  Response DiskUseJson(const Place& place, const Usage& usage) const;
  Response JobList() const;
  Response OneJob(std::string_view id, bool cancel);
  Response PlanList() const;
  Response OnePlan(std::string_view id, bool remove);
  void TellPlan(const Json& body, const Caller& caller, Answer answer);
  Response Config() const;
  Response PatchConfig(const Json& body);
  void Reload(Answer answer);
  Response Doctor();
  Response Policies() const;
  Response Prefetch(Body body);
  Response Walk(Body body);
  void Evict(Body body, Answer answer);
  void Pin(Body body, bool pin, Answer answer);
  Response Verify(Body body);
  Response RestWarmUps(const Json& body);
  void GiveBack(Answer answer);
  void Trace(const Json& body, Answer answer);
  Response Try(const Json& body);
  Response Prioritize(const Body& body);
  Response JobStarted(std::uint64_t id) const;

  Json TierJson();
  Json SourceJson(const engine::SourceUnit& unit) const;
  static Json RegretJson(const engine::AccessWatch& watch);
  static Json TriedJson(const engine::SourceUnit& unit);
  static Json TraceJson(const engine::AccessWatch& watch);
  // The source that a body names, the only one if it names none; null, and *error is the answer.
  engine::SourceUnit* NamedSource(const Json& body, Response* error);
  Json ReadJson();
  Json EntryJson(engine::SourceUnit& unit, engine::FileId file) const;
  std::string WhyNotOnSsd(engine::FileId file) const;
  std::vector<std::string> WhyInTiers(const engine::SourceUnit& unit, engine::FileId file) const;
  std::vector<std::string> Why(const Look& look, engine::FileId file) const;
  // On failure *error is the answer. Any thread.
  bool PlaceOf(const std::string& path, Place* place, Response* error) const;
  bool PlaceOf(const Query& query, Place* place, Response* error);

  boost::asio::io_context& loop_;
  engine::Engine& engine_;
  SessionHub& sessions_;
  const Clock& clock_;
  ConfigHost& config_;
  const std::int64_t started_ns_;
};

}  // namespace tierd::server
