// Rows of activations: quantised for the kernels, and the functions between matrix products.
#pragma once

#include "weights.h"

namespace as {

// Quantised rows [rows, columns]: value = scale * (256 * high + low) in AS_A16, scale * high in
// AS_A8. Per row and group: scale, scale * sum of the quants (for weights with a minimum), and
// -128 * sum of the quants (for weights whose zero is not quant 0), of all columns and of the first
// sixteen.
struct QuantisedRows {
  int columns = 0;
  Buffer<int8_t> high, low;
  Buffer<float> scale, scaled_sum;
  Buffer<int32_t> offset, first_offset;

  QuantisedRows() = default;
  QuantisedRows(int rows, int columns)
      : columns(columns),
        high(static_cast<size_t>(rows) * columns),
        low(static_cast<size_t>(rows) * columns),
        scale(static_cast<size_t>(rows) * columns / kGroup),
        scaled_sum(static_cast<size_t>(rows) * columns / kGroup),
        offset(static_cast<size_t>(rows) * columns / kGroup),
        first_offset(static_cast<size_t>(rows) * columns / kGroup) {}

  int groups() const { return columns / kGroup; }
};

// Quantises one group: x0 holds its first sixteen columns, x1 the others.
AS_INLINE void quantise(const QuantisedRows& rows, int row, int group, Floats x0, Floats x1,
                        as_mode mode) {
  const float most = largest(max(absolute(x0), absolute(x1)));
  const float limit = mode == AS_A8 ? 127.0f : 32512.0f;  // 127 * 256: the high byte stays signed
  // Below 1e-30 the inverse would overflow; such a group is zero for all purposes.
  const bool nothing = most < 1e-30f;
  const float scale = nothing ? 0.0f : most / limit;
  const Floats inverse = broadcast(nothing ? 0.0f : limit / most);
  Ints v0 = to_ints(mul(x0, inverse));
  Ints v1 = to_ints(mul(x1, inverse));
  // Unsigned, as a row with an infinity in it may overflow here; its result is void anyway.
  const IntPair halves = sums(v0, v1);
  const uint32_t first = static_cast<uint32_t>(halves.first);
  const uint32_t total = first + static_cast<uint32_t>(halves.second);
  const size_t entry = static_cast<size_t>(row) * rows.groups() + group;
  rows.scale[entry] = scale;
  rows.scaled_sum[entry] = scale * static_cast<float>(static_cast<int32_t>(total));
  rows.offset[entry] = static_cast<int32_t>(0u - 128u * total);
  rows.first_offset[entry] = static_cast<int32_t>(0u - 128u * first);
  const size_t at = static_cast<size_t>(row) * rows.columns + static_cast<size_t>(group) * kGroup;
  if (mode == AS_A16) {
    const Ints half = broadcast_int(128);
    const Ints h0 = shift_right<8>(add(v0, half));
    const Ints h1 = shift_right<8>(add(v1, half));
    store_bytes(&rows.low[at], sub(v0, shift_left<8>(h0)));
    store_bytes(&rows.low[at + 16], sub(v1, shift_left<8>(h1)));
    v0 = h0;
    v1 = h1;
  }
  store_bytes(&rows.high[at], v0);
  store_bytes(&rows.high[at + 16], v1);
}

// Quantises columns [begin, end) of a row; both are multiples of 32.
AS_INLINE void quantise_span(const QuantisedRows& rows, int row, const float* x, int begin, int end,
                             as_mode mode) {
  for (int c = begin; c < end; c += kGroup) {
    quantise(rows, row, c / kGroup, load(x + c), load(x + c + 16), mode);
  }
}

// Root-mean-square norm of x [size] with its gain, quantised into a row.
inline void norm_row(const float* x, const float* gain, int size, float epsilon,
                     const QuantisedRows& rows, int row, as_mode mode) {
  Floats squares = zero();
  for (int c = 0; c < size; c += kLanes) squares = fma(load(x + c), load(x + c), squares);
  const float mean = sum(squares) / static_cast<float>(size);
  const Floats factor = broadcast(1.0f / sqrtf(mean + epsilon));
  for (int c = 0; c < size; c += kGroup) {
    const Floats x0 = mul(mul(load(x + c), factor), load(gain + c));
    const Floats x1 = mul(mul(load(x + c + 16), factor), load(gain + c + 16));
    quantise(rows, row, c / kGroup, x0, x1, mode);
  }
}

// Rotates a head x [head_dim] by its position's angles and scales it. Pairs are (i, i + half).
// Written per element: every operation is exact or a rounding the source names, so the compiler may
// vectorise as it likes.
inline void rotate_head(float* x, const float* cosine, const float* sine, int head_dim,
                        float factor) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[half + i];
    x[i] = factor * __builtin_fmaf(-b, sine[i], a * cosine[i]);
    x[half + i] = factor * __builtin_fmaf(a, sine[i], b * cosine[i]);
  }
}

AS_INLINE Floats swish(Floats gate) {
  const Floats decay = exponential(sub(zero(), gate));
  return div(gate, add(broadcast(1.0f), decay));
}

}  // namespace as
