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

// out[row * stride + 0..15] (+)= tile * x[row] for a few rows from `first` on.
using TileKernel = void (*)(const uint8_t* tile, const QuantisedRows& x, int first, float* out,
                            size_t stride, bool accumulate, Prefetch ahead);

// The kernels of a packing for 1, 2, ... rows.
struct TileKernels {
  TileKernel a8[kRowsA8], a16[kRowsA16];
};
extern const TileKernels kTileKernels[kPackings];

inline TileKernel tile_kernel(Packing packing, as_mode mode, int rows) {
  const TileKernels& kernels = kTileKernels[static_cast<int>(packing)];
  return mode == AS_A8 ? kernels.a8[rows - 1] : kernels.a16[rows - 1];
}

// How the rows of a pass are cut into blocks: as even as possible.
class RowBlocks {
 public:
  RowBlocks(int rows, as_mode mode) : mode_(mode) {
    const int most = mode == AS_A8 ? kRowsA8 : kRowsA16;
    count_ = (rows + most - 1) / most;
    for (int i = 0, first = 0; i < count_; i++) {
      first_[i] = first;
      size_[i] = (rows - first + count_ - i - 1) / (count_ - i);
      first += size_[i];
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
      tile_kernel(tile.packing, mode_, size_[i])(tile.bytes, x, first_[i], out, stride, accumulate,
                                                 {next + skip, skip < next_bytes ? lines : 0});
    }
  }

 private:
  as_mode mode_;
  int count_ = 0;
  int first_[AS_MAX_ROWS], size_[AS_MAX_ROWS];
};

}  // namespace as
