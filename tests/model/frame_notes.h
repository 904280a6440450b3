// Words of the modelled protocol, and what a daemon keeps about its frames: both are the same in every model of this folder.
#pragma once

#include <array>
#include <cstdint>

#include "tests/model/machine.h"

namespace tierd::model {

inline constexpr std::uint8_t kKeyA = 1;
inline constexpr std::uint8_t kKeyB = 2;
// What a frame can hold: 0 nothing, A version 1, A version 2, B.
constexpr std::uint8_t ContentOf(int key, int version) { return static_cast<std::uint8_t>(key == kKeyA ? version : 3); }
inline constexpr const char* kContentNames[] = {"nothing", "A v1", "A v2", "B"};
// v1 of A may be served while the clock shows 0, all else always: the clock never shows 2.
constexpr std::uint8_t DeadlineOf(int key, int version) { return key == kKeyA && version == 1 ? 1 : 2; }
constexpr std::uint8_t ValidUntil(std::uint8_t content) { return content == 1 ? 1 : 2; }

// Location word: frame and fill number (1..31). Lease word: key and fill number, 0 = any.
constexpr std::uint8_t LocationWord(int frame, int fill) { return static_cast<std::uint8_t>(((frame + 1) << 5) | fill); }
constexpr int FrameOf(std::uint8_t location) { return (location >> 5) - 1; }
constexpr int FillOf(std::uint8_t word) { return word & 31; }
constexpr std::uint8_t LeaseWord(int key, int fill) { return static_cast<std::uint8_t>((key << 5) | fill); }
constexpr int KeyOf(std::uint8_t lease) { return lease >> 5; }

using Registers = std::array<std::uint8_t, kRegisters>;

// Notes about up to three frames in 2 + 3 * 3 registers from `base` on: free, live or in limbo, content, the lease word that names it.
class FrameNotes {
 public:
  static constexpr int kRegistersUsed(int frames) { return 2 + 3 * frames; }
  FrameNotes(Registers& reg, int base, int frames) : reg_(reg), base_(base), frames_(frames) {}

  // A frame to write, or -1.
  int Free() {
    for (int f = 0; f < frames_; ++f) {
      if (Status(f) == kFree) return f;
    }
    return -1;
  }
  bool AnyLimbo() {
    for (int f = 0; f < frames_; ++f) {
      if (Status(f) == kLimbo) return true;
    }
    return false;
  }
  void Take(int frame, std::uint8_t content, std::uint8_t lease) {
    Status(frame) = kLive;
    At(3 * frame + 1) = content;
    At(3 * frame + 2) = lease;
  }
  void Retire(int frame) { Status(frame) = kLimbo; }
  std::uint8_t content(int frame) { return At(3 * frame + 1); }

  // A scan: who may leave is settled at its fence, each lease word keeps what it covers, the rest is free afterwards.
  void BeginScan() {
    Candidates() = Leased() = 0;
    for (int f = 0; f < frames_; ++f) {
      if (Status(f) == kLimbo) Candidates() |= Bit(f);
    }
  }
  void AddCandidate(int frame) { Candidates() |= Bit(frame); }
  void Look(std::uint8_t word) {
    for (int f = 0; f < frames_; ++f) {
      const std::uint8_t own = At(3 * f + 2);
      const bool covers = word == own || (FillOf(word) == 0 && KeyOf(word) == KeyOf(own));
      if (word != 0 && covers) Leased() |= Bit(f);
    }
  }
  void EndScan() {
    for (int f = 0; f < frames_; ++f) {
      if ((Candidates() & Bit(f)) == 0 || (Leased() & Bit(f)) != 0) continue;
      Status(f) = kFree;
      At(3 * f + 1) = At(3 * f + 2) = 0;
    }
    Candidates() = Leased() = 0;
  }

 private:
  enum : std::uint8_t { kFree, kLive, kLimbo };
  static std::uint8_t Bit(int frame) { return static_cast<std::uint8_t>(1u << frame); }
  std::uint8_t& Candidates() { return reg_[static_cast<std::size_t>(base_)]; }
  std::uint8_t& Leased() { return reg_[static_cast<std::size_t>(base_ + 1)]; }
  std::uint8_t& At(int i) { return reg_[static_cast<std::size_t>(base_ + 2 + i)]; }
  std::uint8_t& Status(int frame) { return At(3 * frame); }

  Registers& reg_;
  const int base_;
  const int frames_;
};

}  // namespace tierd::model
