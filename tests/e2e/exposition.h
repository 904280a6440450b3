// The text format of Prometheus, taken apart: families with type and help, samples by name and labels.
#pragma once

#include <map>
#include <set>
#include <sstream>
#include <string>

namespace tierd::e2e {

struct Family {
  std::string type;
  std::string help;
  std::set<std::string> labels;  // names of labels, without "le"
  std::size_t samples = 0;
};

struct Exposition {
  std::map<std::string, Family> families;
  std::map<std::string, double> samples;  // name{a="b",c="d"}, labels in the order of the page
  std::string problem;                    // the first line that is not understood, or comes twice

  double Value(const std::string& sample) const {
    const auto it = samples.find(sample);
    return it == samples.end() ? -1 : it->second;
  }
};

// The family that a sample belongs to: histograms add a suffix.
inline std::string FamilyOf(const Exposition& page, const std::string& name) {
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    const std::size_t at = name.size() - std::min(name.size(), std::string(suffix).size());
    const auto it = page.families.find(name.substr(0, at));
    if (name.substr(at) == suffix && it != page.families.end() && (it->second.type == "histogram" || it->second.type == "summary")) return it->first;
  }
  return name;
}

inline bool TakeSample(Exposition& page, const std::string& line) {
  const std::size_t brace = line.find('{'), end = line.rfind(' ');
  if (end == std::string::npos) return false;
  const std::string name = line.substr(0, std::min(brace, end));
  const auto family = page.families.find(FamilyOf(page, name));
  if (family == page.families.end()) return false;
  ++family->second.samples;
  if (brace != std::string::npos) {
    std::istringstream labels(line.substr(brace + 1, line.rfind('}') - brace - 1));
    for (std::string label; std::getline(labels, label, ',');)
      if (label.substr(0, 3) != "le=") family->second.labels.insert(label.substr(0, label.find('=')));
  }
  return page.samples.emplace(line.substr(0, end), std::stod(line.substr(end + 1))).second;
}

inline Exposition ParseExposition(const std::string& text) {
  Exposition page;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, what, name, rest;
    bool good = true;
    if (line.rfind("# HELP ", 0) == 0) {
      words >> hash >> what >> name;
      std::getline(words, rest);
      good = page.families.emplace(name, Family{}).second;
      page.families[name].help = rest;
    } else if (line.rfind("# TYPE ", 0) == 0) {
      words >> hash >> what >> name >> rest;
      page.families[name].type = rest;
    } else if (!line.empty()) {
      good = TakeSample(page, line);
    }
    if (!good && page.problem.empty()) page.problem = line;
  }
  return page;
}

}  // namespace tierd::e2e
