"""An answer as it comes, with the tokens that are not the model's first choice in brackets."""

from adaptivespec import Engine

engine = Engine.from_pretrained()
stream = engine.stream("Name three colours.", rule="margin", kappa=0.2, max_tokens=32)
for chunk in stream:
    for token in chunk.tokens:
        promoted = token.kind.value == "promoted"
        print(f"[{token.text}]" if promoted else token.text, end="", flush=True)
print()

# Leaving a stream early keeps what there is:
stream = engine.stream("Count to one hundred.", max_tokens=64)
for _, _chunk in zip(range(3), stream, strict=False):
    pass
stream.close()
print(stream.result.finish_reason, repr(stream.result.text))
