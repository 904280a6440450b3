// From an index of a sampler to a file: the list that a dataset indexes. Three ways to have it: the rule of torchvision's ImageFolder
// over a listing, a list file, or whoever announces a plan names the paths.
//
// Pure functions, no thread rule; nothing here looks at a file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/base/status.h"

namespace tierd::orders {

// The order of ImageFolder(root): entry i is the position in `paths` of sample i. `paths`: regular files below the root, relative, in
// any order ("class/sub/name.jpg"). Classes are the directories of the first level in the order of their names; in a class, directories
// by their whole path, then names, both as Python sorts str (by code point; bytes that are no UTF-8 as surrogateescape decodes them).
// Only files with one of ImageFolder's extensions count, and none of the first level.
std::vector<std::uint32_t> ImageFolderOrder(const std::vector<std::string>& paths);

// The paths of a list file: line i (from 0) is sample i. Separated by LF, a CR before it belongs to the separator; or by NUL if the text
// has one. Empty lines do not count. kInvalid: none left, or more than kMaxSamples.
Result<std::vector<std::string>> ParseFileList(std::string_view text);

// How Python compares two file names: negative, 0, positive.
int ComparePythonNames(std::string_view a, std::string_view b);

}  // namespace tierd::orders
