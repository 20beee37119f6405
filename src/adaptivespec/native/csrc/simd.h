// Sixteen lanes of float or int32, on AVX-512 (with VNNI) or as pairs of AVX2 registers.
//
// Every operation gives the same bits on both.  That is why reductions spell out their order, why
// there is one way to build a power of two, and why build.py turns off contraction: a compiler may
// not decide which multiplications fuse with an addition.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define AS_INLINE static inline __attribute__((always_inline))

namespace as {

constexpr int kLanes = 16;

// -1 in the first sixteen entries: a window that starts n entries before the middle keeps n lanes.
alignas(64) constexpr int32_t kKeep[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                           -1, -1, -1, -1, -1, -1, -1, -1};

// Sum and maximum of eight lanes, in a fixed order.
AS_INLINE float sum8(__m256 x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

AS_INLINE float max8(__m256 x) {
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

struct IntPair {
  int32_t first, second;
};

// The sum of either, in one go.
AS_INLINE IntPair sums8(__m256i x, __m256i y) {
  const __m256i pairs = _mm256_hadd_epi32(x, y);
  const __m128i fours =
      _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  const int64_t both = _mm_cvtsi128_si64(_mm_hadd_epi32(fours, fours));
  return {static_cast<int32_t>(both), static_cast<int32_t>(both >> 32)};
}

#ifdef AS_AVX512

using Floats = __m512;
using Ints = __m512i;

AS_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
AS_INLINE void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
AS_INLINE Floats broadcast(float x) { return _mm512_set1_ps(x); }
AS_INLINE Floats zero() { return _mm512_setzero_ps(); }
AS_INLINE Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
AS_INLINE Floats sub(Floats x, Floats y) { return _mm512_sub_ps(x, y); }
AS_INLINE Floats mul(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
AS_INLINE Floats div(Floats x, Floats y) { return _mm512_div_ps(x, y); }
AS_INLINE Floats max(Floats x, Floats y) { return _mm512_max_ps(x, y); }
AS_INLINE Floats min(Floats x, Floats y) { return _mm512_min_ps(x, y); }
AS_INLINE Floats fma(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
AS_INLINE Floats absolute(Floats x) { return _mm512_abs_ps(x); }
AS_INLINE Floats nearest(Floats x) { return _mm512_roundscale_ps(x, 0); }
AS_INLINE Floats load_halves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
AS_INLINE Floats load_bytes(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
AS_INLINE void store_halves(uint16_t* p, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, 0));
}
AS_INLINE Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
AS_INLINE Ints broadcast_int(int32_t x) { return _mm512_set1_epi32(x); }
AS_INLINE Ints add(Ints x, Ints y) { return _mm512_add_epi32(x, y); }
AS_INLINE Ints sub(Ints x, Ints y) { return _mm512_sub_epi32(x, y); }
template <int bits> AS_INLINE Ints shift_left(Ints x) { return _mm512_slli_epi32(x, bits); }
template <int bits> AS_INLINE Ints shift_right(Ints x) { return _mm512_srai_epi32(x, bits); }
AS_INLINE Ints either(Ints x, Ints y) { return _mm512_or_si512(x, y); }
AS_INLINE Ints mask_bytes(Ints x, char mask) {
  return _mm512_and_si512(x, _mm512_set1_epi8(mask));
}
AS_INLINE Ints low_nibbles(Ints x) { return mask_bytes(x, 15); }
AS_INLINE Ints high_nibbles(Ints x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }
AS_INLINE Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
AS_INLINE Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }
AS_INLINE void store_bytes(int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x));
}
AS_INLINE Floats keep_first(Floats x, int count) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_loadu_si512(kKeep + kLanes - count)));
}
AS_INLINE Floats power_of_two(Floats exponent) {
  return _mm512_castsi512_ps(shift_left<23>(add(to_ints(exponent), broadcast_int(127))));
}
AS_INLINE float sum(Floats x) {
  return sum8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
AS_INLINE float largest(Floats x) {
  return max8(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)));
}
AS_INLINE IntPair sums(Ints x, Ints y) {
  return sums8(_mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)),
               _mm256_add_epi32(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1)));
}
// Per lane: total + the dot product of four unsigned weights and four signed activations. Nibbles
// may have up to seven bits here.
AS_INLINE Ints dot_nibbles(Ints total, Ints weights, Ints activations) {
  return _mm512_dpbusd_epi32(total, weights, activations);
}
AS_INLINE Ints dot_bytes(Ints total, Ints weights, Ints activations) {
  return _mm512_dpbusd_epi32(total, weights, activations);
}

#else

struct Floats {
  __m256 a, b;
};
struct Ints {
  __m256i a, b;
};

AS_INLINE Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
AS_INLINE void store(float* p, Floats x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
AS_INLINE Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
AS_INLINE Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
AS_INLINE Floats add(Floats x, Floats y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
AS_INLINE Floats sub(Floats x, Floats y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
AS_INLINE Floats mul(Floats x, Floats y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
AS_INLINE Floats div(Floats x, Floats y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
AS_INLINE Floats max(Floats x, Floats y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
AS_INLINE Floats min(Floats x, Floats y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
AS_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
AS_INLINE Floats absolute(Floats x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
AS_INLINE Floats nearest(Floats x) { return {_mm256_round_ps(x.a, 0), _mm256_round_ps(x.b, 0)}; }
AS_INLINE Floats load_halves(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
AS_INLINE Floats load_bytes(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
AS_INLINE void store_halves(uint16_t* p, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, 0));
}
AS_INLINE Ints load_ints(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
AS_INLINE Ints broadcast_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
AS_INLINE Ints add(Ints x, Ints y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
AS_INLINE Ints sub(Ints x, Ints y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
template <int bits> AS_INLINE Ints shift_left(Ints x) {
  return {_mm256_slli_epi32(x.a, bits), _mm256_slli_epi32(x.b, bits)};
}
template <int bits> AS_INLINE Ints shift_right(Ints x) {
  return {_mm256_srai_epi32(x.a, bits), _mm256_srai_epi32(x.b, bits)};
}
AS_INLINE Ints either(Ints x, Ints y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
AS_INLINE Ints mask_bytes(Ints x, char mask) {
  const __m256i wide = _mm256_set1_epi8(mask);
  return {_mm256_and_si256(x.a, wide), _mm256_and_si256(x.b, wide)};
}
AS_INLINE Ints low_nibbles(Ints x) { return mask_bytes(x, 15); }
AS_INLINE Ints high_nibbles(Ints x) {
  return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
AS_INLINE Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
AS_INLINE Ints to_ints(Floats x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
AS_INLINE void store_bytes(int8_t* p, Ints x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(words),
                                   _mm256_extracti128_si256(words, 1)));
}
AS_INLINE Floats keep_first(Floats x, int count) {
  const Ints mask = load_ints(kKeep + kLanes - count);
  return {_mm256_and_ps(x.a, _mm256_castsi256_ps(mask.a)),
          _mm256_and_ps(x.b, _mm256_castsi256_ps(mask.b))};
}
AS_INLINE Floats power_of_two(Floats exponent) {
  const Ints bits = shift_left<23>(add(to_ints(exponent), broadcast_int(127)));
  return {_mm256_castsi256_ps(bits.a), _mm256_castsi256_ps(bits.b)};
}
AS_INLINE float sum(Floats x) { return sum8(_mm256_add_ps(x.a, x.b)); }
AS_INLINE float largest(Floats x) { return max8(_mm256_max_ps(x.a, x.b)); }
AS_INLINE IntPair sums(Ints x, Ints y) {
  return sums8(_mm256_add_epi32(x.a, x.b), _mm256_add_epi32(y.a, y.b));
}
// Four weights up to 127 against signed bytes: pairs stay below the 16-bit limit.
AS_INLINE __m256i dot_nibbles8(__m256i total, __m256i weights, __m256i activations) {
  const __m256i pairs = _mm256_maddubs_epi16(weights, activations);
  return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
// Weights up to 255: maddubs would saturate, so even and odd bytes are widened and multiplied apart.
AS_INLINE __m256i dot_bytes8(__m256i total, __m256i weights, __m256i activations) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(activations, 8), 8));
  const __m256i odd =
      _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(activations, 8));
  return _mm256_add_epi32(total, _mm256_add_epi32(even, odd));
}
AS_INLINE Ints dot_nibbles(Ints total, Ints weights, Ints activations) {
  return {dot_nibbles8(total.a, weights.a, activations.a),
          dot_nibbles8(total.b, weights.b, activations.b)};
}
AS_INLINE Ints dot_bytes(Ints total, Ints weights, Ints activations) {
  return {dot_bytes8(total.a, weights.a, activations.a),
          dot_bytes8(total.b, weights.b, activations.b)};
}

#endif

// The same four bytes in every lane.
AS_INLINE Ints broadcast_bytes(const int8_t* p) {
  int32_t bytes;
  memcpy(&bytes, p, sizeof bytes);
  return broadcast_int(bytes);
}

// e^x within about one unit in the last place (Cephes' polynomial). Below -87 it stays at e^-87, so
// that no result is subnormal: instruction sets differ there.
AS_INLINE Floats exponential(Floats x) {
  x = min(max(x, broadcast(-87.0f)), broadcast(88.0f));
  const Floats n = nearest(mul(x, broadcast(1.44269504f)));
  Floats r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Floats p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, broadcast(1.0f)));
  return mul(p, power_of_two(n));
}

AS_INLINE float half_to_float(uint16_t x) { return _cvtsh_ss(x); }
AS_INLINE uint16_t float_to_half(float x) { return _cvtss_sh(x, 0); }

}  // namespace as
