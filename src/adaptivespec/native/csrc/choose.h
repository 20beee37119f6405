/* The C interface of choosing and following at temperature 0, for rules that decide node by node how far
 * below the peak of its parent's row a drafted token may lie. */
#ifndef ADAPTIVESPEC_CHOOSE_H
#define ADAPTIVESPEC_CHOOSE_H

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A verified tree, the test, and the path that is followed; the caller owns the arrays. */
typedef struct as_walk {
  int32_t nodes;
  int32_t vocab;
  const int64_t* token;     /* [nodes] */
  const int64_t* parent;    /* [nodes] -1 at the root, else an earlier node */
  const float* logits;      /* [nodes, vocab] */
  const uint8_t* guarded;   /* [vocab] tokens that are neither promoted nor overridden */
  float limit;              /* nats; a child that drops by less may be promoted */
  int32_t in_order;         /* 0: the target's own token, else the child of least drop; 1: the first
                             * child that passes */
  int32_t fault;            /* out: a node whose row is not finite, where the walk ended; else -1 */
  int32_t length;           /* out: nodes on the path, the root included */
  int32_t* path;            /* out: [nodes] */
  int32_t* best;            /* out: [nodes] the target's own token at each node of the path */
  float* drop;              /* out: [nodes] nats each node of the path lies below the peak of its
                             * parent's row; 0 at the root */
} as_walk;

AS_API int32_t as_follow(as_walk* walk);

#ifdef __cplusplus
}
#endif
#endif
