#include "head.h"

#include <math.h>

namespace as {

namespace {

constexpr const char* kNames[kHeadMatrices] = {"fuse", "query", "key",  "value",  "attention output",
                                               "gate", "up",    "down", "output", "embedding"};

as_config layer_sizes(const as_head_config& c) {
  return {1,          c.hidden,      c.ffn,     c.heads,   c.kv_heads,
          c.head_dim, c.draft_vocab, c.max_len, c.rms_eps, 0};
}

void set_shape(Matrix& matrix, int rows, int columns) {
  matrix.rows = rows;
  matrix.columns = columns;
}

}  // namespace

HeadScratch::HeadScratch(const as_head_config& c)
    : layer(layer_sizes(c), kHeadRows),
      logits_stride(round_up(c.draft_vocab, kTile)),
      joined(static_cast<size_t>(kHeadRows) * 2 * c.hidden),
      logits(kHeadRows * logits_stride),
      tapped(kHeadRows, c.taps * c.hidden),
      input(kHeadRows, 2 * c.hidden) {}

Head::Head(std::shared_ptr<const Model> owner, const as_head_config& given)
    : config(given), sizes(layer_sizes(given)), model(std::move(owner)) {
  model->check_ready();
  check_sizes(sizes);
  check_range("hidden", config.hidden, model->config.hidden, model->config.hidden);
  check_range("draft_vocab", config.draft_vocab, 1, model->config.vocab);
  check_range("taps", config.taps, 1, 16);
  const int hidden = config.hidden;
  const int width = config.heads * config.head_dim, kv_width = config.kv_heads * config.head_dim;
  set_shape(fuse, hidden, config.taps * hidden);
  set_shape(layer.query, width, 2 * hidden);
  set_shape(layer.key, kv_width, 2 * hidden);
  set_shape(layer.value, kv_width, 2 * hidden);
  set_shape(layer.attention_output, hidden, width);
  set_shape(layer.gate, config.ffn, hidden);
  set_shape(layer.up, config.ffn, hidden);
  set_shape(layer.down, hidden, config.ffn);
  set_shape(output, config.draft_vocab, hidden);
  set_shape(embedding, model->config.vocab, hidden);
}

void Head::check_building() const {
  if (ready_) fail(AS_STATE, "the head is ready; its weights no longer change");
}

void Head::check_ready() const {
  if (!ready_) fail(AS_STATE, "the head is not ready; as_head_ready comes first");
}

Matrix& Head::matrix(int which) {
  check_range("which", which, 0, kHeadMatrices - 1);
  Matrix* const all[kHeadMatrices] = {
      &fuse, &layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.gate,
      &layer.up, &layer.down, &output, &embedding};
  return *all[which];
}

std::vector<float>& Head::gain(int which) {
  check_range("which", which, 0, kHeadNorms - 1);
  std::vector<float>* const all[kHeadNorms] = {&embedding_gain, &feature_gain, &layer.ffn_gain,
                                               &output_gain};
  return *all[which];
}

void Head::set_rope(const float* cos_table, const float* sin_table) {
  check_building();
  const size_t count = static_cast<size_t>(config.max_len) * (config.head_dim / 2);
  std::vector<float> first = finite_copy("cos", cos_table, count);
  sine = finite_copy("sin", sin_table, count);
  cosine = std::move(first);
}

void Head::set_weight(int which, int format, const void* data, int rows, int columns) {
  check_building();
  Matrix& target = matrix(which);
  target = packed_matrix(kNames[which], target, format, data, rows, columns, nullptr, arena_);
}

void Head::set_norm(int which, const float* values, int size) {
  check_building();
  std::vector<float>& target = gain(which);
  check_range("size", size, config.hidden, config.hidden);
  if (!target.empty()) fail(AS_STATE, "this gain was given before");
  target = finite_copy("gain", values, static_cast<size_t>(size));
}

void Head::set_words(const int32_t* target_ids, int size) {
  check_building();
  check_pointer("target_ids", target_ids);
  check_range("size", size, config.draft_vocab, config.draft_vocab);
  for (int i = 0; i < size; i++) {
    check_range("a target id", target_ids[i], 0, model->config.vocab - 1);
  }
  words.assign(target_ids, target_ids + size);
}

void Head::make_ready() {
  check_building();
  if (cosine.empty()) fail(AS_STATE, "the rotary tables are missing");
  if (words.empty()) fail(AS_STATE, "the target ids of the draft words are missing");
  for (int which = 0; which < kHeadNorms; which++) {
    if (gain(which).empty()) fail(AS_STATE, "gain %d is missing", which);
  }
  if (embedding.bytes == nullptr) embedding = model->embedding;
  if (output.bytes == nullptr && config.draft_vocab == model->config.vocab) output = model->output;
  for (int which = 0; which < kHeadMatrices; which++) {
    if (matrix(which).bytes == nullptr) fail(AS_STATE, "%s is missing", kNames[which]);
  }
  layer.arrange(config.head_dim);
  append(fuse_tiles, fuse, 0, fuse.tiles());
  append(output_tiles, output, 0, output.tiles());
  ready_ = true;
}

std::unique_ptr<HeadScratch> Head::borrow() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<HeadScratch> scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<HeadScratch>(config);
}

void Head::give_back(std::unique_ptr<HeadScratch> scratch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(scratch));
}

}  // namespace as
