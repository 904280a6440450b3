// evict, pin, unpin: orders about known files.
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "tierctl/path_order.h"
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;

// All of a request is done before it is answered.
constexpr std::size_t kOrderPaths = 1000;

// Of the files that an order was about, as far as the daemon says (CONTROL.md: of pin alone).
struct Held {
  bool known = false;
  std::uint64_t size = 0, missing = 0, files_missing = 0;
  void Add(const json& body) {
    known = known || body.contains("size_bytes");
    size += NumberOf(body, "size_bytes");
    missing += NumberOf(body, "missing_bytes");
    files_missing += NumberOf(body, "files_missing");
  }
  std::string Text() const {
    using tierd::config::HumanSize;
    return !known || size == 0 ? "" : ", " + (missing == 0 ? "" : HumanSize(size - std::min(size, missing)) + " of ") + HumanSize(size) + " in the cache";
  }
};

// Whether a file can be there, or below it.
bool MayHold(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

// `if_none`: what is wrong with a path at which there is something and of which no file is known; "" if that is right.
int Order(Context& context, const std::string& end_point, const char* done, const json& more, const std::string& if_none = "") {
  PathOrder order(context);
  std::uint64_t files = 0;
  Held held;
  bool in_part = false;
  const Answer sent = order.Send(kOrderPaths, [&](const json& paths, std::span<const std::size_t> indices) {
    json body = more;
    body["paths"] = paths;
    Answer answer = context.client.Post(end_point, body);
    if (!answer.ok()) return answer;
    files += NumberOf(answer.body, "files");
    held.Add(answer.body);
    const json& unknown = ListOf(answer.body, "unknown");
    in_part = in_part || unknown.size() < indices.size();
    for (const json& position : unknown) {
      if (!position.is_number_unsigned() || position.get<std::size_t>() >= indices.size()) continue;
      const std::size_t index = indices[position.get<std::size_t>()];
      // What is gone at the source and known is a file like others; of what is not known there is nothing to be done: a slip of the pen?
      const std::string absent = WhyAbsent(order.Path(index));
      if (!absent.empty()) order.Refuse(index, absent);
      else if (!if_none.empty()) order.Refuse(index, order.Path(index) + ": " + (MayHold(order.Path(index)) ? if_none : "neither a file nor a directory"));
    }
    return answer;
  });
  if (!sent.ok()) return context.output.Fail(sent);
  if (context.output.json()) {
    json document{{"files", files}};
    if (held.known) document.update({{"size_bytes", held.size}, {"missing_bytes", held.missing}, {"files_missing", held.files_missing}});
    context.output.PrintJson(document);
  } else if (in_part || !order.refused()) {
    context.output.Print(std::string(done) + " " + Plural(files, "file") + held.Text() + "\n");
  }
  if (files == 0 && !order.refused()) context.output.Message("nothing is known there; tierctl ls shows what is");
  if (held.missing == 0) return order.ExitCode(in_part);
  return context.output.Fail(kExitPartial, "short: " + Plural(held.files_missing, "file") + " not wholly in the cache: no room (tierctl status shows the tiers), or never brought (tierctl prefetch --pin brings them)");
}

}  // namespace

int Evict(Context& context) {
  const bool invalidate = context.command.invalidate;
  return Order(context, "/v1/evict", invalidate ? "invalidated" : "evicted", {{"invalidate", invalidate}});
}

int Pin(Context& context) {
  return Order(context, "/v1/pin", "pinned", json::object(), "no file is known there yet; tierctl prefetch --pin brings and pins what is there");
}

int Unpin(Context& context) { return Order(context, "/v1/unpin", "unpinned", json::object()); }

}  // namespace tierctl
