// Matrix products: sixteen outputs times a few rows, whole tiles at a time.
//
// Integer dot products within a group are exact, and the groups of a row are added up in one order.
// So a row's result does not depend on how many rows share the registers with it.
#pragma once

#include "activations.h"

namespace as {

// Rows that share one walk over a tile: as many as the registers hold.
#ifdef AS_AVX512
constexpr int kRowsA8 = 8, kRowsA16 = 5;
#else
constexpr int kRowsA8 = 4, kRowsA16 = 4;
#endif

// The cache lines a kernel fetches ahead while it works: `lines` per group, from `next` on.
struct Prefetch {
  const uint8_t* next;
  int lines;
};

template <int rows, Packing packing, as_mode mode>
void multiply_tile(const uint8_t* tile, const QuantisedRows& x, int first, float* out,
                   size_t stride, bool accumulate, Prefetch ahead) {
  const int columns = x.columns, groups = x.groups();
  const size_t group0 = static_cast<size_t>(first) * groups;
  const int8_t* high = x.high.data() + static_cast<size_t>(first) * columns;
  const int8_t* low = x.low.data() + static_cast<size_t>(first) * columns;
  const float* scales = x.scale.data() + group0;
  const float* sums = x.scaled_sum.data() + group0;
  const int32_t* offsets = x.offset.data() + group0;
  const uint8_t* quants = tile + static_cast<size_t>(groups) * scale_bytes(packing);

  Floats total[rows];
  for (int r = 0; r < rows; r++) total[r] = zero();
  for (int g = 0; g < groups; g++) {
    for (int i = 0; i < ahead.lines; i++, ahead.next += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead.next), _MM_HINT_T1);
    }
    const auto* scale = reinterpret_cast<const uint16_t*>(tile + g * scale_bytes(packing));
    Ints dot[rows], fine[rows];  // of the high and the low halves
    for (int r = 0; r < rows; r++) {
      const Ints start = packing == Packing::q8_0
                             ? broadcast_int(offsets[static_cast<size_t>(r) * groups + g])
                             : broadcast_int(0);
      dot[r] = mode == AS_A8 ? start : broadcast_int(0);
      fine[r] = start;
    }
    const int8_t* h = high + static_cast<size_t>(g) * kGroup;
    const int8_t* l = low + static_cast<size_t>(g) * kGroup;
    if constexpr (packing == Packing::q4_1) {
      for (int k = 0; k < 4; k++) {
        const Ints pair = load_ints(quants + 64 * k);
        const Ints w0 = low_nibbles(pair), w1 = high_nibbles(pair);
        for (int r = 0; r < rows; r++) {
          const size_t at = static_cast<size_t>(r) * columns + 4 * k;
          dot[r] = dot_nibbles(dot[r], w0, broadcast_bytes(h + at));
          if (mode == AS_A16) fine[r] = dot_nibbles(fine[r], w0, broadcast_bytes(l + at));
        }
        for (int r = 0; r < rows; r++) {
          const size_t at = static_cast<size_t>(r) * columns + 4 * k + 16;
          dot[r] = dot_nibbles(dot[r], w1, broadcast_bytes(h + at));
          if (mode == AS_A16) fine[r] = dot_nibbles(fine[r], w1, broadcast_bytes(l + at));
        }
      }
    } else {
      for (int k = 0; k < 8; k++) {
        const Ints w = load_ints(quants + 64 * k);
        for (int r = 0; r < rows; r++) {
          const size_t at = static_cast<size_t>(r) * columns + 4 * k;
          dot[r] = dot_bytes(dot[r], w, broadcast_bytes(h + at));
          if (mode == AS_A16) fine[r] = dot_bytes(fine[r], w, broadcast_bytes(l + at));
        }
      }
    }
    quants += quant_bytes(packing);
    const Floats weight_scale = load_halves(scale);
    for (int r = 0; r < rows; r++) {
      const size_t entry = static_cast<size_t>(r) * groups + g;
      if constexpr (packing == Packing::q4_1) {
        total[r] = fma(load_halves(scale + kTile), broadcast(sums[entry]), total[r]);
      }
      const Ints whole = mode == AS_A16 ? add(shift_left<8>(dot[r]), fine[r]) : dot[r];
      total[r] = fma(to_floats(whole), mul(weight_scale, broadcast(scales[entry])), total[r]);
    }
  }
  for (int r = 0; r < rows; r++) {
    float* y = out + static_cast<size_t>(first + r) * stride;
    store(y, accumulate ? add(load(y), total[r]) : total[r]);
  }
}

using TileKernel = void (*)(const uint8_t*, const QuantisedRows&, int, float*, size_t, bool,
                            Prefetch);

template <Packing packing, as_mode mode> TileKernel tile_kernel(int rows) {
  constexpr TileKernel kernels[] = {
      multiply_tile<1, packing, mode>, multiply_tile<2, packing, mode>,
      multiply_tile<3, packing, mode>, multiply_tile<4, packing, mode>,
      multiply_tile<5, packing, mode>, multiply_tile<6, packing, mode>,
      multiply_tile<7, packing, mode>, multiply_tile<8, packing, mode>};
  return kernels[rows - 1];
}

inline TileKernel tile_kernel(Packing packing, as_mode mode, int rows) {
  if (packing == Packing::q4_1) {
    return mode == AS_A8 ? tile_kernel<Packing::q4_1, AS_A8>(rows)
                         : tile_kernel<Packing::q4_1, AS_A16>(rows);
  }
  return mode == AS_A8 ? tile_kernel<Packing::q8_0, AS_A8>(rows)
                       : tile_kernel<Packing::q8_0, AS_A16>(rows);
}

// How the rows of a pass are cut into blocks: as even as possible.
class RowBlocks {
 public:
  RowBlocks(int rows, as_mode mode) : mode_(mode) {
    const int most = mode == AS_A8 ? kRowsA8 : kRowsA16;
    count_ = (rows + most - 1) / most;
    for (int i = 0, first = 0; i < count_; i++) {
      const int size = (rows - first + count_ - i - 1) / (count_ - i);
      first_[i] = first;
      size_[i] = size;
      first += size;
      for (Packing p : {Packing::q4_1, Packing::q8_0}) {
        kernel_[static_cast<int>(p)][i] = tile_kernel(p, mode, size);
      }
    }
  }

  as_mode mode() const { return mode_; }

  // out[row * stride + 0..15] (+)= tile * x[row] for all rows, fetching `next_bytes` bytes at
  // `next` meanwhile: what this thread reads after this tile, be it of another matrix.
  void multiply(Tile tile, const QuantisedRows& x, float* out, size_t stride, bool accumulate,
                const uint8_t* next, size_t next_bytes) const {
    const size_t steps = static_cast<size_t>(count_) * x.groups();
    const int lines = static_cast<int>((next_bytes / 64 + steps - 1) / steps);
    for (int i = 0; i < count_; i++) {
      const size_t skip = static_cast<size_t>(i) * x.groups() * lines * 64;
      kernel_[static_cast<int>(tile.packing)][i](tile.bytes, x, first_[i], out, stride, accumulate,
                                                 {next + skip, skip < next_bytes ? lines : 0});
    }
  }

 private:
  as_mode mode_;
  int count_ = 0;
  int first_[AS_MAX_ROWS], size_[AS_MAX_ROWS];
  TileKernel kernel_[2][AS_MAX_ROWS];
};

}  // namespace as
