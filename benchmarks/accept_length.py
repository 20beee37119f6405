"""Accept length (committed tokens per verify step), greedy, pooled over a task's prompts."""

from __future__ import annotations

from tasks import arguments, finish, prompts

from adaptivespec import Engine


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--policies", default="chain:5;eagle2:5,4,16", help="with ; between")
    parser.add_argument("--rules", default="strict;margin:0.2", help="with ; between")
    args = parser.parse_args()
    engine = Engine.from_pretrained(
        backend=args.backend,
        dtype=args.dtype,
        threads=args.threads,
        draft_model=args.draft_model,
    )
    rows = []
    print(f"{'task':10} {'policy':16} {'rule':12} {'tau':>6} {'nodes':>6} {'promoted/100':>12}")
    for task in args.tasks.split(","):
        texts = prompts(args.data, task, args.limit)
        for policy in args.policies.split(";"):
            for rule in args.rules.split(";"):
                results = [
                    engine.generate(text, rule=rule, policy=policy, max_tokens=args.max_tokens)
                    for text in texts
                ]
                total = results[0].stats
                for result in results[1:]:
                    total.merge(result.stats)
                tokens = sum(result.completion_tokens for result in results)
                row = {
                    "task": task,
                    "policy": policy,
                    "rule": rule,
                    "prompts": len(texts),
                    "accept_length": total.accept_length,
                    "mean_tree_nodes": total.mean_tree_nodes,
                    "promoted_per_100": 100 * total.num_promoted_tokens / tokens,
                }
                rows.append(row)
                print(
                    f"{task:10} {policy:16} {rule:12} {row['accept_length']:6.3f} "
                    f"{row['mean_tree_nodes']:6.2f} {row['promoted_per_100']:12.2f}",
                    flush=True,
                )
    finish(args, rows)


if __name__ == "__main__":
    main()
