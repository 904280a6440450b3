// Prints the rows of the benchmark programs as one table and writes them as a JSON list: bench_table ROWS IDS [JSON]. ROWS has one object per line; IDS is what was
// asked for ("A1.1r,A3"). exit 1 when something of that was not measured: a row without a result, or an id without a row.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;

std::string Number(double value) {
  char text[32];
  if (value >= 1) {
    std::snprintf(text, sizeof text, "%.*f", value >= 10'000 ? 0 : value >= 100 ? 1 : 2, value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

std::string Spread(const json& numbers) {
  if (!numbers.is_object()) return "-";
  std::string text = Number(numbers["median"]);
  if (numbers["min"] != numbers["max"]) text += " (" + Number(numbers["min"]) + ".." + Number(numbers["max"]) + ")";
  return text;
}

std::string Met(const json& row) { return row["met"].is_null() ? "not run" : row["met"].get<bool>() ? "yes" : "NO"; }

// "tmpfs_huge" and the like are kinds of 2 MiB pages.
std::string PageSize(const std::string& kind) { return kind == "4k" ? "4 KiB" : kind == "-" || kind == "?" ? kind : "2 MiB (" + kind + ")"; }

bool IsAt(const std::string& id, const std::string& place) { return id == place || id.starts_with(place + "."); }

// The ids of a list ("A1.1r,A3") that no row answers: neither their own, nor one below them, nor a skipped one that stands for them.
std::vector<std::string> Unanswered(const std::string& ids, const json& rows) {
  std::vector<std::string> missing;
  std::istringstream list(ids);
  for (std::string id; std::getline(list, id, ',');) {
    const auto answers = [&](const json& row) { return IsAt(row["id"], id) || (row["met"].is_null() && IsAt(id, row["id"])); };
    if (!id.empty() && std::none_of(rows.begin(), rows.end(), answers)) missing.push_back(id);
  }
  return missing;
}

void Print(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      if (i + 1 < line.size()) text += std::string(widths[i] - line[i].size() + 2, ' ');
    }
    std::cout << text << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return std::fprintf(stderr, "usage: bench_table ROWS IDS [JSON]\n"), 64;
  std::ifstream in(argv[1]);
  json rows = json::array();
  std::vector<std::vector<std::string>> lines = {{"id", "what", "ours", "baseline", "unit", "ratio", "bar", "met", "page size", "note", "hardware"}};
  int missed = 0, unmeasured = 0;
  for (std::string line; std::getline(in, line);) {
    json row = json::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    lines.push_back({row["id"], row["what"], Spread(row["ours"]), Spread(row["baseline"]), row["unit"], Spread(row["ratio"]),
                     row["bar"].is_null() ? "-" : row["bar"].get<std::string>(), Met(row), PageSize(row["pages"]), row["note"], row["hardware"]});
    if (row["met"] == false) ++missed;
    if (row["met"].is_null()) ++unmeasured;
    rows.push_back(std::move(row));
  }
  Print(lines);
  std::cout << rows.size() << " rows, " << missed << " below their bar, " << unmeasured << " not measured; figures are median (min..max)\n";
  const std::vector<std::string> missing = Unanswered(argv[2], rows);
  for (const std::string& id : missing) std::fprintf(stderr, "bench_table: no row %s\n", id.c_str());
  if (argc == 4) {
    std::ofstream out(argv[3]);
    out << rows.dump(1) << "\n";
    if (!out) return std::fprintf(stderr, "bench_table: cannot write %s\n", argv[3]), 1;
  }
  return unmeasured == 0 && missing.empty() ? 0 : 1;
}
