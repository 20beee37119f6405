// The C boundary: no exception crosses it.
#include "engine.h"

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

namespace {

thread_local char last_error[256] = "";

int32_t report(as_status status, const char* message) {
  snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}

// Runs `body` and turns what it throws into a status and a message.
template <class Body> int32_t guarded(Body body) {
  try {
    body();
    return AS_OK;
  } catch (const as::Error& error) {
    return report(error.status, error.message.c_str());
  } catch (const std::bad_alloc&) {
    return report(AS_MEMORY, "no memory");
  } catch (const std::exception& error) {
    return report(AS_INTERNAL, error.what());
  } catch (...) {
    return report(AS_INTERNAL, "unknown exception");
  }
}

as::Model& checked(const as_model* model) {
  as::check_pointer("model", model);
  return *model->model;
}

// Holds a cache for the length of a call.
class Holding {
 public:
  explicit Holding(const as_cache* cache) {
    as::check_pointer("cache", cache);
    cache_ = cache->cache.get();
    if (cache_->busy.exchange(true, std::memory_order_acquire)) {
      as::fail(AS_STATE, "the cache is in use by another call");
    }
  }
  ~Holding() { cache_->busy.store(false, std::memory_order_release); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  as::Cache* operator->() const { return cache_; }
  as::Cache& operator*() const { return *cache_; }

 private:
  as::Cache* cache_;
};

}  // namespace

extern "C" {

const char* as_error(void) { return last_error; }

int32_t as_abi_version(void) { return AS_ABI_VERSION; }

const char* as_isa(void) {
#ifdef AS_AVX512
  return "avx512";
#else
  return "avx2";
#endif
}

int32_t as_model_new(const as_config* config, as_model** model) {
  return guarded([&] {
    as::check_pointer("config", config);
    as::check_pointer("model", model);
    *model = new as_model{std::make_shared<as::Model>(*config)};
  });
}

int32_t as_model_free(as_model* model) {
  return guarded([&] { delete model; });
}

int32_t as_model_rope(as_model* model, const float* cos, const float* sin) {
  return guarded([&] { checked(model).set_rope(cos, sin); });
}

int32_t as_model_weight(as_model* model, int32_t layer, int32_t which, int32_t format,
                        const void* data, int32_t rows, int32_t columns,
                        const int32_t* row_order) {
  return guarded([&] {
    checked(model).set_weight(layer, which, format, data, rows, columns, row_order);
  });
}

int32_t as_model_norm(as_model* model, int32_t layer, int32_t which, const float* gain,
                      int32_t size) {
  return guarded([&] { checked(model).set_norm(layer, which, gain, size); });
}

int32_t as_model_ready(as_model* model) {
  return guarded([&] { checked(model).make_ready(); });
}

int32_t as_model_bytes(const as_model* model, int64_t* bytes) {
  return guarded([&] {
    as::check_pointer("bytes", bytes);
    *bytes = static_cast<int64_t>(checked(model).bytes());
  });
}

int32_t as_cache_new(as_model* model, int32_t capacity, as_cache** cache) {
  return guarded([&] {
    checked(model).check_ready();
    as::check_pointer("cache", cache);
    *cache = new as_cache{std::make_unique<as::Cache>(model->model, capacity)};
  });
}

int32_t as_cache_free(as_cache* cache) {
  return guarded([&] {
    if (cache == nullptr) return;
    { const Holding held(cache); }
    delete cache;
  });
}

int32_t as_cache_length(const as_cache* cache, int32_t* length) {
  return guarded([&] {
    as::check_pointer("length", length);
    *length = Holding(cache)->length;
  });
}

int32_t as_cache_bytes(const as_cache* cache, int64_t* bytes) {
  return guarded([&] {
    as::check_pointer("bytes", bytes);
    *bytes = static_cast<int64_t>(Holding(cache)->bytes());
  });
}

int32_t as_cache_commit(as_cache* cache, const int32_t* path, int32_t count) {
  return guarded([&] { Holding(cache)->commit(path, count); });
}

int32_t as_cache_truncate(as_cache* cache, int32_t length) {
  return guarded([&] { Holding(cache)->truncate(length); });
}

int32_t as_forward(as_model* model, as_cache* cache, const as_pass* pass) {
  return guarded([&] {
    const as::Model& target = checked(model);
    as::check_pointer("pass", pass);
    const Holding held(cache);
    if (held->model.get() != &target) as::fail(AS_ARGUMENT, "the cache is of another model");
    held->tentative = 0;  // also when a check fails
    as::check_pass(target, *held, *pass);
    as::forward(target, *held, *pass);
  });
}

}  // extern "C"
