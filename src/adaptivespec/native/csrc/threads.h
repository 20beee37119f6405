// A team of threads that works through the phases of a pass together.
#pragma once

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "common.h"

namespace as {

// The part [begin, end) of `count` units that falls to one thread.
struct Share {
  int begin, end;
  Share(int count, int thread, int threads)
      : begin(static_cast<int>(static_cast<int64_t>(count) * thread / threads)),
        end(static_cast<int>(static_cast<int64_t>(count) * (thread + 1) / threads)) {}
};

// Default rounding and no flushing of subnormals while it lives, whatever the host has set: a bit
// of the control register would otherwise change results on the caller's thread only.
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  unsigned saved_;
};

// Workers wait for work by spinning briefly, since the next pass often follows at once, then
// asleep. Within a run a thread that waits spins, then yields: a phase is short, but the CPU may
// not be ours alone. It never sleeps there, as waking a thread can take longer than a phase.
//
// There are two kinds of run. In `run` every thread does its part of every phase. In `walk` units
// go to whoever is there: a thread that has lost its CPU holds up the others by one unit only.
// One run at a time; a Team belongs to one workspace.
class Team {
 public:
  // A thread on its way through the phases of a walk.
  struct Walker {
    const int thread, threads;
    unsigned phase;
  };

  Team() : process_(getpid()) {}
  ~Team() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // False in a child of fork(), where the workers do not exist.
  bool alive() const { return process_ == getpid(); }

  // Starts workers until a run of `threads` threads is possible.
  void reserve(int threads) {
    while (static_cast<int>(workers_.size()) < threads - 1) {
      const int index = static_cast<int>(workers_.size()) + 1;
      const unsigned seen = generation_.load(std::memory_order_relaxed);
      try {
        workers_.emplace_back([this, index, seen] { work(index, seen); });
      } catch (const std::system_error& error) {
        fail(AS_SYSTEM, "thread %d could not be started (%s)", index + 1, error.what());
      }
    }
  }

  // Runs body(thread) for threads 0..threads-1, the caller being 0. The body must not throw.
  template <class Body> void run(int threads, Body& body) {
    start(threads, nullptr, &body, [](void* context, Walker& walker) noexcept {
      (*static_cast<Body*>(context))(walker.thread);
    });
    body(0);
    barrier();
  }

  // Waits until all threads of the run have come here.
  void barrier() {
    // Read before arriving: once all have arrived, the caller may set up the next run.
    const int others = threads_ - 1;
    if (others == 0) return;
    const unsigned phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == others) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int i = 0; phase_.load(std::memory_order_acquire) == phase; i++) {
      if (i < kSpins) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
  }

  // Runs (*walk)(walker) in threads 0..threads-1, the caller being 0. It consists of calls of
  // `share`, the same ones in every thread, and must not throw.
  //
  // The caller returns when all units are done, wherever the workers are. One that was late goes on
  // alone, through phases that are over, so a walk is shared with them and owns what it reads
  // outside of units. Returns how much of what more threads than one could bring was lost as they
  // waited for one another, 0..1.
  template <class Walk> float walk(int threads, const std::shared_ptr<Walk>& walk) {
    const Clock::time_point begin = Clock::now();
    stalled_.store(0, std::memory_order_relaxed);
    for (int i = 0; i < threads; i++) tickets_[i].store(ticket(phases_, 0));
    Walker walker{0, threads, phases_};
    start(threads, walk, walk.get(), [](void* context, Walker& worker) noexcept {
      (*static_cast<Walk*>(context))(worker);
    });
    (*walk)(walker);
    if (threads == 1) return 0.0f;
    for (int i = 0; i < threads; i++) await(i, walker.phase);  // whoever opens them is through
    phases_ = walker.phase;
    const double could = static_cast<double>(since(begin)) * (threads - 1);
    const double lost = static_cast<double>(stalled_.load(std::memory_order_relaxed));
    return static_cast<float>(std::min(lost / std::max(could, 1.0), 1.0));
  }

  // One phase of a walk: unit(i, end) for units i of [0, first_of(threads)), ascending from 0 =
  // first_of(0). A thread begins with its own, from first_of(thread) to end = first_of(thread + 1),
  // one by one; when there are none left it takes those of others. Returns when all are done.
  template <class FirstOf, class Unit> void share(Walker& w, FirstOf first_of, Unit unit) {
    const int total = first_of(w.threads);
    if (w.threads == 1 || total == 0) {
      for (int i = 0; i < total; i++) unit(i, total);
      return;
    }
    int finished = 0;
    for (int k = 0; k < w.threads; k++) {
      const int owner = (w.thread + k) % w.threads;
      const int first = first_of(owner), end = first_of(owner + 1);
      if (first == end) continue;
      uint64_t seen = await(owner, w.phase);
      while (phase_of(seen) == w.phase && first + taken_of(seen) < end) {
        // On failure `seen` is what another thread made of it.
        if (!tickets_[owner].take(seen)) continue;
        unit(first + taken_of(seen), end);
        finished++;
        seen = tickets_[owner].load();
      }
    }
    const unsigned next = ++w.phase;
    if (finished > 0 && done_.fetch_add(finished, std::memory_order_acq_rel) + finished == total) {
      done_.store(0, std::memory_order_relaxed);
      for (int i = 0; i < w.threads; i++) open(i, next);
    }
    await(w.thread, next);
  }

  // The same with equal parts.
  template <class Unit> void share(Walker& w, int units, Unit unit) {
    share(w, [&](int thread) { return Share(units, thread, w.threads).begin; }, unit);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Step = void (*)(void* context, Walker& walker) noexcept;
  static constexpr int kSpins = 2000;

  // A phase, and how many of an owner's units in it are taken. Phases are counted over all walks.
  class alignas(64) Ticket {
   public:
    uint64_t load() const { return value_.load(std::memory_order_acquire); }
    void store(uint64_t value) { value_.store(value, std::memory_order_release); }
    bool take(uint64_t& seen) { return replace(seen, seen + 1); }
    bool replace(uint64_t& seen, uint64_t value) {
      return value_.compare_exchange_weak(seen, value, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
    }

   private:
    std::atomic<uint64_t> value_{0};
  };
  static uint64_t ticket(unsigned phase, unsigned taken) {
    return static_cast<uint64_t>(phase) << 32 | taken;
  }
  static unsigned phase_of(uint64_t ticket) { return static_cast<unsigned>(ticket >> 32); }
  static int taken_of(uint64_t ticket) { return static_cast<int>(ticket & 0x7fffffff); }
  static bool reached(uint64_t ticket, unsigned phase) {
    return static_cast<int>(phase_of(ticket) - phase) >= 0;
  }

  // Lets a phase begin for an owner's units, unless that is past already.
  void open(int owner, unsigned phase) {
    uint64_t seen = tickets_[owner].load();
    while (!reached(seen, phase) && !tickets_[owner].replace(seen, ticket(phase, 0))) {
    }
  }

  // Waits until an owner's ticket is of `phase` or a later one, and gives it.
  uint64_t await(int owner, unsigned phase) {
    uint64_t seen = tickets_[owner].load();
    for (int i = 0; i < kSpins && !reached(seen, phase); i++) {
      _mm_pause();
      seen = tickets_[owner].load();
    }
    if (reached(seen, phase)) return seen;
    const Clock::time_point begin = Clock::now();
    while (!reached(seen = tickets_[owner].load(), phase)) sched_yield();
    // May come after the end of a run, and counts for the next one then: no harm in that.
    stalled_.fetch_add(since(begin), std::memory_order_relaxed);
    return seen;
  }

  static int64_t since(Clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  }

  // Gives work to the workers 1..threads-1; `held` keeps the context of a walk alive.
  void start(int threads, std::shared_ptr<void> held, void* context, Step step) {
    bool asleep;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      threads_ = threads;
      held_.swap(held);
      context_ = context;
      step_ = step;
      first_phase_ = phases_;
      if (threads > 1) generation_.fetch_add(1, std::memory_order_release);
      asleep = threads > 1 && sleepers_ > 0;
    }
    if (asleep) wake_.notify_all();
  }

  void work(int index, unsigned seen) {
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; i++) {
        _mm_pause();
      }
      std::unique_lock<std::mutex> lock(mutex_);
      if (generation_.load(std::memory_order_relaxed) == seen) {
        sleepers_++;
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
        sleepers_--;
      }
      // Generations may have been missed: those that this worker is no part of, and walks.
      seen = generation_.load(std::memory_order_relaxed);
      if (stopping_) return;
      if (index >= threads_) continue;
      const std::shared_ptr<void> held = held_;
      void* const context = context_;
      const Step step = step_;
      Walker walker{index, threads_, first_phase_};
      lock.unlock();
      step(context, walker);
      if (held == nullptr) barrier();
    }
  }

  const pid_t process_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int sleepers_ = 0;
  bool stopping_ = false;
  int threads_ = 1;
  std::shared_ptr<void> held_;
  void* context_ = nullptr;
  Step step_ = nullptr;
  unsigned first_phase_ = 0;  // of the walk that workers may join
  unsigned phases_ = 0;       // of all walks so far; the caller's
  Ticket tickets_[AS_MAX_THREADS];
  alignas(64) std::atomic<int> done_{0};         // units of the phase
  alignas(64) std::atomic<int64_t> stalled_{0};  // nanoseconds of the walk, of all threads
  alignas(64) std::atomic<unsigned> generation_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

}  // namespace as
