"""A rule of your own: the margin rule for words alone, never for numbers, signs or line breaks."""

import torch

from adaptivespec import Engine
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule
from adaptivespec.verify.margin import drop_limit, promote


class WordsRule(Rule):
    """Lossy: where strict would stop, accept a word whose p / max p exceeds 0.1."""

    name = "words"
    lossless = False
    sampling = False  # temperature 0 only

    def __init__(self, engine):
        super().__init__()
        texts = [engine.tokenizer.token_text(i) for i in range(engine.target.limits.vocab_size)]
        self.no_word = torch.tensor([not text.strip(" ").isalpha() for text in texts])

    def choose(self, law, tree, state):
        protected = state.protected | self.no_word  # never promoted, never overridden
        tokens = promote(law, tree, drop_limit(0.1), protected)
        return Choice(law.target, tokens, law.child_drop(tree), law.target_drop)


engine = Engine.from_pretrained()
prompt = "When was the Eiffel Tower built, and how tall is it?"
for rule in ("margin:0.1", WordsRule(engine)):
    result = engine.generate(prompt, rule=rule, policy="dcs", max_tokens=48)
    print(f"{result.rule}: promoted", [t.text for t in result.tokens if t.kind == "promoted"])
