// One pass of a model, phase by phase.
#include "layer_pass.h"

namespace as {

namespace {

// Owns what it reads outside of units, like LayerPass.
class Pass {
 public:
  Pass(const Model& model, const as_pass& pass, Batch batch, Workspace& work)
      : model_(model),
        c_(model.config),
        pass_(pass),
        work_(work),
        layer_(c_, model.layers[0], model.cosine.data(), model.sine.data(), std::move(batch), work,
               work.team, static_cast<as_mode>(pass.mode), pass.threads),
        asked_blocks_(std::max(batch_.asked_count(), 1), layer_.mode()) {}

  // The whole pass for one thread.
  void operator()(Team::Walker& w) {
    const FloatEnvironment environment;
    layer_.share(w, batch_.row_count(), [&](int row, int) {
      unpack_row(model_.embedding, batch_.rows[row].token, layer_.stream(row));
    });
    for (int i = 0; i < c_.layers; i++) {
      const bool last = i + 1 == c_.layers;
      // What comes after the layer; the next pass starts with the first one.
      const Projection& after = !last            ? model_.layers[i + 1].qkv
                                : wants_logits() ? model_.output_tiles
                                                 : model_.layers[0].qkv;
      layer_.share(w, batch_.row_count(), [&](int row, int) {
        write_taps(i, row);
        layer_.norm(model_.layers[i].attention_gain, row);
      });
      layer_.run(model_.layers[i], i, work_.normed, after, w);
    }
    finish(w);
  }

  // The rows of the pass wait for a commit.
  void keep_rows() const {
    for (const Sequence& s : batch_.sequences) s.cache->tentative = s.rows;
  }

 private:
  bool wants_logits() const { return pass_.logits != nullptr && batch_.asked_count() > 0; }

  void write_taps(int layer, int row) const {
    for (int k = 0; k < pass_.tap_count; k++) {
      if (pass_.tap_layers[k] != layer) continue;
      const size_t at = (static_cast<size_t>(row) * pass_.tap_count + k) * c_.hidden;
      memcpy(pass_.taps + at, layer_.stream(row), sizeof(float) * c_.hidden);
    }
  }

  // Hidden states and logits of the rows asked for.
  void finish(Team::Walker& w) const {
    if (pass_.logits == nullptr && pass_.hidden == nullptr) return;
    layer_.share(w, batch_.asked_count(), [&](int i, int) {
      const float* x = layer_.stream(batch_.asked[i]);
      if (pass_.hidden != nullptr) {
        memcpy(pass_.hidden + static_cast<size_t>(i) * c_.hidden, x, sizeof(float) * c_.hidden);
      }
      if (pass_.logits != nullptr) {
        norm_row(x, model_.output_gain.data(), c_.hidden, c_.rms_eps, work_.normed, i,
                 layer_.mode());
      }
    });
    if (!wants_logits()) return;
    const Projection& p = model_.output_tiles;
    layer_.share(w, p.units(), [&](int i, int end) {
      const int columns = std::min(kTile, c_.vocab - i * kTile);
      float* out = pass_.logits + static_cast<size_t>(i) * kTile;
      if (columns == kTile) {
        layer_.multiply(p, i, end, model_.layers[0].qkv, w.thread, asked_blocks_, work_.normed, out,
                        c_.vocab, false);
        return;
      }
      float whole[AS_MAX_ROWS * kTile];  // the last tile reaches beyond the vocabulary
      layer_.multiply(p, i, end, model_.layers[0].qkv, w.thread, asked_blocks_, work_.normed, whole,
                      kTile, false);
      for (int row = 0; row < batch_.asked_count(); row++) {
        memcpy(out + static_cast<size_t>(row) * c_.vocab, whole + row * kTile,
               sizeof(float) * columns);
      }
    });
  }

  const Model& model_;
  const as_config& c_;
  const as_pass pass_;
  Workspace& work_;
  const LayerPass layer_;
  const Batch& batch_ = layer_.batch();
  const RowBlocks asked_blocks_;
};

}  // namespace

void forward(const Model& model, const as_pass& pass, Batch batch) {
  std::unique_ptr<Workspace> work = model.borrow();
  work->team.reserve(pass.threads);
  for (const Sequence& s : batch.sequences) s.cache->reserve(s.slots);
  const auto walk = std::make_shared<Pass>(model, pass, std::move(batch), *work);
  const float stalled = work->team.walk(pass.threads, walk);
  if (pass.stalled != nullptr) *pass.stalled = stalled;
  walk->keep_rows();
  model.give_back(std::move(work));
}

}  // namespace as
