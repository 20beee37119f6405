"""Code: functions to complete, to write, to explain, to mend and to test, in several languages."""

from __future__ import annotations

import random
import re
import textwrap

from adaptivespec.train.data.questions.functions import Function, compose
from adaptivespec.train.data.questions.grammar import Slot, entries, expand, polish
from adaptivespec.train.data.questions.tasks import MAKERS, TASKS

COMPLETE = "Complete this Python function:\n\n"
#: Shares of the kinds of code question; the first is what a completion benchmark looks like.
SHARE_COMPLETE = 0.6

SLOTS: dict[str, Slot] = {
    "language": entries(
        "Python; Python; Python; JavaScript; Java; TypeScript; Go; C; C++; Rust; Ruby"
    ),
    "table": entries(
        """customers(id, name, city, joined); orders(id, customer_id, total, ordered_on);
        products(id, name, price, stock); employees(id, name, salary, department); books(id,
        title, author, year); flights(id, origin, destination, departs); students(id, name,
        grade, school); rooms(id, floor, beds, price)"""
    ),
    "ask": entries(
        """counts the rows; lists all rows sorted by the last column; shows the {2-20} rows with
        the highest value in the last column; groups by the third column and counts; finds
        duplicates in the second column; deletes rows whose third column is empty; adds a
        column `note` of type text; updates one row by its id; returns the average per group;
        finds the newest entry; selects names that start with '[A|B|M|S]'"""
    ),
    "shell": entries(
        """counts the lines of all .[txt|py|md|csv] files; renames *.[jpeg|JPG|htm] files to
        [.jpg|.html]; prints the {3-20} largest files below the current folder; deletes log
        files older than {2-60} days; shows free disk space and warns below {5-30} percent;
        makes a dated backup of a folder; replaces a word in all files; checks whether a web
        page answers; prints the {2-9}th column of a CSV file; sorts a file and removes
        duplicate lines; waits until a file exists; lists processes that use more than {1-9}00
        MB; creates {3-20} numbered folders; downloads a list of URLs, one after another"""
    ),
    "class": entries(
        """bank account; shopping cart; stopwatch; deck of cards; library; parking lot; playlist;
        to-do list; queue; stack; linked list; temperature; fraction; 2D vector; matrix; phone
        book; vending machine; thermostat; chess clock; inventory; student; rectangle;
        counter; cache with a size limit; event log; unit converter; timer; binary search
        tree; polynomial; matrix; tic-tac-toe board; coffee machine; traffic light; calendar;
        team"""
    ),
    "method": entries(
        """add; remove; reset; to print itself; compare; sort; search; save to a file; load from
        a file; count; copy; merge; validate input; undo the last change; export as JSON;
        clear; rename; iterate"""
    ),
    "thing": entries(
        """reads a CSV file and prints the average of a column; rolls {2-6} dice and shows a bar
        chart in text; converts temperatures in a loop; simulates a queue in a shop; draws a
        {3-12} by {3-12} checkerboard with characters; counts words in a text file; asks the
        user for numbers until zero is entered; makes a random password of length {8-20};
        prints a multiplication table up to {5-15}; plays rock, paper, scissors; reverses a
        linked list; searches a sorted array; checks an email address; prints a calendar
        month; parses a date; validates a credit card number; sorts a list of objects by two
        keys; merges overlapping intervals; finds the shortest path in a grid; counts coins
        for an amount; removes HTML tags; compresses a string by run lengths; converts an
        integer to words; formats a table; groups anagrams; downloads a page with retries;
        computes a moving average over {2-9} values; inserts into a binary search tree;
        evaluates a postfix expression; rotates a matrix by 90 degrees; prints a pyramid of
        {3-9} rows; finds two numbers that add up to a target; turns JSON into CSV; watches a
        folder for new files; writes log messages with a time stamp; keeps a high-score list"""
    ),
    "concept": entries(
        """recursion; list comprehensions; decorators; generators; closures; exceptions;
        inheritance; interfaces; polymorphism; dictionaries; sets; tuples; lambda functions;
        regular expressions; unit testing; mocking; type hints; context managers; virtual
        environments; asynchronous code; threads; race conditions; deadlocks; garbage
        collection; pointers; hash tables; binary search; quicksort; merge sort; dynamic
        programming; breadth-first search; Big-O notation; REST; SQL joins; indexes in
        databases; transactions; Git branches; merge conflicts; continuous integration; code
        review; logging; immutable data; dependency injection; promises in JavaScript; the
        DOM; CSS flexbox; Docker containers; environment variables; JSON; caching"""
    ),
    "also": (
        "", "", "", "", " Add type hints.", " Add a docstring.", " Add comments.",
        " [Keep it short.|Code only.]",
        " Explain how it works.", " Show an example call.", " Handle invalid input.",
        " Do not use any library.",
        " Use a loop.", " Use recursion.", " Write it so that a beginner understands it.",
        " State its complexity.",
        " Include two tests.", " Give two versions.", " Name the edge cases.",
    ),
}  # fmt: skip
OTHER = (
    "Write a {language} [program|script|function] that {thing}.{also}",
    "How do I write a {language} [program|function] that {thing}?{also}",
    "Show me a {language} [program|function|script] that {thing}.{also}",
    "[Implement|Write] a {language} class for a {class} with methods to {method#1} and "
    "{method#2}.{also}",
    "[Write|Design] a {class} class in {language}.{also}",
    "Given the table `{table}`, write an SQL query that {ask}.{also}",
    "[Write|Give me] [an SQL statement|SQL] for the table {table} that {ask}.",
    "Write a [bash|shell] script that {shell}.[| Explain each line.| Use a function.| Print "
    "a usage message.]",
    "Which shell command {shell}?",
    "[Give|Show] me a [one-line command|short command] that {shell}.",
    "Explain {concept} [in {language}|with an example|in two sentences|to a beginner|with a "
    "short code sample].",
    "What is the difference between {concept#1} and {concept#2}?[| Give an example.| Be brief.]",
    "When should I use {concept}, and when not?[| Give an example.| Be brief.]",
    "[Write|Make] {2-6} exercises on {concept} for {language}[.| with solutions.]",
    "[Write|Create] an HTML page [with a form for|that shows] a {class}.[| Add some CSS.| "
    "Use no JavaScript.]",
    "[Write|Draft] a README for a [tool|library] that {thing}.",
)
FOLLOW_UPS = entries(
    """Now add type hints.; Rewrite it in {language}.; Explain it line by line.; Write three
    tests for it.; Can it be made shorter?; What is its time complexity?; What happens with an
    empty input?; Make it faster.; Add error handling.; Use a different approach.; Add
    comments.; Turn it into a class.; How would you call it from a script?; Rename the
    variables so that they are clearer."""
)
GIVEN = {
    "List[int]": "a list `{}` of integers",
    "List[str]": "a list `{}` of strings",
    "int": "an integer `{}`",
    "str": "a string `{}`",
    "Dict[str, int]": "a dictionary `{}` from strings to integers",
}
NOTES = (
    *("",) * 12,
    " Do not change the arguments.",
    " The arguments are always valid.",
    " Use only the standard library.",
    " Keep it simple.",
    " It must not print anything.",
)
BUGS = (
    ("xs = []", "xs = {}"),
    ("xs.append(", "xs.add("),
    ("    return ", "    print "),
    ("return xs", "return x"),
    (" == ", " = "),
    (" > ", " < "),
    (" <= ", " < "),
    ("% 2 == 0", "% 2 == 1"),
    ("% 2 == 1", "/ 2 == 1"),
    ("for x in ", "for i in "),
    ("len(x)", "x.len()"),
    ("sum(xs)", "sum(x)"),
    ("max(xs)", "min(xs)"),
    ("sorted(xs)", "xs.sort()"),
    ("if not xs:\n", "if xs:\n"),
    (":\n        if", "\n        if"),
    ("x**2", "x^2"),
    ("return {", "return ["),
    ("','.join(xs)", "xs.join(',')"),
)


def _documented(rng: random.Random, function: Function) -> str:
    """The signature and docstring of a composed function, as a text to complete."""
    words = function.words + "."
    if rng.random() < 0.25:
        given = GIVEN[function.type].replace("{}", function.argument)
        words = rng.choice((f"You are given {given}. ", f"The input is {given}. ")) + words
    if function.default is not None:
        words += expand(
            rng,
            f" [Return|The result is] {function.default!r} if [there are none|nothing is left].",
            {},
        )
    lines = textwrap.wrap(words + rng.choice(NOTES), rng.choice((68, 76, 88)))
    quotes = rng.choice(('"""', '"""', '"""', "'''"))
    if rng.random() < 0.85:
        for arguments, result in function.examples:
            lines += _example(rng, function.call(arguments), result)
    return _head(rng, function.signature, function.imports, quotes, lines)


def _example(rng: random.Random, call: str, result: object) -> list[str]:
    return [f">>> {call}", repr(result)]


def _head(rng: random.Random, signature: str, imports: str, quotes: str, lines: list[str]) -> str:
    lead = f"{imports}\n\n\n" if imports and rng.random() < 0.8 else ""
    if not lead:
        for name, plain in (("List", "list"), ("Dict", "dict"), ("Tuple", "tuple")):
            signature = signature.replace(f"{name}[", f"{plain}[")
    start = rng.choice((" ", " ", "", "\n    "))
    body = "\n    ".join(lines)
    return f"{COMPLETE}{lead}{signature}\n    {quotes}{start}{body}\n    {quotes}\n"


def _single(rng: random.Random) -> str:
    """One of the functions that are no composition, as a text to complete."""
    task = rng.choice(TASKS)
    lines = textwrap.wrap(f"{task.words}.{rng.choice(NOTES)}", rng.choice((68, 76, 88)))
    for _ in range(rng.choice((1, 2, 2, 3))):
        arguments = tuple(MAKERS[name](rng) for name in task.makes.split())
        call = f"{task.name}({', '.join(map(repr, arguments))})"
        lines += _example(rng, call, task.reference(*arguments))
    signature = f"def {task.name}({task.arguments}) -> {task.returns}:"
    used = sorted(name for name in ("Dict", "List", "Optional", "Tuple") if f"{name}[" in signature)
    imports = f"from typing import {', '.join(used)}" if used else ""
    text = _head(rng, signature, imports, '"""', lines)
    return text if "import" in text else text.replace("Optional[int]", "int | None")


def _helped(rng: random.Random) -> str:
    """A composed function to complete, below a helper that it can use."""
    function = compose(rng)
    if function.keep == "True":
        return _documented(rng, function)
    extra = ", k: int" if "k" in function.keep.replace("'k'", "") else ""
    helper = f"def keep(x: {function.member}{extra}) -> bool:\n    return {function.keep}\n\n\n"
    text = _documented(rng, function)
    return text.replace(f"def {function.name}", f"{helper}def {function.name}", 1)


def _source(rng: random.Random, function: Function) -> str:
    return f"{function.signature}\n{function.body(rng.random() < 0.6)}"


def _renamed(rng: random.Random, code: str) -> str:
    """The code with other names than `x` and `xs`, where those are free."""
    one = rng.choice(("item", "value", "x", "entry", "current", "element"))
    many = rng.choice(("result", "kept", "found", "out", "selected", "collected", "output"))
    for old, new in (("xs", many), ("x", one)):
        if not re.search(rf"\b{new}\b", code):
            code = re.sub(rf"\b{old}\b", new, code)
    return code


def _snippet(rng: random.Random) -> str:
    """A question about the code of a composed function."""
    function = compose(rng)
    code = f"```python\n{_renamed(rng, _source(rng, function))}\n```"
    call = function.call(function.examples[0][0])
    template = rng.choice(
        (
            "[Explain|Describe] [this|the following] [code|function] [line by line|in one "
            "sentence|to a beginner|].\n\n<code>",
            "What does [this|the following] [code|function] do?\n\n<code>",
            "<code>\n\n[What does `{call}` return?|What is the result of `{call}`? Explain.]",
            "Write [unit tests|three pytest tests|a docstring|doctests] for this "
            "function.\n\n<code>",
            "[Rewrite|Translate] this [function|code] [in|into] {language}.\n\n<code>",
            "[Refactor|Simplify|Improve] this function[.| and explain your changes.]\n\n<code>",
            "Suggest a better name for this function and its variables.\n\n<code>",
            "[Review|Comment on] this code: [style, names, edge cases|is it correct?].\n\n<code>",
            "Add [type checks|comments|logging|error handling] to this function.\n\n<code>",
        )
    )
    text = expand(rng, template, SLOTS, {"call": call})
    return polish(text).replace("<code>", code)


def _buggy(rng: random.Random) -> str:
    function = compose(rng)
    code = _source(rng, function)
    found = [bug for bug in BUGS if bug[0] in code.partition("\n")[2]]
    right, wrong = rng.choice(found)
    head, _, body = code.partition("\n")
    code = _renamed(rng, f"{head}\n{body.replace(right, wrong, 1)}")
    if rng.random() < 0.5:
        code = f"```python\n{code}\n```"
    ask = rng.choice(
        (
            "[Find|Fix] the bug in this function. {words}\n\n<code>",
            "This function should do the following: {words}\nIt does not work. [Why?|Fix "
            "it.]\n\n<code>",
            "<code>\n\nExpected: `{call}` gives `{result}`. [What is wrong?|Correct the code.]",
        )
    )
    arguments, result = function.examples[0]
    bound = {
        "words": function.words + ".",
        "call": function.call(arguments),
        "result": repr(result),
    }
    return expand(rng, ask, SLOTS, bound).replace("<code>", code)


def _described(rng: random.Random) -> str:
    """A composed function to write from its description."""
    function = compose(rng)
    words = function.words[:1].lower() + function.words[1:].replace(". Return", " and return")
    given = GIVEN[function.type].replace("{}", function.argument)
    extra = " and an integer `k`" if function.parameter else ""
    template = rng.choice(
        (
            "Write a {language} function `{name}` that takes {given}{extra}. It should "
            "{words}.{also}",
            "In {language}, write a function with {given}{extra} as input: {words}.{also}",
            "[Implement|Write] `{name}` in {language}. Input: {given}{extra}. Task: {words}.{also}",
            "[I need|Please write] a {language} function for {given}{extra}. It has to "
            "{words}.{also}",
        )
    )
    bound = {"name": function.name, "given": given, "extra": extra, "words": words}
    return polish(expand(rng, template, SLOTS, bound))


def draw(rng: random.Random) -> tuple[str, ...]:
    """One code question, one in twenty with a follow-up."""
    if rng.random() < SHARE_COMPLETE:
        make = rng.choices((lambda r: _documented(r, compose(r)), _single, _helped), (73, 18, 9))[0]
        text = make(rng)
    else:
        roll = rng.random()
        if roll < 0.45:
            text = polish(expand(rng, rng.choice(OTHER), SLOTS))
        elif roll < 0.65:
            text = _described(rng)
        elif roll < 0.83:
            text = _snippet(rng)
        else:
            text = _buggy(rng)
    turns = [text]
    if rng.random() < 0.05:
        turns += [expand(rng, t, SLOTS) for t in rng.sample(FOLLOW_UPS, rng.choice((1, 1, 2)))]
    return tuple(turns)
