/* The C interface of the native engine: Llama-family models on x86-64 CPUs.
 *
 * Every function returns AS_OK or an error code; as_error() then says in words what was wrong, for
 * the calling thread, until that thread's next call.  A call that fails changes nothing it was
 * given, unless said otherwise.  Sizes, ids and the order of calls are checked here; that pointers
 * reach as far as stated is the caller's promise.
 *
 * Results are exact in this sense: a row's outputs depend on its token, its position and the rows
 * it sees, and on nothing else.  Neighbours in the pass, the number of threads, the instruction
 * set, the slot a row lies in: none of them changes a bit.  Only the mode does.
 *
 * Any number of models and caches may live in a process, and calls may come from any thread.  Calls
 * on different caches run side by side.  Two calls on one cache at a time are refused (AS_STATE).
 */
#ifndef ADAPTIVESPEC_ENGINE_H
#define ADAPTIVESPEC_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AS_API __attribute__((visibility("default")))

/* Raised with any change of this file that an older caller would stumble over. */
#define AS_ABI_VERSION 3

/* Most rows of one pass, and most threads. */
#define AS_MAX_ROWS 256
#define AS_MAX_THREADS 64

enum as_status {
  AS_OK = 0,
  AS_ARGUMENT = 1, /* a size, an id or a pointer is out of bounds */
  AS_STATE = 2,    /* right call, wrong moment: weights missing or given twice, cache in use */
  AS_MEMORY = 3,   /* no memory */
  AS_SYSTEM = 4,   /* threads could not be started */
  AS_INTERNAL = 5  /* anything else; a defect of this library */
};

/* Weight formats as given: rows of blocks as in GGUF files, little-endian.  Blocks are 32 columns
 * wide, those of the K formats 256.  They are kept as they are, but floats are quantised to Q8_0;
 * with AS_PRECISE added to the format to 16 bits per 32 columns, practically float32; with AS_COARSE
 * to Q4_1. */
enum as_format {
  AS_Q4_1 = 0,
  AS_Q8_0 = 1,
  AS_F32 = 2,
  AS_BF16 = 3,
  AS_F16 = 4,
  AS_Q4_0 = 5,
  AS_Q5_0 = 6,
  AS_Q5_1 = 7,
  AS_Q4_K = 8,
  AS_Q5_K = 9,
  AS_Q6_K = 10,
  AS_PRECISE = 64,
  AS_COARSE = 128
};

/* Activations inside matrix products, per row and 32 columns. */
enum as_mode {
  AS_A8 = 0, /* int8 */
  AS_A16 = 1 /* int16: practically float32 */
};

/* Weight matrices [rows, columns], in the row order of Hugging Face checkpoints (the rotation pairs
 * row i of a head with row i + head_dim / 2). */
enum as_matrix {
  AS_EMBEDDING = 0, /* [vocab, hidden]; layer is ignored */
  AS_OUTPUT = 1,    /* [vocab, hidden]; layer is ignored; absent when AS_TIED */
  AS_QUERY = 2,     /* [heads * head_dim, hidden] */
  AS_KEY = 3,       /* [kv_heads * head_dim, hidden] */
  AS_VALUE = 4,     /* [kv_heads * head_dim, hidden] */
  AS_ATTENTION_OUTPUT = 5, /* [hidden, heads * head_dim] */
  AS_GATE = 6,      /* [ffn, hidden] */
  AS_UP = 7,        /* [ffn, hidden] */
  AS_DOWN = 8       /* [hidden, ffn] */
};

/* Gains of the root-mean-square norms. */
enum as_norm {
  AS_NORM_ATTENTION = 0, /* f32[hidden] */
  AS_NORM_FFN = 1,       /* f32[hidden] */
  AS_NORM_OUTPUT = 2,    /* f32[hidden]; layer is ignored */
  AS_NORM_QUERY = 3,     /* f32[head_dim], of every head before its rotation (Qwen3) */
  AS_NORM_KEY = 4        /* f32[head_dim], likewise */
};

enum as_flags {
  AS_TIED = 1 /* the embedding is the output matrix as well, given once */
};

typedef struct as_config {
  int32_t layers;   /* 1.. */
  int32_t hidden;   /* a multiple of 32 */
  int32_t ffn;      /* a multiple of 32 */
  int32_t heads;    /* a multiple of kv_heads; heads * head_dim a multiple of 32 */
  int32_t kv_heads;
  int32_t head_dim; /* a multiple of 16, at most 256 */
  int32_t vocab;
  int32_t max_len;  /* positions 0..max_len-1 exist */
  float rms_eps;
  int32_t flags;    /* of as_flags */
} as_config;

typedef struct as_model as_model;
typedef struct as_cache as_cache;

/* The rows of one sequence in a pass; pointers the caller owns.  Rows are tentative: they lie
 * behind the cache's committed rows, replace any earlier tentative rows, and wait for
 * as_cache_commit. */
typedef struct as_rows {
  as_cache* cache;          /* no cache twice in a pass */
  int32_t rows;             /* 1..AS_MAX_ROWS */
  int32_t asked_count;      /* 0..rows */
  const int32_t* tokens;    /* [rows] */
  const int32_t* parents;   /* [rows] parent[i] in -1..i-1, -1 for the committed end; NULL: a chain.
                             * A row sees all committed rows, its ancestors and itself. */
  const int32_t* positions; /* [rows]; NULL: committed length + number of ancestors */
  const int32_t* asked;     /* [asked_count] rows whose logits and hidden are wanted, in this order;
                             * NULL: the first asked_count rows */
} as_rows;

/* One forward pass over rows of any number of sequences, which share the walk over the weights.
 * Outputs hold the rows of the sequences one after the other. */
typedef struct as_pass {
  int32_t sequence_count;    /* 1.. */
  int32_t mode;              /* as_mode */
  int32_t threads;           /* 1..AS_MAX_THREADS, the caller's included */
  int32_t tap_count;         /* 0..4096 */
  const as_rows* sequences;  /* [sequence_count], of at most AS_MAX_ROWS rows together */
  const int32_t* tap_layers; /* [tap_count] layers whose incoming residual stream is wanted */
  float* taps;               /* [all rows, tap_count * hidden] */
  float* logits;             /* [all asked rows, vocab] or NULL */
  float* hidden;             /* [all asked rows, hidden] or NULL: the residual stream leaving the
                              * last layer, before the output norm */
  float* stalled;            /* [1] or NULL: how much of what further threads could bring was lost
                              * as they waited for one another, 0..1; near 1 on a busy CPU */
} as_pass;

/* What is wrong with the last failed call of this thread; "" if none failed. Never NULL. */
AS_API const char* as_error(void);

/* AS_ABI_VERSION of the library, and the instruction set it was compiled for ("avx512", "avx2"). */
AS_API int32_t as_abi_version(void);
AS_API const char* as_isa(void);

/* A model without weights yet.  as_model_free ends the caller's hold; caches keep their model. */
AS_API int32_t as_model_new(const as_config* config, as_model** model);
AS_API int32_t as_model_free(as_model* model);

/* Rotary tables [max_len, head_dim / 2] each; copied. */
AS_API int32_t as_model_rope(as_model* model, const float* cos, const float* sin);

/* One matrix; copied and packed.  `row_order[i]` is the row of `data` that becomes row i (a
 * permutation is not demanded); NULL: as they come. */
AS_API int32_t as_model_weight(as_model* model, int32_t layer, int32_t which, int32_t format,
                               const void* data, int32_t rows, int32_t columns,
                               const int32_t* row_order);

/* One gain; copied. */
AS_API int32_t as_model_norm(as_model* model, int32_t layer, int32_t which, const float* gain,
                             int32_t size);

/* The bias (Qwen2) of AS_QUERY, AS_KEY or AS_VALUE, f32[rows of the matrix] in its final row order;
 * copied. */
AS_API int32_t as_model_bias(as_model* model, int32_t layer, int32_t which, const float* bias,
                             int32_t size);

/* Checks that nothing is missing: biases, and norms of heads, are those of all layers or of none.
 * passes are possible from then on and weights no longer change. */
AS_API int32_t as_model_ready(as_model* model);

/* Bytes held by the weights. */
AS_API int32_t as_model_bytes(const as_model* model, int64_t* bytes);

/* The keys and values of one sequence, f16, with room for `capacity` rows and a tree.  It grows by
 * itself, to twice its room, and copies its rows then; a pass within it copies none. */
AS_API int32_t as_cache_new(as_model* model, int32_t capacity, as_cache** cache);
AS_API int32_t as_cache_free(as_cache* cache);
AS_API int32_t as_cache_length(const as_cache* cache, int32_t* length);
AS_API int32_t as_cache_bytes(const as_cache* cache, int64_t* bytes);

/* Keeps the rows `path` (strictly ascending) of the last pass, drops its others. */
AS_API int32_t as_cache_commit(as_cache* cache, const int32_t* path, int32_t count);

/* Makes `cache` hold the first `rows` committed rows of `other`, a cache of the same model, in place of
 * all it held. */
AS_API int32_t as_cache_copy(as_cache* cache, const as_cache* other, int32_t rows);

/* Forgets committed rows from `length` on, and all tentative ones. */
AS_API int32_t as_cache_truncate(as_cache* cache, int32_t length);

/* Runs one pass.  When it fails the committed rows are untouched and its caches have no tentative
 * ones; but when one cache is in use or foreign, none is changed at all. */
AS_API int32_t as_forward(as_model* model, const as_pass* pass);

/* What this machine can do at most, as a yardstick for passes; multiply-adds and bytes a second. */
typedef struct as_rates {
  double bytes;  /* read from memory */
  double dots;   /* multiply-adds of bytes, as with 4-bit weights; AVX2 is slower with wider ones */
  double floats; /* multiply-adds of float32, as in attention */
} as_rates;

/* Measures for about `seconds` (at most 60) on `threads` threads; the best round counts.  `bytes`
 * (a megabyte or more) are read again and again, as the weights are by passes: what fits into a
 * cache is read from there. */
AS_API int32_t as_floor(int64_t bytes, int32_t threads, double seconds, as_rates* rates);

#ifdef __cplusplus
}
#endif
#endif
