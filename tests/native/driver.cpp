// Uses the engine through its C interface as a host would, and badly as well. It runs under
// sanitizers and valgrind, which find what a comparison of results does not.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "choose.h"
#include "drafter.h"
#include "engine.h"

namespace {

std::mt19937 generator(7);

void expect(int32_t status, int32_t wanted, const char* what) {
  if (status == wanted) return;
  fprintf(stderr, "%s: status %d, not %d (%s)\n", what, status, wanted, as_error());
  exit(1);
}

#define OK(call) expect(call, AS_OK, #call)
#define REFUSED(call, status) expect(call, status, #call)

int below(int bound) { return static_cast<int>(generator() % static_cast<unsigned>(bound)); }

std::vector<float> floats(size_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// Blocks of `format` with random quants and a small scale.
std::vector<uint8_t> blocks(int format, int rows, int columns) {
  const size_t count = static_cast<size_t>(rows) * columns;
  if (format == AS_F32) {
    const std::vector<float> values = floats(count, 0.1f);
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    return std::vector<uint8_t>(bytes, bytes + count * sizeof(float));
  }
  const size_t size = format == AS_Q4_1 ? 20 : 34;
  std::vector<uint8_t> bytes(count / 32 * size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  for (size_t at = 0; at < bytes.size(); at += size) {
    bytes[at] = 0;
    bytes[at + 1] = format == AS_Q4_1 ? 0x24 : 0x10;  // 2^-6, 2^-11
    if (format == AS_Q4_1) bytes[at + 2] = 0, bytes[at + 3] = 0xAC;  // -2^-4
  }
  return bytes;
}

enum Family { kLlama, kQwen2, kQwen3 };

as_model* build(const as_config& c, Family family) {
  as_model* model = nullptr;
  OK(as_model_new(&c, &model));
  const int half = c.head_dim / 2, width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  std::vector<float> cosine, sine;
  for (int i = 0; i < c.max_len * half; i++) {
    cosine.push_back(cosf(0.1f * static_cast<float>(i)));
    sine.push_back(sinf(0.1f * static_cast<float>(i)));
  }
  OK(as_model_rope(model, cosine.data(), sine.data()));
  REFUSED(as_model_ready(model), AS_STATE);
  const int rows[] = {c.vocab,  c.vocab, width, kv_width, kv_width,
                      c.hidden, c.ffn,   c.ffn, c.hidden};
  const int columns[] = {c.hidden, c.hidden, c.hidden, c.hidden, c.hidden,
                         width,    c.hidden, c.hidden, c.ffn};
  const int formats[] = {AS_Q4_1, AS_Q8_0, AS_F32};
  for (int layer = 0; layer < c.layers; layer++) {
    for (int which = layer > 0 ? AS_QUERY : AS_EMBEDDING; which <= AS_DOWN; which++) {
      if (which == AS_OUTPUT && (c.flags & AS_TIED)) continue;
      const int format = formats[(layer + which) % 3];
      const std::vector<uint8_t> data = blocks(format, rows[which], columns[which]);
      OK(as_model_weight(model, layer, which, format, data.data(), rows[which], columns[which],
                         nullptr));
      if (family == kQwen2 && which >= AS_QUERY && which <= AS_VALUE) {
        const std::vector<float> bias = floats(rows[which], 0.5f);
        OK(as_model_bias(model, layer, which, bias.data(), rows[which]));
      }
    }
    for (int norm = AS_NORM_ATTENTION; norm <= AS_NORM_KEY; norm++) {
      const bool of_heads = norm >= AS_NORM_QUERY;
      if ((of_heads && family != kQwen3) || (norm == AS_NORM_OUTPUT && layer > 0)) continue;
      const std::vector<float> gain = floats(of_heads ? c.head_dim : c.hidden, 1.0f);
      OK(as_model_norm(model, layer, norm, gain.data(), static_cast<int>(gain.size())));
    }
  }
  OK(as_model_ready(model));
  return model;
}

// One pass of random trees over `caches`, then a commit of one path each.
void step(as_model* model, const as_config& c, const std::vector<as_cache*>& caches, int threads,
          int most) {
  struct Tree {
    std::vector<int32_t> tokens, parents, asked;
  };
  std::vector<Tree> trees(caches.size());
  std::vector<as_rows> sequences;
  size_t total = 0, asked = 0;
  for (size_t i = 0; i < caches.size(); i++) {
    Tree& tree = trees[i];
    const int rows = 1 + below(most);
    for (int row = 0; row < rows; row++) {
      tree.tokens.push_back(below(c.vocab));
      tree.parents.push_back(below(row + 1) - 1);
      if (below(2)) tree.asked.push_back(row);
    }
    const bool chain = below(3) == 0;
    sequences.push_back({caches[i], rows, static_cast<int32_t>(tree.asked.size()),
                         tree.tokens.data(), chain ? nullptr : tree.parents.data(), nullptr,
                         tree.asked.data()});
    if (chain) tree.parents.clear();
    total += rows;
    asked += tree.asked.size();
  }
  const int32_t tapped[] = {c.layers - 1, 0};
  std::vector<float> taps(total * 2 * c.hidden), logits(asked * c.vocab), hidden(asked * c.hidden);
  float stalled = 0.0f;
  const as_pass pass = {static_cast<int32_t>(caches.size()), below(2) ? AS_A8 : AS_A16, threads, 2,
                        sequences.data(), tapped, taps.data(), logits.data(), hidden.data(),
                        &stalled};
  OK(as_forward(model, &pass));
  for (float logit : logits) {
    if (!std::isfinite(logit)) exit(2);
  }
  for (size_t i = 0; i < caches.size(); i++) {
    std::vector<int32_t> path;
    for (int node = below(sequences[i].rows); node >= 0;
         node = trees[i].parents.empty() ? node - 1 : trees[i].parents[node]) {
      path.insert(path.begin(), node);
    }
    OK(as_cache_commit(caches[i], path.data(), static_cast<int32_t>(path.size())));
  }
}

void misuse(as_model* model, const as_config& c, as_cache* cache) {
  int32_t length = 0;
  OK(as_cache_length(cache, &length));
  int32_t token = c.vocab, path = 0;
  as_rows rows = {cache, 1, 0, &token, nullptr, nullptr, nullptr};
  as_pass pass = {1, AS_A8, 2, 0, &rows, nullptr, nullptr, nullptr, nullptr, nullptr};
  REFUSED(as_forward(model, &pass), AS_ARGUMENT);
  REFUSED(as_cache_commit(cache, &path, 1), AS_ARGUMENT);
  token = 0;
  const as_rows twice[] = {rows, rows};
  pass.sequences = twice;
  pass.sequence_count = 2;
  REFUSED(as_forward(model, &pass), AS_ARGUMENT);
  REFUSED(as_cache_truncate(cache, length + 1), AS_ARGUMENT);
  REFUSED(as_cache_copy(cache, nullptr, 0), AS_ARGUMENT);
  as_cache* other = nullptr;
  OK(as_cache_new(model, 1, &other));
  REFUSED(as_cache_copy(other, cache, length + 1), AS_ARGUMENT);
  OK(as_cache_copy(other, cache, length));
  OK(as_cache_free(other));
  REFUSED(as_forward(nullptr, &pass), AS_ARGUMENT);
  REFUSED(as_model_bias(model, 0, AS_QUERY, nullptr, 0), AS_STATE);
  int32_t after = -1;
  OK(as_cache_length(cache, &after));
  if (after != length) exit(3);
}

// A head for the model; with all of its vocabulary it borrows the output layer.
as_head* build_head(as_model* model, const as_config& c, int words) {
  const as_head_config h = {c.hidden, c.ffn, c.heads, c.kv_heads, c.head_dim, words, 2, c.max_len,
                            c.rms_eps};
  as_head* head = nullptr;
  OK(as_head_new(model, &h, &head));
  const int width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  const int shapes[][2] = {{c.hidden, 2 * c.hidden}, {width, 2 * c.hidden},
                           {kv_width, 2 * c.hidden}, {kv_width, 2 * c.hidden},
                           {c.hidden, width},        {c.ffn, c.hidden},
                           {c.ffn, c.hidden},        {c.hidden, c.ffn},
                           {words, c.hidden}};
  for (int which = AS_HEAD_FUSE; which <= AS_HEAD_OUTPUT; which++) {
    if (which == AS_HEAD_OUTPUT && words == c.vocab) continue;
    const int rows = shapes[which][0], columns = shapes[which][1];
    const std::vector<uint8_t> data = blocks(AS_F32, rows, columns);
    OK(as_head_weight(head, which, AS_F32, data.data(), rows, columns));
    REFUSED(as_head_weight(head, which, AS_F32, data.data(), rows, columns), AS_STATE);
  }
  const std::vector<float> table(static_cast<size_t>(c.max_len) * c.head_dim / 2, 0.7f);
  OK(as_head_rope(head, table.data(), table.data()));
  for (int norm = AS_HEAD_NORM_EMBEDDING; norm <= AS_HEAD_NORM_OUTPUT; norm++) {
    const std::vector<float> gain = floats(c.hidden, 1.0f);
    OK(as_head_norm(head, norm, gain.data(), c.hidden));
  }
  REFUSED(as_head_ready(head), AS_STATE);
  std::vector<int32_t> ids;
  for (int i = 0; i < words; i++) ids.push_back(c.vocab - 1 - i);
  OK(as_head_words(head, ids.data(), words));
  OK(as_head_ready(head));
  return head;
}

// A plan of any kind, over arrays that live on.
as_plan any_plan() {
  static const int32_t sizes[] = {1, 3, 9}, parents[] = {-1, -1, 0, 2}, ranks[] = {0, 1, 0, 1};
  static const double prices[] = {0.0, 0.1, 0.4}, follow[] = {0.6, 0.5}, ahead[] = {0.1, 0.2};
  static const double lift[] = {1.1};
  static const float base[] = {0.1f, 0.2f, 0.3f}, slope[] = {0.5f, 0.6f, 0.7f};
  static const float edges[] = {-3.0f, -1.0f};
  static const int32_t bins[5 * 9] = {};
  as_plan plan = {};
  plan.num_steps = below(6);
  plan.topk = 1 + below(9);
  plan.num_draft_tokens = below(30);
  plan.width = 1 + below(5);
  plan.keep_first = 1;
  plan.keep_drop = below(2);
  plan.keep_relative = below(2) ? 0.2 : 0.0;
  plan.keep_absolute = below(2) ? 0.01 : 0.0;
  plan.min_confidence = below(2) ? 0.05 : 0.0;
  plan.min_path = below(2) ? 0.01 : 0.0;
  plan.min_gain = below(2) ? 0.05 : -1.0;
  plan.full = below(2);
  if (below(2)) plan.price_count = 3, plan.price_sizes = sizes, plan.prices = prices;
  if (below(2)) {
    plan.follow_count = plan.ahead_count = 2;
    plan.follow = follow;
    plan.ahead_prices = ahead;
  }
  if (below(2)) {
    plan.bin_count = 3;
    plan.edge_count = 2;
    plan.base = base;
    plan.slope = slope;
    plan.edges = edges;
    plan.first_bin = bins;
    plan.shift = 0.3f;
    plan.lift_count = 1;
    plan.lift = lift;
  }
  if (below(4) == 0) {
    plan.position_count = 4;
    plan.parents = parents;
    plan.ranks = ranks;
  }
  return plan;
}

void grow(as_draft* draft, int threads) {
  const as_plan plan = any_plan();
  std::vector<int64_t> ids(4 * 30);
  std::vector<float> values(2 * 30);
  as_tree tree = {};
  tree.capacity = 30;
  tree.token = ids.data();
  tree.parent = tree.token + 30;
  tree.depth = tree.parent + 30;
  tree.rank = tree.depth + 30;
  tree.logq = values.data();
  tree.score = tree.logq + 30;
  OK(as_draft_grow(draft, below(2) ? AS_A8 : AS_A16, threads, &plan, &tree));
  for (int i = 1; i < tree.nodes; i++) {
    if (tree.parent[i] < 0 || tree.parent[i] >= i) exit(4);
  }
}

void draft_trees(as_model* model, const as_config& c, int words) {
  as_head* head = build_head(model, c, words);
  std::vector<as_draft*> drafts(3);
  for (as_draft*& draft : drafts) OK(as_draft_new(head, 1, &draft));
  OK(as_head_free(head));  // the drafts keep it
  const auto use = [&](int i) {
    as_draft* draft = drafts[i];
    float confidence = 0.0f;
    std::vector<int32_t> tokens(70, 0);
    const std::vector<float> taps(70 * 2 * static_cast<size_t>(c.hidden), 0.3f);
    for (int rows : {1, 70, 2}) {
      OK(as_draft_read(draft, AS_A8, 1 + i, rows, tokens.data(), taps.data(), &confidence));
    }
    const int k = words < 3 ? words : 3;
    std::vector<int32_t> found(70 * 3), sources(70, 0);
    std::vector<float> logq(70 * 3);
    as_level level = {AS_A8, 1 + i, 0, k, nullptr, nullptr, nullptr, nullptr, found.data(),
                      logq.data()};
    OK(as_draft_level(draft, &level));
    level.tokens = tokens.data();
    level.sources = sources.data();
    for (int rows : {70, 2}) {
      level.rows = rows;
      OK(as_draft_level(draft, &level));
    }
    OK(as_draft_truncate(draft, 5));
    OK(as_draft_read(draft, AS_A16, 1 + i, 1, tokens.data(), taps.data(), &confidence));
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; i++) callers.emplace_back(use, i);
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < 40; i++) grow(drafts[i % 3], 1 + i % 3);

  int32_t token = c.vocab, length = 0;
  const std::vector<float> tap(2 * static_cast<size_t>(c.hidden));
  float confidence = 0.0f;
  OK(as_draft_length(drafts[0], &length));
  REFUSED(as_draft_read(drafts[0], AS_A8, 1, 1, &token, tap.data(), &confidence), AS_ARGUMENT);
  REFUSED(as_draft_read(drafts[0], AS_A8, 1, c.max_len, &token, tap.data(), &confidence),
          AS_ARGUMENT);
  REFUSED(as_draft_truncate(drafts[0], length + 1), AS_ARGUMENT);
  REFUSED(as_draft_copy(drafts[1], drafts[0], length + 1), AS_ARGUMENT);
  OK(as_draft_copy(drafts[1], drafts[0], length));
  REFUSED(as_draft_grow(drafts[0], AS_A8, 1, nullptr, nullptr), AS_ARGUMENT);
  OK(as_draft_truncate(drafts[0], 0));
  as_level level = {};
  REFUSED(as_draft_level(drafts[0], &level), AS_STATE);
  for (as_draft* draft : drafts) OK(as_draft_free(draft));
}

void walk() {
  const int nodes = 9, vocab = 21;
  for (int i = 0; i < 50; i++) {
    std::vector<int64_t> token, parent;
    for (int node = 0; node < nodes; node++) {
      token.push_back(below(vocab));
      parent.push_back(node > 0 ? below(node) : -1);
    }
    std::vector<float> logits = floats(nodes * vocab, 1.0f);
    if (i % 7 == 0) logits[below(nodes * vocab)] = NAN;
    const std::vector<uint8_t> guarded(vocab, i % 2);
    std::vector<int32_t> path(nodes), best(nodes);
    std::vector<float> drop(nodes);
    as_walk w = {nodes, vocab, token.data(), parent.data(), logits.data(), guarded.data(), 1.5f,
                 i % 3 == 0, 0, 0, path.data(), best.data(), drop.data()};
    OK(as_follow(&w));
    if (w.length < 1 || w.length > nodes) exit(5);
    parent[3] = 3;
    REFUSED(as_follow(&w), AS_ARGUMENT);
  }
}

void serve(const as_config& c, Family family) {
  as_model* model = build(c, family);
  draft_trees(model, c, c.vocab);
  if (c.vocab > 1) draft_trees(model, c, c.vocab / 2);
  std::vector<as_cache*> caches(4);
  for (as_cache*& cache : caches) OK(as_cache_new(model, 1, &cache));
  for (int i = 0; i < 4; i++) {
    step(model, c, caches, 1 + i % 3, 12);
    misuse(model, c, caches[0]);
  }
  step(model, c, {caches[2]}, 2, 70);  // more rows than the cache has room for
  OK(as_cache_truncate(caches[1], 1));
  const auto decode = [&](int i) {
    int32_t token = i % c.vocab, path = 0;
    std::vector<float> logits(c.vocab);
    as_rows rows = {caches[i], 1, 1, &token, nullptr, nullptr, nullptr};
    as_pass pass = {1, AS_A8, 2, 0, &rows, nullptr, nullptr, logits.data(), nullptr, nullptr};
    for (int k = 0; k < 5; k++) {
      OK(as_forward(model, &pass));
      OK(as_cache_commit(caches[i], &path, 1));
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; i++) callers.emplace_back(decode, i);
  for (std::thread& caller : callers) caller.join();
  OK(as_model_free(model));  // the caches keep it
  for (as_cache* cache : caches) OK(as_cache_free(cache));
}

}  // namespace

int main() {
  serve({2, 64, 96, 4, 2, 16, 37, 200, 1e-5f, AS_TIED}, kLlama);
  serve({1, 96, 64, 2, 1, 48, 16, 200, 1e-5f, 0}, kQwen2);
  serve({2, 32, 32, 2, 2, 32, 1, 200, 1e-6f, AS_TIED}, kQwen3);
  walk();
  puts("done");
  return 0;
}
