#include "tierd/io/io_engine.h"
#include "tierd/io/thread_engine.h"
#include "tierd/io/uring_engine.h"

namespace tierd::io {
namespace {

Status CheckOptions(const EngineOptions& options) {
  const auto outside = [](const char* what, unsigned value, unsigned low, unsigned high) {
    return Status(Code::kInvalid, std::string("I/O engine: ") + what + " " + std::to_string(value) + " is not in " +
                                      std::to_string(low) + ".." + std::to_string(high));
  };
  if (options.depth < 1 || options.depth > 4096) return outside("depth", options.depth, 1, 4096);
  if (options.workers < 1 || options.workers > 512) return outside("workers", options.workers, 1, 512);
  if (options.max_replacements > 512) return outside("max_replacements", options.max_replacements, 0, 512);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<IoEngine>> MakeEngine(EngineKind kind, const EngineOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) return status;
  return kind == EngineKind::kUring ? UringEngine::Create(options) : ThreadEngine::Create(options);
}

}  // namespace tierd::io
