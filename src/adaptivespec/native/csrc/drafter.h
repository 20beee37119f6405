/* The C interface of the native drafter: EAGLE-3 heads (Li et al., 2503.01840) and the trees they draft.
 *
 * A head belongs to a model, from which it borrows what it does not bring, and its threads.  A draft
 * is the head's memory of one sequence: the keys and values of committed rows, and its view of the
 * root, the last committed token.  Errors, threads and pointers as in engine.h.
 */
#ifndef ADAPTIVESPEC_DRAFTER_H
#define ADAPTIVESPEC_DRAFTER_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most levels of a tree, most children of a node, and most nodes. */
#define AS_MAX_STEPS 64
#define AS_MAX_TOPK 64
#define AS_MAX_NODES 65536

/* Weight matrices [rows, columns]; formats as in as_model_weight. */
enum as_head_matrix {
  AS_HEAD_FUSE = 0,  /* [hidden, taps * hidden] */
  AS_HEAD_QUERY = 1, /* [heads * head_dim, 2 * hidden]: embedding first, then feature */
  AS_HEAD_KEY = 2,   /* [kv_heads * head_dim, 2 * hidden] */
  AS_HEAD_VALUE = 3, /* [kv_heads * head_dim, 2 * hidden] */
  AS_HEAD_ATTENTION_OUTPUT = 4, /* [hidden, heads * head_dim] */
  AS_HEAD_GATE = 5,  /* [ffn, hidden] */
  AS_HEAD_UP = 6,    /* [ffn, hidden] */
  AS_HEAD_DOWN = 7,  /* [hidden, ffn] */
  AS_HEAD_OUTPUT = 8,   /* [draft_vocab, hidden]; the model's where draft_vocab is its vocab */
  AS_HEAD_EMBEDDING = 9 /* [vocab of the model, hidden]; the model's when not given */
};

/* Gains of the root-mean-square norms, f32[hidden]. */
enum as_head_norm {
  AS_HEAD_NORM_EMBEDDING = 0, /* of the token's embedding */
  AS_HEAD_NORM_FEATURE = 1,
  AS_HEAD_NORM_FFN = 2,
  AS_HEAD_NORM_OUTPUT = 3
};

typedef struct as_head_config {
  int32_t hidden;      /* the model's */
  int32_t ffn;         /* a multiple of 32 */
  int32_t heads;       /* as in as_config */
  int32_t kv_heads;
  int32_t head_dim;
  int32_t draft_vocab; /* at most the model's vocab */
  int32_t taps;        /* layers of the model that make a committed row's feature, 1..16 */
  int32_t max_len;     /* positions 0..max_len-1 exist */
  float rms_eps;
} as_head_config;

typedef struct as_head as_head;
typedef struct as_draft as_draft;

/* A head without weights yet, for a model that is ready.  Drafts keep their head, a head its model. */
AS_API int32_t as_head_new(const as_model* model, const as_head_config* config, as_head** head);
AS_API int32_t as_head_free(as_head* head);
AS_API int32_t as_head_rope(as_head* head, const float* cos, const float* sin);
AS_API int32_t as_head_weight(as_head* head, int32_t which, int32_t format, const void* data,
                              int32_t rows, int32_t columns);
AS_API int32_t as_head_norm(as_head* head, int32_t which, const float* gain, int32_t size);

/* target_ids[i] is the model's id of draft word i; [draft_vocab]. */
AS_API int32_t as_head_words(as_head* head, const int32_t* target_ids, int32_t size);

/* Checks that nothing is missing; weights no longer change. */
AS_API int32_t as_head_ready(as_head* head);
AS_API int32_t as_head_bytes(const as_head* head, int64_t* bytes);

AS_API int32_t as_draft_new(as_head* head, int32_t capacity, as_draft** draft);
AS_API int32_t as_draft_free(as_draft* draft);
AS_API int32_t as_draft_length(const as_draft* draft, int32_t* length);

/* Makes `draft` hold the first `rows` committed rows of `other`, a draft of the same head, in place of
 * all it held; the root is yet to be read. */
AS_API int32_t as_draft_copy(as_draft* draft, const as_draft* other, int32_t rows);

/* Forgets committed rows from `length` on, and the view of the root. */
AS_API int32_t as_draft_truncate(as_draft* draft, int32_t length);

/* Appends committed rows: taps [rows, taps * hidden] and, for each, the token after it [rows]; the
 * last token is the root from now on.  `confidence`: the largest probability of what follows it. */
AS_API int32_t as_draft_read(as_draft* draft, int32_t mode, int32_t threads, int32_t rows,
                             const int32_t* tokens, const float* taps, float* confidence);

/* One more level for a caller that grows the tree itself: runs `rows` drafted tokens, row i under row
 * sources[i] of the level before, or under the root for the first level after a read.  rows = 0:
 * looks at the root, and drops drafted levels.  Out, each NULL or for all rows (one for the root):
 * features [rows, hidden], logits [rows, draft_vocab], and the k likeliest words: target ids
 * and log probabilities [rows, k], likeliest first, lower words first among equals. */
typedef struct as_level {
  int32_t mode;
  int32_t threads;
  int32_t rows; /* 0..AS_MAX_NODES */
  int32_t k;    /* 1..min(AS_MAX_TOPK, draft_vocab) */
  const int32_t* tokens;
  const int32_t* sources;
  float* features;
  float* logits;
  int32_t* words;
  float* logq;
} as_level;
AS_API int32_t as_draft_level(as_draft* draft, const as_level* level);

/* A tree to draft; the meaning of every field is that of adaptivespec.policy.plan.TreePlan. */
typedef struct as_plan {
  int32_t num_steps;        /* 0..AS_MAX_STEPS */
  int32_t topk;             /* 1..AS_MAX_TOPK */
  int32_t num_draft_tokens; /* 0..AS_MAX_NODES, the root included */
  int32_t width;            /* nodes expanded in a level, 1..AS_MAX_NODES */
  double keep_relative;
  double keep_absolute;
  int32_t keep_drop;
  int32_t keep_first;
  double min_confidence;
  double min_path;
  double min_gain; /* negative: off */
  int32_t full;
  int32_t price_count;
  const int32_t* price_sizes; /* rising */
  const double* prices;
  int32_t follow_count; /* 0: no lookahead */
  const double* follow;
  int32_t ahead_count;
  const double* ahead_prices;
  /* Calibrated acceptance c = base[bin] + slope[bin] * q; bin is first_bin[level - 1][rank] plus the
   * number of edges below log q.  bin_count = 0: scores are made of q. */
  int32_t bin_count;
  int32_t edge_count;
  const float* base;
  const float* slope;
  const float* edges; /* rising */
  const int32_t* first_bin; /* [num_steps, topk] */
  float shift;
  int32_t lift_count;
  const double* lift;
  /* A fixed tree: node i is child number ranks[i] of node parents[i] < i, -1 being the root. */
  int32_t position_count;
  const int32_t* parents;
  const int32_t* ranks;
} as_plan;

/* What ended the growth, in the order of TreePlan's rules. */
enum as_stopped {
  AS_STOPPED_DEPTH = 1,
  AS_STOPPED_NOTHING_KEPT = 2,
  AS_STOPPED_FULL = 3,
  AS_STOPPED_CONFIDENCE = 4,
  AS_STOPPED_PATH = 5,
  AS_STOPPED_GAIN = 6,
  AS_STOPPED_PRICE = 7
};

/* A drafted tree; the caller owns the arrays, each with room for `capacity` nodes, the root first. */
typedef struct as_tree {
  int32_t capacity; /* at least the nodes that the plan can ask for */
  int32_t nodes;
  int32_t candidates;
  int32_t levels;
  int32_t stopped; /* as_stopped */
  int32_t priced;  /* whether gain and price are set */
  double gain;     /* tokens */
  double price;    /* tokens */
  int64_t* token;
  int64_t* parent; /* -1 at the root */
  int64_t* depth;
  int64_t* rank;
  float* logq;
  float* score;
} as_tree;

/* Grows the tree that `plan` asks for under the root: level by level, then pruned to its size. */
AS_API int32_t as_draft_grow(as_draft* draft, int32_t mode, int32_t threads, const as_plan* plan,
                             as_tree* tree);

#ifdef __cplusplus
}
#endif
#endif
