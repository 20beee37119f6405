"""Python functions composed from elementary steps, with documentation and computed examples.

A function keeps some members of a collection, changes each, and puts them together.  Every step is
an expression in `x` (a member), `k` (an optional parameter) or `xs` (the members left), which also
makes the body that other code questions show.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adaptivespec.train.data.questions.grammar import entries, polish
from adaptivespec.train.data.questions.words import WORDS

Step = tuple[str, str, str]  # name, words, expression

INT_KEEP: tuple[Step, ...] = (
    ("even", "the even {n}", "x % 2 == 0"),
    ("odd", "the odd {n}", "x % 2 == 1"),
    ("negative", "the negative {n}", "x < 0"),
    ("nonzero", "the {n} that are not zero", "x != 0"),
    ("divisible", "the {n} divisible by `k`", "x % k == 0"),
    ("above", "the {n} greater than `k`", "x > k"),
    ("at_most", "the {n} that are at most `k`", "x <= k"),
    ("multiples_of_three", "the {n} that are multiples of three", "x % 3 == 0"),
    ("not_multiples_of_five", "the {n} that are not multiples of five", "x % 5 != 0"),
    ("two_digit", "the {n} with exactly two digits", "10 <= abs(x) <= 99"),
    ("ending_in_k", "the {n} whose last digit is `k`", "abs(x) % 10 == k"),
    ("near", "the {n} whose distance to `k` is at most ten", "abs(x - k) <= 10"),
    ("square", "the {n} that are perfect squares", "x >= 0 and int(x**0.5) ** 2 == x"),
    ("with_digit_seven", "the {n} that contain the digit 7", "'7' in str(x)"),
    ("all", "the {n}", "True"),
)
INT_MAP: tuple[Step, ...] = (
    ("", "", "x"),
    ("", "", "x"),
    ("squares", "their squares", "x**2"),
    ("cubes", "their cubes", "x**3"),
    ("doubled", "their doubles", "2 * x"),
    ("negated", "their values with the sign changed", "-x"),
    ("absolute", "their absolute values", "abs(x)"),
    ("shifted", "their values increased by `k`", "x + k"),
    ("scaled", "their products with `k`", "x * k"),
    ("remainders", "their remainders when divided by `k`", "x % k"),
    ("digit_counts", "their numbers of digits", "len(str(abs(x)))"),
    ("last_digits", "their last digits", "abs(x) % 10"),
    ("halves", "their halves, rounded down,", "x // 2"),
    ("distances", "their distances to `k`", "abs(x - k)"),
    ("capped", "their values, capped at `k`,", "min(x, k)"),
)
# name, words before the members, expression in `xs`, type of the result
INT_JOIN: tuple[tuple[str, str, str, str], ...] = (
    ("list", "a list of", "xs", "List[int]"),
    ("sorted", "in ascending order", "sorted(xs)", "List[int]"),
    ("descending", "in descending order", "sorted(xs, reverse=True)", "List[int]"),
    ("reversed", "in reverse order", "xs[::-1]", "List[int]"),
    ("first_k", "the first three of", "xs[:3]", "List[int]"),
    ("sum", "the sum of", "sum(xs)", "int"),
    ("count", "the number of distinct values among", "len(set(xs))", "int"),
    ("spread", "the difference between the largest and smallest of", "max(xs) - min(xs)", "int"),
    ("largest", "the largest of", "max(xs)", "int"),
    ("smallest", "the smallest of", "min(xs)", "int"),
    ("average", "the average, rounded to two places, of", "round(sum(xs) / len(xs), 2)", "float"),
    ("text", "a string, joined with dashes, of", "'-'.join(str(x) for x in xs)", "str"),
    ("any_repeated", "whether a value occurs twice among", "len(set(xs)) < len(xs)", "bool"),
    ("totals", "the running totals of", "[sum(xs[: i + 1]) for i in range(len(xs))]", "List[int]"),
    (
        "steps",
        "the differences of neighbours of",
        "[b - a for a, b in zip(xs, xs[1:])]",
        "List[int]",
    ),
    ("ends", "the first and the last of", "(xs[0], xs[-1])", "Tuple[int, int]"),
)
STR_KEEP: tuple[Step, ...] = (
    ("long", "the {n} with more than `k` letters", "len(x) > k"),
    ("short", "the {n} with at most `k` letters", "len(x) <= k"),
    ("even_length", "the {n} of even length", "len(x) % 2 == 0"),
    ("with_e", "the {n} that contain the letter 'e'", "'e' in x"),
    ("without_a", "the {n} without the letter 'a'", "'a' not in x"),
    ("ending_in_r", "the {n} that end in 'r'", "x.endswith('r')"),
    ("early", "the {n} whose first letter comes before 'm'", "x[0] < 'm'"),
    ("doubled_letter", "the {n} with two equal letters in a row",
     "any(a == b for a, b in zip(x, x[1:]))"),
    ("no_repeats", "the {n} in which no letter occurs twice", "len(set(x)) == len(x)"),
    ("same_ends", "the {n} that do not end as they begin", "x[0] != x[-1]"),
    ("all", "the {n}", "True"),
)  # fmt: skip
STR_MAP: tuple[Step, ...] = (
    ("", "", "x"),
    ("", "", "x"),
    ("upper", "their upper-case forms", "x.upper()"),
    ("capitalized", "their capitalized forms", "x.capitalize()"),
    ("backwards", "their reversed spellings", "x[::-1]"),
    ("initials", "their first letters", "x[0]"),
    ("final_letters", "their last letters", "x[-1]"),
    ("prefixes", "their first `k` letters", "x[:k]"),
    ("padded", "their forms padded with dots to `k` characters", "x.ljust(k, '.')"),
    ("starred", "their forms with a star on each side", "'*' + x + '*'"),
    ("trimmed", "their forms without the first letter", "x[1:]"),
    ("repeated", "their forms written twice", "x * 2"),
    ("hyphenated", "their spellings with a dash between the letters", "'-'.join(x)"),
    ("sorted_letters", "their letters in alphabetical order", "''.join(sorted(x))"),
)
STR_JOIN: tuple[tuple[str, str, str, str], ...] = (
    ("list", "a list of", "xs", "List[str]"),
    ("alphabetical", "in alphabetical order", "sorted(xs)", "List[str]"),
    ("by_length", "sorted by length", "sorted(xs, key=len)", "List[str]"),
    ("reversed", "in reverse order", "xs[::-1]", "List[str]"),
    ("joined", "a string, joined with commas, of", "','.join(xs)", "str"),
    ("glued", "one string without gaps made of", "''.join(xs)", "str"),
    ("count", "the number of", "len(xs)", "int"),
    ("total_length", "the total length of", "sum(len(x) for x in xs)", "int"),
    ("longest_size", "the length of the longest of", "max(len(x) for x in xs)", "int"),
    ("last", "the alphabetically last of", "max(xs)", "str"),
    (
        "lengths",
        "a dictionary with the length of each of",
        "{x: len(x) for x in xs}",
        "Dict[str, int]",
    ),
    ("positions", "pairs of position and word for", "list(enumerate(xs))", "List[Tuple[int, str]]"),
    ("all_unique", "whether there is no duplicate among", "len(set(xs)) == len(xs)", "bool"),
)


@dataclass(frozen=True)
class Source:
    """What a function takes: `argument` with its `type`, and the members, `items`, drawn from it.

    `nouns` are words for the members, `places` say where they are; `make` gives an argument.
    """

    names: tuple[str, ...]
    type: str
    items: str
    nouns: tuple[str, ...]
    places: tuple[str, ...]
    make: Callable[[random.Random], Any]
    numbers: bool


def _integers(rng: random.Random) -> list[int]:
    low, high = rng.choice((-20, 0, 1)), rng.choice((20, 60, 100))
    return [rng.randint(low, high) for _ in range(rng.randint(3, 7))]


def _stock(rng: random.Random) -> dict[str, int]:
    return {word: rng.randint(1, 60) for word in rng.sample(WORDS, rng.randint(2, 4))}


INT_NAMES = entries(
    "numbers; values; nums; data; items; scores; readings; entries; amounts; points"
)
STR_NAMES = entries("words; names; tokens; labels; terms; strings; tags; items; keys; titles")
IN_LIST = (" in `{}`", " in the list", "", " given")
OF = (" of `{}`",)
SOURCES: tuple[Source, ...] = (
    Source(INT_NAMES, "List[int]", "{}", ("numbers", "integers", "values"), IN_LIST,
           _integers, True),
    Source(("n", "number"), "int", "[int(d) for d in str({})]", ("digits",), OF,
           lambda rng: rng.randint(100, 9999999), True),
    Source(("n", "limit", "top"), "int", "range(1, {} + 1)", ("integers", "numbers"),
           (" from 1 to `{}`", " from one up to `{}`"), lambda rng: rng.randint(3, 7), True),
    Source(("n", "number", "m"), "int", "[d for d in range(1, {} + 1) if {} % d == 0]",
           ("divisors",), OF, lambda rng: rng.choice((12, 28, 30, 45, 64, 70, 96)), True),
    Source(("line", "text", "row"), "str", "[int(p) for p in {}.split(',')]",
           ("numbers", "integers"), (" in the comma-separated string `{}`",),
           lambda rng: ",".join(map(str, _integers(rng))), True),
    Source(("stock", "prices", "ages", "table"), "Dict[str, int]", "{}.values()", ("values",),
           (" of the dictionary `{}`",),
           _stock, True),
    Source(STR_NAMES, "List[str]", "{}", ("words", "strings"), IN_LIST,
           lambda rng: rng.sample(WORDS, rng.randint(2, 5)), False),
    Source(("text", "sentence", "phrase"), "str", "{}.split()", ("words",),
           (" in `{}`", " in the text"),
           lambda rng: " ".join(rng.sample(WORDS, rng.randint(3, 6))), False),
    Source(("stock", "prices", "ages"), "Dict[str, int]", "{}", ("keys",), OF,
           _stock, False),
)  # fmt: skip
#: What says nothing about a digit or a divisor.
UNFIT = ("negative", "nonzero", "two_digit", "near", "with_digit_seven")
SOURCE_WEIGHTS = (34, 7, 6, 4, 5, 5, 24, 10, 5)
VERBS = ("", "", "", "get_", "find_", "compute_", "make_", "collect_")
EMPTY: dict[str, Any] = {
    "int": 0,
    "float": 0.0,
    "str": "",
    "bool": False,
    "Tuple[int, int]": (0, 0),
}
TYPED = ("List", "Dict", "Tuple")


@dataclass(frozen=True)
class Function:
    """One composed function; `examples` holds argument tuples with the results they give."""

    name: str
    argument: str
    type: str
    items: str
    member: str  # "int" or "str"
    parameter: bool
    returns: str
    words: str
    keep: str
    change: str
    join: str
    default: Any
    examples: tuple[tuple[tuple[Any, ...], Any], ...]

    @property
    def signature(self) -> str:
        """The `def` line, with types."""
        extra = ", k: int" if self.parameter else ""
        inner = f"{self.argument}: {self.type}{extra}"
        return f"def {self.name}({inner}) -> {self.returns}:"

    @property
    def imports(self) -> str:
        """The import line of the types used."""
        used = [name for name in TYPED if name in self.signature]
        return f"from typing import {', '.join(sorted(used))}" if used else ""

    def call(self, arguments: tuple[Any, ...]) -> str:
        return f"{self.name}({', '.join(map(repr, arguments))})"

    def body(self, loop: bool) -> str:
        """The indented body, as a loop or a comprehension."""
        condition = "" if self.keep == "True" else f" if {self.keep}"
        if loop:
            lines = ["xs = []", f"for x in {self.items}:"]
            deep = "        " if condition else "    "
            lines += [f"   {condition}:"] if condition else []
            lines += [f"{deep}xs.append({self.change})"]
        else:
            lines = [f"xs = [{self.change} for x in {self.items}{condition}]"]
        if self.default is not None:
            lines += ["if not xs:", f"    return {self.default!r}"]
        return "\n".join("    " + line for line in [*lines, f"return {self.join}"])


def _compiled(expression: str, *names: str) -> Callable[..., Any]:
    """A function of `names` for one of the expressions above."""
    return eval(f"lambda {', '.join(names)}: {expression}")  # noqa: S307


def _words(rng: random.Random, place: str, noun: str, steps: tuple[Step, Step, str]) -> str:
    """What the function does, as an imperative sentence without a full stop."""
    keep, change, join = steps
    kept = keep[1].format(n=noun + place)
    joined = join + " {}"
    if join.startswith(("in ", "sorted")):
        joined = "{} " + join
    if not change[1]:
        verbs = ("Return", "Return", "Compute", "Find", "Give back", "Calculate")
        verb = "Return" if join.startswith("whether") else rng.choice(verbs)
        return f"{verb} {joined.format(kept)}"
    if keep[0] == "all":
        start = rng.choice((f"For the {noun}{place}, return", f"Of the {noun}{place}, return"))
        return f"{start} {joined.format(change[1])}"
    start = rng.choice(
        (
            f"Take {kept} and return",
            f"Consider only {kept}. Return",
            f"Select {kept}, then return",
            f"Ignore everything but {kept}; return",
        )
    )
    return f"{start} {joined.format(change[1])}"


def compose(rng: random.Random) -> Function:
    """One function with two or three examples of its results."""
    source = rng.choices(SOURCES, SOURCE_WEIGHTS)[0]
    numbers = source.numbers
    keep = rng.choice(INT_KEEP if numbers else STR_KEEP)
    change = rng.choice(INT_MAP if numbers else STR_MAP)
    join = rng.choice(INT_JOIN if numbers else STR_JOIN)
    if "`k`" in keep[1] and "`k`" in change[1]:
        change = INT_MAP[0] if numbers else STR_MAP[0]
    if change[0] == "sorted_letters" and join[1].startswith(("in ", "sorted")):
        change = STR_MAP[2]
    if source.nouns[0] in ("digits", "divisors") and keep[0] in UNFIT:
        keep = INT_KEEP[0]
    argument = rng.choice(source.names)
    items = source.items.replace("{}", argument)
    noun, place = rng.choice(source.nouns), rng.choice(source.places).replace("{}", argument)
    parameter = "`k`" in keep[1] + change[1]
    parts = [part for part in (join[0], keep[0], change[0]) if part and part != "all"]
    if len(parts) > 1 and parts[0] == "list":
        parts = parts[1:]
    if rng.random() < 0.3:
        parts = parts[1:] + parts[:1]
    name = rng.choice(VERBS) + "_".join(parts)
    if len(parts) < 3 or rng.random() < 0.2:
        name = f"{name}_{noun}"
    functions = (
        _compiled(keep[2], "x", "k"),
        _compiled(change[2], "x", "k"),
        _compiled(join[2], "xs"),
    )
    fails = any(word in join[2] for word in ("max(", "min(", "/ len", "[0]"))
    default = EMPTY[join[3]] if fails else None
    members = _compiled(items, argument)
    examples = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        k = rng.randint(2, 9)
        given = source.make(rng)
        left = [functions[1](x, k) for x in members(given) if functions[0](x, k)]
        result = functions[2](left) if left or default is None else default
        examples.append(((given, k) if parameter else (given,), result))
    words = polish(_words(rng, place, noun, (keep, change, join[1]))).rstrip(",")
    return Function(
        name, argument, source.type, items, "int" if numbers else "str", parameter, join[3], words,
        keep[2], change[2], join[2], default, tuple(examples),
    )  # fmt: skip
