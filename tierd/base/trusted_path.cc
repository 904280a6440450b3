#include "tierd/base/trusted_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace tierd {
namespace {

constexpr int kMostLinks = 40;  // the kernel's own limit

// Root's files in a user namespace that maps few ids belong to the overflow id.
bool EveryIdIsMapped() {
  std::FILE* const file = std::fopen("/proc/self/uid_map", "re");
  if (file == nullptr) return true;
  unsigned long inside = 1, outside = 1, count = 0;
  const int read = std::fscanf(file, "%lu %lu %lu", &inside, &outside, &count);
  std::fclose(file);
  return read == 3 && inside == 0 && outside == 0 && count == 4294967295UL;
}

uid_t OverflowUser() {
  uid_t user = 65534;
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/overflowuid", "re"); file != nullptr) {
    if (std::fscanf(file, "%u", &user) != 1) user = 65534;
    std::fclose(file);
  }
  return user;
}

bool IsOursOrRoots(uid_t owner) {
  return owner == 0 || owner == ::geteuid() || (owner == OverflowUser() && !EveryIdIsMapped());
}

// Bits by which others may write it; 0: they may not, or may not rename what is ours in it.
mode_t WritableBy(const struct stat& info) {
  if (S_ISLNK(info.st_mode) || (S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0)) return 0;
  return info.st_mode & (S_IWGRP | S_IWOTH);
}

// What is wrong with the owner or mode of `place`, and the remedy; "": nothing.
std::string WhyNot(const struct stat& info, const std::string& place) {
  if (!IsOursOrRoots(info.st_uid))
    return place + " belongs to uid " + std::to_string(info.st_uid) + ": it must belong to you or root; use a copy of your own";
  const mode_t writable = WritableBy(info);
  if (writable == 0) return "";
  const bool everybody = (writable & S_IWOTH) != 0, group = (writable & S_IWGRP) != 0;
  return place + " can be written by " + (everybody ? "everybody" : "its group") + ": chmod " + (group ? "g" : "") + (everybody ? "o" : "") + "-w " + place;
}

std::vector<std::string> Parts(std::string_view path) {  // the first one last
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path = slash == std::string_view::npos ? "" : path.substr(0, slash);
  }
  return parts;
}

}  // namespace

Result<UniqueFd> OpenTrusted(const std::string& path, int flags, const std::string& what) {
  const auto failed = [&](int error) { return Status::FromErrno(error, what + " " + path); };
  if (path.empty()) return failed(ENOENT);
  std::error_code no_directory;
  const std::string whole = std::filesystem::absolute(path, no_directory).string();
  if (no_directory) return failed(no_directory.value());
  std::vector<std::string> parts = Parts(whole);
  UniqueFd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::filesystem::path place = "/";  // without links
  int links = 0;
  struct stat info {};
  while (at.valid()) {
    const std::string name = parts.empty() ? "." : parts.back();
    if (!parts.empty()) parts.pop_back();
    UniqueFd next(::openat(at.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid() || ::fstat(next.get(), &info) != 0) return failed(errno);
    const std::filesystem::path named = name == "." ? place : name == ".." ? place.parent_path() : place / name;
    // A file is named as the caller named it; what lies on the way, as it is found.
    const std::string shown = parts.empty() && links == 0 ? path : named.string();
    if (const std::string why = WhyNot(info, shown); !why.empty()) return Status(Code::kPermission, what + (shown == path ? " " : " " + path + ": ") + why);
    if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = ::readlinkat(next.get(), "", target, sizeof target);
      if (length <= 0 || ++links > kMostLinks) return failed(length < 0 ? errno : ELOOP);
      const std::string_view to(target, static_cast<std::size_t>(length));
      for (std::string& part : Parts(to)) parts.insert(parts.end(), std::move(part));
      if (to.starts_with('/')) {
        at = UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
        place = "/";
      }
      continue;
    }
    if (parts.empty()) {
      UniqueFd opened(::openat(at.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
      struct stat same {};
      if (!opened.valid() || ::fstat(opened.get(), &same) != 0) return failed(errno);
      if (same.st_dev != info.st_dev || same.st_ino != info.st_ino) return failed(ESTALE);
      return opened;
    }
    at = std::move(next);  // no directory: the next openat says so
    place = named;
  }
  return failed(errno);
}

bool IsSafeToMakeIn(const struct stat& directory) { return IsOursOrRoots(directory.st_uid) && WritableBy(directory) == 0; }

}  // namespace tierd
