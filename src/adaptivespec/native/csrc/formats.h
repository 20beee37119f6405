// How weights are packed: the formats of a GGUF file that are kept as they are, and one for floats.
//
// A matrix is packed as tiles of sixteen rows (outputs), one after the other. A tile is
// [scales of all groups][quants of all groups], a group being 32 columns, in the order in which the
// kernels read them. Published quants are rearranged, never requantised.
//
// Quants are unsigned. Four columns of sixteen rows are one vector of 64 bytes, byte 4 * row + j
// being column 4 * block + j, as a dot product of bytes wants them. Blocks 0..7 make a group:
//   8 bits  the eight vectors;
//   4 bits  four vectors, block k in the low nibbles and block 4 + k in the high ones;
//   5 and 6 bits  the lower four likewise, then one or two vectors with the remaining one or two
//           bits of each quant: those of blocks k and 4 + k lie in vector k / n at bits
//           e * (k % n) and 4 + e * (k % n), where e = 1 or 2 and n = 4 / e;
//   planes  the high bytes as 8 bits, then the low bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common.h"
#include "simd.h"

namespace as {

constexpr int kGroup = 32;     // columns that share a scale, of weights and activations
constexpr int kTile = kLanes;  // outputs of a tile
constexpr int kSuper = 8;      // groups of a block in the K formats

enum class Packing : uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, q16 };
constexpr int kPackings = 9;

// The numbers beside the quants of a group, for sixteen rows at once.
enum class Scales : uint8_t {
  half,        // 16 x f16
  half_pair,   // 16 x f16 twice
  super_pair,  // 16 x f16 twice per kSuper groups, each a factor of 16 x int8 in every group
  single       // 16 x f32
};

// What the second number of a pair is.
enum class Second : uint8_t {
  none,
  minimum,  // added to scale * quant
  columns,  // the scale of columns 16..31
  plane     // the scale of the low bytes: the first one divided by 256
};

struct Layout {
  int bits;
  int zero;  // the quant that stands for zero
  Scales scales;
  Second second;

  // Sums that are scaled on their own.
  constexpr int parts() const {
    return second == Second::columns || second == Second::plane ? 2 : 1;
  }
  constexpr int planes() const { return second == Second::plane ? 2 : 1; }
  constexpr int quant_bytes() const { return kGroup * kTile * bits / 8 * planes(); }
  // Per group; of a super_pair on average.
  constexpr int scale_bytes() const {
    return scales == Scales::half ? 32 : scales == Scales::super_pair ? 32 + 64 / kSuper : 64;
  }
};

constexpr Layout layout(Packing packing) {
  switch (packing) {
    case Packing::q4_0: return {4, 8, Scales::half, Second::none};
    case Packing::q4_1: return {4, 0, Scales::half_pair, Second::minimum};
    case Packing::q5_0: return {5, 16, Scales::half, Second::none};
    case Packing::q5_1: return {5, 0, Scales::half_pair, Second::minimum};
    case Packing::q8_0: return {8, 128, Scales::half, Second::none};
    case Packing::q4_k: return {4, 0, Scales::super_pair, Second::minimum};
    case Packing::q5_k: return {5, 0, Scales::super_pair, Second::minimum};
    case Packing::q6_k: return {6, 32, Scales::super_pair, Second::columns};
    case Packing::q16: return {8, 128, Scales::single, Second::plane};
  }
  return {};
}

constexpr int group_bytes(Packing packing) {
  return layout(packing).scale_bytes() + layout(packing).quant_bytes();
}

// Where the numbers of group `g` begin; of a super_pair, where its factors do and its bytes.
constexpr size_t scale_at(Layout layout, int g) {
  return layout.scales == Scales::super_pair
             ? static_cast<size_t>(g / kSuper) * kSuper * layout.scale_bytes()
             : static_cast<size_t>(g) * layout.scale_bytes();
}
constexpr size_t super_bytes_at(Layout layout, int g) {
  return scale_at(layout, g) + 64 + 32 * static_cast<size_t>(g % kSuper);
}

}  // namespace as
