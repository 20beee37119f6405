// Weight matrices, packed for the kernels: tiles of sixteen rows (outputs), one after the other.
//
// A tile is [scales of all groups][quants of all groups], a group being 32 columns:
//   Q4_1  scales 16 x f16 scale, 16 x f16 minimum; quants 4 x 64 bytes, where byte 4 * lane + j of
//         block k holds column 4 * k + j in its low and column 16 + 4 * k + j in its high nibble;
//   Q8_0  scales 16 x f16; quants 8 x 64 bytes, byte 4 * lane + j of block k being column
//         4 * k + j, plus 128 so that it is unsigned.
// So the quants of four columns for sixteen outputs are one vector, in the order in which a dot
// product of bytes wants them. The published weights are rearranged, never requantised.
#pragma once

#include <math.h>

#include "common.h"
#include "simd.h"

namespace as {

constexpr int kGroup = 32;      // columns that share a scale, of weights and activations
constexpr int kTile = kLanes;   // outputs of a tile

enum class Packing : uint8_t { q4_1, q8_0 };

constexpr int scale_bytes(Packing packing) { return packing == Packing::q4_1 ? 64 : 32; }
constexpr int quant_bytes(Packing packing) { return packing == Packing::q4_1 ? 256 : 512; }
constexpr int group_bytes(Packing packing) { return scale_bytes(packing) + quant_bytes(packing); }

struct Tile {
  const uint8_t* bytes;
  Packing packing;
};

// One matrix [rows, columns]; rows beyond the last fill its last tile with zero weights.
struct Matrix {
  int rows = 0;
  int columns = 0;
  Packing packing = Packing::q8_0;
  uint8_t* bytes = nullptr;  // NULL: not given yet

  int groups() const { return columns / kGroup; }
  int tiles() const { return (rows + kTile - 1) / kTile; }
  size_t tile_bytes() const { return static_cast<size_t>(groups()) * group_bytes(packing); }
  Tile tile(int i) const { return {bytes + tile_bytes() * static_cast<size_t>(i), packing}; }
};

inline void pack_q4_1(const uint8_t* block, uint8_t* scales, uint8_t* quants, int lane) {
  memcpy(scales + 2 * lane, block, 2);
  memcpy(scales + 32 + 2 * lane, block + 2, 2);
  // The file pairs columns c and c + 16 in a byte as well; only the order changes.
  for (int k = 0; k < 4; k++) memcpy(quants + 64 * k + 4 * lane, block + 4 + 4 * k, 4);
}

inline void pack_q8_0(const uint8_t* block, uint8_t* scales, uint8_t* quants, int lane) {
  memcpy(scales + 2 * lane, block, 2);
  for (int c = 0; c < kGroup; c++) {
    quants[64 * (c / 4) + 4 * lane + c % 4] = static_cast<uint8_t>(block[2 + c] ^ 0x80);
  }
}

// Quantises 32 values to a Q8_0 block. The scale is rounded to f16 first and the values divided by
// what was stored, which is at least as close as dividing by the exact scale.
inline void quantise_q8_0(const float* values, uint8_t* block) {
  float largest = 0.0f;
  for (int c = 0; c < kGroup; c++) largest = fmaxf(largest, fabsf(values[c]));
  const uint16_t stored = float_to_half(fminf(largest / 127.0f, 65504.0f));
  const float scale = half_to_float(stored);
  memcpy(block, &stored, 2);
  for (int c = 0; c < kGroup; c++) {
    const float quant = scale > 0.0f ? nearbyintf(values[c] / scale) : 0.0f;
    const float clipped = fminf(fmaxf(quant, -127.0f), 127.0f);
    block[2 + c] = static_cast<uint8_t>(static_cast<int8_t>(clipped));
  }
}

inline float bf16_to_float(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Packs `data` into `matrix`, whose sizes, packing and zeroed memory are set.
inline void pack(const Matrix& matrix, as_format format, const void* data,
                 const int32_t* row_order) {
  const auto* source = static_cast<const uint8_t*>(data);
  const int groups = matrix.groups();
  const size_t block_bytes = format == AS_Q4_1 ? 20 : format == AS_Q8_0 ? 34
                             : format == AS_F32 ? 4 * kGroup : 2 * kGroup;
  for (int row = 0; row < matrix.rows; row++) {
    const int from = row_order != nullptr ? row_order[row] : row;
    const uint8_t* block = source + static_cast<size_t>(from) * groups * block_bytes;
    uint8_t* tile = matrix.bytes + matrix.tile_bytes() * static_cast<size_t>(row / kTile);
    uint8_t* quants = tile + static_cast<size_t>(groups) * scale_bytes(matrix.packing);
    const int lane = row % kTile;
    for (int g = 0; g < groups; g++, block += block_bytes) {
      uint8_t* scale = tile + g * scale_bytes(matrix.packing);
      uint8_t* quant = quants + g * quant_bytes(matrix.packing);
      if (format == AS_Q4_1) {
        pack_q4_1(block, scale, quant, lane);
      } else if (format == AS_Q8_0) {
        pack_q8_0(block, scale, quant, lane);
      } else {
        float values[kGroup];
        uint8_t quantised[34];
        if (format == AS_F32) {
          memcpy(values, block, sizeof values);
        } else {
          uint16_t halves[kGroup];
          memcpy(halves, block, sizeof halves);
          for (int c = 0; c < kGroup; c++) values[c] = bf16_to_float(halves[c]);
        }
        quantise_q8_0(values, quantised);
        pack_q8_0(quantised, scale, quant, lane);
      }
    }
  }
}

// Row `row` of `matrix` as floats, to `out` [columns]: what dequantising the file gives.
inline void unpack_row(const Matrix& matrix, int row, float* out) {
  const int groups = matrix.groups();
  const int lane = row % kTile;
  const uint8_t* tile = matrix.tile(row / kTile).bytes;
  const uint8_t* quants = tile + static_cast<size_t>(groups) * scale_bytes(matrix.packing);
  for (int g = 0; g < groups; g++, out += kGroup) {
    uint16_t halves[2] = {0, 0};
    const uint8_t* scales = tile + g * scale_bytes(matrix.packing) + 2 * lane;
    memcpy(&halves[0], scales, 2);
    const float scale = half_to_float(halves[0]);
    const uint8_t* quant = quants + g * quant_bytes(matrix.packing) + 4 * lane;
    if (matrix.packing == Packing::q4_1) {
      memcpy(&halves[1], scales + 32, 2);
      const float minimum = half_to_float(halves[1]);
      for (int c = 0; c < 16; c++) {
        const uint8_t pair = quant[64 * (c / 4) + c % 4];
        out[c] = scale * static_cast<float>(pair & 15) + minimum;
        out[16 + c] = scale * static_cast<float>(pair >> 4) + minimum;
      }
    } else {
      for (int c = 0; c < kGroup; c++) {
        out[c] = scale * static_cast<float>(static_cast<int>(quant[64 * (c / 4) + c % 4]) - 128);
      }
    }
  }
}

}  // namespace as
