#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "examples/trainer/image.h"
#include "examples/trainer/reader.h"

namespace trainer {
namespace {

constexpr std::size_t kLargestImage = 64 << 10;

class PosixReader final : public Reader {
 public:
  bool List(const std::string& directory, std::vector<std::string>* names, std::string* why) override {
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr) {
      *why = "list " + directory + ": " + std::strerror(errno);
      return false;
    }
    names->clear();
    while (const dirent* entry = ::readdir(dir)) {
      if (entry->d_name[0] != '.') names->emplace_back(entry->d_name);
    }
    ::closedir(dir);
    std::sort(names->begin(), names->end());
    return true;
  }

  // What a loader does for each sample: open, fstat, read, close.
  bool Read(const std::string& path, std::uint8_t* pixels, std::string* why) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      *why = "open " + path + ": " + std::strerror(errno);
      return false;
    }
    struct stat st {};
    char file[kLargestImage];
    ssize_t got = -1;
    if (::fstat(fd, &st) == 0 && st.st_size <= static_cast<off_t>(sizeof file)) got = ::read(fd, file, static_cast<std::size_t>(st.st_size));
    ::close(fd);
    if (got < 0 || !DecodeImage(file, static_cast<std::size_t>(got), pixels)) {
      *why = "read " + path + ": not a 28 x 28 image";
      return false;
    }
    return true;
  }

  ReadCounts Counts() override { return {}; }
};

}  // namespace

std::unique_ptr<Reader> MakePosixReader() { return std::make_unique<PosixReader>(); }

}  // namespace trainer
