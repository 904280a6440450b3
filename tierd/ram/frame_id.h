// Ids of the RAM tier, as types so that they are not mixed up.
#pragma once

#include <cstdint>

namespace tierd::ram {

// One frame (memory of one chunk). Dense, reused after the frame was freed; constant while the frame lives. A frame that the compactor
// moves gets another id: the move callback tells its owner.
enum class FrameId : std::uint32_t {};
inline constexpr FrameId kNoFrame{0xffffffffu};
constexpr std::uint32_t Raw(FrameId id) { return static_cast<std::uint32_t>(id); }

// Position of a segment in the allocator's table; reused after the segment left. Serials (location words) are never reused.
enum class SegmentIndex : std::uint16_t {};
inline constexpr SegmentIndex kNoSegment{0xffffu};
constexpr std::uint16_t Raw(SegmentIndex index) { return static_cast<std::uint16_t>(index); }

// What the owner of a frame is called by the tier: the number it gave at allocation (the engine's ObjectId). The tier only hands it back.
using OwnerId = std::uint32_t;
inline constexpr OwnerId kNoOwner = 0xffffffffu;

}  // namespace tierd::ram
