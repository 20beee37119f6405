// One pass, phase by phase. All threads walk through it together, each with its share of the units,
// and meet at a barrier wherever a phase reads what another thread wrote.
#include "attention.h"
#include "kernels.h"
#include "model.h"

namespace as {

namespace {

// Scores of a thread's queries should stay in the second-level cache: half a megabyte.
constexpr size_t kScoreFloats = size_t{1} << 17;

class Pass {
 public:
  Pass(const Model& model, Cache& cache, const as_pass& pass, Workspace& work)
      : model_(model),
        c_(model.config),
        cache_(cache),
        pass_(pass),
        work_(work),
        mode_(static_cast<as_mode>(pass.mode)),
        rows_(pass.rows),
        committed_(cache.length),
        blocks_(pass.rows, mode_),
        asked_blocks_(std::max(pass.asked_count, 1), mode_) {
    find_visible();
    stride_ = round_up(static_cast<size_t>(committed_) + rows_, 64);
    const size_t each = std::max(kScoreFloats, kQueries * stride_);
    if (work.scores.size() < each * pass.threads) {
      work.scores = Buffer<float>(each * pass.threads);
    }
    work.scores_each = each;
    batch_ = static_cast<int>(std::min<size_t>(kMaxQueries, each / stride_ / kQueries * kQueries));
  }

  // The whole pass for one thread. Must not throw: the other threads would wait for ever.
  void operator()(int thread) {
    const FloatEnvironment environment;
    const Share rows(rows_, thread, pass_.threads);
    for (int row = rows.begin; row < rows.end; row++) {
      unpack_row(model_.embedding, pass_.tokens[row], stream(row));
    }
    for (int i = 0; i < c_.layers; i++) {
      const bool last = i + 1 == c_.layers;
      // What comes after the layer; the next pass starts with the first one.
      const Projection& after = !last            ? model_.layers[i + 1].qkv
                                : wants_logits() ? model_.output_tiles
                                                 : model_.layers[0].qkv;
      write_taps(i, rows);
      layer(i, after, thread);
    }
    finish(thread);
  }

 private:
  float* stream(int row) const { return &work_.stream[static_cast<size_t>(row) * c_.hidden]; }
  bool wants_logits() const { return pass_.logits != nullptr && pass_.asked_count > 0; }

  void find_visible() {
    for (int row = 0; row < rows_; row++) {
      const int parent = pass_.parents != nullptr ? pass_.parents[row] : row - 1;
      int count = 0;
      if (parent >= 0) {
        count = work_.visible_count[parent];
        std::copy_n(work_.visible[parent], count, work_.visible[row]);
      }
      work_.visible[row][count] = row;
      work_.visible_count[row] = count + 1;
    }
  }

  int position(int row) const {
    return pass_.positions != nullptr ? pass_.positions[row]
                                      : committed_ + work_.visible_count[row] - 1;
  }

  void write_taps(int layer, const Share& rows) const {
    for (int k = 0; k < pass_.tap_count; k++) {
      if (pass_.tap_layers[k] != layer) continue;
      for (int row = rows.begin; row < rows.end; row++) {
        const size_t at = (static_cast<size_t>(row) * pass_.tap_count + k) * c_.hidden;
        memcpy(pass_.taps + at, stream(row), sizeof(float) * c_.hidden);
      }
    }
  }

  // Multiplies tile `i` of the share that ends before tile `end`, and fetches ahead what this thread
  // reads next: the share's next tile or its first of `after`.
  void multiply(const Projection& p, int i, int end, const Projection& after, int thread,
                const RowBlocks& blocks, const QuantisedRows& x, float* out, size_t stride,
                bool accumulate) const {
    const bool within = i + 1 < end;
    const Projection& owner = within ? p : after;
    size_t next = static_cast<size_t>(i) + 1;
    if (!within) {
      const Share share(after.units(), thread, pass_.threads);
      next = std::min<size_t>(static_cast<size_t>(share.begin) * after.unit,
                              after.tiles.size() - 1);
    }
    const Tile ahead = owner.tiles[next];
    blocks.multiply(p.tiles[i], x, out, stride, accumulate, ahead.bytes, owner.tile_bytes(ahead));
  }

  void layer(int index, const Projection& after, int thread) {
    const Layer& l = model_.layers[index];
    norm(l.attention_gain, thread);
    work_.team.barrier();
    project_heads(index, l, thread);
    work_.team.barrier();
    attend_share(index, thread);
    work_.team.barrier();
    if (c_.head_dim % kGroup != 0) {
      // Groups reach over two heads, so they are quantised when all heads are there.
      const Share rows(rows_, thread, pass_.threads);
      for (int row = rows.begin; row < rows.end; row++) {
        quantise_span(work_.mixed, row, attention(row), 0, c_.heads * c_.head_dim, mode_);
      }
      work_.team.barrier();
    }
    add_to_stream(l.mix, l.gate_up, work_.mixed, thread);
    work_.team.barrier();
    norm(l.ffn_gain, thread);
    work_.team.barrier();
    gate(l, thread);
    work_.team.barrier();
    add_to_stream(l.narrow, after, work_.inner, thread);
    work_.team.barrier();
  }

  float* attention(int row) const {
    return &work_.attention[static_cast<size_t>(row) * c_.heads * c_.head_dim];
  }

  void norm(const std::vector<float>& gain, int thread) const {
    const Share rows(rows_, thread, pass_.threads);
    for (int row = rows.begin; row < rows.end; row++) {
      norm_row(stream(row), gain.data(), c_.hidden, c_.rms_eps, work_.normed, row, mode_);
    }
  }

  // Queries, keys and values, head by head; rotated, and keys and values written to the cache.
  void project_heads(int index, const Layer& l, int thread) const {
    const int head_dim = c_.head_dim, kv_begin = c_.heads, v_begin = c_.heads + c_.kv_heads;
    const size_t width = static_cast<size_t>(v_begin + c_.kv_heads) * head_dim;
    const float factor = 1.0f / sqrtf(static_cast<float>(head_dim));
    const Share heads(l.qkv.units(), thread, pass_.threads);
    for (int head = heads.begin; head < heads.end; head++) {
      float* first = &work_.heads[static_cast<size_t>(head) * head_dim];
      for (int i = 0; i < l.qkv.unit; i++) {
        multiply(l.qkv, head * l.qkv.unit + i, heads.end * l.qkv.unit, l.mix, thread, blocks_,
                 work_.normed, first + i * kTile, width, false);
      }
      for (int row = 0; row < rows_; row++) {
        float* x = first + row * width;
        const size_t slot = static_cast<size_t>(committed_) + row;
        if (head < v_begin) {
          const size_t angles = static_cast<size_t>(position(row)) * (head_dim / 2);
          rotate_head(x, &model_.cosine[angles], &model_.sine[angles], head_dim,
                      head < kv_begin ? factor : 1.0f);
        }
        if (head >= v_begin) {
          uint16_t* value = cache_.values(index, head - v_begin) + slot * head_dim;
          for (int d = 0; d < head_dim; d += kLanes) store_halves(value + d, bounded(x + d));
        } else if (head >= kv_begin) {
          uint16_t* block = cache_.keys(index, head - kv_begin) +
                            slot / kSlots * kSlots * head_dim + slot % kSlots;
          for (int d = 0; d < head_dim; d += kLanes) {
            uint16_t halves[kLanes];
            store_halves(halves, bounded(x + d));
            for (int i = 0; i < kLanes; i++) block[(d + i) * kSlots] = halves[i];
          }
        }
      }
    }
  }

  // Within the range of f16, so that an outlier becomes the largest value instead of an infinity.
  static Floats bounded(const float* x) {
    return max(min(load(x), broadcast(65504.0f)), broadcast(-65504.0f));
  }

  // Attention units are queries in the order (key head, row, head in group): neighbours share keys.
  void attend_share(int index, int thread) const {
    const int head_dim = c_.head_dim, group = c_.heads / c_.kv_heads, per_head = group * rows_;
    const size_t width = static_cast<size_t>(c_.heads + 2 * c_.kv_heads) * head_dim;
    float* scores = &work_.scores[work_.scores_each * thread];
    const Share units(c_.kv_heads * per_head, thread, pass_.threads);
    Query queries[kMaxQueries];
    int at_row[kMaxQueries], at_head[kMaxQueries];
    for (int begin = units.begin; begin < units.end;) {
      const int kv_head = begin / per_head;
      const int end = std::min({units.end, (kv_head + 1) * per_head, begin + batch_});
      for (int i = begin; i < end; i++) {
        const int row = (i - kv_head * per_head) / group;
        const int head = kv_head * group + (i - kv_head * per_head) % group;
        at_row[i - begin] = row;
        at_head[i - begin] = head;
        queries[i - begin] = {&work_.heads[row * width + static_cast<size_t>(head) * head_dim],
                              attention(row) + head * head_dim, work_.visible[row],
                              work_.visible_count[row]};
      }
      attend(cache_.keys(index, kv_head), cache_.values(index, kv_head), head_dim, committed_,
             committed_ + rows_, queries, end - begin, scores, stride_);
      for (int i = 0; head_dim % kGroup == 0 && i < end - begin; i++) {
        quantise_span(work_.mixed, at_row[i], attention(at_row[i]), at_head[i] * head_dim,
                      (at_head[i] + 1) * head_dim, mode_);
      }
      begin = end;
    }
  }

  void add_to_stream(const Projection& p, const Projection& after, const QuantisedRows& x,
                     int thread) const {
    const Share tiles(p.units(), thread, pass_.threads);
    for (int i = tiles.begin; i < tiles.end; i++) {
      multiply(p, i, tiles.end, after, thread, blocks_, x, &work_.stream[i * kTile], c_.hidden,
               true);
    }
  }

  // The inner layer, 32 columns at a time: swish(gate) * up, quantised at once.
  void gate(const Layer& l, int thread) const {
    float both[AS_MAX_ROWS * 4 * kTile];
    const Share chunks(l.gate_up.units(), thread, pass_.threads);
    for (int chunk = chunks.begin; chunk < chunks.end; chunk++) {
      for (int i = 0; i < 4; i++) {
        multiply(l.gate_up, chunk * 4 + i, chunks.end * 4, l.narrow, thread, blocks_, work_.normed,
                 both + i * kTile, 4 * kTile, false);
      }
      for (int row = 0; row < rows_; row++) {
        const float* x = both + row * 4 * kTile;
        quantise(work_.inner, row, chunk, mul(swish(load(x)), load(x + 2 * kTile)),
                 mul(swish(load(x + kTile)), load(x + 3 * kTile)), mode_);
      }
    }
  }

  // Hidden states and logits of the rows asked for.
  void finish(int thread) const {
    if (pass_.logits == nullptr && pass_.hidden == nullptr) return;
    const Share rows(pass_.asked_count, thread, pass_.threads);
    for (int i = rows.begin; i < rows.end; i++) {
      const float* x = stream(pass_.asked != nullptr ? pass_.asked[i] : i);
      if (pass_.hidden != nullptr) {
        memcpy(pass_.hidden + static_cast<size_t>(i) * c_.hidden, x, sizeof(float) * c_.hidden);
      }
      if (pass_.logits != nullptr) {
        norm_row(x, model_.output_gain.data(), c_.hidden, c_.rms_eps, work_.normed, i, mode_);
      }
    }
    if (!wants_logits()) return;
    work_.team.barrier();
    const Projection& p = model_.output_tiles;
    const Share tiles(p.units(), thread, pass_.threads);
    for (int i = tiles.begin; i < tiles.end; i++) {
      const int columns = std::min(kTile, c_.vocab - i * kTile);
      float* out = pass_.logits + static_cast<size_t>(i) * kTile;
      if (columns == kTile) {
        multiply(p, i, tiles.end, model_.layers[0].qkv, thread, asked_blocks_, work_.normed, out,
                 c_.vocab, false);
        continue;
      }
      float whole[AS_MAX_ROWS * kTile];  // the last tile reaches beyond the vocabulary
      multiply(p, i, tiles.end, model_.layers[0].qkv, thread, asked_blocks_, work_.normed, whole,
               kTile, false);
      for (int row = 0; row < pass_.asked_count; row++) {
        memcpy(out + static_cast<size_t>(row) * c_.vocab, whole + row * kTile,
               sizeof(float) * columns);
      }
    }
  }

  const Model& model_;
  const as_config& c_;
  Cache& cache_;
  const as_pass& pass_;
  Workspace& work_;
  const as_mode mode_;
  const int rows_, committed_;
  const RowBlocks blocks_, asked_blocks_;
  size_t stride_ = 0;
  int batch_ = 0;
};

}  // namespace

void check_pass(const Model& model, const Cache& cache, const as_pass& pass) {
  const as_config& c = model.config;
  check_range("rows", pass.rows, 1, AS_MAX_ROWS);
  check_range("mode", pass.mode, AS_A8, AS_A16);
  check_range("threads", pass.threads, 1, AS_MAX_THREADS);
  check_range("tap_count", pass.tap_count, 0, 4096);
  check_range("asked_count", pass.asked_count, 0, pass.rows);
  check_pointer("tokens", pass.tokens);
  if (pass.tap_count > 0) {
    check_pointer("tap_layers", pass.tap_layers);
    check_pointer("taps", pass.taps);
  }
  int depth[AS_MAX_ROWS];
  for (int i = 0; i < pass.rows; i++) {
    check_range("a token", pass.tokens[i], 0, c.vocab - 1);
    const int parent = pass.parents != nullptr ? pass.parents[i] : i - 1;
    check_range("a parent", parent, -1, i - 1);
    depth[i] = parent < 0 ? 0 : depth[parent] + 1;
    const int64_t position =
        pass.positions != nullptr ? pass.positions[i] : int64_t{cache.length} + depth[i];
    check_range("a position", position, 0, c.max_len - 1);
  }
  for (int k = 0; k < pass.tap_count; k++) {
    check_range("a tapped layer", pass.tap_layers[k], 0, c.layers - 1);
  }
  for (int i = 0; pass.asked != nullptr && i < pass.asked_count; i++) {
    check_range("an asked row", pass.asked[i], 0, pass.rows - 1);
  }
}

void forward(const Model& model, Cache& cache, const as_pass& pass) {
  cache.tentative = 0;
  std::unique_ptr<Workspace> work = model.borrow();
  work->team.reserve(pass.threads);
  cache.reserve(cache.length + pass.rows);
  Pass share(model, cache, pass, *work);
  work->team.run(pass.threads, share);
  cache.tentative = pass.rows;
  model.give_back(std::move(work));
}

}  // namespace as
