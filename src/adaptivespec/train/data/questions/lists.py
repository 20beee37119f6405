"""Small tasks on lists: copy, sort, reverse, filter, count, rewrite, and name members."""

from __future__ import annotations

import random

from adaptivespec.train.data.questions.grammar import expand, polish
from adaptivespec.train.data.questions.words import CLASSES

# What is wanted of a list of words.
WORD_TASKS = (
    "[Copy|Repeat|Write out] [this list|these words|the following {items}] [exactly|unchanged]",
    "[Sort|Put|Arrange] [these|the following] {items} [in alphabetical order|from A to Z]",
    "[Sort|Arrange] [these|the following] {items} in reverse alphabetical order",
    "[Reverse|Turn around] the order of [this list|these {items}]",
    "[Sort|Order] [these|the following] {items} by length, shortest first",
    "[List|Write down] only the {items} that [begin|start] with [a vowel|a consonant]",
    "[Which of these {items} have|List those of these {items} that have] more than {4-6} letters",
    "Which of these {items} contain the letter [a|e|o|r|n|t]",
    "Count the {items} in this list",
    "How many {items} are [listed here|in this list]",
    "[Capitalise|Capitalize] [every word|all {items}] in this list",
    "[Write|Rewrite] [these|the following] {items} in capital letters",
    "Turn [these|the following] {items} into a [bullet|bulleted] list",
    "[Make|Write] a numbered list [from|of] these {items}",
    "[Write|Give] the number of letters after each of these {items}",
    "Write these {items} [in one line, separated by semicolons|as one sentence with commas]",
    "[Drop|Leave out|Remove] the [first|last|second|third] of these {items} and [copy|list] "
    "the rest",
    "[Write|List] the first {2-3} and the last {2-3#x} of these {items}",
    "[Write|List] every second one of these {items}, starting with the first",
    "[Remove|Delete] the duplicates from this list of {items}",
    "[Write|Give] the first letter of each of these {items}",
    "[Group|Arrange] these {items} by their first letter",
    "[Write|Repeat] each of these {items} twice",
    "Put the word '[new|my|old|big|small]' in front of each of these {items}",
    "[Make|Write] a Python list [of strings|literal] from these {items}",
    "[Make|Write] a JSON array from these {items}",
    "[Make|Write] a Markdown table with two columns, number and name, from these {items}",
    "[Choose|Pick] [two|three] of these {items} and [write a sentence about each|describe them]",
    "[Describe|Explain] each of these {items} in [a few words|one short sentence]",
    "Write one sentence [that uses|with] [at least two|all] of these {items}",
)
NUMBER_TASKS = (
    "[Sort|Arrange] these numbers [in ascending order|from smallest to largest]",
    "[Sort|Arrange] these numbers [in descending order|from largest to smallest]",
    "[List|Write] only the [even|odd] numbers [of|from] this list",
    "[Which|List those] of these numbers [are|that are] [greater|less] than {20-60}",
    "What are the largest and the smallest of these numbers",
    "[Copy|Repeat] these numbers [exactly|one per line]",
    "[Reverse|Turn around] the order of these numbers",
    "How many numbers are in this list",
    "[Double|Halve|Square] each of these numbers",
    "Round each of these numbers to the nearest [ten|five]",
    "[Add {1-5} to|Subtract {1-5} from] each of these numbers",
    "[Write|Spell] these numbers in words",
    "[Make|Write] a bullet list of these numbers",
    "[Remove|Leave out] the numbers with [one digit|the digit {1-9}] and list the rest",
)
SUBJECTS = (
    """fruits|vegetables|wild animals|birds|fish|insects|trees|flowers|spices|kitchen utensils|
    pieces of furniture|musical instruments|team sports|water sports|board games|colours|
    countries in Europe|countries in Africa|countries in Asia|rivers|mountains|capital cities|
    planets|chemical elements|metals|programming languages|file formats|parts of a bicycle|
    parts of a computer|parts of the body|jobs in a hospital|jobs in a hotel|school subjects|
    kinds of weather|kinds of transport|kinds of cheese|kinds of pasta|breakfast foods|desserts|
    drinks|sources of protein|household chores|camping supplies|office supplies|garden tools|
    things to pack for a beach holiday|hobbies for a rainy day|ways to save water|
    ways to save energy at home|ways to relax after work|ways to greet someone|
    questions to ask in a job interview|gifts for a grandparent|rules for a shared kitchen|
    adjectives for a person|verbs of movement|words that rhyme with "light"|
    words that rhyme with "day"|feelings|shapes|units of measurement|inventions|
    famous scientists|famous painters|holidays|languages|currencies|oceans and seas|
    names for a cat|names for a coffee shop|topics for small talk|synonyms for "happy"|
    synonyms for "big"|pairs of opposites|things that are round|things made of wood|
    things that need electricity|things in a first-aid kit|exercises without equipment"""
).replace("\n", "")
NAME_TASKS = (
    "[List|Name|Give me|Write down] {count} {subject}[.|, one per line.|, separated by commas.|"
    ", as a numbered list.|, as a bullet list.| in alphabetical order.]",
    "[List|Name] {count} {subject} and [say one thing about each|add a short note to each].",
    "What are {count} {subject}? [Answer with a list only.|Number them.|Use bullet points.|]",
    "[I need|Please give me] a [list|numbered list|bullet list] of {count} {subject}.",
)
COLUMNS = ("name,age,city", "item,price,stock", "date,event,place", "title,author,year")
LAYOUTS = (", ", ", ", "\n", "\n- ", "; ", " / ", " ")


def draw(rng: random.Random) -> tuple[str, ...]:
    """One question on a list."""
    roll = rng.random()
    if roll < 0.55:
        text = _on_words(rng)
    elif roll < 0.75:
        text = _on_numbers(rng)
    elif roll < 0.93:
        subject = " ".join(rng.choice(SUBJECTS.split("|")).split())
        count = rng.choice(
            [
                "three",
                "four",
                "five",
                "six",
                "seven",
                "eight",
                "ten",
                "twelve",
                "3",
                "5",
                "10",
                "15",
            ]
        )
        bound = {"subject": subject, "count": count}
        text = expand(rng, rng.choice(NAME_TASKS), {}, bound)
    else:
        text = _csv(rng)
    return (polish(text),)


def _on_words(rng: random.Random) -> str:
    name = rng.choice(list(CLASSES))
    members = rng.sample(CLASSES[name], rng.randint(4, 9))
    task = rng.choice(WORD_TASKS)
    if "duplicates" in task:
        members += rng.sample(members, 2)
        rng.shuffle(members)
    return _with_list(rng, expand(rng, task, {}, {"items": name}), members)


def _on_numbers(rng: random.Random) -> str:
    top = rng.choice((30, 100, 100, 1000))
    members = [str(n) for n in rng.sample(range(1, top), rng.randint(5, 9))]
    return _with_list(rng, expand(rng, rng.choice(NUMBER_TASKS), {}), members)


def _with_list(rng: random.Random, task: str, members: list[str]) -> str:
    asks = task.startswith(("Which", "How", "What"))
    layout = rng.choice(LAYOUTS)
    if layout.isspace() and "\n" not in layout and any(" " in member for member in members):
        layout = ", "
    body = layout.join(members)
    if layout == "\n- ":
        body = "- " + body
    if "\n" in layout:
        return f"{task}{'?' if asks else ':'}\n\n{body}"
    if asks:
        return f"{task}? {body}" if rng.random() < 0.5 else f"Here is a list: {body}. {task}?"
    if rng.random() < 0.2:
        return f"{body}\n\n{task}."
    return f"{task}: {body}"


def _csv(rng: random.Random) -> str:
    members = rng.sample(CLASSES[rng.choice(list(CLASSES))], rng.randint(4, 8))
    columns = rng.choice(COLUMNS)
    task = rng.choice(
        (
            "Turn this CSV line into a list with one item per line",
            "Write this CSV line as a bullet list",
            "Split this line at the commas and number the parts",
            "These are CSV values. Write them as a Python list of strings",
            f"The header of a CSV file is `{columns}`. List its columns, then the values below",
        )
    )
    return f"{task}:\n\n{','.join(members)}"
