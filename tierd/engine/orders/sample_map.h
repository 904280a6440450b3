// Which file each index of a plan means: the list of paths of a dataset, and the catalogue's files once they are known. What is not known yet is looked for at
// the source, a stat each at low priority; whoever reads or brings a file meanwhile makes it known as well.
//
// Owner: a consumer of Foresight; workers read names(). Loop thread only, but for Make.
// Memory: 4 bytes per sample and 4 per file of the daemon; until all are known also the list, the paths and 24 bytes per sample, which several of them share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client_lib/abi/layout.h"
#include "tierd/base/prefetch.h"
#include "tierd/base/status.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/fetch/fetcher.h"
#include "tierd/engine/workers.h"

namespace tierd::engine {

class SampleMap {
 public:
  // The list as told: paths relative to the source, in the order of the samples.
  struct List {
    std::string text;                 // one behind the other
    std::vector<std::uint64_t> ends;  // of each
    std::vector<std::pair<std::uint64_t, std::uint32_t>> keys;  // low half of the path's key, and the sample; sorted
    std::uint64_t outside = 0;        // paths that are below another source, or none: these have an empty name here
    std::size_t size() const { return ends.size(); }
    std::string_view Path(std::size_t sample) const {
      const std::uint64_t from = sample == 0 ? 0 : ends[sample - 1];
      return std::string_view(text).substr(from, ends[sample] - from);
    }
  };
  using SharedList = std::shared_ptr<const List>;  // by all that look for its files, and who makes plans of it
  // A list of a million files takes milliseconds to copy, and to free: it is not copied, and a worker frees it when nobody has it any more.
  static SharedList Share(List list, Workers& workers);
  struct Where {
    std::vector<std::string> roots;   // a path counts as below the source if it is below one of these
    std::uint32_t wire_id = 0;
    std::array<std::uint8_t, abi::kHashSecretBytes> secret{};
    std::string sha256 = {};          // of the list that is meant (PLAN.md), in hexadecimal digits; "": not known
  };
  // Of a list file (policies/orders/file_list.h) of absolute paths. kInvalid: no path in it is below the source, or it is not the list that is meant. Any thread;
  // a second for a million paths.
  static Result<List> Make(std::string_view text, const Where& where);

  // The same of the text in a file, which is removed. kNotFound, kIo.
  static Result<List> MakeFromFile(const std::string& path, const Where& where);

  struct Parts {
    SourceUnit& unit;
    Catalogue& catalogue;
    Fetcher& fetcher;
    const Clock& clock;
  };
  SampleMap(const Parts& parts, SharedList list);
  ~SampleMap();

  // Looks up and asks for some; every turn. True: there is more to do at once.
  bool Step();
  // Every sample was looked for; those that are not there stay without a file.
  bool complete() const { return settled_ == count_; }
  std::uint32_t samples() const { return count_; }
  std::uint32_t known() const { return known_; }

  static constexpr std::int64_t kAgainNs = 10'000'000'000;
  static constexpr std::uint32_t kMostRounds = 6;
  static constexpr std::uint32_t kNone = 0xffffffffu;
  // kNone: none of these samples.
  std::uint32_t SampleOf(FileId file);
  // A hint: SampleOf will be asked soon. And what it will say if that is known already, else kNone.
  void Soon(FileId file) const {
    if (Raw(file) < sample_of_.size()) PrefetchToRead(&sample_of_[Raw(file)]);
  }
  std::uint32_t KnownSampleOf(FileId file) const { return Raw(file) < sample_of_.size() ? sample_of_[Raw(file)] : kNone; }
  FileId FileOf(std::uint32_t sample) const { return static_cast<FileId>((*names_)[sample]); }
  // Path of a sample whose file is not known; empty when it will never be.
  std::string PathOf(std::uint32_t sample) const;
  // FileIds by sample, Raw(kNoFile) where there is none. Written until complete().
  const std::shared_ptr<const std::vector<std::uint32_t>>& names() const { return const_names_; }

 private:
  void Settle(std::uint32_t sample, FileId file);
  // No file was found there. `said`: the source has told so; else it, or we, had no answer, which says nothing of the file: it is asked again, kMostRounds times.
  void SettleWithout(std::uint32_t sample, bool said);
  void Ask(std::uint32_t sample);
  // Its path goes through links: finds the file behind them, which is known by its own name.
  void Follow(std::uint32_t sample);
  void See(std::uint32_t sample, const std::string& path, const io::FileStat& stat, std::int64_t stat_sent_ns);
  FileId Known(std::string_view path) const;

  SourceUnit& unit_;
  Catalogue& catalogue_;
  Fetcher& fetcher_;
  const Clock& clock_;
  const std::uint32_t count_;
  SharedList list_;                                                // until complete()
  std::shared_ptr<std::vector<std::uint32_t>> names_;              // shared with workers once complete
  std::shared_ptr<const std::vector<std::uint32_t>> const_names_;  // the same
  std::vector<std::uint32_t> sample_of_;  // by FileId
  std::vector<bool> done_;                // of each sample: there is nothing more to find out
  std::uint32_t position_ = 0;
  std::uint32_t settled_ = 0;
  std::uint32_t known_ = 0;
  std::uint32_t asking_ = 0;
  std::vector<std::uint32_t> failed_;  // asked about, without an answer
  std::int64_t again_ns_ = 0;          // when they are asked about again
  std::uint32_t rounds_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with answers under way
};

}  // namespace tierd::engine
