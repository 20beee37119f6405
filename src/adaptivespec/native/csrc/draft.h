// A draft: what a head remembers of one sequence, and the trees it grows there.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "drafter.h"
#include "head_pass.h"

namespace as {

class Draft {
 public:
  Draft(std::shared_ptr<const Head> head, int capacity);

  int length() const { return cache_.length; }
  void truncate(int length);
  void copy(const Draft& other, int rows);

  // Appends committed rows and looks at the root; its largest probability.
  float read(as_mode mode, int threads, int rows, const int32_t* tokens, const float* taps);
  // One level for a caller that chooses by itself.
  void expand(const as_level& level);
  void grow(as_mode mode, int threads, const as_plan& plan, as_tree& tree);

  const std::shared_ptr<const Head> head;
  std::atomic<bool> busy{false};

 private:
  void forget_level();
  void check_viewed() const;
  void run_level(HeadRunner& runner, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& sources, int k, int32_t* words, float* logq,
                 float* logits);
  void look(int k, int32_t* words, float* logq) const;

  Cache cache_;
  // The root as the head sees it: its feature [hidden] and the logits after it [draft_vocab].
  int32_t root_ = -1;  // -1: not looked at
  std::vector<float> view_, view_logits_;
  // Drafted rows stand behind the committed ones: the parent row of each, -1 being the root.
  std::vector<int32_t> parent_;
  int level_ = 0, level_first_ = 0;     // the last level and its first row
  std::vector<float> features_, next_;  // [rows of a level, hidden], of the last and of the new one
};

}  // namespace as
