#include "model.h"

#include <math.h>

namespace as {

void check_sizes(const as_config& c) {
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

namespace {

constexpr const char* kMatrixNames[] = {"embedding", "output", "query", "key", "value",
                                        "attention output", "gate", "up", "down"};

void set_shape(Matrix& matrix, int rows, int columns) {
  matrix.rows = rows;
  matrix.columns = columns;
}

// Room for tentative rows that a cache starts with: few trees are wider.
constexpr int kTentative = 64;

}  // namespace

void append(Projection& projection, const Matrix& matrix, int first, int count) {
  projection.columns = matrix.columns;
  for (int i = 0; i < count; i++) projection.tiles.push_back(matrix.tile(first + i));
}

std::vector<float> finite_copy(const char* name, const float* values, size_t count) {
  check_pointer(name, values);
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(values[i])) fail(AS_ARGUMENT, "%s has a value that is not finite", name);
  }
  return {values, values + count};
}

Matrix packed_matrix(const char* name, const Matrix& matrix, int format, const void* data, int rows,
                     int columns, const int32_t* row_order, Arena& arena) {
  const int how = format < 0 ? 0 : format & (AS_PRECISE | AS_COARSE);
  format -= how;
  check_range("format", format, AS_Q4_1, AS_Q6_K);
  const auto kind = static_cast<as_format>(format);
  const Format& f = format_of(kind);
  if (how == (AS_PRECISE | AS_COARSE)) fail(AS_ARGUMENT, "format is both precise and coarse");
  if (how != 0 && !f.floats) {
    fail(AS_ARGUMENT, "format is %s, AS_PRECISE and AS_COARSE are for floats", f.name);
  }
  check_pointer("data", data);
  if (rows != matrix.rows || columns != matrix.columns) {
    fail(AS_ARGUMENT, "%s is [%d, %d], expected [%d, %d]", name, rows, columns, matrix.rows,
         matrix.columns);
  }
  if (columns % f.columns != 0) {
    fail(AS_ARGUMENT, "%s has %d columns, in %s they come in blocks of %d", name, columns, f.name,
         f.columns);
  }
  if (matrix.bytes != nullptr) fail(AS_STATE, "%s was given before", name);
  for (int i = 0; row_order != nullptr && i < rows; i++) {
    check_range("an entry of row_order", row_order[i], 0, rows - 1);
  }
  Matrix packed = matrix;
  packed.packing = how == AS_PRECISE  ? Packing::q16
                   : how == AS_COARSE ? Packing::q4_1
                                      : f.packing;
  packed.bytes = arena.take(packed.tile_bytes() * static_cast<size_t>(packed.tiles()));
  pack(packed, kind, data, row_order);
  return packed;
}

void Layer::arrange(int head_dim) {
  qkv.unit = head_dim / kTile;
  for (const Matrix* m : {&query, &key, &value}) append(qkv, *m, 0, m->tiles());
  append(mix, attention_output, 0, attention_output.tiles());
  gate_up.unit = 4;
  for (int i = 0; i < gate.tiles(); i += 2) {
    append(gate_up, gate, i, 2);
    append(gate_up, up, i, 2);
  }
  append(narrow, down, 0, down.tiles());
}

Workspace::Workspace(const as_config& c, int rows)
    : stream(static_cast<size_t>(rows) * c.hidden),
      heads(static_cast<size_t>(rows) * (c.heads + 2 * c.kv_heads) * c.head_dim),
      attention(static_cast<size_t>(rows) * c.heads * c.head_dim),
      normed(rows, c.hidden),
      mixed(rows, c.heads * c.head_dim),
      inner(rows, c.ffn) {}

Model::Model(const as_config& given) : config(given) {
  check_sizes(config);
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
  check_range("which", which, AS_NORM_ATTENTION, AS_NORM_KEY);
  if (which == AS_NORM_OUTPUT) return output_gain;
  check_range("layer", layer, 0, config.layers - 1);
  Layer& l = layers[layer];
  switch (which) {
    case AS_NORM_ATTENTION: return l.attention_gain;
    case AS_NORM_FFN: return l.ffn_gain;
    case AS_NORM_QUERY: return l.query_gain;
    default: return l.key_gain;
  }
}

void Model::set_rope(const float* cos_table, const float* sin_table) {
  check_building();
  const size_t count = static_cast<size_t>(config.max_len) * (config.head_dim / 2);
  std::vector<float> first = finite_copy("cos", cos_table, count);
  sine = finite_copy("sin", sin_table, count);
  cosine = std::move(first);
}

void Model::set_weight(int layer, int which, int format, const void* data, int rows, int columns,
                       const int32_t* row_order) {
  check_building();
  Matrix& target = matrix(layer, which);
  const char* name = kMatrixNames[which];
  if (target.bytes != nullptr) fail(AS_STATE, "%s of layer %d was given before", name, layer);
  target = packed_matrix(name, target, format, data, rows, columns, row_order, arena_);
}

void Model::set_norm(int layer, int which, const float* values, int size) {
  check_building();
  std::vector<float>& target = gain(layer, which);
  check_pointer("gain", values);
  const bool of_heads = which == AS_NORM_QUERY || which == AS_NORM_KEY;
  const int expected = of_heads ? config.head_dim : config.hidden;
  check_range("size", size, expected, expected);
  if (!target.empty()) fail(AS_STATE, "this gain was given before");
  target = finite_copy("gain", values, size);
}

void Model::set_bias(int layer, int which, const float* values, int size) {
  check_building();
  check_range("layer", layer, 0, config.layers - 1);
  check_range("which", which, AS_QUERY, AS_VALUE);
  Layer& l = layers[layer];
  std::vector<float>& target = which == AS_QUERY ? l.query_bias
                               : which == AS_KEY ? l.key_bias
                                                 : l.value_bias;
  check_pointer("bias", values);
  const int expected = matrix(layer, which).rows;
  check_range("size", size, expected, expected);
  if (!target.empty()) fail(AS_STATE, "this bias was given before");
  target = finite_copy("bias", values, size);
}

// What only some families have is there in all layers or in none: half of it is a loader's mistake.
void Model::check_families() const {
  const bool biases = !layers[0].query_bias.empty(), norms = !layers[0].query_gain.empty();
  for (int i = 0; i < config.layers; i++) {
    const Layer& l = layers[i];
    for (const auto* bias : {&l.query_bias, &l.key_bias, &l.value_bias}) {
      if (bias->empty() == biases) {
        fail(AS_STATE, "biases are given in part: of query, key and value of all layers or of none "
             "(layer %d differs)", i);
      }
    }
    for (const auto* gain : {&l.query_gain, &l.key_gain}) {
      if (gain->empty() == norms) {
        fail(AS_STATE, "norms of heads are given in part: of query and key of all layers or of "
             "none (layer %d differs)", i);
      }
    }
  }
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
  check_families();
  if (embedding.bytes == nullptr) fail(AS_STATE, "embedding is missing");
  if (config.flags & AS_TIED) output = embedding;
  if (output.bytes == nullptr) fail(AS_STATE, "output is missing");

  for (Layer& layer : layers) layer.arrange(config.head_dim);
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
  if (workspace == nullptr) workspace = std::make_unique<Workspace>(config, AS_MAX_ROWS);
  return workspace;
}

void Model::give_back(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(workspace));
}

Cache::Cache(const as_config& sizes, std::shared_ptr<const Model> owner, int capacity)
    : config(sizes), model(std::move(owner)) {
  check_range("capacity", capacity, 0, INT32_MAX);
  // More rows than positions cannot be committed.
  reserve(std::clamp<int>(capacity, 1, config.max_len) + kTentative);
}

void Cache::reserve(int slots) {
  if (slots <= capacity_) return;
  const as_config& c = config;
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
  const as_config& c = config;
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

void Cache::copy(const Cache& other, int rows) {
  check_range("rows", rows, 0, other.length);
  reserve(rows + kTentative);
  const as_config& c = config;
  const size_t row = static_cast<size_t>(c.head_dim) * sizeof(uint16_t);
  for (int layer = 0; layer < c.layers; layer++) {
    for (int head = 0; head < c.kv_heads; head++) {
      // Keys lie in blocks of kLanes slots; what else is in the last block is never looked at.
      memcpy(keys(layer, head), other.keys(layer, head), round_up(rows, kLanes) * row);
      memcpy(values(layer, head), other.values(layer, head), rows * row);
    }
  }
  length = rows;
  tentative = 0;
}

}  // namespace as
