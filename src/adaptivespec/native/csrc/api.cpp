// The C boundary: no exception crosses it.
#include "engine.h"

#include "batch.h"
#include "boundary.h"

using as::checked;
using as::guarded;
using as::held;

extern "C" {

const char* as_error(void) { return as::last_error; }

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

int32_t as_model_bias(as_model* model, int32_t layer, int32_t which, const float* bias,
                      int32_t size) {
  return guarded([&] { checked(model).set_bias(layer, which, bias, size); });
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
    *cache = new as_cache{std::make_unique<as::Cache>(model->model->config, model->model, capacity)};
  });
}

int32_t as_cache_free(as_cache* cache) {
  return guarded([&] {
    if (cache == nullptr) return;
    { const auto wait = held(cache); }
    delete cache;
  });
}

int32_t as_cache_length(const as_cache* cache, int32_t* length) {
  return guarded([&] {
    as::check_pointer("length", length);
    *length = held(cache)->length;
  });
}

int32_t as_cache_bytes(const as_cache* cache, int64_t* bytes) {
  return guarded([&] {
    as::check_pointer("bytes", bytes);
    *bytes = static_cast<int64_t>(held(cache)->bytes());
  });
}

int32_t as_cache_commit(as_cache* cache, const int32_t* path, int32_t count) {
  return guarded([&] { held(cache)->commit(path, count); });
}

int32_t as_cache_copy(as_cache* cache, const as_cache* other, int32_t rows) {
  return guarded([&] {
    const auto to = held(cache);
    const auto from = held(other);
    if (to->model.get() != from->model.get()) as::fail(AS_ARGUMENT, "the caches are of two models");
    to->copy(*from, rows);
  });
}

int32_t as_cache_truncate(as_cache* cache, int32_t length) {
  return guarded([&] { held(cache)->truncate(length); });
}

int32_t as_forward(as_model* model, const as_pass* pass) {
  return guarded([&] {
    const as::Model& target = checked(model);
    as::check_pointer("pass", pass);
    as::check_range("sequence_count", pass->sequence_count, 1, AS_MAX_ROWS);
    as::check_pointer("sequences", pass->sequences);
    std::vector<as::Hold<as::Cache>> holds;
    std::vector<as::Cache*> caches;
    for (int i = 0; i < pass->sequence_count; i++) {
      for (int k = 0; k < i; k++) {
        if (pass->sequences[k].cache == pass->sequences[i].cache) {
          as::fail(AS_ARGUMENT, "sequences %d and %d have the same cache", k, i);
        }
      }
      holds.push_back(held(pass->sequences[i].cache));
      caches.push_back(&*holds.back());
      if (caches.back()->model.get() != &target) {
        as::fail(AS_ARGUMENT, "the cache is of another model");
      }
    }
    for (as::Cache* cache : caches) cache->tentative = 0;  // also when a check fails
    as::forward(target, *pass, as::Batch(target, *pass, caches));
  });
}

}  // extern "C"
