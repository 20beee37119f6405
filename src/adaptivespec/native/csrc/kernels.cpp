// The kernels behind RowBlocks: one template for every packing, mode and number of rows.
#include "kernels.h"

#include <utility>

namespace as {

namespace {

// Blocks k and 4 + k of a group's quants, as bytes (see formats.h); to be called for k = 0..3.
// `rest` carries over what the low and the high nibbles lack, where it is due at bits 4..7.
template <int bits>
AS_INLINE void next_blocks(const uint8_t* quants, int k, Ints (&rest)[2], Ints (&blocks)[2]) {
  if constexpr (bits == 8) {
    blocks[0] = load_ints(quants + 64 * k);
    blocks[1] = load_ints(quants + 64 * (4 + k));
  } else {
    const Ints pair = load_ints(quants + 64 * k);
    blocks[0] = low_nibbles(pair);
    blocks[1] = high_nibbles(pair);
  }
  if constexpr (bits == 5 || bits == 6) {
    constexpr int extra = bits - 4, steps = 4 / extra;
    if (k % steps == 0) {
      rest[1] = load_ints(quants + 64 * (4 + k / steps));
      rest[0] = shift_left<4>(rest[1]);
    }
    for (int half = 0; half < 2; half++) {
      blocks[half] = either(blocks[half], mask_bytes(rest[half], extra == 1 ? 0x10 : 0x30));
      rest[half] = shift_right<extra>(rest[half]);
    }
  }
}

// The numbers beside a group: a scale per part, and the minimum of the packings that have one.
struct GroupScales {
  Floats first, second;
};

template <Packing packing> AS_INLINE GroupScales load_scales(const uint8_t* tile, int g) {
  constexpr Layout p = layout(packing);
  const uint8_t* at = tile + scale_at(p, g);
  const auto* halves = reinterpret_cast<const uint16_t*>(at);
  if constexpr (p.scales == Scales::single) {
    const Floats scale = load(reinterpret_cast<const float*>(at));
    return {scale, mul(scale, broadcast(1.0f / 256.0f))};
  } else if constexpr (p.scales == Scales::half) {
    return {load_halves(halves), zero()};
  } else if constexpr (p.scales == Scales::half_pair) {
    return {load_halves(halves), load_halves(halves + kTile)};
  } else {
    const uint8_t* bytes = tile + super_bytes_at(p, g);
    return {mul(load_halves(halves), load_bytes(bytes)),
            mul(load_halves(halves + kTile), load_bytes(bytes + kTile))};
  }
}

// What a part's sums start from, so that quant `zero` counts as nothing.
template <Packing packing, int part> AS_INLINE Ints start_of(const QuantisedRows& x, size_t entry) {
  constexpr Layout p = layout(packing);
  if constexpr (p.zero == 0) return broadcast_int(0);
  constexpr int shift = p.zero == 128 ? 0 : p.zero == 32 ? 2 : p.zero == 16 ? 3 : 4;
  static_assert(p.zero == 0 || p.zero == 128 >> shift, "offsets are -128 * sum");
  Ints start = broadcast_int(x.offset[entry]);
  if constexpr (p.second == Second::columns) {
    const Ints first = broadcast_int(x.first_offset[entry]);
    start = part == 0 ? first : sub(start, first);
  }
  return shift_right<shift>(start);
}

// Where a few rows of quantised activations have their group in hand.
struct GroupOfRows {
  const QuantisedRows& x;
  const int8_t *high, *low;  // row r: + r * columns
  size_t columns, entry, groups;

  size_t entry_of(int r) const { return entry + static_cast<size_t>(r) * groups; }
};

template <int rows, bool narrow, as_mode mode>
AS_INLINE void add_dots(Ints (&dot)[rows], Ints (&fine)[rows], Ints weights, int column,
                        const GroupOfRows& at) {
  const auto add_dot = [&](Ints total, const int8_t* x) {
    return narrow ? dot_nibbles(total, weights, broadcast_bytes(x))
                  : dot_bytes(total, weights, broadcast_bytes(x));
  };
  for (int r = 0; r < rows; r++) {
    dot[r] = add_dot(dot[r], at.high + r * at.columns + column);
    if (mode == AS_A16) fine[r] = add_dot(fine[r], at.low + r * at.columns + column);
  }
}

// Adds one part of group `g` to the totals. Scales come last: they need registers of their own.
template <int rows, Packing packing, as_mode mode, int part>
AS_INLINE void add_part(Floats (&total)[rows], const uint8_t* tile, int g, const uint8_t* quants,
                        const GroupOfRows& at) {
  constexpr Layout p = layout(packing);
  constexpr bool narrow = p.bits < 8, columns = p.second == Second::columns;
  Ints dot[rows], fine[rows];  // of the high and the low halves
  for (int r = 0; r < rows; r++) {
    const Ints start = start_of<packing, part>(at.x, at.entry_of(r));
    dot[r] = mode == AS_A8 ? start : broadcast_int(0);
    fine[r] = start;
  }
  Ints rest[2] = {broadcast_int(0), broadcast_int(0)}, blocks[2];
#ifdef AS_AVX512
#pragma GCC unroll 4  // with half the registers it costs more than it saves
#endif
  for (int k = 0; k < 4; k++) {
    next_blocks<p.bits>(quants, k, rest, blocks);
    if (!columns || part == 0) add_dots<rows, narrow, mode>(dot, fine, blocks[0], 4 * k, at);
    if (!columns || part == 1) add_dots<rows, narrow, mode>(dot, fine, blocks[1], 16 + 4 * k, at);
  }
  const GroupScales scales = load_scales<packing>(tile, g);
  for (int r = 0; r < rows; r++) {
    if constexpr (p.second == Second::minimum) {
      total[r] = fma(scales.second, broadcast(at.x.scaled_sum[at.entry_of(r)]), total[r]);
    }
    const Ints whole = mode == AS_A16 ? add(shift_left<8>(dot[r]), fine[r]) : dot[r];
    const Floats factor = mul(part == 0 ? scales.first : scales.second,
                              broadcast(at.x.scale[at.entry_of(r)]));
    total[r] = fma(to_floats(whole), factor, total[r]);
  }
}

template <int rows, Packing packing, as_mode mode>
void multiply_tile(const uint8_t* tile, const QuantisedRows& x, int first, float* out,
                   size_t stride, bool accumulate, Prefetch ahead) {
  constexpr Layout p = layout(packing);
  const size_t groups = x.groups(), columns = x.columns;
  GroupOfRows at{x, x.high.data() + first * columns, x.low.data() + first * columns,
                 columns, first * groups, groups};
  const uint8_t* quants = tile + groups * p.scale_bytes();

  Floats total[rows];
  for (int r = 0; r < rows; r++) total[r] = zero();
  for (int g = 0; g < x.groups(); g++) {
    for (int i = 0; i < ahead.lines; i++, ahead.next += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead.next), _MM_HINT_T1);
    }
    add_part<rows, packing, mode, 0>(total, tile, g, quants, at);
    if constexpr (p.parts() == 2) {
      const uint8_t* plane = quants + (p.planes() == 2 ? p.quant_bytes() / 2 : 0);
      add_part<rows, packing, mode, 1>(total, tile, g, plane, at);
    }
    quants += p.quant_bytes();
    at.high += kGroup;
    at.low += kGroup;
    at.entry++;
  }
  for (int r = 0; r < rows; r++) {
    float* y = out + static_cast<size_t>(first + r) * stride;
    store(y, accumulate ? add(load(y), total[r]) : total[r]);
  }
}

template <Packing packing, int... a8, int... a16>
constexpr TileKernels all_rows(std::integer_sequence<int, a8...>,
                               std::integer_sequence<int, a16...>) {
  return {{multiply_tile<a8 + 1, packing, AS_A8>...}, {multiply_tile<a16 + 1, packing, AS_A16>...}};
}

template <Packing packing> constexpr TileKernels all_rows() {
  return all_rows<packing>(std::make_integer_sequence<int, kRowsA8>(),
                           std::make_integer_sequence<int, kRowsA16>());
}

}  // namespace

const TileKernels kTileKernels[kPackings] = {
    all_rows<Packing::q4_0>(), all_rows<Packing::q4_1>(), all_rows<Packing::q5_0>(),
    all_rows<Packing::q5_1>(), all_rows<Packing::q8_0>(), all_rows<Packing::q4_k>(),
    all_rows<Packing::q5_k>(), all_rows<Packing::q6_k>(), all_rows<Packing::q16>()};

}  // namespace as
