// A temporary directory with files in it; removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tierd/source/source.h"

namespace tierd::source {

class TempTree {
 public:
  TempTree() : TempTree(testing::TempDir()) {}
  explicit TempTree(const std::string& parent) {
    std::string name = std::filesystem::path(parent) / "tierd_source_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = std::filesystem::canonical(name);
  }
  ~TempTree() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;

  // Where a hundred thousand files cost no journal, and nobody waits for a device; falls back to TempDir().
  static std::string MemoryDir() {
    constexpr std::uint64_t kRoom = 2u << 30;
    struct statvfs room {};
    const bool has_room = ::access("/dev/shm", W_OK) == 0 && ::statvfs("/dev/shm", &room) == 0 && std::uint64_t{room.f_bavail} * room.f_frsize >= kRoom;
    return has_room ? "/dev/shm" : testing::TempDir();
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << text;
  }
  void MakeDirectory(const std::string& name) const { std::filesystem::create_directories(*this / name); }
  void Link(const std::string& target, const std::string& name) const {
    std::filesystem::create_symlink(target, *this / name);
  }

 private:
  std::string path_;
};

inline std::shared_ptr<const Source> OpenSource(const std::string& root) {
  Result<std::shared_ptr<const Source>> source = Source::Open(root);
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  return source.ok() ? source.value() : nullptr;
}

}  // namespace tierd::source
