// One Fashion-MNIST image and its file format, binary PGM ("P5", 28 x 28, 255).
//
// Pure functions; shared by the trainer and by fashion_files, which writes the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainer {

constexpr std::size_t kImageSide = 28;
constexpr std::size_t kImagePixels = kImageSide * kImageSide;

// The bytes of an image file. `pixels` are kImagePixels bytes, row by row.
std::string EncodeImage(const std::uint8_t* pixels);

// Stores the kImagePixels pixels of a file of `size` bytes at `pixels`. Takes PGM (comments included) and raw files of exactly
// kImagePixels bytes. False, and nothing stored, for everything else.
bool DecodeImage(const void* file, std::size_t size, std::uint8_t* pixels);

}  // namespace trainer
