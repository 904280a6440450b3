// Where the trainer's bytes come from: plain POSIX calls, or tierd through libtier. Nothing else differs between the two runs.
//
// Thread rule: Read may be called by any number of threads; List and Counts by one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trainer {

// Reads so far, by where tierd found the bytes. All zero for POSIX.
struct ReadCounts {
  std::uint64_t ram = 0;
  std::uint64_t ssd = 0;
  std::uint64_t source = 0;  // tierd brought them from the source
  std::uint64_t bypass = 0;  // the trainer itself read the source
};

class Reader {
 public:
  virtual ~Reader() = default;

  // Names in a directory, sorted, hidden ones left out. False with a sentence in *why.
  virtual bool List(const std::string& directory, std::vector<std::string>* names, std::string* why) = 0;

  // Stores the kImagePixels pixels of an image file at `pixels`. False with a sentence in *why: not readable, or no image.
  virtual bool Read(const std::string& path, std::uint8_t* pixels, std::string* why) = 0;

  virtual ReadCounts Counts() = 0;
};

std::unique_ptr<Reader> MakePosixReader();

// Talks to the daemon that TIERD_SOCKET or the default socket leads to. Null with a sentence in *why when there is none.
std::unique_ptr<Reader> MakeTierReader(std::string* why);

}  // namespace trainer
