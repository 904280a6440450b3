#include "tierctl/path_order.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"

namespace tierctl {

using nlohmann::json;

PathOrder::PathOrder(Context& context) : context_(context), paths_(context.command.paths), lines_(paths_.size(), 0) {}

void PathOrder::Add(std::string path, std::size_t line) {
  paths_.push_back(std::move(path));
  lines_.push_back(line);
}

std::string PathOrder::Path(std::size_t index) const { return AbsolutePath(paths_[index], context_.working_directory); }

void PathOrder::Refuse(std::size_t index, std::string_view why) {
  const std::string list = context_.command.list_file == "-" ? "stdin" : context_.command.list_file;
  context_.output.Message((lines_[index] == 0 ? "" : list + ":" + std::to_string(lines_[index]) + ": ") + std::string(why));
  refused_ = true;
}

void PathOrder::RefuseAbsent(Absent absent) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const std::string path = Path(i);
    const std::string why = WhyAbsent(path);
    // That there is no daemon, or that the path is below no source, comes first: the request itself says it.
    const Answer known = why.empty() ? Answer() : context_.client.GetPath("/v1/du", path);
    if (!why.empty() && known.ok() && (absent == Absent::kRefused || NumberOf(known.body, "files") == 0)) {
      Refuse(i, why);
      continue;
    }
    if (kept != i) {
      paths_[kept] = std::move(paths_[i]);
      lines_[kept] = lines_[i];
    }
    ++kept;
  }
  paths_.resize(kept);
  lines_.resize(kept);
}

Answer PathOrder::Send(std::size_t most, const Ask& ask) {
  Answer answer;
  std::size_t begin = 0;
  Progress progress(context_.output);
  for (json& batch : PathBatches(paths_, context_.working_directory, most)) {
    std::vector<std::size_t> indices(batch.size());
    std::iota(indices.begin(), indices.end(), begin);
    begin += batch.size();
    progress.Show([&] { return std::to_string(begin) + " of " + Plural(paths_.size(), "path") + " sent"; });
    while (!indices.empty()) {
      answer = ask(batch, indices);
      if (answer.ok()) break;
      const json outside = ListOf(answer.body, "outside");
      if (outside.empty()) return answer;
      json rest = json::array();
      std::vector<std::size_t> rest_indices;
      auto next = outside.begin();
      for (std::size_t i = 0; i < indices.size(); ++i) {
        if (next != outside.end() && *next == i) {
          Refuse(indices[i], Path(indices[i]) + " is below no source");
          ++next;
        } else {
          rest.push_back(std::move(batch[i]));
          rest_indices.push_back(indices[i]);
        }
      }
      if (rest_indices.size() == indices.size()) return answer;
      batch = std::move(rest);
      indices = std::move(rest_indices);
      answer = Answer();
    }
  }
  return answer;
}

}  // namespace tierctl
