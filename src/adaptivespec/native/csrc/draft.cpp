#include "draft.h"

#include <math.h>

#include "growth.h"

namespace as {

// So many rows are read in one pass, with the last.
constexpr int kFewRows = 6;

Draft::Draft(std::shared_ptr<const Head> owner, int capacity)
    : head(std::move(owner)), cache_(head->sizes, nullptr, capacity) {
  view_.resize(head->config.hidden);
  view_logits_.resize(head->config.draft_vocab);
}

void Draft::forget_level() {
  parent_.clear();
  level_ = level_first_ = 0;
}

void Draft::check_viewed() const {
  if (root_ < 0) fail(AS_STATE, "nothing was read; as_draft_read comes first");
}

void Draft::truncate(int length) {
  cache_.truncate(length);
  root_ = -1;
  forget_level();
}

void Draft::copy(const Draft& other, int rows) {
  if (head.get() != other.head.get()) fail(AS_ARGUMENT, "the drafts are of two heads");
  cache_.copy(other.cache_, rows);
  root_ = -1;
  forget_level();
}

float Draft::read(as_mode mode, int threads, int rows, const int32_t* tokens, const float* taps) {
  HeadRunner runner(*head, mode, threads);
  check_range("rows", rows, 1, head->config.max_len - length());
  check_pointer("tokens", tokens);
  check_pointer("taps", taps);
  for (int i = 0; i < rows; i++) {
    check_range("a token", tokens[i], 0, head->model->config.vocab - 1);
  }
  const int before = length(), hidden = head->config.hidden;
  root_ = -1;
  forget_level();
  try {
    for (int done = 0; done < rows;) {
      // Of many rows, all but the last are only looked at by later ones: that is much less work.
      const int rest = rows - done, count = std::min(rest > kFewRows ? rest - 1 : rest, kHeadRows);
      HeadWork work(cache_, length() + count);
      std::vector<int32_t> visible;
      for (int i = 0; i < count; i++) {
        visible.push_back(i);
        work.add_row(*head, tokens[done + i], length() + i, visible);
      }
      work.taps = taps + static_cast<size_t>(done) * head->config.taps * hidden;
      work.first_asked = count;
      if (done + count == rows) {
        next_.resize(static_cast<size_t>(count) * hidden);
        work.features_out = next_.data();
        work.first_asked = count - 1;
        work.logits = view_logits_.data();
      }
      runner.run(std::move(work));
      cache_.length += count;
      done += count;
    }
  } catch (...) {
    cache_.length = before;
    throw;
  }
  view_.assign(next_.end() - hidden, next_.end());
  root_ = tokens[rows - 1];
  int32_t word;
  float logq;
  likeliest(view_logits_.data(), head->config.draft_vocab, 1, &word, &logq);
  return static_cast<float>(exp(static_cast<double>(logq)));
}

void Draft::look(int k, int32_t* words, float* logq) const {
  likeliest(view_logits_.data(), head->config.draft_vocab, k, words, logq);
  for (int i = 0; i < k; i++) words[i] = head->words[words[i]];
}

// Runs drafted tokens, row i under row sources[i] of the level before: their features become those
// of the last level, and the k likeliest words after each are written.
void Draft::run_level(HeadRunner& runner, const std::vector<int32_t>& tokens,
                      const std::vector<int32_t>& sources, int k, int32_t* words, float* logq,
                      float* logits) {
  const int hidden = head->config.hidden, rows = static_cast<int>(tokens.size());
  const int first = static_cast<int>(parent_.size());
  const int before = level_ > 0 ? first - level_first_ : 1;
  for (const int32_t source : sources) check_range("a source", source, 0, before - 1);
  try {
    for (const int32_t source : sources) {
      parent_.push_back(level_ > 0 ? level_first_ + source : -1);
    }
    next_.resize(static_cast<size_t>(rows) * hidden);
    std::vector<int32_t> visible;
    for (int begin = 0; begin < rows; begin += kHeadRows) {
      const size_t at = static_cast<size_t>(begin);
      HeadWork work(cache_, length() + static_cast<int>(parent_.size()));
      for (int i = begin; i < std::min(begin + kHeadRows, rows); i++) {
        visible.clear();
        for (int row = first + i; row >= 0; row = parent_[row]) visible.push_back(row);
        std::reverse(visible.begin(), visible.end());
        work.add_row(*head, tokens[i], length() + level_, visible);
        work.features.push_back(level_ > 0 ? &features_[static_cast<size_t>(sources[i]) * hidden]
                                           : view_.data());
      }
      work.features_out = &next_[at * hidden];
      work.k = k;
      work.words = words + at * k;
      work.logq = logq + at * k;
      if (logits != nullptr) work.logits = logits + at * head->config.draft_vocab;
      runner.run(std::move(work));
    }
  } catch (...) {
    forget_level();
    throw;
  }
  features_.swap(next_);
  level_first_ = first;
  level_++;
}

void Draft::expand(const as_level& level) {
  check_viewed();
  const int hidden = head->config.hidden, vocab = head->config.draft_vocab;
  check_range("rows", level.rows, 0, AS_MAX_NODES);
  check_range("k", level.k, 1, std::min(AS_MAX_TOPK, vocab));
  check_pointer("words", level.words);
  check_pointer("logq", level.logq);
  if (level.rows == 0) {
    forget_level();
    look(level.k, level.words, level.logq);
    if (level.features != nullptr) memcpy(level.features, view_.data(), sizeof(float) * hidden);
    if (level.logits != nullptr) {
      memcpy(level.logits, view_logits_.data(), sizeof(float) * vocab);
    }
    return;
  }
  check_pointer("tokens", level.tokens);
  check_pointer("sources", level.sources);
  HeadRunner runner(*head, static_cast<as_mode>(level.mode), level.threads);
  run_level(runner, {level.tokens, level.tokens + level.rows},
            {level.sources, level.sources + level.rows}, level.k, level.words, level.logq,
            level.logits);
  if (level.features != nullptr) {
    memcpy(level.features, features_.data(), sizeof(float) * hidden * level.rows);
  }
}

void Draft::grow(as_mode mode, int threads, const as_plan& plan, as_tree& tree) {
  check_viewed();
  check_plan(plan);
  check_tree(tree);
  HeadRunner runner(*head, mode, threads);
  forget_level();
  const int k = std::min(plan.topk, head->config.draft_vocab);
  Growth growth(plan, root_);
  std::vector<int32_t> words(static_cast<size_t>(k));
  std::vector<float> logq(static_cast<size_t>(k));
  if (!growth.stopped) {
    look(k, words.data(), logq.data());
    growth.expand(words.data(), logq.data(), k);
  }
  while (!growth.stopped) {
    words.resize(static_cast<size_t>(growth.width()) * k);
    logq.resize(words.size());
    run_level(runner, growth.tokens, growth.sources, k, words.data(), logq.data(), nullptr);
    growth.expand(words.data(), logq.data(), k);
  }
  forget_level();
  growth.finish(tree);
}

}  // namespace as
