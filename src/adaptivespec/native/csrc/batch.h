// The rows of a pass, those of its sequences one after the other.
#pragma once

#include <vector>

#include "model.h"

namespace as {

struct Row {
  int sequence;
  int slot;  // of the sequence's cache
  int32_t token, position;
  // The tentative rows it sees, counted within its sequence: visible[first_visible..]. Ascending,
  // itself the last.
  int first_visible, visible_count;
};

struct Sequence {
  Cache* cache;
  int committed;  // rows of the cache that all its rows see
  int first_row, rows;
  // Attention units are queries in the order (sequence, key head, row, head in group): neighbours
  // share keys. A unit costs about as much as it has slots to look at.
  int first_unit, units;
  int slots;  // of the cache that any of its rows may see
};

// What a pass computes, checked and laid out.
struct Batch {
  // `caches` are those of the pass's sequences, held by the caller, without tentative rows. Raises
  // AS_ARGUMENT where anything is out of bounds.
  Batch() = default;
  Batch(const Model& model, const as_pass& pass, const std::vector<Cache*>& caches);

  // The first attention unit of a thread; that of `threads` itself ends the last one's.
  int attention_begin(int thread, int threads) const;
  const int32_t* visible_of(const Row& row) const { return &visible[row.first_visible]; }
  int row_count() const { return static_cast<int>(rows.size()); }
  int asked_count() const { return static_cast<int>(asked.size()); }
  int most_slots() const;

  std::vector<Sequence> sequences;
  std::vector<Row> rows;
  std::vector<int32_t> visible;
  std::vector<int> asked;  // rows of the pass

 private:
  void add(const Model& model, const as_rows& given, Cache* cache);
};

}  // namespace as
