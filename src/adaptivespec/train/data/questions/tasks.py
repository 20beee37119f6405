"""Single Python functions that are no composition: what they do, a reference, and its arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adaptivespec.train.data.questions.words import MEN, WOMEN, WORDS


@dataclass(frozen=True)
class Task:
    """`makes` names a maker of each argument; `reference` gives the result."""

    name: str
    arguments: str
    returns: str
    words: str
    reference: Callable[..., Any]
    makes: str


MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda rng: rng.randint(1, 60),
    "big": lambda rng: rng.randint(100, 99999),
    "small": lambda rng: rng.randint(2, 6),
    "float": lambda rng: round(rng.uniform(1, 90), 1),
    "ints": lambda rng: [rng.randint(-9, 30) for _ in range(rng.randint(3, 7))],
    "pair": lambda rng: (rng.randint(-9, 20), rng.randint(-9, 20)),
    "floats": lambda rng: [round(rng.uniform(0, 20), 1) for _ in range(rng.randint(2, 5))],
    "word": lambda rng: rng.choice(WORDS),
    "words": lambda rng: rng.sample(WORDS, rng.randint(2, 5)),
    "text": lambda rng: " ".join(rng.sample(WORDS, rng.randint(2, 5))),
    "snake": lambda rng: "_".join(rng.sample(WORDS, rng.randint(2, 3))),
    "name": lambda rng: f"{rng.choice(WOMEN + MEN)} {rng.choice(WORDS).capitalize()}",
    "csv": lambda rng: ",".join(str(rng.randint(0, 50)) for _ in range(rng.randint(2, 6))),
    "rows": lambda rng: [[rng.randint(0, 9) for _ in range(3)] for _ in range(rng.randint(2, 3))],
    "stock": lambda rng: {w: rng.randint(0, 20) for w in rng.sample(WORDS, rng.randint(2, 4))},
    "query": lambda rng: "&".join(f"{w}={rng.randint(1, 9)}" for w in rng.sample(WORDS, 2)),
    "runs": lambda rng: "".join(rng.choice("abxyz") * rng.randint(1, 4) for _ in range(4)),
}


def _runs(text: str) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return runs


def _grouped(words: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[0], []).append(word)
    return groups


TASKS = tuple(
    Task(*entry)
    for entry in (
        ("encode_runs", "text: str", "List[Tuple[str, int]]",
         "Return pairs of letter and length for the runs of equal letters in `text`",
         _runs, "runs"),
        ("collapse_runs", "text: str", "str",
         "Replace every run of equal letters by a single letter",
         lambda t: "".join(a for a, _ in _runs(t)), "runs"),
        ("group_by_initial", "words: List[str]", "Dict[str, List[str]]",
         "Group the words by their first letter", _grouped, "words"),
        ("acronym", "phrase: str", "str", "Build an upper-case acronym from the words of a phrase",
         lambda t: "".join(w[0] for w in t.split()).upper(), "text"),
        ("initials_of", "full_name: str", "str", "Return the initials of a name, each with a dot",
         lambda t: "".join(w[0] + "." for w in t.split()), "name"),
        ("snake_to_camel", "name: str", "str", "Turn a snake_case name into camelCase",
         lambda t: t.split("_")[0] + "".join(w.capitalize() for w in t.split("_")[1:]), "snake"),
        ("snake_to_title", "name: str", "str", "Turn a snake_case name into words with capitals",
         lambda t: t.replace("_", " ").title(), "snake"),
        ("slugify", "title: str", "str",
         "Lower the letters of a title and join its words by dashes",
         lambda t: "-".join(t.lower().split()), "name"),
        ("swap_names", "full_name: str", "str", "Turn 'First Last' into 'Last, First'",
         lambda t: ", ".join(reversed(t.split())), "name"),
        ("shorten", "text: str, width: int", "str",
         "Cut `text` to `width` characters and add '...' if something was cut off",
         lambda t, k: t if len(t) <= k else t[:k] + "...", "text int"),
        ("every_kth", "items: List[int], k: int", "List[int]",
         "Return every k-th item, beginning with the first", lambda x, k: x[::k], "ints small"),
        ("chunks", "items: List[int], size: int", "List[List[int]]",
         "Split a list into pieces of `size` items; the last may be shorter",
         lambda x, k: [x[i : i + k] for i in range(0, len(x), k)], "ints small"),
        ("rotate", "items: List[int], k: int", "List[int]",
         "Move the first `k` items to the end of the list; `k` may be longer than the list",
         lambda x, k: x[k % len(x) :] + x[: k % len(x)], "ints small"),
        ("flatten_rows", "rows: List[List[int]]", "List[int]", "Join all rows into one flat list",
         lambda x: [v for row in x for v in row], "rows"),
        ("transpose", "rows: List[List[int]]", "List[List[int]]",
         "Exchange the rows and columns of a matrix",
         lambda x: [list(c) for c in zip(*x, strict=True)], "rows"),
        ("row_sums", "rows: List[List[int]]", "List[int]", "Add up every row of a matrix",
         lambda x: [sum(row) for row in x], "rows"),
        ("column_maxima", "rows: List[List[int]]", "List[int]",
         "Find the greatest value of each column",
         lambda x: [max(c) for c in zip(*x, strict=True)], "rows"),
        ("scale_rows", "rows: List[List[int]], k: int", "List[List[int]]",
         "Multiply each entry of a matrix by `k`",
         lambda x, k: [[v * k for v in row] for row in x], "rows small"),
        ("invert", "stock: Dict[str, int]", "Dict[int, str]",
         "Exchange keys and values; of equal values the last key stays",
         lambda d: {v: k for k, v in d.items()}, "stock"),
        ("sold_out", "stock: Dict[str, int]", "List[str]",
         "Return the sorted keys whose value is below five",
         lambda d: sorted(k for k, v in d.items() if v < 5), "stock"),
        ("total_stock", "stock: Dict[str, int]", "int", "Add up the values of a dictionary",
         lambda d: sum(d.values()), "stock"),
        ("restock", "stock: Dict[str, int], least: int", "Dict[str, int]",
         "Raise every value that is smaller than `least` to `least`",
         lambda d, k: {a: max(b, k) for a, b in d.items()}, "stock small"),
        ("best_seller", "sales: Dict[str, int]", "str",
         "Return the key with the highest value; of several the alphabetically first",
         lambda d: min(d, key=lambda k: (-d[k], k)), "stock"),
        ("merge_counts", "a: Dict[str, int], b: Dict[str, int]", "Dict[str, int]",
         "Merge two dictionaries; values of common keys are added",
         lambda a, b: {k: a.get(k, 0) + b.get(k, 0) for k in [*a, *(k for k in b if k not in a)]},
         "stock stock"),
        ("parse_query", "query: str", "Dict[str, int]",
         "Parse a query string such as 'a=1&b=2' into a dictionary of integers",
         lambda t: {p.split("=")[0]: int(p.split("=")[1]) for p in t.split("&")}, "query"),
        ("parse_numbers", "line: str", "List[int]", "Parse a line of comma-separated integers",
         lambda t: [int(p) for p in t.split(",")], "csv"),
        ("sum_line", "line: str", "int", "Add up the integers of a comma-separated line",
         lambda t: sum(int(p) for p in t.split(",")), "csv"),
        ("clock", "seconds: int", "str", "Format a number of seconds as HH:MM:SS",
         lambda s: f"{s // 3600:02d}:{s % 3600 // 60:02d}:{s % 60:02d}", "big"),
        ("split_minutes", "minutes: int", "Tuple[int, int]",
         "Return whole hours and the minutes that remain", lambda m: divmod(m, 60), "big"),
        ("thousands", "n: int", "str",
         "Write an integer with commas between groups of three digits",
         lambda n: f"{n:,}", "big"),
        ("digit_list", "n: int", "List[int]",
         "Return the decimal digits of `n`, the last one first",
         lambda n: [int(c) for c in str(n)[::-1]], "big"),
        ("digit_span", "n: int", "int", "Subtract the smallest digit of `n` from the largest",
         lambda n: int(max(str(n))) - int(min(str(n))), "big"),
        ("trailing_zero_bits", "n: int", "int", "Count the zeros at the end of `n` in binary",
         lambda n: (n & -n).bit_length() - 1, "int"),
        ("to_fahrenheit", "celsius: float", "float",
         "Convert degrees Celsius to Fahrenheit, rounded to one place",
         lambda c: round(c * 9 / 5 + 32, 1), "float"),
        ("with_tax", "price: float, percent: int", "float",
         "Add `percent` percent of tax to a price and round to cents",
         lambda p, k: round(p * (100 + k) / 100, 2), "float small"),
        ("reduced", "price: float, percent: int", "float",
         "Take `percent` percent off a price and round to cents",
         lambda p, k: round(p * (100 - k) / 100, 2), "float int"),
        ("clamp", "value: int, low: int, high: int", "int",
         "Return `value`, or the nearer bound if it lies outside of `low` and `low + high`",
         lambda v, a, b: min(max(v, a), a + b), "int small small"),
        ("taxicab", "p: Tuple[int, int], q: Tuple[int, int]", "int",
         "Return the taxicab distance of two points",
         lambda p, q: abs(p[0] - q[0]) + abs(p[1] - q[1]), "pair pair"),
        ("mirror_point", "p: Tuple[int, int]", "Tuple[int, int]", "Mirror a point at the y-axis",
         lambda p: (-p[0], p[1]), "pair"),
        ("moving_sums", "values: List[int], k: int", "List[int]",
         "Return the sums of every `k` neighbouring values",
         lambda x, k: [sum(x[i : i + k]) for i in range(len(x) - k + 1)], "ints small"),
        ("first_above_mean", "values: List[int]", "Optional[int]",
         "Return the first value that exceeds the mean of all, or None if all are equal",
         lambda x: next((v for v in x if v * len(x) > sum(x)), None), "ints"),
        ("argmin", "values: List[int]", "int",
         "Return the index of the smallest value, the first one",
         lambda x: x.index(min(x)), "ints"),
        ("peaks", "values: List[int]", "List[int]",
         "Return the values that are greater than both of their neighbours",
         lambda x: [b for a, b, c in zip(x, x[1:], x[2:], strict=False) if a < b > c], "ints"),
        ("dot", "a: List[int], b: List[int]", "int",
         "Return the dot product; the longer list is cut to the length of the shorter",
         lambda a, b: sum(x * y for x, y in zip(a, b, strict=False)), "ints ints"),
        ("only_first", "a: List[int], b: List[int]", "List[int]",
         "Return the sorted values of `a` that are absent from `b`, each once",
         lambda a, b: sorted(set(a) - set(b)), "ints ints"),
        ("merge_sorted", "a: List[int], b: List[int]", "List[int]",
         "Merge two lists into one sorted list", lambda a, b: sorted(a + b), "ints ints"),
        ("percentages", "parts: List[float]", "List[float]",
         "Return each part in percent of the total, rounded to one place",
         lambda x: [round(100 * v / (sum(x) or 1), 1) for v in x], "floats"),
        ("shared_prefix", "a: str, b: str", "int", "Count how many leading letters two words share",
         lambda a, b: next(
             (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
         ),
         "word word"),
        ("is_anagram", "a: str, b: str", "bool", "Tell whether two words use the same letters",
         lambda a, b: sorted(a) == sorted(b), "word word"),
        ("letter_positions", "word: str, letter: str", "List[int]",
         "Return all indices at which the first character of `letter` occurs in `word`",
         lambda a, b: [i for i, c in enumerate(a) if c == b[0]], "word word"),
        ("reverse_each", "text: str", "str", "Reverse each word but keep the order of the words",
         lambda t: " ".join(w[::-1] for w in t.split()), "text"),
        ("longest_first", "text: str", "List[str]", "Split a text into words, the longest first",
         lambda t: sorted(t.split(), key=lambda w: (-len(w), w)), "text"),
        ("mask", "word: str, k: int", "str", "Replace all but the last `k` characters by stars",
         lambda w, k: "*" * max(len(w) - k, 0) + w[-k:], "word small"),
        ("numbered", "items: List[str]", "List[str]", "Put '1. ', '2. ' and so on before the items",
         lambda x: [f"{i}. {w}" for i, w in enumerate(x, 1)], "words"),
        ("plural", "noun: str, count: int", "str",
         "Write a count with its noun, adding 's' unless one",
         lambda w, k: f"{k} {w}{'' if k == 1 else 's'}", "word small"),
        ("letter_score", "word: str", "int",
         "Add up the places of the letters in the alphabet, a = 1",
         lambda w: sum(ord(c) - 96 for c in w), "word"),
    )
)  # fmt: skip
