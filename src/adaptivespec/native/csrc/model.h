// A model, its caches, and the scratch memory of passes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "activations.h"
#include "common.h"
#include "threads.h"

namespace as {

// The tiles of one matrix product in the order of work, which is dealt out in units of a few tiles.
struct Projection {
  int columns = 0;
  int unit = 1;
  std::vector<Tile> tiles;

  int units() const { return static_cast<int>(tiles.size()) / unit; }
  size_t tile_bytes(Tile tile) const {
    return static_cast<size_t>(columns / kGroup) * group_bytes(tile.packing);
  }
};

struct Layer {
  Matrix query, key, value, attention_output, gate, up, down;
  std::vector<float> attention_gain, ffn_gain;
  std::vector<float> query_gain, key_gain;  // [head_dim]; empty: heads have no norm
  std::vector<float> query_bias, key_bias, value_bias;  // [rows of the matrix]; empty: none
  // Units: a head; a tile; 32 columns of the inner layer (two tiles of gate, two of up); a tile.
  Projection qkv, mix, gate_up, narrow;

  // Lays out the work once all matrices are there.
  void arrange(int head_dim);
};

// Appends `count` tiles of `matrix` to the work of a product.
void append(Projection& projection, const Matrix& matrix, int first, int count);

// `matrix`, whose shape is set, with `data` packed into `arena`. Raises AS_ARGUMENT.
Matrix packed_matrix(const char* name, const Matrix& matrix, int format, const void* data, int rows,
                     int columns, const int32_t* row_order, Arena& arena);

// A copy of `values`; AS_ARGUMENT unless all are finite: a bad scale or gain must not turn into a row
// of NaN that nobody can trace.
std::vector<float> finite_copy(const char* name, const float* values, size_t count);

// Raises AS_ARGUMENT unless models of these sizes are served.
void check_sizes(const as_config& config);

// What one pass of up to `rows` rows writes on its way; borrowed for its length.
struct Workspace {
  Workspace(const as_config& config, int rows);

  Team team;
  Buffer<float> stream;     // [rows, hidden] the residual stream
  Buffer<float> heads;      // [rows, (heads + 2 * kv_heads) * head_dim]
  Buffer<float> attention;  // [rows, heads * head_dim]
  Buffer<float> scores;     // per thread, scores_each floats
  size_t scores_each = 0;
  QuantisedRows normed, mixed, inner;
};

class Model {
 public:
  explicit Model(const as_config& config);

  void set_rope(const float* cosine, const float* sine);
  void set_weight(int layer, int which, int format, const void* data, int rows, int columns,
                  const int32_t* row_order);
  void set_norm(int layer, int which, const float* gain, int size);
  void set_bias(int layer, int which, const float* bias, int size);
  void make_ready();
  void check_ready() const;
  size_t bytes() const { return arena_.total(); }

  // A workspace that nobody else uses; passes that run side by side get one each.
  std::unique_ptr<Workspace> borrow() const;
  void give_back(std::unique_ptr<Workspace> workspace) const;

  const as_config config;
  std::vector<Layer> layers;
  Matrix embedding, output;
  std::vector<float> output_gain, cosine, sine;
  Projection output_tiles;

 private:
  Matrix& matrix(int layer, int which);
  std::vector<float>& gain(int layer, int which);
  void check_building() const;
  void check_families() const;

  Arena arena_;
  bool ready_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

// Keys and values of one sequence: per layer and key head `capacity` slots (see attention.h).
class Cache {
 public:
  // `model` is what it belongs to; a head's cache has none.
  Cache(const as_config& config, std::shared_ptr<const Model> model, int capacity);

  void reserve(int slots);
  void commit(const int32_t* path, int count);
  void truncate(int length);
  // Holds the first `rows` rows of `other`, which has the same sizes, and no others.
  void copy(const Cache& other, int rows);

  uint16_t* keys(int layer, int head) const { return keys_.data() + region(layer, head); }
  uint16_t* values(int layer, int head) const { return values_.data() + region(layer, head); }
  size_t bytes() const { return keys_.bytes() + values_.bytes(); }

  const as_config config;
  const std::shared_ptr<const Model> model;
  int length = 0;     // committed rows
  int tentative = 0;  // rows of the last pass behind them
  std::atomic<bool> busy{false};

 private:
  size_t region(int layer, int head) const {
    const as_config& c = config;
    return (static_cast<size_t>(layer) * c.kv_heads + head) * capacity_ * c.head_dim;
  }

  int capacity_ = 0;
  Buffer<uint16_t> keys_, values_;
};

struct Batch;

// Runs a pass; the caches of its batch are this thread's alone meanwhile.
void forward(const Model& model, const as_pass& pass, Batch batch);

}  // namespace as
