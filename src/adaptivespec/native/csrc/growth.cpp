#include "growth.h"

#include <math.h>

#include <numeric>

namespace as {

namespace {

constexpr float kLeast = 1e-6f, kMost = 1.0f - 1e-6f;  // of a calibrated acceptance

// The clamped c of one offer, before siblings are weighed against each other.
float acceptance(const as_plan& plan, int level, int rank, float logq) {
  const float q = static_cast<float>(exp(static_cast<double>(logq)));
  const int32_t first = plan.first_bin[(level - 1) * plan.topk + rank];
  const int bin = first + static_cast<int>(std::lower_bound(plan.edges,
                                                            plan.edges + plan.edge_count, logq) -
                                           plan.edges);
  float c = plan.base[bin] + plan.slope[bin] * q;
  c = std::clamp(c, kLeast, kMost);
  if (plan.shift != 0.0f) {
    const double logit = log(static_cast<double>(c) / (1.0 - static_cast<double>(c)));
    c = static_cast<float>(1.0 / (1.0 + exp(-(logit + static_cast<double>(plan.shift)))));
  }
  if (level <= plan.lift_count) {
    c = std::min(c * static_cast<float>(plan.lift[level - 1]), kMost);
  }
  return q > 0.0f ? c : 0.0f;
}

// A count and the array it counts.
void check_array(const char* name, int count, int most, const void* array) {
  check_range(name, count, 0, most);
  if (count > 0) check_pointer(name, array);
}

void check_share(const char* name, double value) {
  if (!(value >= 0.0 && value <= 1.0)) fail(AS_ARGUMENT, "%s is %g, expected 0 to 1", name, value);
}

}  // namespace

void check_plan(const as_plan& plan) {
  check_range("num_steps", plan.num_steps, 0, AS_MAX_STEPS);
  check_range("topk", plan.topk, 1, AS_MAX_TOPK);
  check_range("num_draft_tokens", plan.num_draft_tokens, 0, AS_MAX_NODES);
  check_range("width", plan.width, 1, AS_MAX_NODES);
  check_range("keep_first", plan.keep_first, 1, AS_MAX_STEPS);
  check_share("keep_relative", plan.keep_relative);
  check_share("keep_absolute", plan.keep_absolute);
  check_share("min_confidence", plan.min_confidence);
  check_share("min_path", plan.min_path);
  check_array("price_count", plan.price_count, AS_MAX_NODES, plan.price_sizes);
  check_array("price_count", plan.price_count, AS_MAX_NODES, plan.prices);
  for (int i = 0; i < plan.price_count; i++) {
    check_range("a price's size", plan.price_sizes[i], i > 0 ? plan.price_sizes[i - 1] + 1 : 1,
                INT32_MAX);
    if (!isfinite(plan.prices[i])) fail(AS_ARGUMENT, "a price is not finite");
  }
  check_array("follow_count", plan.follow_count, AS_MAX_STEPS, plan.follow);
  check_array("ahead_count", plan.ahead_count, AS_MAX_STEPS, plan.ahead_prices);
  check_array("lift_count", plan.lift_count, AS_MAX_STEPS, plan.lift);
  check_array("bin_count", plan.bin_count, AS_MAX_NODES, plan.base);
  check_array("bin_count", plan.bin_count, AS_MAX_NODES, plan.slope);
  check_array("edge_count", plan.edge_count, AS_MAX_NODES, plan.edges);
  check_array("first_bin", plan.bin_count > 0, 1, plan.first_bin);
  for (int i = 0; plan.bin_count > 0 && i < plan.num_steps * plan.topk; i++) {
    check_range("a first bin", plan.first_bin[i], 0, plan.bin_count - 1 - plan.edge_count);
  }
  check_array("position_count", plan.position_count, AS_MAX_NODES, plan.parents);
  check_array("position_count", plan.position_count, AS_MAX_NODES, plan.ranks);
  for (int i = 0; i < plan.position_count; i++) {
    check_range("a position's parent", plan.parents[i], -1, i - 1);
    check_range("a position's rank", plan.ranks[i], 0, AS_MAX_NODES);
  }
}

void check_tree(const as_tree& tree) {
  check_range("capacity", tree.capacity, 1, AS_MAX_NODES);
  const void* const arrays[] = {tree.token, tree.parent, tree.depth,
                                tree.rank,  tree.logq,   tree.score};
  for (const void* array : arrays) check_pointer("an array of the tree", array);
}

Growth::Growth(const as_plan& plan, int32_t root) : plan_(plan), root_(root) {
  if (plan.num_steps == 0) {
    stopped = AS_STOPPED_DEPTH;
  } else if (plan.num_draft_tokens <= 1) {
    stopped = AS_STOPPED_FULL;
  }
  frontier = {-1};
  tokens = {root};
  sources = {0};
  frontier_score_ = {0.0f};
  if (plan.position_count > 0) {
    placed_ = {-1};
    inner_.assign(plan.position_count, 0);
    for (int i = 0; i < plan.position_count; i++) {
      if (plan.parents[i] >= 0) inner_[plan.parents[i]] = 1;
    }
  }
}

void Growth::expand(const int32_t* words, const float* logq, int k) {
  level++;
  score_offers(logq, k);
  const size_t first = candidates_.size();
  const std::vector<int32_t> parents = std::move(frontier);
  frontier.clear();
  sources.clear();
  if (plan_.position_count > 0) {
    // Frontier rows by the positions they hold; a position that needs more than k offers is left out.
    row_of_.assign(static_cast<size_t>(plan_.position_count) + 1, -1);
    for (size_t row = 0; row < placed_.size(); row++) {
      row_of_[static_cast<size_t>(placed_[row] + 1)] = static_cast<int32_t>(row);
    }
    placed_.clear();
    for (int i = 0; i < plan_.position_count; i++) {
      const int row = row_of_[static_cast<size_t>(plan_.parents[i] + 1)];
      if (row < 0 || plan_.ranks[i] >= k) continue;
      const int offer = row * k + plan_.ranks[i];
      if (inner_[i]) {
        placed_.push_back(i);
        frontier.push_back(static_cast<int32_t>(candidates_.size()));
        sources.push_back(row);
      }
      add(words, logq, k, offer, parents[row]);
    }
  } else {
    sort_offers(k);
    const bool drop = plan_.keep_drop && level >= plan_.keep_first;
    for (const int offer : order_) {
      frontier.push_back(static_cast<int32_t>(drop ? candidates_.size() : first + offer));
      sources.push_back(offer / k);
      if (drop) add(words, logq, k, offer, parents[offer / k]);
    }
    for (size_t offer = 0; !drop && offer < offer_score_.size(); offer++) {
      add(words, logq, k, static_cast<int>(offer), parents[offer / k]);
    }
  }
  tokens.clear();
  frontier_score_.clear();
  for (const int32_t candidate : frontier) {
    tokens.push_back(candidates_[candidate].token);
    frontier_score_.push_back(candidates_[candidate].score);
  }
  stopped = stop_reason();
}

void Growth::add(const int32_t* words, const float* logq, int k, int offer, int32_t parent) {
  candidates_.push_back({words[offer], parent, offer % k, level, logq[offer],
                         offer_score_[offer]});
}

// The score of every offer: its parent's plus log q, or plus log c.
void Growth::score_offers(const float* logq, int k) {
  const size_t width = frontier_score_.size();
  offer_score_.resize(width * k);
  for (size_t row = 0; row < width; row++) {
    const float* offers = logq + row * k;
    float* scores = &offer_score_[row * k];
    if (plan_.bin_count == 0) {
      for (int i = 0; i < k; i++) scores[i] = frontier_score_[row] + offers[i];
      continue;
    }
    float sum = 0.0f;
    for (int i = 0; i < k; i++) {
      scores[i] = acceptance(plan_, level, i, offers[i]);
      sum += scores[i];
    }
    const float whole = std::max(sum, 1.0f);
    for (int i = 0; i < k; i++) {
      const double share = static_cast<double>(scores[i] / whole);
      scores[i] = frontier_score_[row] + static_cast<float>(log(share));
    }
  }
}

// The offers to expand next into order_, best first.
void Growth::sort_offers(int k) {
  const size_t count = offer_score_.size();
  const size_t most = std::min(count, static_cast<size_t>(plan_.width));
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0);
  // The offers of one node come sorted already.
  if (count > static_cast<size_t>(k) || plan_.bin_count > 0) {
    std::partial_sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(most), order_.end(),
                      [this](int a, int b) {
                        return offer_score_[a] > offer_score_[b] ||
                               (offer_score_[a] == offer_score_[b] && a < b);
                      });
  }
  order_.resize(most);
  if (level < plan_.keep_first) return;
  double floor = -INFINITY;
  if (plan_.keep_relative > 0) {
    floor = static_cast<double>(offer_score_[order_[0]]) + log(plan_.keep_relative) - 1e-6;
  }
  if (plan_.keep_absolute > 0) floor = std::max(floor, log(plan_.keep_absolute) - 1e-6);
  const float least = static_cast<float>(floor);
  while (!order_.empty() && offer_score_[order_.back()] < least) order_.pop_back();
}

// What ends the growth after this level; 0 when nothing does.
int Growth::stop_reason() {
  if (level >= plan_.num_steps) return AS_STOPPED_DEPTH;
  if (frontier.empty()) return AS_STOPPED_NOTHING_KEPT;
  if (plan_.full && candidates_.size() + 1 >= static_cast<size_t>(plan_.num_draft_tokens)) {
    return AS_STOPPED_FULL;
  }
  if (plan_.min_confidence > 0) {
    float best = -INFINITY;
    for (const int32_t candidate : frontier) best = std::max(best, candidates_[candidate].logq);
    if (exp(static_cast<double>(best)) < plan_.min_confidence) return AS_STOPPED_CONFIDENCE;
  }
  if (plan_.min_path > 0) {
    const float best = *std::max_element(frontier_score_.begin(), frontier_score_.end());
    if (exp(static_cast<double>(best)) < plan_.min_path) return AS_STOPPED_PATH;
  }
  if (plan_.min_gain >= 0) {
    std::vector<double> scores = probabilities();
    const size_t budget = std::min(static_cast<size_t>(plan_.num_draft_tokens) - 1, scores.size());
    const double total =
        std::accumulate(scores.begin(), scores.begin() + static_cast<ptrdiff_t>(budget), 0.0);
    const double gain = total - sum_;
    sum_ = total;
    if (gain <= plan_.min_gain) return AS_STOPPED_GAIN;
  }
  if (plan_.follow_count > 0 && !worth_more()) return AS_STOPPED_PRICE;
  return 0;
}

// The candidates' path probabilities, falling.
std::vector<double> Growth::probabilities() const {
  std::vector<double> scores;
  scores.reserve(candidates_.size());
  for (const Candidate& c : candidates_) scores.push_back(exp(static_cast<double>(c.score)));
  std::sort(scores.begin(), scores.end(), std::greater<double>());
  return scores;
}

// Whether one, two, ... more levels gain more than their passes cost.
bool Growth::worth_more() const {
  const double follow = plan_.follow[std::min(level + 1, plan_.follow_count) - 1];
  const double least = bar(probabilities());
  double power = 1.0, gain = 0.0;
  for (int j = 0; j < plan_.ahead_count; j++) {
    power *= follow;
    for (const float score : frontier_score_) {
      gain += std::max(exp(static_cast<double>(score)) * power - least, 0.0);
    }
    if (gain > plan_.ahead_prices[j]) return true;
  }
  return false;
}

// What a further node must score: more than one that it displaces, or than its price.
double Growth::bar(const std::vector<double>& scores) const {
  const size_t budget = static_cast<size_t>(plan_.num_draft_tokens) - 1;
  if (plan_.price_count == 0) return scores.size() >= budget ? scores[budget - 1] : 0.0;
  std::vector<double> gains = {1.0};
  for (const double score : scores) gains.push_back(gains.back() + score);
  const Size now = best_size(gains);
  double least = now.nodes > 1 ? scores[now.nodes - 2] : INFINITY;
  for (int i = 0; i < plan_.price_count; i++) {
    if (plan_.price_sizes[i] <= now.nodes) continue;
    least = std::min(least, (plan_.prices[i] - now.price) / (plan_.price_sizes[i] - now.nodes));
    break;
  }
  return least;
}

// The size, root included, of largest expected tokens less price: the smallest of equals.
Growth::Size Growth::best_size(const std::vector<double>& gains) const {
  const int most = static_cast<int>(gains.size());
  Size best = {most, 0.0};
  double worth = -INFINITY;
  for (int i = 0; i < plan_.price_count; i++) {
    const int size = plan_.price_sizes[i];
    const double value = gains[std::min(size, most) - 1] - plan_.prices[i];
    if (value <= worth) continue;  // sizes rise
    worth = value;
    best = {size, plan_.prices[i]};
  }
  best.nodes = std::min(best.nodes, most);
  return best;
}

void Growth::finish(as_tree& tree) const {
  const size_t count = candidates_.size();
  size_t keep = std::min(static_cast<size_t>(std::max(plan_.num_draft_tokens, 1)) - 1, count);
  std::vector<int32_t> chosen(count);
  std::iota(chosen.begin(), chosen.end(), 0);
  tree.priced = keep > 0 && plan_.price_count > 0;
  if (keep < count || tree.priced) {
    const auto better = [this](int a, int b) {
      const float x = candidates_[a].score, y = candidates_[b].score;
      return x > y || (x == y && a < b);
    };
    std::partial_sort(chosen.begin(), chosen.begin() + static_cast<ptrdiff_t>(keep), chosen.end(),
                      better);
    if (tree.priced) {
      std::vector<double> gains = {1.0};
      for (size_t i = 0; i < keep; i++) {
        gains.push_back(gains.back() +
                        exp(static_cast<double>(candidates_[chosen[i]].score)));
      }
      const Size size = best_size(gains);
      keep = static_cast<size_t>(size.nodes) - 1;
      tree.gain = gains[keep];
      tree.price = size.price;
    }
    chosen.resize(keep);
    std::sort(chosen.begin(), chosen.end());
  }
  if (tree.capacity <= static_cast<int32_t>(keep)) {
    fail(AS_ARGUMENT, "capacity is %d, the tree has %zu nodes", tree.capacity, keep + 1);
  }
  std::vector<int64_t> node_of(count, -1);
  const auto put = [&tree](size_t node, const Candidate& c, int64_t parent) {
    tree.token[node] = c.token;
    tree.parent[node] = parent;
    tree.depth[node] = c.depth;
    tree.rank[node] = c.rank;
    tree.logq[node] = c.logq;
    tree.score[node] = c.score;
  };
  put(0, {root_, -1, 0, 0, 0.0f, 0.0f}, -1);
  for (size_t i = 0; i < keep; i++) {
    const Candidate& c = candidates_[chosen[i]];
    const int64_t parent = c.parent < 0 ? 0 : node_of[c.parent];
    if (parent < 0) fail(AS_INTERNAL, "a node was kept without its parent");
    node_of[chosen[i]] = static_cast<int64_t>(i) + 1;
    put(i + 1, c, parent);
  }
  tree.nodes = static_cast<int32_t>(keep) + 1;
  tree.candidates = static_cast<int32_t>(count);
  tree.levels = level;
  tree.stopped = stopped;
}

}  // namespace as
