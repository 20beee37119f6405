// Errors inside the engine, and memory for large tables.
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine.h"

namespace as {

// What the functions behind the C boundary throw; api.cpp turns it into a status and a message.
struct Error {
  as_status status;
  std::string message;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(as_status status,
                                                                    const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Error{status, text};
}

inline void check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail(AS_ARGUMENT, "%s is %lld, expected %lld to %lld", name, static_cast<long long>(value),
         static_cast<long long>(low), static_cast<long long>(high));
  }
}

inline void check_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) fail(AS_ARGUMENT, "%s is NULL", name);
}

inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

struct Free {
  void operator()(void* pointer) const { free(pointer); }
};

// Zeroed memory on a cache line; from a megabyte on in huge pages where the system has them, since
// one pass touches every page of the weights (at one row this is worth a third of the time).
template <class T> class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : count_(count) {
    const size_t huge = size_t{2} << 20;
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();
    const size_t wanted = std::max<size_t>(count * sizeof(T), 1);
    const bool large = wanted >= (size_t{1} << 20);
    const size_t unit = large ? huge : 64;
    const size_t bytes = round_up(wanted, unit);
    void* pointer = nullptr;
    if (posix_memalign(&pointer, unit, bytes) != 0) throw std::bad_alloc();
    if (large) madvise(pointer, bytes, MADV_HUGEPAGE);
    memset(pointer, 0, bytes);
    data_.reset(static_cast<T*>(pointer));
  }
  T* data() const { return data_.get(); }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }
  T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  std::unique_ptr<T, Free> data_;
  size_t count_ = 0;
};

// Memory for packed weights in the order of use, so that a pass reads a few long streams.
class Arena {
 public:
  uint8_t* take(size_t bytes) {
    bytes = round_up(bytes, 64);
    if (chunks_.empty() || chunks_.back().size() - used_ < bytes) {
      // Doubling up to 16 MB, so that small models stay small.
      const size_t usual = std::clamp<size_t>(total_, size_t{64} << 10, size_t{16} << 20);
      chunks_.emplace_back(std::max(bytes, usual));
      used_ = 0;
    }
    uint8_t* memory = chunks_.back().data() + used_;
    used_ += bytes;
    total_ += bytes;
    return memory;
  }
  size_t total() const { return total_; }

 private:
  std::vector<Buffer<uint8_t>> chunks_;
  size_t used_ = 0;
  size_t total_ = 0;
};

}  // namespace as
