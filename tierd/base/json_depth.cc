#include "tierd/base/json_depth.h"

namespace tierd {

bool IsNestedDeeper(std::string_view json, std::size_t most) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    switch (json[i]) {
      case '"': quoted = !quoted; break;
      case '\\': i += quoted ? 1 : 0; break;
      case '[':
      case '{':
        if (!quoted && ++depth > most) return true;
        break;
      case ']':
      case '}':
        if (!quoted && depth > 0) --depth;
        break;
      default: break;
    }
  }
  return false;
}

}  // namespace tierd
