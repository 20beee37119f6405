#include "batch.h"

namespace as {

Batch::Batch(const Model& model, const as_pass& pass, const std::vector<Cache*>& caches) {
  check_range("mode", pass.mode, AS_A8, AS_A16);
  check_range("threads", pass.threads, 1, AS_MAX_THREADS);
  check_range("tap_count", pass.tap_count, 0, 4096);
  if (pass.tap_count > 0) {
    check_pointer("tap_layers", pass.tap_layers);
    check_pointer("taps", pass.taps);
  }
  for (int k = 0; k < pass.tap_count; k++) {
    check_range("a tapped layer", pass.tap_layers[k], 0, model.config.layers - 1);
  }
  int64_t total = 0;
  for (size_t i = 0; i < caches.size(); i++) {
    check_range("rows", pass.sequences[i].rows, 1, AS_MAX_ROWS);
    total += pass.sequences[i].rows;
  }
  check_range("rows of all sequences", total, 1, AS_MAX_ROWS);
  rows.reserve(total);
  for (size_t i = 0; i < caches.size(); i++) add(model, pass.sequences[i], caches[i]);
}

void Batch::add(const Model& model, const as_rows& given, Cache* cache) {
  const as_config& c = model.config;
  const int first = row_count(), index = static_cast<int>(sequences.size());
  check_range("asked_count", given.asked_count, 0, given.rows);
  check_pointer("tokens", given.tokens);
  for (int i = 0; i < given.rows; i++) {
    check_range("a token", given.tokens[i], 0, c.vocab - 1);
    const int parent = given.parents != nullptr ? given.parents[i] : i - 1;
    check_range("a parent", parent, -1, i - 1);
    const int begin = static_cast<int>(visible.size());
    int depth = 0;
    if (parent >= 0) {
      const Row& above = rows[first + parent];
      depth = above.visible_count;
      for (int k = 0; k < depth; k++) visible.push_back(visible[above.first_visible + k]);
    }
    visible.push_back(i);
    const int64_t position =
        given.positions != nullptr ? given.positions[i] : int64_t{cache->length} + depth;
    check_range("a position", position, 0, c.max_len - 1);
    rows.push_back({index, cache->length + i, given.tokens[i], static_cast<int32_t>(position),
                    begin, depth + 1});
  }
  for (int i = 0; i < given.asked_count; i++) {
    const int row = given.asked != nullptr ? given.asked[i] : i;
    check_range("an asked row", row, 0, given.rows - 1);
    asked.push_back(first + row);
  }
  const int before = sequences.empty() ? 0 : sequences.back().first_unit + sequences.back().units;
  sequences.push_back({cache, cache->length, first, given.rows, before, c.heads * given.rows,
                       cache->length + given.rows});
}

int Batch::attention_begin(int thread, int threads) const {
  int64_t total = 0;
  for (const Sequence& s : sequences) total += int64_t{s.units} * s.slots;
  int64_t cost = total * thread / threads;
  for (const Sequence& s : sequences) {
    const int64_t whole = int64_t{s.units} * s.slots;
    if (cost < whole) return s.first_unit + static_cast<int>(cost / s.slots);
    cost -= whole;
  }
  return sequences.back().first_unit + sequences.back().units;
}

int Batch::most_slots() const {
  int most = 0;
  for (const Sequence& s : sequences) most = std::max(most, s.slots);
  return most;
}

}  // namespace as
