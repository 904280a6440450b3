// Files of several chunks: file slot and chunk slot together, read in one call or through a handle.
#include <gtest/gtest.h>

#include "tests/model/chunk_model.h"
#include "tests/model/report.h"

namespace tierd::model {
namespace {

std::unique_ptr<Model> Make(int acts, ChunkMutation mutation, bool handle) {
  ChunkConfig config;
  config.acts = acts;
  config.handle = handle;
  config.mutation = mutation;
  return std::make_unique<ChunkModel>(config);
}

TEST(Chunks, BothSequencesReadLastAreSound) {
  for (const Order order : {Order::kSc, Order::kTso, Order::kPso}) {
    for (const bool handle : {false, true}) ExpectSound(handle ? "handle" : "one call", *Make(5, ChunkMutation::kNone, handle), order);
  }
}

TEST(Chunks, TagNotComparedIsFound) {
  for (const bool handle : {false, true}) {
    ExpectFound(handle ? "tag not compared, handle" : "tag not compared",
                [&](int acts) { return Make(acts, ChunkMutation::kTagNotCompared, handle); }, Order::kSc, 5);
  }
}

TEST(Chunks, FileSequenceNotRereadIsFound) {
  ExpectFound("file sequence not re-read", [](int acts) { return Make(acts, ChunkMutation::kFileSequenceNotReread, false); }, Order::kSc, 5);
}

TEST(Chunks, ChunkSequenceNotRereadIsFound) {
  for (const bool handle : {false, true}) {
    ExpectFound(handle ? "chunk sequence not re-read, handle" : "chunk sequence not re-read",
                [&](int acts) { return Make(acts, ChunkMutation::kChunkSequenceNotReread, handle); }, Order::kSc, 5);
  }
}

TEST(Chunks, TagReadBeforeTheLeaseIsFound) {
  for (const bool handle : {false, true}) {
    ExpectFound(handle ? "tag before the lease, handle" : "tag before the lease",
                [&](int acts) { return Make(acts, ChunkMutation::kTagReadBeforeLease, handle); }, Order::kSc, 5);
  }
}

}  // namespace
}  // namespace tierd::model
