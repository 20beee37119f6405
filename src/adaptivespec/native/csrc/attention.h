// Attention of a few queries over one key head of one sequence.
//
// Keys lie transposed in blocks of sixteen slots, [block][head_dim][16], values as [slot][head_dim],
// both in f16. Slots from `committed` on hold the rows of the pass, of which a query sees some.
//
// Before the softmax the scores of the visible slots move to the places they would have if nothing
// else had been drafted. From there on a row of a tree does the same operations on the same numbers
// as the row of a plain pass, so the results agree in every bit.
#pragma once

#include <algorithm>
#include <utility>

#include "simd.h"

namespace as {

constexpr int kSlots = kLanes;    // slots of a key block
constexpr int kQueries = 6;       // queries that share one walk over values
constexpr int kSpan = 128;        // slots whose values stay in the first-level cache meanwhile
constexpr int kMaxQueries = 144;  // queries of one call
#ifdef AS_AVX512
constexpr int kScored = 12;       // queries that share one walk over keys
constexpr int kColumns = 4;       // vectors of a value row summed at once, for kQueries queries
#else
constexpr int kScored = 6;
constexpr int kColumns = 1;
#endif
constexpr float kNever = -1e30f;

struct Query {
  const float* query;      // [head_dim], scaled
  float* out;              // [head_dim]
  const int32_t* visible;  // [count] rows of the pass it sees, ascending, itself the last
  int count;
};

template <int count>
void score_block(const uint16_t* keys, int head_dim, const Query* queries, float* scores,
                 size_t stride) {
  Floats total[count];
  for (int r = 0; r < count; r++) total[r] = zero();
  for (int d = 0; d < head_dim; d++) {
    const Floats key = load_halves(keys + static_cast<size_t>(d) * kSlots);
    for (int r = 0; r < count; r++) total[r] = fma(broadcast(queries[r].query[d]), key, total[r]);
  }
  for (int r = 0; r < count; r++) store(scores + r * stride, total[r]);
}

// out[column..] += weight[slot] * value[slot] for slots [begin, end).
template <int count, int vectors>
void sum_values(const uint16_t* values, int head_dim, int column, int begin, int end,
                const Query* queries, const float* weights, size_t stride) {
  Floats total[count][vectors];
  for (int r = 0; r < count; r++) {
    for (int i = 0; i < vectors; i++) total[r][i] = load(queries[r].out + column + i * kLanes);
  }
  for (int slot = begin; slot < end; slot++) {
    const uint16_t* row = values + static_cast<size_t>(slot) * head_dim + column;
    Floats value[vectors];
    for (int i = 0; i < vectors; i++) value[i] = load_halves(row + i * kLanes);
    for (int r = 0; r < count; r++) {
      const Floats weight = broadcast(weights[r * stride + slot]);
      for (int i = 0; i < vectors; i++) total[r][i] = fma(weight, value[i], total[r][i]);
    }
  }
  for (int r = 0; r < count; r++) {
    for (int i = 0; i < vectors; i++) store(queries[r].out + column + i * kLanes, total[r][i]);
  }
}

template <int vectors>
void sum_values(int count, const uint16_t* values, int head_dim, int column, int begin, int end,
                const Query* queries, const float* weights, size_t stride) {
  using Kernel = void (*)(const uint16_t*, int, int, int, int, const Query*, const float*, size_t);
  constexpr Kernel kernels[kQueries] = {sum_values<1, vectors>, sum_values<2, vectors>,
                                        sum_values<3, vectors>, sum_values<4, vectors>,
                                        sum_values<5, vectors>, sum_values<6, vectors>};
  kernels[count - 1](values, head_dim, column, begin, end, queries, weights, stride);
}

inline void sum_span(int count, const uint16_t* values, int head_dim, int begin, int end,
                     const Query* queries, const float* weights, size_t stride) {
  int column = 0;
  for (; column + kColumns * kLanes <= head_dim; column += kColumns * kLanes) {
    sum_values<kColumns>(count, values, head_dim, column, begin, end, queries, weights, stride);
  }
  for (; column < head_dim; column += kLanes) {
    sum_values<1>(count, values, head_dim, column, begin, end, queries, weights, stride);
  }
}

template <size_t... counts>
void score_blocks(std::index_sequence<counts...>, int count, const uint16_t* keys, int head_dim,
                  const Query* queries, float* scores, size_t stride) {
  using Kernel = void (*)(const uint16_t*, int, const Query*, float*, size_t);
  constexpr Kernel kernels[] = {score_block<static_cast<int>(counts) + 1>...};
  kernels[count - 1](keys, head_dim, queries, scores, stride);
}

// Scores [committed + count] in sequence order to weights, not normalised; returns their sum.
inline float softmax(float* scores, int length) {
  const int blocks = (length + kLanes - 1) / kLanes, rest = blocks * kLanes - length;
  for (int i = 0; i < rest; i++) scores[length + i] = kNever;
  Floats most = broadcast(kNever);
  for (int b = 0; b < blocks; b++) most = max(most, load(scores + b * kLanes));
  most = broadcast(largest(most));
  Floats total = zero();
  for (int b = 0; b < blocks; b++) {
    Floats weight = exponential(sub(load(scores + b * kLanes), most));
    if (b == blocks - 1) weight = keep_first(weight, kLanes - rest);
    store(scores + b * kLanes, weight);
    total = add(total, weight);
  }
  return sum(total);
}

// Writes the attention of `count` (at most kMaxQueries) queries over `slots` slots, the first
// `committed` of which all of them see. `scores` [count, stride] is scratch, stride >= slots rounded
// up to sixteen.
inline void attend(const uint16_t* keys, const uint16_t* values, int head_dim, int committed,
                   int slots, const Query* queries, int count, float* scores, size_t stride) {
  for (int begin = 0; begin < slots; begin += kSlots) {
    const uint16_t* block = keys + static_cast<size_t>(begin) * head_dim;
    for (int r = 0; r < count; r += kScored) {
      score_blocks(std::make_index_sequence<kScored>(), std::min(kScored, count - r), block,
                   head_dim, queries + r, scores + r * stride + begin, stride);
    }
  }
  float inverse[kMaxQueries];
  for (int r = 0; r < count; r++) {
    const Query& query = queries[r];
    float* row = scores + r * stride;
    // visible[j] >= j: nothing is overwritten before it is read.
    for (int j = 0; j < query.count; j++) row[committed + j] = row[committed + query.visible[j]];
    inverse[r] = 1.0f / softmax(row, committed + query.count);
    for (int d = 0; d < head_dim; d += kLanes) store(query.out + d, zero());
  }
  for (int begin = 0; begin < committed; begin += kSpan) {
    const int end = std::min(begin + kSpan, committed);
    for (int r = 0; r < count; r += kQueries) {
      sum_span(std::min(kQueries, count - r), values, head_dim, begin, end, queries + r,
               scores + r * stride, stride);
    }
  }
  for (int r = 0; r < count; r++) {
    const Query& query = queries[r];
    const float* weights = scores + r * stride + committed;
    for (int d = 0; d < head_dim; d += kLanes) {
      Floats total = load(query.out + d);
      for (int j = 0; j < query.count; j++) {
        const size_t slot = static_cast<size_t>(committed) + query.visible[j];
        total = fma(broadcast(weights[j]), load_halves(values + slot * head_dim + d), total);
      }
      store(query.out + d, mul(total, broadcast(inverse[r])));
    }
  }
}

}  // namespace as
