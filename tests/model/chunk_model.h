// A file of several chunks: its own slot says size, deadline and version tag, a slot per chunk says where the bytes are and which version
// they belong to. layout.h: SlotKind kChunked and kChunk; HAZARDS 2.1, 2.10.
//
// Modelled: the file slot, one chunk slot (which may be reused for a chunk of another file), two frames, a clock, one reader that reads either in
// one call or through a handle that was bound to a version when it was opened.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/machine.h"

namespace tierd::model {

enum class ChunkMutation : std::uint8_t {
  kNone,
  kTagNotCompared,           // the chunk's version tag against the file's (the handle's)
  kFileSequenceNotReread,
  kChunkSequenceNotReread,
  kTagReadBeforeLease,       // and the chunk's sequence re-read before the tag's slot could have moved: nothing re-read last
};

struct ChunkConfig {
  int acts = 5;
  bool handle = false;   // size, tag and deadline are taken once, at the open; then two reads
  ChunkMutation mutation = ChunkMutation::kNone;
};

class ChunkModel final : public Model {
 public:
  explicit ChunkModel(const ChunkConfig& config) : config_(config) {}
  int threads() const override { return 2; }
  State Initial() const override;
  int Choices(const State& state, int thread) const override;
  void Step(Cpu& cpu, int choice) const override;
  std::string CellName(int cell) const override;
  std::string ThreadName(int thread) const override { return thread == 0 ? "reader" : "daemon"; }
  std::string ViolationText(std::uint8_t code) const override;

 private:
  bool Is(ChunkMutation mutation) const { return config_.mutation == mutation; }
  void FileStep(Cpu& cpu) const;
  void ChunkStep(Cpu& cpu) const;
  void LastStep(Cpu& cpu) const;
  void Fail(Cpu& cpu, bool leased) const;
  void NextRead(Cpu& cpu) const;

  const ChunkConfig config_;
};

}  // namespace tierd::model
