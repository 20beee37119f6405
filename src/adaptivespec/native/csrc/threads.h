// A team of threads that walks through the phases of a pass together.
#pragma once

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
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

// Workers wait for work by spinning briefly, since the next pass often follows at once, then asleep.
// At a barrier a thread spins, then yields: a phase is short, but the CPU may not be ours alone.
// One run at a time; a Team belongs to one workspace.
class Team {
 public:
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
    bool asleep;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      threads_ = threads;
      context_ = &body;
      invoke_ = [](void* context, int thread) noexcept { (*static_cast<Body*>(context))(thread); };
      if (threads > 1) generation_.fetch_add(1, std::memory_order_release);
      asleep = threads > 1 && sleepers_ > 0;
    }
    if (asleep) wake_.notify_all();
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

 private:
  static constexpr int kSpins = 2000;

  void work(int index, unsigned seen) {
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; i++) {
        _mm_pause();
      }
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_++;
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
        sleepers_--;
      }
      // A worker outside a run may sleep through later generations; one inside is waited for at
      // the run's last barrier, so that it sees each of them.
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        seen = generation_.load(std::memory_order_relaxed);
        if (stopping_) return;
        if (index >= threads_) continue;
      }
      invoke_(context_, index);
      barrier();
    }
  }

  const pid_t process_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int sleepers_ = 0;
  bool stopping_ = false;
  int threads_ = 1;
  void* context_ = nullptr;
  void (*invoke_)(void*, int) noexcept = nullptr;
  alignas(64) std::atomic<unsigned> generation_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

}  // namespace as
