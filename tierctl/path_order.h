// The paths that a verb gives an order about: sent in as many requests as it takes. A wrong one is named on stderr, and the others are done. Blocking.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tierctl/client/control_client.h"
#include "tierctl/verbs.h"

namespace tierctl {

class PathOrder {
 public:
  // Of the command line.
  explicit PathOrder(Context& context);
  // From line `line` (from 1) of the command's list.
  void Add(std::string path, std::size_t line);
  bool empty() const { return paths_.empty(); }

  enum class Absent { kRefused, kRefusedIfUnknown };
  // Refuses paths at which there is nothing; with kRefusedIfUnknown not those of which the daemon knows files. Each is a look at the file system.
  void RefuseAbsent(Absent absent);
  // Calls `ask` with the "paths" of each request, at most `most` of them, and their indices, until one fails; returns its last answer. Where the daemon refuses because
  // some lie below no source, those are named and `ask` is called with the rest.
  using Ask = std::function<Answer(const nlohmann::json& paths, std::span<const std::size_t> indices)>;
  Answer Send(std::size_t most, const Ask& ask);
  // Names path `index`, of which nothing is done.
  void Refuse(std::size_t index, std::string_view why);
  std::string Path(std::size_t index) const;

  bool refused() const { return refused_; }
  // `in_part`: something was done.
  int ExitCode(bool in_part) const { return !refused_ ? kExitOk : in_part ? kExitPartial : kExitError; }

 private:
  Context& context_;
  std::vector<std::string> paths_;   // as given
  std::vector<std::size_t> lines_;   // of the list; 0: on the command line
  bool refused_ = false;
};

}  // namespace tierctl
