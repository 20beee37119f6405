// The likeliest words of a row of logits, and the largest.
#pragma once

#include <math.h>

#include <algorithm>

#include "drafter.h"
#include "simd.h"

namespace as {

constexpr int kBlock = 64;  // logits that are searched together

AS_INLINE Floats clamped(const float* x) {
  return max(min(load(x), broadcast(1e30f)), broadcast(-1e30f));
}

// Sixteen logits from `at` on, -1e30 beyond the last.
AS_INLINE Floats sixteen(const float* logits, int at, int count) {
  if (at + kLanes <= count) return clamped(logits + at);
  float rest[kLanes];
  for (int i = 0; i < kLanes; i++) rest[i] = at + i < count ? logits[at + i] : -1e30f;
  return clamped(rest);
}

// The k likeliest of `count` logits, likeliest first and lower indices first among equals, and their
// log probabilities. Infinities and NaN count as very large numbers.
inline void likeliest(const float* logits, int count, int k, int32_t* index, float* logq) {
  Floats most = broadcast(-1e30f);
  for (int at = 0; at < count; at += kLanes) most = max(most, sixteen(logits, at, count));
  const float peak = largest(most);
  Floats total = zero();
  float value[AS_MAX_TOPK];
  int found = 0;
  for (int begin = 0; begin < count; begin += kBlock) {
    const int end = std::min(begin + kBlock, count);
    float block[kBlock];
    most = broadcast(-1e30f);
    for (int at = begin; at < end; at += kLanes) {
      const Floats x = sixteen(logits, at, count);
      total = add(total, exponential(sub(x, broadcast(peak))));
      most = max(most, x);
      store(block + at - begin, x);
    }
    if (found == k && largest(most) <= value[k - 1]) continue;
    for (int i = begin; i < end; i++) {
      const float x = block[i - begin];
      if (found == k && x <= value[k - 1]) continue;
      int place = found < k ? found++ : k - 1;
      for (; place > 0 && value[place - 1] < x; place--) {
        value[place] = value[place - 1];
        index[place] = index[place - 1];
      }
      value[place] = x;
      index[place] = i;
    }
  }
  const float norm = peak + static_cast<float>(log(static_cast<double>(sum(total))));
  for (int i = 0; i < k; i++) logq[i] = value[i] - norm;
}

// The largest of `count` logits, and the first index that has it. NaN where one is not finite.
inline float argmax(const float* logits, int count, int32_t* index) {
  Floats most = broadcast(-INFINITY), faults = zero();
  int at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Floats x = load(logits + at);
    most = max(most, x);
    faults = fma(x, zero(), faults);
  }
  float peak = largest(most), fault = sum(faults);
  for (; at < count; at++) {
    peak = std::max(peak, logits[at]);
    fault += logits[at] * 0.0f;
  }
  *index = 0;
  if (fault != 0.0f) return NAN;
  while (*index + kLanes <= count && largest(load(logits + *index)) < peak) *index += kLanes;
  while (logits[*index] < peak) ++*index;
  return peak;
}

}  // namespace as
