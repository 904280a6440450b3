#include <tier/tier.h>

#include <algorithm>
#include <cstring>

#include "examples/trainer/image.h"
#include "examples/trainer/reader.h"

namespace trainer {
namespace {

class TierReader final : public Reader {
 public:
  explicit TierReader(tier_client* client) : client_(client) {}
  ~TierReader() override { tier_disconnect(client_); }
  TierReader(const TierReader&) = delete;
  TierReader& operator=(const TierReader&) = delete;

  bool List(const std::string& directory, std::vector<std::string>* names, std::string* why) override {
    tier_listing* listing = nullptr;
    int error = tier_list(client_, directory.c_str(), &listing, 0);
    names->clear();
    if (error == 0) {
      tier_entry entry;
      while ((error = tier_list_next(listing, &entry)) == 1) {
        if (entry.name[0] != '.') names->emplace_back(entry.name, entry.name_bytes);
      }
      tier_list_close(listing);
    }
    if (error < 0) {
      *why = "list " + directory + ": " + std::strerror(-error);
      return false;
    }
    std::sort(names->begin(), names->end());
    return true;
  }

  // The pixels are decoded out of the cache's own memory: no copy of the file is made.
  bool Read(const std::string& path, std::uint8_t* pixels, std::string* why) override {
    tier_view view;
    const int error = tier_get(client_, path.c_str(), &view, 0);
    if (error < 0) {
      *why = "read " + path + ": " + std::strerror(-error);
      return false;
    }
    const bool good = DecodeImage(view.data, view.size, pixels);
    tier_release(&view);
    if (!good) *why = "read " + path + ": not a 28 x 28 image";
    return good;
  }

  ReadCounts Counts() override {
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    if (tier_stats(client_, &statistics) < 0) return {};
    return {.ram = statistics.reads[TIER_FROM_RAM],
            .ssd = statistics.reads[TIER_FROM_SSD],
            .source = statistics.reads[TIER_FROM_SOURCE],
            .bypass = statistics.reads[TIER_FROM_BYPASS]};
  }

 private:
  tier_client* const client_;
};

}  // namespace

std::unique_ptr<Reader> MakeTierReader(std::string* why) {
  tier_options options{};
  options.size = sizeof options;
  options.flags = TIER_REQUIRE_DAEMON;
  tier_client* client = nullptr;
  const int error = tier_connect(&options, &client);
  if (error < 0) {
    *why = std::string("no tierd: ") + std::strerror(-error) + " (TIERD_SOCKET names its socket)";
    return nullptr;
  }
  return std::make_unique<TierReader>(client);
}

}  // namespace trainer
