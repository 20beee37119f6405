#include "model.h"

#include <math.h>

namespace as {

namespace {

void check_config(const as_config& c) {
  constexpr int32_t most = 1 << 24;  // keeps every product of two sizes within 64 bits
  check_range("layers", c.layers, 1, 4096);
  check_range("hidden", c.hidden, 32, 1 << 20);
  check_range("ffn", c.ffn, 32, 1 << 20);
  check_range("heads", c.heads, 1, 4096);
  check_range("kv_heads", c.kv_heads, 1, c.heads);
  check_range("head_dim", c.head_dim, 16, 256);
  check_range("vocab", c.vocab, 1, most);
  check_range("max_len", c.max_len, 1, most);
  check_range("flags", c.flags, 0, AS_TIED);
  if (c.hidden % kGroup != 0) fail(AS_ARGUMENT, "hidden is %d, not a multiple of 32", c.hidden);
  if (c.ffn % kGroup != 0) fail(AS_ARGUMENT, "ffn is %d, not a multiple of 32", c.ffn);
  if (c.head_dim % kTile != 0) {
    fail(AS_ARGUMENT, "head_dim is %d, not a multiple of 16", c.head_dim);
  }
  if (c.heads % c.kv_heads != 0) {
    fail(AS_ARGUMENT, "heads is %d, not a multiple of kv_heads (%d)", c.heads, c.kv_heads);
  }
  if (c.heads * c.head_dim % kGroup != 0) {
    fail(AS_ARGUMENT, "heads * head_dim is %d, not a multiple of 32", c.heads * c.head_dim);
  }
  if (!(c.rms_eps >= 0.0f) || !isfinite(c.rms_eps)) {
    fail(AS_ARGUMENT, "rms_eps is %g, expected a finite value from 0 on",
         static_cast<double>(c.rms_eps));
  }
}

constexpr const char* kMatrixNames[] = {"embedding", "output", "query", "key", "value",
                                        "attention output", "gate", "up", "down"};

void set_shape(Matrix& matrix, int rows, int columns) {
  matrix.rows = rows;
  matrix.columns = columns;
}

void append(Projection& projection, const Matrix& matrix, int first, int count) {
  projection.columns = matrix.columns;
  for (int i = 0; i < count; i++) projection.tiles.push_back(matrix.tile(first + i));
}

// A bad scale or gain must not turn into a row of NaN that nobody can trace.
void check_finite(const char* name, const float* values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(values[i])) fail(AS_ARGUMENT, "%s has a value that is not finite", name);
  }
}

}  // namespace

Workspace::Workspace(const as_config& c)
    : stream(static_cast<size_t>(AS_MAX_ROWS) * c.hidden),
      heads(static_cast<size_t>(AS_MAX_ROWS) * (c.heads + 2 * c.kv_heads) * c.head_dim),
      attention(static_cast<size_t>(AS_MAX_ROWS) * c.heads * c.head_dim),
      normed(AS_MAX_ROWS, c.hidden),
      mixed(AS_MAX_ROWS, c.heads * c.head_dim),
      inner(AS_MAX_ROWS, c.ffn) {}

Model::Model(const as_config& given) : config(given) {
  check_config(config);
  const int width = config.heads * config.head_dim, kv_width = config.kv_heads * config.head_dim;
  layers.resize(config.layers);
  for (Layer& layer : layers) {
    set_shape(layer.query, width, config.hidden);
    set_shape(layer.key, kv_width, config.hidden);
    set_shape(layer.value, kv_width, config.hidden);
    set_shape(layer.attention_output, config.hidden, width);
    set_shape(layer.gate, config.ffn, config.hidden);
    set_shape(layer.up, config.ffn, config.hidden);
    set_shape(layer.down, config.hidden, config.ffn);
  }
  set_shape(embedding, config.vocab, config.hidden);
  set_shape(output, config.vocab, config.hidden);
}

void Model::check_building() const {
  if (ready_) fail(AS_STATE, "the model is ready; its weights no longer change");
}

void Model::check_ready() const {
  if (!ready_) fail(AS_STATE, "the model is not ready; as_model_ready comes first");
}

Matrix& Model::matrix(int layer, int which) {
  check_range("which", which, AS_EMBEDDING, AS_DOWN);
  if (which == AS_EMBEDDING) return embedding;
  if (which == AS_OUTPUT) {
    if (config.flags & AS_TIED) fail(AS_ARGUMENT, "a tied model has no output matrix of its own");
    return output;
  }
  check_range("layer", layer, 0, config.layers - 1);
  Layer& l = layers[layer];
  Matrix* const matrices[] = {&l.query, &l.key,  &l.value, &l.attention_output,
                              &l.gate,  &l.up,   &l.down};
  return *matrices[which - AS_QUERY];
}

std::vector<float>& Model::gain(int layer, int which) {
  check_range("which", which, AS_NORM_ATTENTION, AS_NORM_OUTPUT);
  if (which == AS_NORM_OUTPUT) return output_gain;
  check_range("layer", layer, 0, config.layers - 1);
  return which == AS_NORM_ATTENTION ? layers[layer].attention_gain : layers[layer].ffn_gain;
}

void Model::set_rope(const float* cos_table, const float* sin_table) {
  check_pointer("cos", cos_table);
  check_pointer("sin", sin_table);
  check_building();
  const size_t count = static_cast<size_t>(config.max_len) * (config.head_dim / 2);
  check_finite("cos", cos_table, count);
  check_finite("sin", sin_table, count);
  std::vector<float> first(cos_table, cos_table + count), second(sin_table, sin_table + count);
  cosine = std::move(first);
  sine = std::move(second);
}

void Model::set_weight(int layer, int which, int format, const void* data, int rows, int columns,
                       const int32_t* row_order) {
  check_building();
  Matrix& target = matrix(layer, which);
  const char* name = kMatrixNames[which];
  check_range("format", format, AS_Q4_1, AS_BF16);
  check_pointer("data", data);
  if (rows != target.rows || columns != target.columns) {
    fail(AS_ARGUMENT, "%s is [%d, %d], expected [%d, %d]", name, rows, columns, target.rows,
         target.columns);
  }
  if (target.bytes != nullptr) fail(AS_STATE, "%s of layer %d was given before", name, layer);
  for (int i = 0; row_order != nullptr && i < rows; i++) {
    check_range("an entry of row_order", row_order[i], 0, rows - 1);
  }
  Matrix packed = target;
  packed.packing = format == AS_Q4_1 ? Packing::q4_1 : Packing::q8_0;
  packed.bytes = arena_.take(packed.tile_bytes() * static_cast<size_t>(packed.tiles()));
  pack(packed, static_cast<as_format>(format), data, row_order);
  target = packed;
}

void Model::set_norm(int layer, int which, const float* values, int size) {
  check_building();
  std::vector<float>& target = gain(layer, which);
  check_pointer("gain", values);
  check_range("size", size, config.hidden, config.hidden);
  check_finite("gain", values, size);
  if (!target.empty()) fail(AS_STATE, "this gain was given before");
  target.assign(values, values + size);
}

void Model::make_ready() {
  check_building();
  if (cosine.empty()) fail(AS_STATE, "the rotary tables are missing");
  if (output_gain.empty()) fail(AS_STATE, "the gain of the output norm is missing");
  for (int i = 0; i < config.layers; i++) {
    for (int which = AS_QUERY; which <= AS_DOWN; which++) {
      if (matrix(i, which).bytes == nullptr) {
        fail(AS_STATE, "%s of layer %d is missing", kMatrixNames[which], i);
      }
    }
    if (layers[i].attention_gain.empty() || layers[i].ffn_gain.empty()) {
      fail(AS_STATE, "a gain of layer %d is missing", i);
    }
  }
  if (embedding.bytes == nullptr) fail(AS_STATE, "embedding is missing");
  if (config.flags & AS_TIED) output = embedding;
  if (output.bytes == nullptr) fail(AS_STATE, "output is missing");

  for (Layer& layer : layers) {
    layer.qkv = layer.mix = layer.gate_up = layer.narrow = Projection();
    layer.qkv.unit = config.head_dim / kTile;
    for (const Matrix* m : {&layer.query, &layer.key, &layer.value}) {
      append(layer.qkv, *m, 0, m->tiles());
    }
    append(layer.mix, layer.attention_output, 0, layer.attention_output.tiles());
    layer.gate_up.unit = 4;
    for (int i = 0; i < layer.gate.tiles(); i += 2) {
      append(layer.gate_up, layer.gate, i, 2);
      append(layer.gate_up, layer.up, i, 2);
    }
    append(layer.narrow, layer.down, 0, layer.down.tiles());
  }
  output_tiles = Projection();
  append(output_tiles, output, 0, output.tiles());
  ready_ = true;
}

std::unique_ptr<Workspace> Model::borrow() const {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!idle_.empty() && workspace == nullptr) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
      // In a child of fork() the team has no threads and cannot be joined: it is left behind.
      if (!workspace->team.alive()) static_cast<void>(workspace.release());
    }
  }
  if (workspace == nullptr) workspace = std::make_unique<Workspace>(config);
  return workspace;
}

void Model::give_back(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(workspace));
}

Cache::Cache(std::shared_ptr<const Model> owner, int capacity) : model(std::move(owner)) {
  check_range("capacity", capacity, 0, INT32_MAX);
  // More rows than positions cannot be committed.
  reserve(std::clamp<int>(capacity, 1, model->config.max_len) + AS_MAX_ROWS);
}

void Cache::reserve(int slots) {
  if (slots <= capacity_) return;
  const as_config& c = model->config;
  const int grown = static_cast<int>(
      round_up(static_cast<size_t>(std::max<int64_t>(slots, 2 * static_cast<int64_t>(capacity_))),
               kLanes));
  const size_t regions = static_cast<size_t>(c.layers) * c.kv_heads;
  const size_t old_size = static_cast<size_t>(capacity_) * c.head_dim;
  const size_t new_size = static_cast<size_t>(grown) * c.head_dim;
  Buffer<uint16_t> keys(regions * new_size), values(regions * new_size);
  for (size_t i = 0; i < regions && old_size > 0; i++) {
    memcpy(&keys[i * new_size], &keys_[i * old_size], old_size * sizeof(uint16_t));
    memcpy(&values[i * new_size], &values_[i * old_size], old_size * sizeof(uint16_t));
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
  capacity_ = grown;
}

void Cache::commit(const int32_t* path, int count) {
  check_range("count", count, 0, tentative);
  if (count > 0) check_pointer("path", path);
  for (int i = 0; i < count; i++) {
    check_range("an entry of path", path[i], i > 0 ? path[i - 1] + 1 : 0, tentative - 1);
  }
  const as_config& c = model->config;
  const int head_dim = c.head_dim;
  for (int layer = 0; layer < c.layers; layer++) {
    for (int head = 0; head < c.kv_heads; head++) {
      uint16_t* key = keys(layer, head);
      uint16_t* value = values(layer, head);
      for (int i = 0; i < count; i++) {
        if (path[i] == i) continue;
        const size_t from = static_cast<size_t>(length) + path[i];
        const size_t to = static_cast<size_t>(length) + i;
        memcpy(value + to * head_dim, value + from * head_dim, sizeof(uint16_t) * head_dim);
        const uint16_t* source = key + from / kLanes * kLanes * head_dim + from % kLanes;
        uint16_t* target = key + to / kLanes * kLanes * head_dim + to % kLanes;
        for (int d = 0; d < head_dim; d++) target[d * kLanes] = source[d * kLanes];
      }
    }
  }
  length += count;
  tentative = 0;
}

void Cache::truncate(int wanted) {
  check_range("length", wanted, 0, length);
  length = wanted;
  tentative = 0;
}

}  // namespace as
