// Weight matrices, packed for the kernels as formats.h describes.
#pragma once

#include "blocks.h"
#include "common.h"
#include "formats.h"
#include "simd.h"

namespace as {

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

// Four quants at a time, as those of one row lie together. `quants` is where a group's begin in the
// tile, `lane` the row in the tile; the memory was zero.
inline void store_quants(Layout layout, uint8_t* quants, int lane, const uint8_t* values) {
  const auto merge = [](uint8_t* at, uint32_t bits) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    word |= bits;
    memcpy(at, &word, sizeof word);
  };
  quants += 4 * lane;
  for (int block = 0; block < 8; block++) {
    uint32_t word;
    memcpy(&word, values + 4 * block, sizeof word);
    const int k = block % 4, half = block / 4, extra = layout.bits - 4;
    if (layout.bits == 8) {
      memcpy(quants + 64 * block, &word, sizeof word);
      continue;
    }
    merge(quants + 64 * k, (word & 0x0F0F0F0F) << 4 * half);
    if (extra == 0) continue;
    const int steps = 4 / extra;
    merge(quants + 64 * (4 + k / steps),
          (word >> 4 & 0x0F0F0F0F) << (4 * half + extra * (k % steps)));
  }
}

inline void load_quants(Layout layout, const uint8_t* quants, int lane, uint8_t* values) {
  const auto load_word = [](const uint8_t* at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
  };
  quants += 4 * lane;
  for (int block = 0; block < 8; block++) {
    const int k = block % 4, half = block / 4, extra = layout.bits - 4;
    uint32_t word = load_word(quants + 64 * (layout.bits == 8 ? block : k));
    if (layout.bits < 8) word = word >> 4 * half & 0x0F0F0F0F;
    if (layout.bits < 8 && extra > 0) {
      const int steps = 4 / extra;
      const uint32_t upper = load_word(quants + 64 * (4 + k / steps));
      const uint32_t mask = extra == 1 ? 0x01010101 : 0x03030303;
      word |= (upper >> (4 * half + extra * (k % steps)) & mask) << 4;
    }
    memcpy(values + 4 * block, &word, sizeof word);
  }
}

inline void store_scales(Layout layout, uint8_t* tile, int g, int lane, const Group& group) {
  uint8_t* at = tile + scale_at(layout, g);
  if (layout.scales == Scales::single) {
    memcpy(at + 4 * lane, &group.single, 4);
    return;
  }
  memcpy(at + 2 * lane, &group.halves[0], 2);
  if (layout.scales == Scales::half) return;
  memcpy(at + 32 + 2 * lane, &group.halves[1], 2);
  if (layout.scales == Scales::half_pair) return;
  uint8_t* bytes = tile + super_bytes_at(layout, g);
  memcpy(bytes + lane, &group.bytes[0], 1);
  memcpy(bytes + kTile + lane, &group.bytes[1], 1);
}

// The first and the second number of a group, as in the kernels.
inline void load_scales(Layout layout, const uint8_t* tile, int g, int lane, float* scales) {
  const uint8_t* at = tile + scale_at(layout, g);
  if (layout.scales == Scales::single) {
    memcpy(&scales[0], at + 4 * lane, 4);
    scales[1] = scales[0] * (1.0f / 256.0f);
    return;
  }
  for (int i = 0; i < (layout.scales == Scales::half ? 1 : 2); i++) {
    uint16_t half;
    memcpy(&half, at + 32 * i + 2 * lane, 2);
    scales[i] = half_to_float(half);
    if (layout.scales == Scales::super_pair) {
      const uint8_t* bytes = tile + super_bytes_at(layout, g) + kTile * i;
      scales[i] *= static_cast<float>(static_cast<int8_t>(bytes[lane]));
    }
  }
}

// Packs `data` into `matrix`, whose sizes, packing and zeroed memory are set. The packing is that
// of the format; floats may be packed as q8_0 or q16.
inline void pack(const Matrix& matrix, as_format format, const void* data,
                 const int32_t* row_order) {
  const Layout p = layout(matrix.packing);
  const Format& f = format_of(format);
  const int groups = matrix.groups();
  const size_t row_bytes = static_cast<size_t>(matrix.columns / f.columns) * f.bytes;
  Group group{};
  for (int row = 0; row < matrix.rows; row++) {
    const int from = row_order != nullptr ? row_order[row] : row;
    const uint8_t* source = static_cast<const uint8_t*>(data) + row_bytes * from;
    const int lane = row % kTile;
    uint8_t* tile = matrix.bytes + matrix.tile_bytes() * static_cast<size_t>(row / kTile);
    uint8_t* quants = tile + static_cast<size_t>(groups) * p.scale_bytes();
    for (int g = 0; g < groups; g++) {
      read_group(source, format, matrix.packing, g, group);
      store_scales(p, tile, g, lane, group);
      for (int plane = 0; plane < p.planes(); plane++) {
        store_quants(p, quants, lane, group.quants[plane]);
        quants += p.quant_bytes() / p.planes();
      }
    }
  }
}

// Row `row` of `matrix` as floats, to `out` [columns]: what dequantising the file gives.
inline void unpack_row(const Matrix& matrix, int row, float* out) {
  const Layout p = layout(matrix.packing);
  const int groups = matrix.groups(), lane = row % kTile;
  const uint8_t* tile = matrix.tile(row / kTile).bytes;
  const uint8_t* quants = tile + static_cast<size_t>(groups) * p.scale_bytes();
  for (int g = 0; g < groups; g++, out += kGroup, quants += p.quant_bytes()) {
    float scales[2];
    uint8_t values[kGroup], low[kGroup];
    load_scales(p, tile, g, lane, scales);
    load_quants(p, quants, lane, values);
    if (p.second == Second::plane) load_quants(p, quants + p.quant_bytes() / 2, lane, low);
    for (int c = 0; c < kGroup; c++) {
      const int quant = values[c] - p.zero;
      if (p.second == Second::plane) {
        out[c] = scales[1] * static_cast<float>(256 * quant + low[c] - p.zero);
      } else if (p.second == Second::minimum) {
        out[c] = scales[0] * static_cast<float>(quant) + scales[1];
      } else {
        const bool second = p.second == Second::columns && c >= kGroup / 2;
        out[c] = scales[second] * static_cast<float>(quant);
      }
    }
  }
}

}  // namespace as
