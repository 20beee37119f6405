"""One answer, and what speculation did for it."""

from adaptivespec import Engine

engine = Engine.from_pretrained()  # the embedded SmolLM2-135M-Instruct with its draft head
result = engine.generate(
    "Why is the sky blue?", rule="margin", kappa=0.2, policy="dcs", max_tokens=48
)
print(result.text)
print()
print("lossless:     ", result.lossless)
print("tokens a step:", result.statistics["accept_length"])
print("promoted:     ", result.statistics["num_promoted_tokens"], "tokens")
print("regret:       ", round(result.statistics["regret_nats"], 2), "nats")
