// Passes of a head over rows of one sequence.
#pragma once

#include <vector>

#include "head.h"
#include "layer_pass.h"
#include "likeliest.h"

namespace as {

// What one pass computes.
struct HeadWork {
  Batch batch;                         // rows of one sequence
  const float* taps = nullptr;         // [rows, taps * hidden], or ...
  std::vector<const float*> features;  // ... [hidden] of each row
  int first_asked = 0;                 // logits are wanted from this row on; if of none, the pass
                                       // leaves keys and values and nothing else
  float* features_out = nullptr;       // [rows, hidden] or NULL
  int k = 0;                           // likeliest words of every asked row
  int32_t* words = nullptr;            // [asked, k]
  float* logq = nullptr;               // [asked, k]
  float* logits = nullptr;             // [asked, draft_vocab] or NULL

  HeadWork() = default;
  // Without rows yet, of a sequence of which `slots` slots may be seen.
  HeadWork(Cache& cache, int slots) {
    batch.sequences.push_back({&cache, cache.length, 0, 0, 0, 0, slots});
  }

  // Adds a row at `position` that sees the committed rows and `visible`, counted from them; the last
  // is the row itself.
  void add_row(const Head& head, int32_t token, int position, const std::vector<int32_t>& visible) {
    check_range("a token", token, 0, head.model->config.vocab - 1);
    check_range("a position", position, 0, head.config.max_len - 1);
    Sequence& s = batch.sequences[0];
    batch.rows.push_back({0, s.committed + visible.back(), token, position,
                          static_cast<int>(batch.visible.size()),
                          static_cast<int>(visible.size())});
    batch.visible.insert(batch.visible.end(), visible.begin(), visible.end());
    s.rows++;
    s.units += head.config.heads;
  }
};

// Owns what it reads outside of units, like LayerPass.
class HeadPass {
 public:
  HeadPass(const Head& head, HeadWork work, HeadScratch& scratch, Team& team, as_mode mode,
           int threads)
      : head_(head),
        scratch_(scratch),
        mode_(mode),
        fuse_units_(head.fuse_tiles.units()),
        output_units_(head.output_tiles.units()),
        layer_(head.sizes, head.layer, head.cosine.data(), head.sine.data(), std::move(work.batch),
               scratch.layer, team, mode, threads),
        work_(std::move(work)),
        rows_(layer_.batch().row_count()),
        asked_(std::max(rows_ - work_.first_asked, 0)),
        asked_blocks_(std::max(asked_, 1), mode) {}

  void operator()(Team::Walker& w) {
    const FloatEnvironment environment;
    if (work_.taps != nullptr) fuse(w);
    layer_.share(w, rows_, [&](int row, int) { join(row); });
    if (asked_ == 0) {
      layer_.keep(head_.layer, 0, scratch_.input, w);
      return;
    }
    layer_.run(head_.layer, 0, scratch_.input, head_.output_tiles, w);
    finish(w);
  }

 private:
  // The features of committed rows, from the model's taps.
  void fuse(Team::Walker& w) const {
    layer_.share(w, rows_, [&](int row, int) {
      const int columns = head_.config.taps * head_.config.hidden;
      quantise_span(scratch_.tapped, row, work_.taps + static_cast<size_t>(row) * columns, 0,
                    columns, mode_);
    });
    layer_.share(w, fuse_units_, [&](int i, int end) {
      layer_.multiply(head_.fuse_tiles, i, end, head_.layer.qkv, w.thread, layer_.blocks(),
                      scratch_.tapped, &scratch_.layer.stream[i * kTile], head_.config.hidden,
                      false);
    });
  }

  // Embedding and feature of a row, normed, as the layer's input.
  void join(int row) const {
    const int hidden = head_.config.hidden;
    float* joined = &scratch_.joined[static_cast<size_t>(row) * 2 * hidden];
    float* feature = layer_.stream(row);
    if (work_.taps == nullptr) memcpy(feature, work_.features[row], sizeof(float) * hidden);
    unpack_row(head_.embedding, layer_.batch().rows[row].token, joined);
    norm_to(joined, head_.embedding_gain.data(), hidden, head_.config.rms_eps, joined);
    norm_to(feature, head_.feature_gain.data(), hidden, head_.config.rms_eps, joined + hidden);
    quantise_span(scratch_.input, row, joined, 0, 2 * hidden, mode_);
  }

  // Features, logits and likeliest words.
  void finish(Team::Walker& w) const {
    layer_.share(w, rows_, [&](int row, int) {
      const int hidden = head_.config.hidden;
      const float* feature = layer_.stream(row);
      if (work_.features_out != nullptr) {
        memcpy(work_.features_out + static_cast<size_t>(row) * hidden, feature,
               sizeof(float) * hidden);
      }
      if (row >= work_.first_asked) {
        norm_row(feature, head_.output_gain.data(), hidden, head_.config.rms_eps,
                 scratch_.layer.normed, row - work_.first_asked, mode_);
      }
    });
    layer_.share(w, output_units_, [&](int i, int end) {
      layer_.multiply(head_.output_tiles, i, end, head_.layer.qkv, w.thread, asked_blocks_,
                      scratch_.layer.normed, &scratch_.logits[static_cast<size_t>(i) * kTile],
                      scratch_.logits_stride, false);
    });
    layer_.share(w, asked_, [&](int i, int) {
      const int words = head_.config.draft_vocab;
      const float* logits = &scratch_.logits[i * scratch_.logits_stride];
      const size_t at = static_cast<size_t>(i) * work_.k;
      if (work_.k > 0) likeliest(logits, words, work_.k, work_.words + at, work_.logq + at);
      for (size_t j = at; j < at + work_.k; j++) work_.words[j] = head_.words[work_.words[j]];
      if (work_.logits != nullptr) {
        memcpy(work_.logits + static_cast<size_t>(i) * words, logits, sizeof(float) * words);
      }
    });
  }

  const Head& head_;
  HeadScratch& scratch_;
  const as_mode mode_;
  const int fuse_units_, output_units_;
  const LayerPass layer_;
  const HeadWork work_;  // its batch is the layer's
  const int rows_, asked_;
  const RowBlocks asked_blocks_;
};

// Runs passes of a head, one after the other, with the threads of its model.
class HeadRunner {
 public:
  HeadRunner(const Head& head, as_mode mode, int threads)
      : head_(head), mode_(mode), threads_(threads) {
    check_range("mode", mode, AS_A8, AS_A16);
    check_range("threads", threads, 1, AS_MAX_THREADS);
  }
  ~HeadRunner() {
    if (scratch_ != nullptr) head_.give_back(std::move(scratch_));
    if (model_work_ != nullptr) head_.model->give_back(std::move(model_work_));
  }
  HeadRunner(const HeadRunner&) = delete;
  HeadRunner& operator=(const HeadRunner&) = delete;

  void run(HeadWork work) {
    if (scratch_ == nullptr) scratch_ = head_.borrow();
    if (model_work_ == nullptr) model_work_ = head_.model->borrow();
    Team& team = model_work_->team;
    team.reserve(threads_);
    const Sequence& s = work.batch.sequences[0];
    s.cache->reserve(s.slots);
    team.walk(threads_, std::make_shared<HeadPass>(head_, std::move(work), *scratch_, team, mode_,
                                                   threads_));
  }

 private:
  const Head& head_;
  const as_mode mode_;
  const int threads_;
  std::unique_ptr<HeadScratch> scratch_;
  std::unique_ptr<Workspace> model_work_;
};

}  // namespace as
