// evict, pin, unpin: orders about known files.
#include "tierctl/paths.h"
#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;

// All of a request is done before it is answered.
constexpr std::size_t kOrderPaths = 1000;

int Order(Context& context, const std::string& end_point, const char* done, const json& more) {
  std::uint64_t files = 0;
  const auto& paths = context.command.paths;
  for (json& batch : PathBatches(paths, context.working_directory, kOrderPaths)) {
    json body = more;
    body["paths"] = std::move(batch);
    const Answer answer = context.client.Post(end_point, body);
    if (!answer.ok()) return context.output.Fail(answer);
    files += NumberOf(answer.body, "files");
  }
  if (context.output.json()) {
    context.output.PrintJson({{"files", files}});
  } else {
    context.output.Print(std::string(done) + " " + Plural(files, "file") + "\n");
  }
  // Some path concerned no file: was it a slip of the pen?
  int exit_code = kExitOk;
  for (std::size_t i = 0; i < paths.size() && files < paths.size(); ++i) {
    if (const std::string absent = WhyAbsent(AbsolutePath(paths[i], context.working_directory)); !absent.empty()) exit_code = context.output.Fail(kExitError, absent);
  }
  if (files == 0 && exit_code == kExitOk) context.output.Message("nothing is known there; tierctl ls shows what is");
  return exit_code;
}

}  // namespace

int Evict(Context& context) {
  const bool invalidate = context.command.invalidate;
  return Order(context, "/v1/evict", invalidate ? "invalidated" : "evicted", {{"invalidate", invalidate}});
}

int Pin(Context& context) { return Order(context, "/v1/pin", "pinned", json::object()); }

int Unpin(Context& context) { return Order(context, "/v1/unpin", "unpinned", json::object()); }

}  // namespace tierctl
