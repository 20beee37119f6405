// The blocks of weights as they lie in files, read group by group: 32 columns of a row.
#pragma once

#include <math.h>

#include "formats.h"

namespace as {

// One group in the numbers of its packing (see formats.h).
struct Group {
  uint8_t quants[2][kGroup];  // the second one for the low bytes of two planes
  uint16_t halves[2];
  int8_t bytes[2];
  float single;
};

struct Format {
  const char* name;
  Packing packing;  // of floats: where no other is chosen
  int columns;      // of a block
  int bytes;
  bool floats;
};

inline const Format& format_of(as_format format) {
  static constexpr Format formats[] = {
      {"Q4_1", Packing::q4_1, 32, 20, false},   {"Q8_0", Packing::q8_0, 32, 34, false},
      {"F32", Packing::q8_0, 32, 128, true},    {"BF16", Packing::q8_0, 32, 64, true},
      {"F16", Packing::q8_0, 32, 64, true},     {"Q4_0", Packing::q4_0, 32, 18, false},
      {"Q5_0", Packing::q5_0, 32, 22, false},   {"Q5_1", Packing::q5_1, 32, 24, false},
      {"Q4_K", Packing::q4_k, 256, 144, false}, {"Q5_K", Packing::q5_k, 256, 176, false},
      {"Q6_K", Packing::q6_k, 256, 210, false}};
  return formats[format];
}

inline float bf16_to_float(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Q4_0, Q4_1, Q5_0, Q5_1: f16 scale, f16 minimum if any, fifth bits if any, nibbles, where column
// c shares a byte with column 16 + c.
inline void read_nibbles(const uint8_t* block, Layout layout, Group& group) {
  const int halves = layout.second == Second::minimum ? 2 : 1;
  memcpy(group.halves, block, 2 * static_cast<size_t>(halves));
  block += 2 * halves;
  uint32_t fifth = 0;
  if (layout.bits == 5) {
    memcpy(&fifth, block, sizeof fifth);
    block += sizeof fifth;
  }
  for (int c = 0; c < 16; c++) {
    group.quants[0][c] = static_cast<uint8_t>((block[c] & 15) | (fifth >> c & 1) << 4);
    group.quants[0][16 + c] = static_cast<uint8_t>(block[c] >> 4 | (fifth >> (16 + c) & 1) << 4);
  }
}

inline void read_q8_0(const uint8_t* block, Group& group) {
  memcpy(group.halves, block, 2);
  for (int c = 0; c < kGroup; c++) group.quants[0][c] = static_cast<uint8_t>(block[2 + c] ^ 0x80);
}

// Q4_K, Q5_K: f16 factors of scales and minima, twelve bytes of eight 6-bit scales and minima,
// fifth bits if any (bit `g` of byte c), nibbles, where groups 2 * i and 2 * i + 1 share bytes.
inline void read_super(const uint8_t* block, Layout layout, int g, Group& group) {
  memcpy(group.halves, block, 4);
  group.halves[1] ^= 0x8000;  // the minimum is subtracted there
  const uint8_t* six = block + 4;
  const int scale = g < 4 ? six[g] & 63 : (six[g + 4] & 15) | six[g - 4] >> 6 << 4;
  const int minimum = g < 4 ? six[g + 4] & 63 : six[g + 4] >> 4 | six[g] >> 6 << 4;
  group.bytes[0] = static_cast<int8_t>(scale);
  group.bytes[1] = static_cast<int8_t>(minimum);
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = block + (layout.bits == 5 ? 48 : 16) + 32 * (g / 2);
  for (int c = 0; c < kGroup; c++) {
    const int high = layout.bits == 5 ? fifth[c] >> g & 1 : 0;
    group.quants[0][c] = static_cast<uint8_t>((nibbles[c] >> 4 * (g % 2) & 15) | high << 4);
  }
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, int8 scales of 16 columns each, f16
// factor. Four groups share 64 of the nibble bytes and 32 of the others.
inline void read_q6_k(const uint8_t* block, int g, Group& group) {
  memcpy(&group.halves[0], block + 208, 2);
  group.halves[1] = group.halves[0];
  memcpy(group.bytes, block + 192 + 2 * g, 2);
  const int quarter = g % 4;
  const uint8_t* nibbles = block + 64 * (g / 4) + 32 * (quarter % 2);
  const uint8_t* upper = block + 128 + 32 * (g / 4);
  for (int c = 0; c < kGroup; c++) {
    const int low = nibbles[c] >> 4 * (quarter / 2) & 15;
    group.quants[0][c] = static_cast<uint8_t>(low | (upper[c] >> 2 * quarter & 3) << 4);
  }
}

inline float largest_of(const float* values) {
  float largest = 0.0f;
  for (int c = 0; c < kGroup; c++) largest = fmaxf(largest, fabsf(values[c]));
  return largest;
}

// The nearest quant; what is no number becomes the least one.
inline int quantised(float value, float scale, float limit) {
  const float quant = scale > 0.0f ? nearbyintf(value / scale) : 0.0f;
  return static_cast<int>(fminf(fmaxf(quant, -limit), limit));
}

// Quantises 32 values to 8 bits. The scale is rounded to f16 first and the values divided by what
// was stored, which is at least as close as dividing by the exact scale.
inline void quantise_q8_0(const float* values, Group& group) {
  group.halves[0] = float_to_half(fminf(largest_of(values) / 127.0f, 65504.0f));
  const float scale = half_to_float(group.halves[0]);
  for (int c = 0; c < kGroup; c++) {
    group.quants[0][c] = static_cast<uint8_t>(quantised(values[c], scale, 127.0f) + 128);
  }
}

// Quantises 32 values to 16 bits, in two bytes such that either is signed around 128. What is
// beyond 3e38 is cut, so that no product overflows.
inline void quantise_q16(const float* values, Group& group) {
  group.single = fminf(largest_of(values), 3e38f) / 127.0f;
  const float scale = group.single * (1.0f / 256.0f);
  for (int c = 0; c < kGroup; c++) {
    const int shifted = quantised(values[c], scale, 127.0f * 256.0f) + 128 * 256 + 128;
    group.quants[0][c] = static_cast<uint8_t>(shifted >> 8);
    group.quants[1][c] = static_cast<uint8_t>(shifted & 255);
  }
}

// Quantises 32 values to 4 bits between their least and largest.
inline void quantise_q4_1(const float* values, Group& group) {
  float low = values[0], high = values[0];
  for (int c = 1; c < kGroup; c++) {
    low = fminf(low, values[c]);
    high = fmaxf(high, values[c]);
  }
  group.halves[0] = float_to_half(fminf((high - low) / 15.0f, 65504.0f));
  group.halves[1] = float_to_half(fminf(fmaxf(low, -65504.0f), 65504.0f));
  const float scale = half_to_float(group.halves[0]), least = half_to_float(group.halves[1]);
  for (int c = 0; c < kGroup; c++) {
    const int quant = quantised(values[c] - least, scale, 15.0f);
    group.quants[0][c] = static_cast<uint8_t>(std::max(quant, 0));
  }
}

inline void read_floats(const uint8_t* block, as_format format, Packing packing, Group& group) {
  float values[kGroup];
  uint16_t halves[kGroup];
  if (format == AS_F32) {
    memcpy(values, block, sizeof values);
  } else {
    memcpy(halves, block, sizeof halves);
    for (int c = 0; c < kGroup; c++) {
      values[c] = format == AS_BF16 ? bf16_to_float(halves[c]) : half_to_float(halves[c]);
    }
  }
  switch (packing) {
    case Packing::q16: return quantise_q16(values, group);
    case Packing::q4_1: return quantise_q4_1(values, group);
    default: return quantise_q8_0(values, group);
  }
}

// Group `g` of the row whose blocks begin at `row`, for `packing`.
inline void read_group(const uint8_t* row, as_format format, Packing packing, int g,
                       Group& group) {
  const Format& f = format_of(format);
  const int groups = f.columns / kGroup;  // of a block
  const uint8_t* block = row + static_cast<size_t>(g / groups) * f.bytes;
  if (f.floats) return read_floats(block, format, packing, group);
  switch (packing) {
    case Packing::q8_0: return read_q8_0(block, group);
    case Packing::q6_k: return read_q6_k(block, g % groups, group);
    case Packing::q4_k:
    case Packing::q5_k: return read_super(block, layout(packing), g % groups, group);
    default: return read_nibbles(block, layout(packing), group);
  }
}

}  // namespace as
