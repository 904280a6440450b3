// fashion_files: writes the 70,000 images of Debian's package dataset-fashion-mnist as files in class folders.
//
//   fashion_files OUT [--from /usr/share/datasets/fashion-mnist]
//
// OUT/train/CLASS/NNNNN.pgm (60,000) and OUT/test/CLASS/NNNNN.pgm (10,000). Exit 0; 1 with a sentence when something is missing or full.
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "examples/trainer/image.h"

namespace {

constexpr const char* kDefaultFrom = "/usr/share/datasets/fashion-mnist";
constexpr const char* kClassNames[] = {"0_tshirt", "1_trouser", "2_pullover", "3_dress", "4_coat",
                                       "5_sandal", "6_shirt",   "7_sneaker",  "8_bag",   "9_boot"};
constexpr std::size_t kClassCount = sizeof kClassNames / sizeof kClassNames[0];
constexpr std::size_t kImagesHeader = 16;  // IDX: magic, count, rows, columns; big endian
constexpr std::size_t kLabelsHeader = 8;   // magic, count

bool Complain(const std::string& sentence) {
  std::fprintf(stderr, "fashion_files: %s\n", sentence.c_str());
  return false;
}

bool Inflate(const std::string& path, std::vector<unsigned char>* bytes) {
  gzFile file = ::gzopen(path.c_str(), "rb");
  if (file == nullptr) return Complain("open " + path + ": " + std::strerror(errno) + " (apt-get install dataset-fashion-mnist)");
  unsigned char part[1 << 16];
  int got = 0;
  while ((got = ::gzread(file, part, sizeof part)) > 0) bytes->insert(bytes->end(), part, part + got);
  ::gzclose(file);
  return got == 0 || Complain("read " + path + ": damaged");
}

bool MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return true;
  return Complain("make " + path + ": " + std::strerror(errno));
}

bool WriteFile(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return Complain("write " + path + ": " + std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = std::fclose(file) == 0;
  return (written && closed) || Complain("write " + path + ": " + std::strerror(errno));
}

bool WriteSet(const std::string& images_path, const std::string& labels_path, const std::string& out, std::size_t most, std::size_t* written) {
  std::vector<unsigned char> images;
  std::vector<unsigned char> labels;
  if (!Inflate(images_path, &images) || !Inflate(labels_path, &labels)) return false;
  const std::size_t count = labels.size() < kLabelsHeader ? 0 : labels.size() - kLabelsHeader;
  if (count == 0 || images.size() != kImagesHeader + count * trainer::kImagePixels) return Complain(images_path + ": not the IDX file expected");
  if (!MakeDirectory(out)) return false;
  for (const char* name : kClassNames) {
    if (!MakeDirectory(out + "/" + name)) return false;
  }
  const std::size_t wanted = std::min(count, most);
  for (std::size_t i = 0; i < wanted; ++i) {
    const unsigned char label = labels[kLabelsHeader + i];
    if (label >= kClassCount) return Complain(labels_path + ": no such class");
    char name[32];
    std::snprintf(name, sizeof name, "/%05zu.pgm", i);
    const std::string file = trainer::EncodeImage(images.data() + kImagesHeader + i * trainer::kImagePixels);
    if (!WriteFile(out + "/" + kClassNames[label] + name, file)) return false;
  }
  *written += wanted;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string from = kDefaultFrom;
  std::size_t most = SIZE_MAX;
  bool understood = argc >= 2 && argc % 2 == 0 && argv[1][0] != '-';
  for (int i = 2; understood && i < argc; i += 2) {
    if (std::strcmp(argv[i], "--from") == 0) from = argv[i + 1];
    else if (std::strcmp(argv[i], "--most") == 0) most = std::strtoull(argv[i + 1], nullptr, 10);
    else understood = false;
  }
  if (!understood) {
    std::fprintf(stderr, "usage: fashion_files OUT [--from %s] [--most IMAGES_OF_A_SET]\n", kDefaultFrom);
    return 64;
  }
  const std::string out = argv[1];
  std::size_t written = 0;
  if (!MakeDirectory(out) || !WriteSet(from + "/train-images-idx3-ubyte.gz", from + "/train-labels-idx1-ubyte.gz", out + "/train", most, &written) ||
      !WriteSet(from + "/t10k-images-idx3-ubyte.gz", from + "/t10k-labels-idx1-ubyte.gz", out + "/test", most, &written)) {
    return 1;
  }
  std::printf("%zu images in %s\n", written, out.c_str());
  return 0;
}
