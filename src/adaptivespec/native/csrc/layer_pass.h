// The phases of one decoder layer, for passes of a model and of a head. A phase reads what the one
// before it wrote, by whichever thread; its units are independent, so it does not matter who does
// them.
#pragma once

#include "attention.h"
#include "batch.h"
#include "heads.h"
#include "kernels.h"
#include "model.h"

namespace as {

// Owns what it reads outside of units: a thread that comes late may look at it when the caller of
// the pass is gone.
class LayerPass {
 public:
  // All layers of the pass have the shapes of `like`. `cosine` and `sine` are rotary tables
  // [max_len, head_dim / 2]. Grows the scratch memory of `work`.
  LayerPass(const as_config& config, const Layer& like, const float* cosine, const float* sine,
            Batch batch, Workspace& work, Team& team, as_mode mode, int threads)
      : c_(config),
        cosine_(cosine),
        sine_(sine),
        batch_(std::move(batch)),
        work_(work),
        team_(team),
        mode_(mode),
        threads_(threads),
        qkv_units_(like.qkv.units()),
        mix_units_(like.mix.units()),
        gate_units_(like.gate_up.units()),
        blocks_(batch_.row_count(), mode) {
    const size_t each = std::max(kScoreFloats, kQueries * stride(batch_.most_slots()));
    if (work.scores.size() < each * threads) work.scores = Buffer<float>(each * threads);
    work.scores_each = each;
    cut_attention();
  }

  const Batch& batch() const { return batch_; }
  as_mode mode() const { return mode_; }
  const RowBlocks& blocks() const { return blocks_; }
  float* stream(int row) const { return &work_.stream[static_cast<size_t>(row) * c_.hidden]; }

  template <class Units, class Unit> void share(Team::Walker& w, Units units, Unit unit) const {
    team_.share(w, units, unit);
  }

  // Adds attention and the inner layer to the residual stream. `input` are the rows that queries,
  // keys and values are made of; `after` is what comes after the layer.
  void run(const Layer& l, int index, const QuantisedRows& input, const Projection& after,
           Team::Walker& w) const {
    project_heads(index, l, input, 0, w);
    share(w, [&](int thread) { return first_task_[thread]; },
          [&](int task, int) { attend_task(index, tasks_[task], w.thread); });
    if (c_.head_dim % kGroup != 0) {
      // Groups reach over two heads, so they are quantised when all heads are there.
      share(w, batch_.row_count(), [&](int row, int) {
        quantise_span(work_.mixed, row, attention(row), 0, c_.heads * c_.head_dim, mode_);
      });
    }
    add_to_stream(l.mix, l.gate_up, work_.mixed, w);
    share(w, batch_.row_count(), [&](int row, int) { norm(l.ffn_gain, row); });
    gate(l, w);
    add_to_stream(l.narrow, after, work_.inner, w);
  }

  // Writes the keys and values of the rows and no more, for rows that only later ones look at.
  void keep(const Layer& l, int index, const QuantisedRows& input, Team::Walker& w) const {
    project_heads(index, l, input, c_.heads, w);
  }

  // Norms a row of the residual stream into work.normed.
  void norm(const std::vector<float>& gain, int row) const {
    norm_row(stream(row), gain.data(), c_.hidden, c_.rms_eps, work_.normed, row, mode_);
  }

  // Multiplies tile `i` of the part that ends before tile `end`, and fetches ahead what its thread
  // most likely reads next: the part's next tile or the thread's first of `after`.
  void multiply(const Projection& p, int i, int end, const Projection& after, int thread,
                const RowBlocks& blocks, const QuantisedRows& x, float* out, size_t stride,
                bool accumulate) const {
    const bool within = i + 1 < end;
    const Projection& owner = within ? p : after;
    size_t next = static_cast<size_t>(i) + 1;
    if (!within) {
      const Share its(after.units(), thread, threads_);
      next = std::min<size_t>(static_cast<size_t>(its.begin) * after.unit,
                              after.tiles.size() - 1);
    }
    const Tile ahead = owner.tiles[next];
    blocks.multiply(p.tiles[i], x, out, stride, accumulate, ahead.bytes, owner.tile_bytes(ahead));
  }

 private:
  struct Task {
    int sequence;
    int begin, end;  // units of the sequence
  };

  // Scores of a thread's queries should stay in the second-level cache: half a megabyte.
  static constexpr size_t kScoreFloats = size_t{1} << 17;

  // Floats between the scores of two queries.
  static size_t stride(int slots) { return round_up(static_cast<size_t>(slots), 64); }

  // Each thread's attention units, cut into tasks: as many units as share keys and as their scores
  // have room for.
  void cut_attention() {
    for (int thread = 0; thread < threads_; thread++) {
      first_task_.push_back(static_cast<int>(tasks_.size()));
      const int from = batch_.attention_begin(thread, threads_);
      const int to = batch_.attention_begin(thread + 1, threads_);
      for (size_t i = 0; i < batch_.sequences.size(); i++) {
        const Sequence& s = batch_.sequences[i];
        const int per_head = c_.heads / c_.kv_heads * s.rows;
        const size_t fit = work_.scores_each / stride(s.slots) / kQueries * kQueries;
        const int most = static_cast<int>(std::min<size_t>(kMaxQueries, fit));
        const int end = std::min(to - s.first_unit, s.units);
        for (int begin = std::max(from - s.first_unit, 0); begin < end;) {
          const int stop = std::min({end, (begin / per_head + 1) * per_head, begin + most});
          tasks_.push_back({static_cast<int>(i), begin, stop});
          begin = stop;
        }
      }
    }
    first_task_.push_back(static_cast<int>(tasks_.size()));
  }

  float* attention(int row) const {
    return &work_.attention[static_cast<size_t>(row) * c_.heads * c_.head_dim];
  }

  // Queries, keys and values, head by head, from `first` on.
  void project_heads(int index, const Layer& l, const QuantisedRows& input, int first,
                     Team::Walker& w) const {
    const size_t width = static_cast<size_t>(c_.heads + 2 * c_.kv_heads) * c_.head_dim;
    share(w, qkv_units_ - first, [&](int unit, int end) {
      const int head = first + unit;
      float* out = &work_.heads[static_cast<size_t>(head) * c_.head_dim];
      for (int i = 0; i < l.qkv.unit; i++) {
        multiply(l.qkv, head * l.qkv.unit + i, (first + end) * l.qkv.unit, l.mix, w.thread, blocks_,
                 input, out + i * kTile, width, false);
      }
      for (int row = 0; row < batch_.row_count(); row++) {
        finish_head(index, l, head, batch_.rows[row], out + row * width);
      }
    });
  }

  // Bias, norm and rotation of one row's head x; keys and values go to the cache.
  void finish_head(int index, const Layer& l, int head, const Row& row, float* x) const {
    const int head_dim = c_.head_dim, key = head - c_.heads, value = key - c_.kv_heads;
    const Cache& cache = *batch_.sequences[row.sequence].cache;
    if (value >= 0) {
      if (!l.value_bias.empty()) add_bias(x, &l.value_bias[value * head_dim], head_dim);
      store_value(cache.values(index, value), row.slot, x, head_dim);
      return;
    }
    const bool is_key = key >= 0;
    const std::vector<float>& bias = is_key ? l.key_bias : l.query_bias;
    const std::vector<float>& gain = is_key ? l.key_gain : l.query_gain;
    if (!bias.empty()) add_bias(x, &bias[(is_key ? key : head) * head_dim], head_dim);
    if (!gain.empty()) norm_to(x, gain.data(), head_dim, c_.rms_eps, x);
    const size_t angles = static_cast<size_t>(row.position) * (head_dim / 2);
    const float factor = is_key ? 1.0f : 1.0f / sqrtf(static_cast<float>(head_dim));
    rotate_head(x, cosine_ + angles, sine_ + angles, head_dim, factor);
    if (is_key) store_key(cache.keys(index, key), row.slot, x, head_dim);
  }

  // Units of one sequence that share keys.
  void attend_task(int index, const Task& task, int thread) const {
    const Sequence& s = batch_.sequences[task.sequence];
    const int head_dim = c_.head_dim, group = c_.heads / c_.kv_heads, per_head = group * s.rows;
    const int kv_head = task.begin / per_head, count = task.end - task.begin;
    const size_t width = static_cast<size_t>(c_.heads + 2 * c_.kv_heads) * head_dim;
    Query queries[kMaxQueries];
    int at_row[kMaxQueries], at_head[kMaxQueries];
    for (int i = 0; i < count; i++) {
      const int unit = task.begin + i - kv_head * per_head;
      const int row = s.first_row + unit / group, head = kv_head * group + unit % group;
      at_row[i] = row;
      at_head[i] = head;
      queries[i] = {&work_.heads[row * width + static_cast<size_t>(head) * head_dim],
                    attention(row) + head * head_dim, batch_.visible_of(batch_.rows[row]),
                    batch_.rows[row].visible_count};
    }
    attend(s.cache->keys(index, kv_head), s.cache->values(index, kv_head), head_dim, s.committed,
           s.slots, queries, count, &work_.scores[work_.scores_each * thread], stride(s.slots));
    for (int i = 0; head_dim % kGroup == 0 && i < count; i++) {
      quantise_span(work_.mixed, at_row[i], attention(at_row[i]), at_head[i] * head_dim,
                    (at_head[i] + 1) * head_dim, mode_);
    }
  }

  void add_to_stream(const Projection& p, const Projection& after, const QuantisedRows& x,
                     Team::Walker& w) const {
    share(w, mix_units_, [&](int i, int end) {  // of either product: tiles of the stream
      multiply(p, i, end, after, w.thread, blocks_, x, &work_.stream[i * kTile], c_.hidden, true);
    });
  }

  // The inner layer, 32 columns at a time: swish(gate) * up, quantised at once.
  void gate(const Layer& l, Team::Walker& w) const {
    float both[AS_MAX_ROWS * 4 * kTile];
    share(w, gate_units_, [&](int chunk, int end) {
      for (int i = 0; i < 4; i++) {
        multiply(l.gate_up, chunk * 4 + i, end * 4, l.narrow, w.thread, blocks_, work_.normed,
                 both + i * kTile, 4 * kTile, false);
      }
      for (int row = 0; row < batch_.row_count(); row++) {
        const float* x = both + row * 4 * kTile;
        quantise(work_.inner, row, chunk, mul(swish(load(x)), load(x + 2 * kTile)),
                 mul(swish(load(x + kTile)), load(x + 3 * kTile)), mode_);
      }
    });
  }

  const as_config c_;
  const float* const cosine_;
  const float* const sine_;
  const Batch batch_;
  Workspace& work_;
  Team& team_;
  const as_mode mode_;
  const int threads_, qkv_units_, mix_units_, gate_units_;
  const RowBlocks blocks_;
  std::vector<Task> tasks_;
  std::vector<int> first_task_;  // of each thread, and their number
};

}  // namespace as
