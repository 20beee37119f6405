// From a projected head to what attention reads: bias, norm, rotation, and the place in the cache.
#pragma once

#include "activations.h"
#include "attention.h"

namespace as {

inline void add_bias(float* x, const float* bias, int head_dim) {
  for (int d = 0; d < head_dim; d += kLanes) store(x + d, add(load(x + d), load(bias + d)));
}

// Root-mean-square norm of x [size] with its gain; `out` may be x.
inline void norm_to(const float* x, const float* gain, int size, float epsilon, float* out) {
  Floats squares = zero();
  for (int c = 0; c < size; c += kLanes) squares = fma(load(x + c), load(x + c), squares);
  const Floats factor = broadcast(1.0f / sqrtf(sum(squares) / static_cast<float>(size) + epsilon));
  for (int c = 0; c < size; c += kLanes) {
    store(out + c, mul(mul(load(x + c), factor), load(gain + c)));
  }
}

// Within the range of f16, so that an outlier becomes the largest value instead of an infinity.
inline Floats bounded(const float* x) {
  return max(min(load(x), broadcast(65504.0f)), broadcast(-65504.0f));
}

// Writes a value or a key to `slot` of a head's values or keys (see attention.h).
inline void store_value(uint16_t* values, int slot, const float* x, int head_dim) {
  uint16_t* value = values + static_cast<size_t>(slot) * head_dim;
  for (int d = 0; d < head_dim; d += kLanes) store_halves(value + d, bounded(x + d));
}

inline void store_key(uint16_t* keys, int slot, const float* x, int head_dim) {
  uint16_t* block = keys + static_cast<size_t>(slot / kSlots) * kSlots * head_dim + slot % kSlots;
  for (int d = 0; d < head_dim; d += kLanes) {
    uint16_t halves[kLanes];
    store_halves(halves, bounded(x + d));
    for (int i = 0; i < kLanes; i++) block[(d + i) * kSlots] = halves[i];
  }
}

}  // namespace as
