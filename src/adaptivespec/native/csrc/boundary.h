// What the functions of the C interface share: handles, and exceptions turned into statuses.
#pragma once

#include <exception>
#include <memory>
#include <new>

#include "common.h"
#include "model.h"

struct as_model {
  std::shared_ptr<as::Model> model;
};

struct as_cache {
  std::unique_ptr<as::Cache> cache;
};

namespace as {

// What as_error says to this thread.
inline thread_local char last_error[256] = "";

inline int32_t report(as_status status, const char* message) {
  snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}

// Runs `body` and turns what it throws into a status and a message.
template <class Body> int32_t guarded(Body body) {
  try {
    body();
    return AS_OK;
  } catch (const Error& error) {
    return report(error.status, error.message.c_str());
  } catch (const std::bad_alloc&) {
    return report(AS_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return report(AS_INTERNAL, error.what());
  } catch (...) {
    return report(AS_INTERNAL, "unknown exception");
  }
}

inline Model& checked(const as_model* model) {
  check_pointer("model", model);
  return *model->model;
}

// Holds what has a `busy` flag for the length of a call; AS_STATE when another call has it.
template <class Held> class Hold {
 public:
  Hold(Held& held, const char* name) : held_(&held) {
    if (held.busy.exchange(true, std::memory_order_acquire)) {
      fail(AS_STATE, "the %s is in use by another call", name);
    }
  }
  ~Hold() {
    if (held_ != nullptr) held_->busy.store(false, std::memory_order_release);
  }
  Hold(Hold&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
  Hold& operator=(Hold&&) = delete;
  Held* operator->() const { return held_; }
  Held& operator*() const { return *held_; }

 private:
  Held* held_;
};

inline Hold<Cache> held(const as_cache* cache) {
  check_pointer("cache", cache);
  return Hold<Cache>(*cache->cache, "cache");
}

}  // namespace as
