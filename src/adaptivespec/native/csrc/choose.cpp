#include "choose.h"

#include "boundary.h"
#include "likeliest.h"

namespace as {

namespace {

void check_walk(const as_walk& w) {
  check_range("nodes", w.nodes, 1, 1 << 20);
  check_range("vocab", w.vocab, 1, 1 << 24);
  const void* const arrays[] = {w.token, w.parent, w.logits, w.guarded, w.path, w.best, w.drop};
  for (const void* array : arrays) check_pointer("an array of the walk", array);
  for (int i = 0; i < w.nodes; i++) {
    check_range("a token", w.token[i], 0, w.vocab - 1);
    check_range("a parent", w.parent[i], i == 0 ? -1 : 0, i - 1);
  }
}

// The child of `node` that is followed, whose row has its peak at `best`; -1 if none is. And how far
// it drops.
int follow_one(const as_walk& w, int node, int32_t best, float peak, float* drop) {
  const float* row = w.logits + static_cast<size_t>(node) * w.vocab;
  int chosen = -1;
  for (int child = node + 1; child < w.nodes; child++) {
    if (w.parent[child] != node) continue;
    const int64_t token = w.token[child];
    const float below = peak - row[token];
    const bool passes = below < w.limit && !w.guarded[token] && !w.guarded[best];
    if (token == best || (passes && w.in_order)) {
      *drop = below;
      return child;
    }
    if (passes && (chosen < 0 || below < *drop)) {
      *drop = below;
      chosen = child;
    }
  }
  return chosen;
}

void follow(as_walk& w) {
  w.length = 0;
  w.fault = -1;
  float drop = 0.0f;
  for (int node = 0; node >= 0;) {
    int32_t best;
    const float peak = argmax(w.logits + static_cast<size_t>(node) * w.vocab, w.vocab, &best);
    w.path[w.length] = node;
    w.best[w.length] = best;
    w.drop[w.length] = drop;
    w.length++;
    if (!isfinite(peak)) {
      w.fault = node;
      return;
    }
    node = follow_one(w, node, best, peak, &drop);
  }
}

}  // namespace

}  // namespace as

extern "C" int32_t as_follow(as_walk* walk) {
  return as::guarded([&] {
    as::check_pointer("walk", walk);
    as::check_walk(*walk);
    as::follow(*walk);
  });
}
