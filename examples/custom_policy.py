"""A policy of your own: a deep chain where the drafter is sure, a wide shallow tree elsewhere."""

from adaptivespec import Engine
from adaptivespec.policy.base import NOTHING, Policy, TreePlan

CHAIN, BUSH = TreePlan(6, topk=1, num_draft_tokens=7), TreePlan(2, topk=4, num_draft_tokens=6)


class TwoShapesPolicy(Policy):
    """One of two shapes by the drafter's confidence, and nothing after three steps in vain."""

    name = "two_shapes"

    def begin(self):
        self.vain = 0

    def propose(self, signals):
        if self.vain >= 3:
            self.vain = 0
            return NOTHING
        return CHAIN if signals.root_confidence > 0.5 else BUSH

    def observe(self, plan, outcome):
        if outcome.num_verified:
            self.vain = 0 if outcome.num_accepted else self.vain + 1

    def largest(self):
        return CHAIN


engine = Engine.from_pretrained()
for policy in ("chain:6", "static:2,4,6", TwoShapesPolicy()):
    numbers = engine.generate("List the months.", policy=policy, max_tokens=64).statistics
    print(f"{numbers['accept_length']:.2f} tokens a step of {numbers['mean_tree_nodes']:.2f} nodes")
