// Knows, at the price of one load, whether this is still the process that set things up: a page that the kernel wipes in a forked child
// (MADV_WIPEONFORK), also after a raw clone that runs no atfork handler. A vfork child sees the parent's value, which is right: same memory.
//
// Process-wide; any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace tierd::client {

namespace fork_mark_detail {
extern std::atomic<std::atomic<std::uint32_t>*> mark;
extern std::atomic<std::uint32_t> generation;
extern std::atomic<std::uint32_t> forks;
inline constexpr std::uint32_t kSet = 1;
inline constexpr std::uint32_t kUnderWay = 1;       // bits 0-7 of `forks`: forks whose child may not have its copy of the memory yet
inline constexpr std::uint32_t kUnderWayMask = 0xff;
inline constexpr std::uint32_t kBegun = 0x100;      // bits 8-31: forks that have begun
}  // namespace fork_mark_detail

// Whether no fork happened since the last SetForkMark.
inline bool SameProcess() {
  return fork_mark_detail::mark.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) == fork_mark_detail::kSet;
}

// Number of forks between the first process and this one; what was made under another number was inherited.
inline std::uint32_t ForkGeneration() { return fork_mark_detail::generation.load(std::memory_order_relaxed); }

// The forks that this process did, and those that it is doing. What was made under one word and is looked at under the same one, with no fork under way, is
// in no child.
inline std::uint32_t ForkWord() { return fork_mark_detail::forks.load(std::memory_order_relaxed); }
inline bool MayBeInAChild(std::uint32_t word) { return (word & fork_mark_detail::kUnderWayMask) != 0 || word != ForkWord(); }
// A fork has begun, and its handlers may be looking at what it concerns. What is taken from their sight before this says no, they do not see.
inline bool ForkUnderWay() { return (fork_mark_detail::forks.load(std::memory_order_seq_cst) & fork_mark_detail::kUnderWayMask) != 0; }
// Around fork(), in the parent.
void ForkBegins();
void ForkIsOver();

// Makes the page, once per process tree. Without MADV_WIPEONFORK (kernels before 4.14) only the atfork handlers notice forks.
void InitForkMark();

// In a child: true for the one caller that has to take over (it then calls EndTakeOver); false when it was done already or somebody else is at it.
bool BeginTakeOver();
void EndTakeOver();

}  // namespace tierd::client
