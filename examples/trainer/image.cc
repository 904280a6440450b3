#include "examples/trainer/image.h"

#include <cctype>
#include <cstring>

namespace trainer {
namespace {

// Reads the next number of a PGM header; white space and comments before it are skipped. False at the end or at anything else.
bool NextNumber(const char** at, const char* end, unsigned* number) {
  while (*at < end && (std::isspace(static_cast<unsigned char>(**at)) != 0 || **at == '#')) {
    if (**at == '#') {
      while (*at < end && **at != '\n') ++*at;
    } else {
      ++*at;
    }
  }
  unsigned value = 0;
  const char* first = *at;
  for (; *at < end && **at >= '0' && **at <= '9' && value < 100'000; ++*at) value = value * 10 + static_cast<unsigned>(**at - '0');
  *number = value;
  return *at > first;
}

}  // namespace

std::string EncodeImage(const std::uint8_t* pixels) {
  const std::string side = std::to_string(kImageSide);
  std::string file = "P5\n" + side + " " + side + "\n255\n";
  file.append(reinterpret_cast<const char*>(pixels), kImagePixels);
  return file;
}

bool DecodeImage(const void* file, std::size_t size, std::uint8_t* pixels) {
  const char* at = static_cast<const char*>(file);
  const char* end = at + size;
  if (size != kImagePixels) {
    if (size < 2 || std::memcmp(at, "P5", 2) != 0) return false;
    at += 2;
    unsigned width = 0;
    unsigned height = 0;
    unsigned brightest = 0;
    if (!NextNumber(&at, end, &width) || !NextNumber(&at, end, &height) || !NextNumber(&at, end, &brightest)) return false;
    if (width != kImageSide || height != kImageSide || brightest != 255) return false;
    ++at;  // the one white space character that ends the header
    if (at > end || static_cast<std::size_t>(end - at) != kImagePixels) return false;
  }
  std::memcpy(pixels, at, kImagePixels);
  return true;
}

}  // namespace trainer
