// How deep a JSON text is nested. Who reads JSON does so without recursion; who copies or writes it goes down as deep as it is nested, and the stack ends somewhere.
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace tierd {

// What people and programs write is nested some ten deep.
inline constexpr std::size_t kDeepestJson = 64;

// Whether arrays and objects lie in one another more than `most` deep. Of what is no JSON it says either.
bool IsNestedDeeper(std::string_view json, std::size_t most = kDeepestJson);

}  // namespace tierd
