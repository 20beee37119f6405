// What this machine can do at most: how fast it reads memory and how fast it multiplies.
#include <math.h>

#include <chrono>

#include "boundary.h"
#include "simd.h"
#include "threads.h"

namespace as {
namespace {

// Independent sums, enough to hide the latency of an instruction, few enough to stay in registers.
#ifdef AS_AVX512
constexpr int kSums = 12;
#else
constexpr int kSums = 4;
#endif
constexpr int kAhead = 4096;   // bytes that reading is ahead of itself
constexpr int kSteps = 50000;  // of a round: a tenth of a millisecond or so

// `x`, of which the compiler does not know what it is: a loop over it stays a loop.
template <class Vector> AS_INLINE Vector opaque(Vector x) {
#ifdef AS_AVX512
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+x"(x.a), "+x"(x.b));
#endif
  return x;
}

// The loops below are functions of their own: inlined, g++ 12 leaves their sums in memory.
#define AS_APART __attribute__((noinline))

// One walk over [begin, end), in steps of kSums cache lines.
AS_APART void read(const uint8_t* begin, const uint8_t* end) {
  Ints sums[kSums];
  for (Ints& sum : sums) sum = broadcast_int(0);
  for (const uint8_t* p = begin; p + 64 * kSums <= end; p += 64 * kSums) {
    for (int i = 0; i < kSums; i++) {
      _mm_prefetch(reinterpret_cast<const char*>(p + 64 * i) + kAhead, _MM_HINT_T0);
      sums[i] = add(sums[i], load_ints(p + 64 * i));
    }
  }
  for (const Ints& sum : sums) opaque(sum);
}

AS_APART void multiply_bytes() {
  const Ints activations = broadcast_int(0x05FB06FA);
  Ints sums[kSums], weights = broadcast_int(0x01020304);
  for (Ints& sum : sums) sum = broadcast_int(0);
  for (int step = 0; step < kSteps; step++) {
    for (Ints& sum : sums) {
      weights = opaque(weights);  // or AVX2 would form their products once for all sums
      sum = opaque(dot_nibbles(sum, weights, activations));
    }
  }
}

AS_APART void multiply_floats() {
  const Floats x = broadcast(1.0f), y = broadcast(-1.0f);
  Floats sums[kSums];
  for (Floats& sum : sums) sum = zero();
  for (int step = 0; step < kSteps; step++) {
    for (Floats& sum : sums) sum = opaque(fma(x, y, sum));
  }
}

// Seconds of the quickest of as many rounds of work(thread) as fit into `seconds`, three at least.
template <class Work> double quickest(Team& team, int threads, double seconds, Work work) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Clock::time_point begin = Clock::now();
  double best = INFINITY;
  for (int round = 0; round < 3 || since(begin) < seconds; round++) {
    const Clock::time_point start = Clock::now();
    team.run(threads, work);
    best = std::min(best, since(start));
  }
  return best;
}

}  // namespace
}  // namespace as

extern "C" int32_t as_floor(int64_t bytes, int32_t threads, double seconds, as_rates* rates) {
  using namespace as;
  return guarded([&] {
    check_range("bytes", bytes, 1 << 20, int64_t{1} << 36);
    check_range("threads", threads, 1, AS_MAX_THREADS);
    if (!(seconds >= 0 && seconds <= 60)) fail(AS_ARGUMENT, "seconds is not in [0, 60]");
    check_pointer("rates", rates);
    const Buffer<uint8_t> buffer(static_cast<size_t>(bytes));
    const int lines = static_cast<int>(bytes / 64);
    Team team;
    team.reserve(threads);
    const double reading = quickest(team, threads, seconds / 2, [&](int thread) {
      const Share share(lines, thread, threads);
      const uint8_t* data = buffer.data();
      read(data + int64_t{64} * share.begin, data + int64_t{64} * share.end);
    });
    const double bytewise = quickest(team, threads, seconds / 4, [](int) { multiply_bytes(); });
    const double floating = quickest(team, threads, seconds / 4, [](int) { multiply_floats(); });
    const double steps = static_cast<double>(kSteps) * kSums * kLanes * threads;
    *rates = {static_cast<double>(bytes) / reading, 4 * steps / bytewise, steps / floating};
  });
}
