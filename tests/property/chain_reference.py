"""Every rule on a chain, as its paper writes it: a loop over the drafts, in plain numbers.

``ACCEPTS`` says when a draft that is not the target's own token is kept. A rule that is not in it
is its own reference, asked about one draft at a time; that is right unless it looks ahead or back.
"""

import math
from dataclasses import dataclass, field

import torch

from adaptivespec.core.verdict import Kind
from adaptivespec.verify.probe import Probe


@dataclass
class Chain:
    """One chain of K drafts and what the target says at its K + 1 rows.

    Attributes:
        drafts: tokens of nodes 1 to K.
        z: K + 1 rows of logits; ``scaled``: of log p_T up to a constant, None at temperature 0.
        y: the target's own token at each row.
        q: the laws the drafts were drawn from, None when they were not.
        hidden, draft_hidden: rows of nodes 0 to K.
        coins: [calls][nodes], the promotion stream.
        counts: of pairs y * V + x, for a memory of rejections.
        spent: regret of the promotions so far.
    """

    drafts: list
    z: list
    scaled: list | None
    y: list
    protected: list
    q: list | None = None
    hidden: list | None = None
    draft_hidden: list | None = None
    coins: list | None = None
    counts: dict = field(default_factory=dict)
    spent: list = field(default_factory=list)

    def drop(self, j):
        return max(self.z[j]) - self.z[j][self.drafts[j]]

    def p(self, j):
        """p_T at T > 0, the softmax of the logits at T = 0."""
        return softmax(self.z[j] if self.scaled is None else self.scaled[j])

    def px(self, j):
        return self.p(j)[self.drafts[j]]

    def exact(self, j):
        return j < len(self.drafts) and self.drafts[j] == self.y[j]


def verify_chain(rule, chain, accepts):
    """(tokens, kinds): follow drafts until the first that is neither exact nor accepted."""
    tokens, kinds = [], []
    for j, x in enumerate(chain.drafts):
        y = chain.y[j]
        free = chain.px(j) > 0 and not chain.protected[x] and not chain.protected[y]
        if x == y:
            kinds.append(Kind.EXACT)
        elif free and accepts(rule.options, chain, j):
            kinds.append(Kind.PROMOTED)
            chain.spent.append(chain.drop(j))
        else:
            return [*tokens, y], [*kinds, Kind.BONUS]
        tokens.append(x)
    return [*tokens, chain.y[len(chain.drafts)]], [*kinds, Kind.BONUS]


def softmax(row):
    top = max(row)
    weight = [math.exp(value - top) for value in row]
    return [w / sum(weight) for w in weight]


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def never(options, chain, j):
    return False


def margin(options, chain, j):
    if options.max_promotions_per_step == 0:
        return False
    return options.kappa == 0 or chain.drop(j) < -math.log(options.kappa)


def fly(options, chain, j):
    p, vocab = softmax(chain.z[j]), len(chain.z[j])
    if options.gate == "paper":
        gate = entropy(p) / math.log(vocab) >= options.theta
    else:
        gate = entropy(sorted(p, reverse=True)[: options.top_k]) > options.theta
    return gate and all(chain.exact(j + i) for i in range(1, options.window + 1))


def typical(options, chain, j):
    """Every draft so far must have been typical: exactness alone ends the accepted path."""
    if chain.scaled is None:
        return False
    bars = [
        min(options.epsilon, options.delta * math.exp(-entropy(chain.p(i)))) for i in range(j + 1)
    ]
    return all(chain.px(i) > bar for i, bar in enumerate(bars))


def relaxed(options, chain, j):
    p = chain.p(j)
    x = chain.px(j)
    return x >= max(p) - options.relaxed_delta - 1e-12 and (
        sum(other > x for other in p) < options.relaxed_topk
    )


def mars(options, chain, j):
    one, two = sorted(chain.z[j], reverse=True)[:2]
    return one > 0 and two / one > options.theta and chain.z[j][chain.drafts[j]] == two


def cascade(options, chain, j):
    p = chain.p(j)
    return chain.px(j) >= options.base * max(p) * (1 - 1e-12)


def threshold(options, chain, j):
    """On a chain the coin is above p(x) whenever y is another token."""
    if chain.scaled is None:
        return False
    x, lower = chain.px(j), options.threshold_acc < 1
    coin = x + chain.coins[0][j] * (1 - x)
    return (lower and coin <= x / options.threshold_acc) or (
        options.threshold_single < 1 and x >= options.threshold_single
    )


def csd(options, chain, j):
    pair = chain.y[j] * len(chain.z[j]) + chain.drafts[j]
    often = chain.counts.get(pair, 0) >= options.min_count
    return often and chain.drop(j) <= -math.log(options.tau)


def regret(options, chain, j):
    budget = math.inf if options.max_regret is None else options.max_regret
    return (
        chain.drop(j) < options.gate
        and len(chain.spent) < options.max_exceptions
        and sum(chain.spent) + chain.drop(j) <= budget + 1e-6
    )


def judge(options, chain, j, kind="judge"):
    head = Probe.load(options.head, kind)
    rows = chain.hidden[j + 1], *([chain.draft_hidden[j + 1]] if kind == "semantic" else [])
    scale = [math.sqrt(sum(x * x for x in row) / len(row)) for row in rows]
    inputs = [x / s for row, s in zip(rows, scale, strict=True) for x in row]
    logit = sum(w * x for w, x in zip(head.weight.tolist(), inputs, strict=True)) + float(head.bias)
    return 1 / (1 + math.exp(-logit)) > options.threshold


def semantic(options, chain, j):
    return judge(options, chain, j, "semantic")


def coin(options, chain, j, outputs=10_000):
    """The coin of output position ``outputs`` + j, in 64-bit integers; outputs as in rule_cases."""

    def signed(number):
        number &= 2**64 - 1
        return number - 2**64 if number >= 2**63 else number

    mixed = signed((outputs + j) * 0x9E3779B97F4A7C1 + chain.y[j] * 0xBF58476D1CE4E5B)
    for constant in (0x94D049BB133111E, 0x2545F4914F6CDD1):
        mixed = signed((mixed ^ (mixed >> 29)) * constant)
    return (mixed >> 40 & 0xFFFFFF) / 2**24 < options.rate


ACCEPTS = {
    "strict": never,
    "margin": margin,
    "fly": fly,
    "csd": csd,
    "regret": regret,
    "typical": typical,
    "relaxed": relaxed,
    "mars": mars,
    "threshold": threshold,
    "cascade": cascade,
    "coin": coin,
    "judge": judge,
    "semantic": semantic,
}


def rejection_chain(rule, chain):
    """Leviathan's algorithm; the residual by inverse CDF. Returns tokens and kinds."""
    tokens, kinds = [], []
    if chain.scaled is None:
        return verify_chain(rule, chain, never)
    for j, x in enumerate(chain.drafts):
        p, q = chain.p(j), chain.q[j]
        ratio = p[x] / q[x] if q[x] > 0 else 0.0
        left = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
        left = left if sum(left) > 0 else p
        point = (chain.coins[1][j] + chain.coins[2][j] * 2**-24) * sum(left)
        sums = torch.tensor(left, dtype=torch.float64).cumsum(0).tolist()
        drawn = next(token for token, total in enumerate(sums) if total > point)
        own = x if chain.coins[0][j + 1] < ratio else drawn
        lenient = chain.coins[0][j + 1] * rule.options.lenience < ratio
        if own == x:
            kinds.append(Kind.EXACT)
        elif lenient and not chain.protected[x] and not chain.protected[own]:
            kinds.append(Kind.PROMOTED)
        else:
            return [*tokens, own], [*kinds, Kind.BONUS]
        tokens.append(x)
    return [*tokens, chain.y[len(chain.drafts)]], [*kinds, Kind.BONUS]
