// A plan: the future order in which one consumer (a training rank) reads its samples, as a recipe of some 200 bytes. The document form
// is JSON: client_lib/python/PLAN.md has the kinds torch.*, README.md beside this file the others. Here: the value, what makes it
// valid, reading and writing the document. plan_orders.h computes the orders.
//
// Plain values, no thread rule. Documents come from outside: anything may be in them, and what is not a plan is refused with the
// name of the field.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "policies/orders/mt19937.h"
#include "policies/orders/permutations.h"
#include "tierd/base/status.h"

namespace tierd::orders {

enum class Kind : std::uint8_t {
  kTorchSequential,
  kTorchRandom,
  kTorchDistributed,
  kBlock,        // rank r of w reads the r-th of w contiguous pieces, each epoch the same
  kStrided,      // rank r of w reads r, r + w, r + 2w ... below n, each epoch the same
  kNumpyLegacy,  // a permutation of numpy.random.RandomState
  kNumpyPcg64,   // of numpy.random.default_rng
  kPython,       // of random.Random
  kDaliFile,     // DALI's file reader
};
std::string_view KindName(Kind kind);

// How the epochs of kNumpyLegacy, kNumpyPcg64, kPython and kDaliFile follow from one another.
enum class EpochRule : std::uint8_t {
  kReseed,    // a generator seeded with seed + epoch permutes 0..n-1
  kContinue,  // one generator, seeded before epoch 0, goes on; each epoch it permutes 0..n-1
  kInPlace,   // the same, but each epoch permutes what the last one left
  kSame,      // every epoch reads the permutation of `seed`
};
std::string_view RuleName(EpochRule rule);

// Where a generator stands when the plan begins: freshly seeded, or in a state of which word `index` is drawn next.
struct GeneratorStart {
  std::uint64_t seed = 0;
  std::optional<std::array<std::uint32_t, Mt19937::kWords>> words;
  std::uint32_t index = Mt19937::kWords;
};

// Fields as in PLAN.md; those of other kinds keep their defaults.
struct Plan {
  Kind kind = Kind::kTorchSequential;
  std::uint64_t samples = 0;           // n, 1 to kMaxSamples
  std::uint64_t epoch = 0;             // number of the first epoch described
  std::optional<std::uint64_t> epochs; // how many from there on; empty: nobody knows
  std::uint64_t position = 0;          // samples of the first epoch that have been read already
  std::uint64_t batch_size = 0;        // 0: no batches
  bool batch_drop_last = false;
  std::string list_sha256;             // 64 hexadecimal digits, or ""
  std::int64_t seed = 0;
  bool shuffle = true;                 // torch.distributed, dali.file
  std::uint64_t world = 1;
  std::uint64_t rank = 0;
  bool drop_last = false;              // torch.distributed
  bool set_epoch = true;               // torch.distributed
  bool replacement = false;            // torch.random, and the four below
  std::uint64_t draws = 0;
  bool shared = false;
  std::optional<GeneratorStart> start;
  std::uint32_t skip_first = 0;
  std::uint32_t skip_later = 0;
  EpochRule rule = EpochRule::kReseed;
  bool stick = true;                   // dali.file: each epoch the same shard
  StdUniform uniform = StdUniform::kMultiply;  // dali.file: whose std::shuffle
};

inline constexpr std::uint64_t kMaxSamples = 1ull << 30;
inline constexpr std::uint64_t kMaxWorld = 1ull << 31;
inline constexpr std::uint64_t kMaxEpoch = 1ull << 40;
inline constexpr std::size_t kMaxPlanBytes = 64 << 10;  // of a document

// kInvalid names the field that is missing or out of range.
Status CheckPlan(const Plan& plan);

// The plan in a document, checked. kUnsupported: of another format; kInvalid: not JSON, a field that is unknown or out of range.
Result<Plan> ParsePlan(std::string_view json);
// The document, on one line. Fields that have their default are left out.
std::string PlanToJson(const Plan& plan);

}  // namespace tierd::orders
