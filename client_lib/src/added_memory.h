// The memory that the library adds to a process: copies of cached bytes and what they need. A
// process without the library would not have it, so it has one budget per process and one per job.
// The daemon divides the job's budget among the processes (SessionPage::added_limit_bytes); each
// process keeps its own sum.
//
// Memory that a child inherits over a fork counts in its process sum, since the child may keep it
// alive. It does not count in the job's sum, where the parent has it. Any thread, signal handlers
// too. It does not: allocate, or know what the memory is.
#pragma once

#include <cstdint>

#include "client_lib/src/client.h"

namespace tierd::client {

enum class Added : std::uint32_t {
  kMaps,          // copies of cached bytes that mappings show
  kSealedCopies,  // descriptors that became copies in memory
  kKeptMappings,  // page tables of mappings that are kept for the next one
  kHandles,       // copies that open handles of libtier keep
  kBuffers,       // for the length of a call
  kHeap,          // of the preload library; counted, never refused
  kCount
};
inline constexpr const char* kAddedNames[] = {"maps",    "sealed_copies", "kept_mappings",
                                              "handles", "buffers",       "heap"};
static_assert(sizeof kAddedNames / sizeof *kAddedNames == static_cast<std::size_t>(Added::kCount));

// kOptional: there is another way, such as the source's own file. kNeeded: there is none. The last
// quarter of a budget is for those.
enum class AddedUse : std::uint8_t { kOptional, kNeeded };

// One piece of added memory. A plain struct: tables of it begin as zero pages.
struct AddedBytes {
  std::uint64_t bytes;
  std::uint32_t generation;  // of the process that took it (ForkGeneration)
  Added kind;
};

// Counts `bytes`, rounded up to pages, against the budget. False: they do not fit, and nothing is
// counted but the refusal.
bool TakeAdded(Client& client, Added kind, std::uint64_t bytes, AddedUse use, AddedBytes& taken);
// The memory is gone. Nothing for a piece of 0 bytes; the piece is one afterwards.
void GiveAdded(Client& client, AddedBytes& taken);
// What is allocated whatever the budget says.
void CountAdded(Added kind, std::uint64_t bytes);
// The memory could not be had from the kernel.
void CountAddedFailure();
// Tells a new session's page what this process has added so far.
void PublishAdded(abi::SessionPage& page);

struct AddedFacts {
  std::uint64_t peak;
  std::uint64_t peak_of[static_cast<std::size_t>(Added::kCount)];
  std::uint64_t refused_by_budget;
  std::uint64_t refused_by_kernel;
};
AddedFacts AddedSoFar();
// In a child of fork: the parent's peaks and refusals are not its own.
void ForgetAddedPeaks();

}  // namespace tierd::client
