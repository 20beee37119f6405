// An EAGLE-3 head: one decoder layer that reads, for each position, the embedding of the next token
// and a feature, and predicts the token after that one.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "drafter.h"
#include "model.h"

namespace as {

constexpr int kHeadRows = 64;  // rows of one pass of a head
constexpr int kHeadNorms = AS_HEAD_NORM_OUTPUT + 1;
constexpr int kHeadMatrices = AS_HEAD_EMBEDDING + 1;

// What one pass writes on its way. The threads are the model's.
struct HeadScratch {
  explicit HeadScratch(const as_head_config& config);

  Workspace layer;       // its residual stream holds the features, in and out
  size_t logits_stride;  // whole blocks of words
  Buffer<float> joined;  // [rows, 2 * hidden] normed embedding and feature
  Buffer<float> logits;  // [rows, logits_stride]
  QuantisedRows tapped, input;
};

class Head {
 public:
  Head(std::shared_ptr<const Model> model, const as_head_config& config);

  void set_rope(const float* cosine, const float* sine);
  void set_weight(int which, int format, const void* data, int rows, int columns);
  void set_norm(int which, const float* gain, int size);
  void set_words(const int32_t* target_ids, int size);
  void make_ready();
  void check_ready() const;
  size_t bytes() const { return arena_.total(); }

  std::unique_ptr<HeadScratch> borrow() const;
  void give_back(std::unique_ptr<HeadScratch> scratch) const;

  const as_head_config config;
  const as_config sizes;  // of its layer
  const std::shared_ptr<const Model> model;
  Layer layer;
  Matrix fuse, output, embedding;
  std::vector<float> embedding_gain, feature_gain, output_gain, cosine, sine;
  std::vector<int32_t> words;  // the model's ids
  Projection fuse_tiles, output_tiles;

 private:
  void check_building() const;
  Matrix& matrix(int which);
  std::vector<float>& gain(int which);

  Arena arena_;
  bool ready_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<HeadScratch>> idle_;
};

}  // namespace as
