// tier.h for C++17 and later: the same calls with owners, header-only. Nothing here throws but what std::vector and std::string do when there
// is no memory, so it may be used with -fno-exceptions; results are those of tier.h (0 or a negative errno), and so are the rules for threads, fork and views.
//
//   tier::View view;
//   if (tier::Client().Get(path, &view) == 0) Decode(view.data(), view.size());   // gives the memory back at the end of the scope
#pragma once

#include <tier/tier.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tier {

// Bytes of a file: memory of the cache, read-only, until this is destroyed. Moved, not copied.
class View {
 public:
  View() = default;
  ~View() { tier_release(&view_); }
  View(View&& other) noexcept : view_(std::exchange(other.view_, tier_view{})) {}
  View& operator=(View&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const void* data() const { return view_.data; }
  std::size_t size() const { return view_.size; }
  std::string_view text() const { return {static_cast<const char*>(view_.data), view_.size}; }
  tier_origin origin() const { return static_cast<tier_origin>(view_.origin); }
  // For a call of tier.h: gives back what was held.
  tier_view* Fill() {
    tier_release(&view_);
    return &view_;
  }

 private:
  tier_view view_{};
};

// The views of one Client::GetBatch.
class Batch {
 public:
  Batch() = default;
  ~Batch() { Clear(); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::size_t size() const { return views_.size(); }
  int error(std::size_t i) const { return errors_[i]; }  // 0 or a negative errno
  const tier_view& operator[](std::size_t i) const { return views_[i]; }
  void Clear() {
    for (tier_view& view : views_) tier_release(&view);
    views_.clear();
    errors_.clear();
  }

 private:
  friend class Client;
  std::vector<tier_view> views_;
  std::vector<int> errors_;
};

// A large file, bound to the version that it had when it was opened.
class File {
 public:
  File() = default;
  ~File() { tier_close(file_); }
  File(File&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  File& operator=(File&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return file_ != nullptr; }
  ssize_t Pread(void* buffer, std::size_t count, std::int64_t offset) const { return tier_file_pread(file_, buffer, count, offset); }
  // A view of bytes from `offset` on, cut at the next chunk boundary.
  int Pin(std::int64_t offset, std::size_t count, View* view) const { return tier_file_pin(file_, offset, count, view->Fill()); }
  int Stat(tier_attr* attr) const {
    attr->size = sizeof *attr;
    return tier_fstat(file_, attr);
  }

 private:
  friend class Client;
  tier_file* file_ = nullptr;
};

// A connection to the daemon, or the way past it where there is none. Shared freely by threads once it is made.
class Client {
 public:
  // The process-wide one; costs nothing to make again.
  Client() = default;
  // One of its own; `*error` as tier_connect. After an error it is the process-wide one.
  Client(const tier_options& options, int* error) { *error = tier_connect(&options, &client_); }
  ~Client() { tier_disconnect(client_); }
  Client(Client&& other) noexcept : client_(std::exchange(other.client_, nullptr)) {}
  Client& operator=(Client&& other) noexcept {
    std::swap(client_, other.client_);
    return *this;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  tier_client* get() const { return client_; }

  int Get(const std::string& path, View* view, unsigned flags = 0) const { return tier_get(client_, path.c_str(), view->Fill(), flags); }
  ssize_t Read(const std::string& path, void* buffer, std::size_t count, std::int64_t offset = 0, unsigned flags = 0) const {
    return tier_pread(client_, path.c_str(), buffer, count, offset, flags);
  }
  int Open(const std::string& path, File* file, unsigned flags = 0) const {
    tier_close(std::exchange(file->file_, nullptr));
    return tier_open(client_, path.c_str(), &file->file_, flags);
  }
  int Stat(const std::string& path, tier_attr* attr, unsigned flags = 0) const {
    attr->size = sizeof *attr;
    return tier_stat(client_, path.c_str(), attr, flags);
  }
  // All names of a directory; 0 or a negative errno.
  int List(const std::string& path, std::vector<std::string>* names, unsigned flags = 0) const {
    names->clear();
    tier_listing* listing = nullptr;
    int result = tier_list(client_, path.c_str(), &listing, flags);
    if (result < 0) return result;
    tier_entry entry;
    while ((result = tier_list_next(listing, &entry)) == 1) names->emplace_back(entry.name, entry.name_bytes);
    tier_list_close(listing);
    return result;
  }
  // All files with one wait; how many were got.
  ssize_t GetBatch(const std::vector<std::string>& paths, Batch* batch, unsigned flags = 0) const {
    const std::vector<const char*> pointers = Pointers(paths);
    batch->Clear();
    batch->views_.resize(paths.size());
    batch->errors_.resize(paths.size());
    return tier_get_batch(client_, pointers.data(), pointers.size(), batch->views_.data(), batch->errors_.data(), flags);
  }
  std::int64_t Prefetch(const std::vector<std::string>& paths, unsigned flags = 0) const {
    const std::vector<const char*> pointers = Pointers(paths);
    return tier_prefetch(client_, pointers.data(), pointers.size(), flags);
  }
  std::int64_t Invalidate(const std::vector<std::string>& paths, unsigned flags = 0) const {
    const std::vector<const char*> pointers = Pointers(paths);
    return tier_invalidate(client_, pointers.data(), pointers.size(), flags);
  }
  tier_statistics Statistics() const {
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    tier_stats(client_, &statistics);
    return statistics;
  }

 private:
  static std::vector<const char*> Pointers(const std::vector<std::string>& paths) {
    std::vector<const char*> pointers;
    pointers.reserve(paths.size());
    for (const std::string& path : paths) pointers.push_back(path.c_str());
    return pointers;
  }
  tier_client* client_ = nullptr;  // null: tier_default()
};

}  // namespace tier
