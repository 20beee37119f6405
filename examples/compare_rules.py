"""The same prompt under several rules and policies: what lossy verification buys and costs."""

from adaptivespec import Engine

PROMPT = "Write a short paragraph about the sea."
RUNS = [("strict", "none"), ("strict", "dcs"), ("safe", "dcs"), ("margin:0.2", "dcs")]

engine = Engine.from_pretrained()
print(f"{'rule':12} {'policy':7} {'tokens/step':>11} {'promoted':>8} {'regret':>7} {'same':>5}")
reference: list[int] = []
for rule, policy in RUNS:
    result = engine.generate(PROMPT, rule=rule, policy=policy, max_tokens=40)
    reference = reference or result.token_ids
    pairs = zip(result.token_ids, reference, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(result.token_ids))
    numbers = result.statistics
    print(
        f"{rule:12} {policy:7} {numbers['accept_length']:11.2f} "
        f"{numbers['num_promoted_tokens']:8} {numbers['regret_nats']:7.2f} {same:5}"
    )
print("same: tokens up to the first that differs from plain decoding")
