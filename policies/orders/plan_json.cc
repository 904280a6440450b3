// The document form of a plan: PLAN.md, README.md.
#include <limits>
#include <set>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "policies/orders/base64.h"
#include "policies/orders/plan.h"

namespace tierd::orders {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr Kind kKinds[] = {Kind::kTorchSequential, Kind::kTorchRandom, Kind::kTorchDistributed, Kind::kBlock,   Kind::kStrided,
                           Kind::kNumpyLegacy,     Kind::kNumpyPcg64,  Kind::kPython,           Kind::kDaliFile};
constexpr EpochRule kRules[] = {EpochRule::kReseed, EpochRule::kContinue, EpochRule::kInPlace, EpochRule::kSame};

Status Bad(const std::string& what) { return Status(Code::kInvalid, "plan: " + what); }

// Takes fields out of a document one by one; what is left at the end nobody knows.
class Fields {
 public:
  explicit Fields(const json& document) : document_(document) {}

  template <typename T>
  void Number(const char* name, T* value) {
    const json* field = Take(name);
    if (field == nullptr) return;
    if (!field->is_number_integer()) return Refuse(name);
    if constexpr (std::is_signed_v<T>) {
      if (field->is_number_unsigned() && field->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return Refuse(name);
    } else {
      if (!field->is_number_unsigned() || field->get<std::uint64_t>() > std::numeric_limits<T>::max()) return Refuse(name);
    }
    *value = field->get<T>();
  }
  void Flag(const char* name, bool* value) {
    const json* field = Take(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return Refuse(name);
    *value = field->get<bool>();
  }
  void Text(const char* name, std::string* value) {
    const json* field = Take(name);
    if (field == nullptr || field->is_null()) return;
    if (!field->is_string()) return Refuse(name);
    *value = field->get<std::string>();
  }
  // The member of `all` whose name the field holds.
  template <typename T, std::size_t N>
  void Choice(const char* name, const T (&all)[N], std::string_view (*name_of)(T), T* value) {
    std::string text;
    Text(name, &text);
    if (text.empty()) return;
    for (const T one : all) {
      if (name_of(one) == text) return void(*value = one);
    }
    Refuse(name);
  }
  const json* Take(const char* name) {
    known_.insert(name);
    const auto it = document_.find(name);
    return it == document_.end() ? nullptr : &*it;
  }
  void Refuse(const std::string& name) {
    if (problem_.empty()) problem_ = name + " is missing or out of range";
  }
  Status Finish() {
    for (const auto& [name, value] : document_.items()) {
      if (!known_.contains(name)) return Bad("unknown field \"" + name.substr(0, 64) + "\"");
    }
    return problem_.empty() ? Status::Ok() : Bad(problem_);
  }

 private:
  const json& document_;
  std::set<std::string> known_;
  std::string problem_;
};

std::string_view UniformName(StdUniform uniform) { return uniform == StdUniform::kMultiply ? "multiply" : "divide"; }

void ReadStart(Fields& fields, Plan* plan) {
  const json* start = fields.Take("start");
  if (start == nullptr || start->is_null()) return;
  if (!start->is_object()) return fields.Refuse("start");
  GeneratorStart value;
  if (const auto seed = start->find("seed"); seed != start->end()) {
    if (!seed->is_number_integer()) return fields.Refuse("start");
    value.seed = seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
  } else {
    const auto words = start->find("words");
    const auto index = start->find("index");
    if (words == start->end() || !words->is_string() || index == start->end() || !index->is_number_unsigned()) return fields.Refuse("start");
    const std::optional<std::string> bytes = DecodeBase64(words->get_ref<const std::string&>());
    if (!bytes || bytes->size() != 4 * Mt19937::kWords || index->get<std::uint64_t>() > Mt19937::kWords) return fields.Refuse("start");
    value.words.emplace();
    for (std::size_t i = 0; i < bytes->size(); ++i) {
      (*value.words)[i / 4] |= static_cast<std::uint32_t>(static_cast<unsigned char>((*bytes)[i])) << i % 4 * 8;
    }
    value.index = index->get<std::uint32_t>();
  }
  plan->start = value;
}

json StartToJson(const GeneratorStart& start) {
  if (!start.words) return {{"seed", start.seed}};
  std::string bytes;
  for (const std::uint32_t word : *start.words) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift & 0xff);
  }
  return {{"words", EncodeBase64(bytes)}, {"index", start.index}};
}

}  // namespace

Result<Plan> ParsePlan(std::string_view text) {
  if (text.size() > kMaxPlanBytes) return Bad("document of " + std::to_string(text.size()) + " bytes; at most " + std::to_string(kMaxPlanBytes));
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return Bad("not a JSON object");
  Fields fields(document);
  int format = 0;
  fields.Number("tierd_plan", &format);
  if (format != kFormat) return Status(Code::kUnsupported, "plan: not of format " + std::to_string(kFormat));
  Plan plan;
  if (fields.Take("kind") == nullptr) fields.Refuse("kind");
  fields.Choice("kind", kKinds, KindName, &plan.kind);
  fields.Number("samples", &plan.samples);
  fields.Number("epoch", &plan.epoch);
  if (const json* epochs = fields.Take("epochs"); epochs != nullptr && !epochs->is_null()) fields.Number("epochs", &plan.epochs.emplace());
  fields.Number("position", &plan.position);
  fields.Number("batch_size", &plan.batch_size);
  fields.Flag("batch_drop_last", &plan.batch_drop_last);
  fields.Text("list_sha256", &plan.list_sha256);
  fields.Number("seed", &plan.seed);
  fields.Flag("shuffle", &plan.shuffle);
  fields.Number("world", &plan.world);
  fields.Number("rank", &plan.rank);
  fields.Flag("drop_last", &plan.drop_last);
  fields.Flag("set_epoch", &plan.set_epoch);
  fields.Flag("replacement", &plan.replacement);
  fields.Number("draws", &plan.draws);
  fields.Flag("shared", &plan.shared);
  ReadStart(fields, &plan);
  fields.Number("skip_first", &plan.skip_first);
  fields.Number("skip_later", &plan.skip_later);
  fields.Choice("rule", kRules, RuleName, &plan.rule);
  fields.Flag("stick", &plan.stick);
  fields.Choice("uniform", {StdUniform::kMultiply, StdUniform::kDivide}, UniformName, &plan.uniform);
  if (Status status = fields.Finish(); !status.ok()) return status;
  if (Status status = CheckPlan(plan); !status.ok()) return status;
  return plan;
}

std::string PlanToJson(const Plan& plan) {
  json document = {{"tierd_plan", kFormat}, {"kind", KindName(plan.kind)}, {"samples", plan.samples}};
  const Plan defaults;
  const auto put = [&](const char* name, const auto& value, const auto& usual) {
    if (value != usual) document[name] = value;
  };
  put("epoch", plan.epoch, defaults.epoch);
  if (plan.epochs) document["epochs"] = *plan.epochs;
  put("position", plan.position, defaults.position);
  put("batch_size", plan.batch_size, defaults.batch_size);
  put("batch_drop_last", plan.batch_drop_last, defaults.batch_drop_last);
  put("list_sha256", plan.list_sha256, defaults.list_sha256);
  put("seed", plan.seed, defaults.seed);
  put("shuffle", plan.shuffle, defaults.shuffle);
  put("world", plan.world, defaults.world);
  put("rank", plan.rank, defaults.rank);
  put("drop_last", plan.drop_last, defaults.drop_last);
  put("set_epoch", plan.set_epoch, defaults.set_epoch);
  put("replacement", plan.replacement, defaults.replacement);
  put("draws", plan.draws, defaults.draws);
  put("shared", plan.shared, defaults.shared);
  if (plan.start) document["start"] = StartToJson(*plan.start);
  put("skip_first", plan.skip_first, defaults.skip_first);
  put("skip_later", plan.skip_later, defaults.skip_later);
  put("rule", RuleName(plan.rule), RuleName(defaults.rule));
  put("stick", plan.stick, defaults.stick);
  put("uniform", UniformName(plan.uniform), UniformName(defaults.uniform));
  return document.dump();
}

}  // namespace tierd::orders
