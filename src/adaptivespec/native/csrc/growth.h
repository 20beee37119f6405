// Growing a draft tree as a plan says. The same decisions as adaptivespec.draft.growth, in the same
// order and on the same numbers; that file says what they mean.
#pragma once

#include <vector>

#include "common.h"
#include "drafter.h"

namespace as {

// Raise AS_ARGUMENT unless all is within bounds.
void check_plan(const as_plan& plan);
void check_tree(const as_tree& tree);

// The tree under construction. `expand` once per level while `stopped` is 0.
class Growth {
 public:
  Growth(const as_plan& plan, int32_t root);

  // Offers children words, logq [width, k] of the frontier, likeliest first; chooses the next one.
  void expand(const int32_t* words, const float* logq, int k);

  // Writes the pruned tree.
  void finish(as_tree& tree) const;

  int width() const { return static_cast<int>(frontier.size()); }

  int stopped = 0;
  int level = 0;
  std::vector<int32_t> frontier;  // candidates to expand next; -1 is the root
  std::vector<int32_t> tokens;    // of the frontier
  std::vector<int32_t> sources;   // for each, the row of its parent in the frontier before

 private:
  struct Candidate {
    int32_t token, parent, rank, depth;
    float logq, score;
  };

  void score_offers(const float* logq, int k);
  void sort_offers(int k);
  void add(const int32_t* words, const float* logq, int k, int offer, int32_t parent);
  int stop_reason();
  bool worth_more() const;
  double bar(const std::vector<double>& scores) const;
  std::vector<double> probabilities() const;
  struct Size {
    int nodes;
    double price;
  };
  Size best_size(const std::vector<double>& gains) const;

  const as_plan& plan_;
  const int32_t root_;
  std::vector<Candidate> candidates_;
  std::vector<float> frontier_score_, offer_score_;
  std::vector<int32_t> order_, placed_, row_of_;
  std::vector<char> inner_;
  double sum_ = 0.0;
};

}  // namespace as
