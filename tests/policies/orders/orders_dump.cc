// For live_test.py: each line of stdin is {"plan": DOCUMENT, "epochs": k} or {"list": [PATH...]} (as latin-1); the answer, one line of
// JSON, is the orders of k epochs, or ImageFolder's order of the list. With "raw" the orders go as little-endian int64 to that file.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "policies/orders/file_list.h"
#include "policies/orders/plan_orders.h"

namespace {

using nlohmann::json;

std::string FromLatin1(const std::string& utf8) {
  std::string bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    bytes += c < 0x80 ? utf8[i] : static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(utf8[++i]) & 0x3f));
  }
  return bytes;
}

json Orders(const json& request) {
  auto plan = tierd::orders::ParsePlan(request["plan"].dump());
  if (!plan.ok()) return plan.status().message();
  // What was written is read back as the same.
  plan = tierd::orders::ParsePlan(tierd::orders::PlanToJson(*plan));
  if (!plan.ok()) return plan.status().message();
  auto orders = tierd::orders::PlanOrders::Create(*plan);
  if (!orders.ok()) return orders.status().message();
  json answer = json::array();
  std::vector<std::uint32_t> order;
  for (int i = 0; i < request["epochs"].get<int>() && orders->Next(&order); ++i) {
    if (!request.contains("raw")) {
      answer.push_back(order);
      continue;
    }
    const std::vector<std::int64_t> wide(order.begin(), order.end());
    std::ofstream(request["raw"].get<std::string>(), std::ios::binary).write(reinterpret_cast<const char*>(wide.data()), static_cast<std::streamsize>(wide.size() * 8));
  }
  return answer;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line);
    if (request.contains("list")) {
      std::vector<std::string> paths;
      for (const json& path : request["list"]) paths.push_back(FromLatin1(path.get<std::string>()));
      std::cout << json(tierd::orders::ImageFolderOrder(paths)).dump() << std::endl;
    } else {
      std::cout << Orders(request).dump() << std::endl;
    }
  }
  return 0;
}
