"""priced for batches: against the embedded engine, and against the rule written out."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.integrations.sglang.policies import make_batch_policy
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.rate import Clock, Correction, Round

ARMS = ((1, 1, 2), (2, 2, 4), (3, 1, 4), (5, 4, 16))
PRICED = "priced:arms=[[1,1,2],[2,2,4],[3,1,4],[5,4,16]]"
#: 10 ms a pass up to 4 nodes, then 1 ms a node; a draft pass 1 ms; 0.5 ms of overhead.
LINEAR = CostProfile("linear", ((0, ((1, 0.010), (4, 0.010), (64, 0.070))),), ((1, 0.001),), 0.0005)
#: Nothing depends on the size, and drafting is nearly free.
FLAT = CostProfile("flat", ((0, ((1, 0.010),)),), ((1, 0.0001),))
rounds_of_one = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8)), max_size=120)

FAST = settings(deadline=None, derandomize=True, max_examples=80)


@FAST
@given(rounds_of_one, st.sampled_from([LINEAR, FLAT]), st.sampled_from(["", ",half_life=3"]))
def test_a_priced_batch_of_one_equals_the_embedded_triple_mode(rounds, costs, options):
    batch = make_batch_policy(PRICED + options, costs=costs)
    embedded = make_policy(f"{PRICED},mode=triple{options}")
    embedded.costs = costs
    for confidence, most in rounds:
        plan = embedded.plan(Signals(confidence))
        triple = batch.choose(["a"], [confidence])
        assert triple == plan.triple
        accepted = min(most, triple[0])
        embedded.observe(
            plan,
            Outcome(accepted, 0, triple[2] - 1, accepted + 1, root_confidence=confidence),
        )
        batch.observe(["a"], triple, [accepted], [confidence], None)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_priced_run_equals_the_embedded_triple_mode(seed):
    """Long enough for explorations and for every arm."""
    rng, costs = random.Random(seed), [LINEAR, FLAT][seed % 2]
    batch = make_batch_policy(PRICED, costs=costs)
    embedded = make_policy(f"{PRICED},mode=triple")
    embedded.costs = costs
    seen = set()
    for round_ in range(400):
        confidence = rng.betavariate(1, 1) if round_ % 100 < 50 else rng.betavariate(9, 1)
        plan, triple = embedded.plan(Signals(confidence)), batch.choose(["a"], [confidence])
        assert triple == plan.triple
        seen.add(triple)
        accepted = sum(rng.random() < confidence for _ in range(triple[0]))
        outcome = Outcome(accepted, 0, triple[2] - 1, accepted + 1, root_confidence=confidence)
        embedded.observe(plan, outcome)
        batch.observe(["a"], triple, [accepted], [confidence], None)
    assert len(seen) >= 3


class Reference:
    """The rule once more, request by request: G and the rate from the whole history."""

    def __init__(self, costs):
        self.costs, self.history, self.arm, self.rounds = costs, [], ARMS[0], 0

    def survival(self, topk, confidence, depth):
        followed = tried = 0.0
        for triple, known, accepted in self.history:
            steps, width, tokens = triple
            same = width == topk and min(int(known * 5), 4) == min(int(confidence * 5), 4)
            if same and depth <= min(steps, tokens - 1):
                followed, tried = followed * 0.999 + (accepted >= depth), tried * 0.999 + 1
        return (followed + 10 * confidence**depth) / (tried + 10)

    def plain_s(self, batch):
        return self.costs.verify_s(batch) + self.costs.overhead

    def choose(self, batch, speed_up):
        """The arm for these confidences, and how near the decision was, in tokens."""
        rate = speed_up * len(batch) / self.plain_s(len(batch))
        gains, worths = {}, {}
        for steps, topk, tokens in ARMS:
            levels = range(1, min(steps, tokens - 1) + 1)
            gain = sum(1 + sum(self.survival(topk, c, d) for d in levels) for c in batch)
            verify = self.costs.verify_s(len(batch) * tokens)
            drafting = (steps - 1) * self.costs.draft_s(len(batch) * topk)
            gains[steps, topk, tokens] = gain
            worths[steps, topk, tokens] = gain - rate * (verify + drafting)
        ranked = sorted(worths, key=worths.get, reverse=True)
        excess = worths[ranked[0]] - worths[self.arm] - 0.01 * gains[self.arm]
        best = ranked[0] if excess > 0 else self.arm
        near = min(abs(excess), worths[ranked[0]] - worths[ranked[1]])
        self.rounds += 1
        if self.rounds % 50 == 0:
            return min((arm for arm in ARMS if arm[0] > best[0]), default=best), near
        self.arm = best
        return best, near


#: Nodes cost beyond 32 in a pass of the target, beyond 8 in one of the drafter.
STEP = CostProfile(
    "steps", ((0, ((32, 0.01), (512, 0.05))),), ((1, 0.0005), (8, 0.0005), (64, 0.003)), 0.001
)


@pytest.mark.parametrize("costs", [LINEAR, FLAT, STEP], ids=lambda costs: costs.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_batch_gets_the_arm_of_largest_worth(seed, costs):
    """Batches of any size, one after the other; the speed-up is over plain decoding of each."""
    rng = random.Random(seed)
    policy, reference = make_batch_policy(PRICED, costs=costs), Reference(costs)
    decay = 0.5 ** (1 / 200)
    gained, spent = 10.0, 10.0  # in rounds of plain decoding
    for _ in range(25):
        batch = [rng.choice([0.1, 0.3, 0.5, 0.75, 0.95]) for _ in range(rng.randint(1, 12))]
        names = [str(i) for i in range(len(batch))]
        triple = policy.choose(names, batch)
        expected, near = reference.choose(batch, gained / spent)
        assert triple == expected or near < 1e-9
        steps, topk, tokens = triple
        accepted = [sum(rng.random() < c for _ in range(steps)) for c in batch]
        policy.observe(names, triple, accepted, batch, None)
        reference.history += [(triple, *pair) for pair in zip(batch, accepted, strict=True)]
        rows, nodes = len(batch) * topk, len(batch) * tokens
        plain = reference.plain_s(len(batch))
        # Tokens of the batch, over what it would have made without drafts in the same time.
        solo = reference.plain_s(1)
        gained = gained * decay + (sum(accepted) + len(batch)) * plain / solo / len(batch)
        spent = spent * decay + costs.round_s([rows] * (steps - 1), nodes) / solo


def test_larger_batches_draft_fewer_nodes_where_nodes_cost():
    sizes = [
        make_batch_policy(
            PRICED, costs=CostProfile("x", ((0, ((1, 1), (64, 1), (128, 2))),), ((1, 0),))
        ).choose([str(i) for i in range(size)], [0.9] * size)[2]
        for size in (1, 4, 16, 64)
    ]
    assert sizes[0] == 16
    assert sizes[-1] < 16
    assert sizes == sorted(sizes, reverse=True)


def test_the_rate_learnt_in_one_batch_size_serves_another():
    """Three tokens a round each, in 16 requests; alone the same gain is expected, not 16 times."""
    clock = Clock()
    for _ in range(2000):
        clock.add(FLAT, Round.of((3, 1, 4), batch=16), 48, {})
    alone = 3 / (0.010 + 2 * 0.0001)
    assert clock.rate(FLAT, 1) == pytest.approx(alone, rel=0.01)
    assert clock.rate(FLAT, 16) == pytest.approx(16 * alone, rel=0.01)


def run(policy, names, rounds, accept, seconds):
    """Rounds with ``accept(triple)`` drafts followed in each request, of ``seconds(triple)``."""
    chosen = []
    for _ in range(rounds):
        triple = policy.choose(names, [0.7] * len(names))
        chosen.append(triple)
        policy.observe(
            names, triple, [accept(triple)] * len(names), [0.7] * len(names), seconds(triple)
        )
    return chosen


def test_acceptance_is_learnt_by_all_requests_together():
    policy = make_batch_policy(PRICED, costs=LINEAR)
    assert policy.choose(["a"], [0.7]) == (3, 1, 4)
    for name in "abcdefgh":
        run(policy, [name], 40, lambda triple: 0, lambda triple: None)
        policy.forget([name])
    assert policy.choose(["new"], [0.7]) == (1, 1, 2)
    assert policy.choose(["new"], [0.95])[0] > 1  # another bin, of which nothing is known


def test_measured_rounds_correct_the_costs():
    """The profile says that nodes are free; here 16 nodes take eight times as long as 4."""
    policy = make_batch_policy(PRICED, costs=FLAT)

    def seconds(triple):
        return 0.01 * {2: 1, 4: 1, 16: 8}[triple[2]]

    run(policy, ["a"], 30, lambda triple: min(triple[0], 1), lambda triple: 0.01)
    chosen = run(policy, ["a"], 400, lambda triple: min(triple[0], 1), seconds)
    assert chosen[-1][2] < 16


def test_offline_nothing_is_learnt_of_seconds():
    def chosen(spec, seconds):
        return run(make_batch_policy(spec, costs=FLAT), ["a"], 200, lambda triple: 1, seconds)

    def steep(triple):
        return 0.01 * triple[2] ** 2

    unmeasured = chosen(PRICED, lambda triple: None)
    assert chosen(f"{PRICED},online=false", steep) == unmeasured
    assert chosen(PRICED, steep) != unmeasured


@pytest.mark.parametrize("size", [1, 6, 32])
def test_measured_costs_end_as_if_they_had_been_known(size):
    """The profile is far off, in nodes and in passes; every arm is seen."""
    truth = CostProfile("truth", ((0, ((1, 0.02), (8, 0.02), (512, 0.3))),), ((1, 0.004),), 0.002)
    wrong = CostProfile("wrong", ((0, ((1, 0.05),)),), ((1, 0.001),), 0.005)
    measuring = make_batch_policy(f"{PRICED},half_life=50", costs=wrong)
    knowing = make_batch_policy(f"{PRICED},half_life=50,online=false", costs=truth)
    names = [str(i) for i in range(size)]
    for round_ in range(1000):
        triple = ARMS[round_ % len(ARMS)]
        work = Round.of(triple, batch=size)
        seconds = truth.round_s([work.rows] * work.passes, work.nodes)
        accepted = [(round_ + i) % (triple[0] + 1) for i in range(size)]
        for policy in (measuring, knowing):
            policy.join(names)
            policy.observe(names, triple, accepted, [0.5] * size, seconds)
    known = [knowing.choose(names, [value] * size) for value in (0.1, 0.3, 0.7, 0.9)]
    assert [measuring.choose(names, [value] * size) for value in (0.1, 0.3, 0.7, 0.9)] == known
    assert len(set(known)) > 1


def test_without_a_profile_a_gpu_is_assumed():
    def chosen(size, share=0.06):
        policy = make_batch_policy(PRICED, draft_share=share)
        return policy.choose([str(i) for i in range(size)], [0.8] * size)

    assert chosen(1) == chosen(16) == (5, 4, 16)  # up to 256 nodes a pass costs the same
    assert chosen(64)[2] == 4
    assert chosen(1, share=2.0) == (1, 1, 2)


@pytest.mark.parametrize("costs", [None, LINEAR])
def test_the_unit_of_the_costs_does_not_matter(costs):
    def chosen(unit):
        policy = make_batch_policy(PRICED, costs=costs)
        return run(
            policy,
            ["a", "b"],
            300,
            lambda triple: triple[0] // 2,
            lambda triple: unit * (1 + 0.1 * triple[2] + 0.05 * triple[0]),
        )

    assert chosen(1.0) == chosen(1024.0) == chosen(1 / 1024)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_seconds_that_are_none_are_not_learnt_from(seconds):
    def chosen(value):
        policy = make_batch_policy(PRICED, costs=LINEAR)
        return run(policy, ["a"], 120, lambda triple: triple[0] // 2, lambda triple: value)

    assert chosen(seconds) == chosen(None)


def test_a_round_that_was_interrupted_changes_nothing_for_long():
    """Of a steady run, one round takes a thousand times as long."""

    def chosen(interruption):
        policy = make_batch_policy(PRICED, costs=LINEAR)
        slow = iter([False] * 60 + [interruption] + [False] * 300)

        def seconds(triple):
            work = Round.of(triple)
            spent = LINEAR.round_s([work.rows] * work.passes, work.nodes)
            return spent * (1000 if next(slow) else 1)

        return run(policy, ["a"], 200, lambda triple: triple[0] // 2, seconds)

    assert chosen(True)[100:] == chosen(False)[100:]


def test_every_fiftieth_round_looks_at_the_next_deeper_arm():
    dear = CostProfile("x", ((0, ((1, 0.01), (2, 0.01), (16, 0.16))),), ((1, 0.005),))
    chosen = run(make_batch_policy(PRICED, costs=dear), ["a"], 200, lambda t: 0, lambda t: None)
    settled = chosen[100:]
    assert set(settled) == {(1, 1, 2), (2, 2, 4)}
    assert [i for i, triple in enumerate(settled) if triple[0] == 2] == [49, 99]


def test_a_look_at_a_deeper_arm_leaves_the_arm_in_force():
    def after(confidence, rounds, last):
        """The choice at ``last`` after rounds at 0.05 and one more at ``confidence``."""
        policy = make_batch_policy(PRICED, costs=LINEAR)
        for _ in range(rounds):
            policy.choose(["a"], [0.05])
        policy.choose(["a"], [confidence])
        return policy.choose(["a"], [last])

    # Where the best arm is less than 1 % ahead, what was chosen last decides.
    close = next(
        value / 1000
        for value in range(1000)
        if after(0.05, 10, value / 1000) != after(0.8, 10, value / 1000)
    )
    assert after(0.05, 49, close) == after(0.8, 49, close)  # the fiftieth round is a look


def test_a_round_is_shared_out_between_its_passes():
    """A pass of the drafter takes as long as one of the target, and nothing denies it."""
    costs = CostProfile("x", ((0, ((1, 0.02),)),), ((1, 0.02),), 0.001)
    policy = make_batch_policy("priced:arms=[[2,4,8],[7,4,8]]", costs=costs)
    assert policy.choose(["a"], [0.7]) == (2, 4, 8)
    for round_ in range(600):
        triple = policy.triples[round_ % 2]
        seconds = costs.round_s([4] * (triple[0] - 1), 8)
        policy.observe(["a"], triple, [min(triple[0], round_ // 2 % 5)], [0.7], seconds)
    assert policy.choose(["a"], [0.7]) == (2, 4, 8)


def test_sizes_beyond_64_nodes_are_corrected_apart():
    correction = Correction(128)
    for _ in range(400):
        correction.add(128, 1.0)
        correction.add(2048, 3.0)
    assert correction(2048) == pytest.approx(3.0, rel=0.15)
    assert correction(128) == pytest.approx(1.0, rel=0.15)
    assert correction(10**6) > 0
    embedded = Correction()
    embedded.add(2048, 3.0)
    assert embedded(64) == embedded(2048)
