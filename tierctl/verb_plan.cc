// plan torch-distributed, sequential, tell, list, remove: tells the daemon the order in which a program is going to read, and shows what became of it.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "policies/orders/file_list.h"
#include "policies/orders/plan.h"
#include "policies/orders/plan_orders.h"
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/base/json_depth.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::Result;
using tierd::Status;

// Regular files below `top`, links followed, relative to it.
void ListBelow(const std::string& top, const std::string& below, int depth, std::vector<std::string>* files) {
  constexpr int kDeepest = 64;
  DIR* const directory = ::opendir((top + "/" + below).c_str());
  if (directory == nullptr || depth > kDeepest) {
    if (directory != nullptr) ::closedir(directory);
    return;
  }
  std::vector<std::string> inner;
  while (const dirent* const entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string path = below.empty() ? name : below + "/" + name;
    unsigned char type = entry->d_type;
    if (type != DT_REG && type != DT_DIR) {
      struct stat info {};
      if (::stat((top + "/" + path).c_str(), &info) != 0) continue;
      type = S_ISDIR(info.st_mode) ? DT_DIR : S_ISREG(info.st_mode) ? DT_REG : DT_UNKNOWN;
    }
    if (type == DT_REG) files->push_back(path);
    if (type == DT_DIR) inner.push_back(path);
  }
  ::closedir(directory);
  for (const std::string& path : inner) ListBelow(top, path, depth + 1, files);
}

Result<std::string> ReadAll(const std::string& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text;
  char block[1 << 16];
  while (in.read(block, sizeof block) || in.gcount() > 0) text.append(block, static_cast<std::size_t>(in.gcount()));
  if (!in.is_open() || in.bad()) return Status::FromErrno(errno == 0 ? EIO : errno, file);
  return text;
}

// Absolute paths in the order of the samples: of a list file, or as torchvision's ImageFolder takes them from a directory.
Result<std::vector<std::string>> SamplesOf(const std::string& list, const std::string& working_directory) {
  const std::string path = AbsolutePath(list, working_directory);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::FromErrno(errno, list);
  std::vector<std::string> samples;
  if (S_ISDIR(info.st_mode)) {
    std::vector<std::string> files;
    ListBelow(path, "", 0, &files);
    for (const std::uint32_t at : tierd::orders::ImageFolderOrder(files)) samples.push_back(path + "/" + files[at]);
    if (samples.empty()) return Status(tierd::Code::kInvalid, list + ": no class folders with images in it; a list file says which files there are");
    return samples;
  }
  const Result<std::string> text = ReadAll(path);
  if (!text.ok()) return text.status();
  Result<std::vector<std::string>> lines = tierd::orders::ParseFileList(*text);
  if (!lines.ok()) return Status(tierd::Code::kInvalid, list + ": " + lines.status().message());
  for (const std::string& line : *lines) samples.push_back(AbsolutePath(line, working_directory));
  return samples;
}

// The document without "samples".
Result<json> DocumentOf(const Command& command) {
  const PlanOptions& options = command.plan;
  json plan = {{"tierd_plan", 1}};
  if (command.verb == "plan tell") {
    const Result<std::string> text = ReadAll(options.document);
    if (!text.ok()) return text.status();
    plan = tierd::IsNestedDeeper(*text) ? json() : json::parse(*text, nullptr, false);
    if (!plan.is_object()) return Status(tierd::Code::kInvalid, options.document + ": not a plan (PLAN.md)");
    return plan;
  }
  if (command.verb == "plan torch-distributed") {
    plan["kind"] = "torch.distributed";
    plan["seed"] = options.seed;
    plan["world"] = options.world;
    plan["rank"] = options.rank;
    plan["drop_last"] = options.drop_last;
    plan["shuffle"] = !options.no_shuffle;
    plan["set_epoch"] = !options.no_set_epoch;
  } else {
    plan["kind"] = "torch.sequential";
  }
  plan["epoch"] = options.epoch;
  if (options.epochs != 0) plan["epochs"] = options.epochs;
  plan["position"] = options.position;
  if (options.batch_size != 0) plan["batch_size"] = options.batch_size;
  if (options.batch_size != 0) plan["batch_drop_last"] = options.batch_drop_last;
  return plan;
}

// Left in the daemon's directory under a name of its own; the daemon takes it away.
Result<std::string> LeaveList(const std::vector<std::string>& samples, const std::string& directory) {
  std::string file = directory + "/plan-XXXXXX.list";
  const int descriptor = ::mkostemps(file.data(), 5, O_CLOEXEC);
  if (descriptor < 0) return Status::FromErrno(errno, directory);
  FILE* const out = ::fdopen(descriptor, "w");
  bool sound = out != nullptr;
  for (const std::string& sample : samples) sound = sound && std::fwrite(sample.c_str(), 1, sample.size() + 1, out) == sample.size() + 1;
  if (out != nullptr && std::fclose(out) != 0) sound = false;
  if (sound) return file.substr(directory.size() + 1);
  const Status failed = Status::FromErrno(errno, file);
  ::unlink(file.c_str());
  return failed;
}

// Samples that the consumer reads in a whole epoch.
std::uint64_t ReadsOf(tierd::orders::Plan plan) {
  plan.position = 0;
  plan.epochs.reset();
  tierd::Result<tierd::orders::PlanOrders> orders = tierd::orders::PlanOrders::Create(plan);
  std::vector<std::uint32_t> order;
  if (orders.ok()) orders->Next(&order);
  return order.size();
}

}  // namespace

int PlanTell(Context& context) {
  const PlanOptions& options = context.command.plan;
  Result<json> plan = DocumentOf(context.command);
  if (!plan.ok()) return context.output.Fail(kExitError, plan.status().message());
  const Result<std::vector<std::string>> samples = SamplesOf(options.list, context.working_directory);
  if (!samples.ok()) return context.output.Fail(kExitError, samples.status().message());
  if (!plan->contains("samples")) (*plan)["samples"] = samples->size();
  const Result<tierd::orders::Plan> sound = tierd::orders::ParsePlan(plan->dump());
  if (!sound.ok()) return context.output.Fail(kExitUsage, sound.status().message());
  if (context.command.verb != "plan tell" && options.position != 0) {
    const std::uint64_t reads = ReadsOf(*sound);
    if (options.position > reads) {
      return context.output.Fail(kExitUsage, context.command.verb + ": --position: \"" + std::to_string(options.position) + "\" is no whole number from 0 to " + std::to_string(reads) +
                                                 ", what this reader has of an epoch of " + Plural(samples->size(), "sample"));
    }
  }
  const Answer status = context.client.Get("/v1/status");
  if (!status.ok()) return context.output.Fail(status);
  const std::string directory = TextOf(status.body, "runtime_directory");
  const Result<std::string> list = LeaveList(*samples, directory);
  if (!list.ok()) return context.output.Fail(kExitError, list.status().message());
  json body = {{"plan", *plan}, {"list", *list}, {"path", PathJson(samples->front())}, {"keep", options.keep}};
  if (options.process != 0) body["process"] = options.process;
  const Answer answer = context.client.Post("/v1/plans", body);
  if (!answer.ok()) {
    ::unlink((directory + "/" + *list).c_str());
    return context.output.Fail(answer);
  }
  if (context.output.json()) context.output.PrintJson(answer.body);
  else context.output.Print("plan " + std::to_string(NumberOf(answer.body, "plan")) + ": " + Plural(samples->size(), "sample") + "\n");
  return kExitOk;
}

int PlanList(Context& context) {
  const Answer answer = context.client.Get("/v1/plans");
  if (!answer.ok()) return context.output.Fail(answer);
  if (context.output.json()) {
    context.output.PrintJson(answer.body);
    return kExitOk;
  }
  Table table(1);
  table.Row({"PLAN", "SOURCE", "KIND", "STATE", "EPOCH", "POSITION", "READERS", "RIGHT", "SAMPLES/S"});
  for (const json& plan : ListOf(answer.body, "plans")) {
    const json document = plan.value("plan", json::object());
    const std::uint64_t epoch_samples = NumberOf(plan, "epoch_samples");
    const bool read = NumberOf(plan, "epochs_begun") != 0 && RealOf(plan, "recall_ratio") > 0;
    char right[16] = "-";
    if (read) std::snprintf(right, sizeof right, "%.1f%%", 100 * RealOf(plan, "recall_ratio"));
    table.Row({std::to_string(NumberOf(plan, "id")), Escaped(TextOf(plan, "source")), document.is_object() ? Escaped(TextOf(document, "kind")) : "-", TextOf(plan, "state"),
               std::to_string(NumberOf(plan, "epoch")), Percent(NumberOf(plan, "position"), epoch_samples), std::to_string(NumberOf(plan, "readers")), right,
               std::to_string(NumberOf(plan, "samples_per_second"))});
  }
  context.output.Print(table.Text());
  return kExitOk;
}

int PlanRemove(Context& context) {
  json removed = json::array();
  int exit_code = kExitOk;
  for (const std::uint64_t id : context.command.jobs) {
    const Answer answer = context.client.Delete("/v1/plans/" + std::to_string(id));
    if (answer.exit == kExitUnreachable) return context.output.Fail(answer);
    if (answer.ok()) removed.push_back(answer.body);
    else exit_code = context.output.Fail(answer);
  }
  if (context.output.json()) context.output.PrintJson({{"plans", removed}});
  return PartlyDone(exit_code, !removed.empty());
}

}  // namespace tierctl
