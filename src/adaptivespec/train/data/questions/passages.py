"""Short invented texts to summarise, rewrite, correct and question."""

from __future__ import annotations

import random

from adaptivespec.train.data.questions.grammar import Slot, entries, expand
from adaptivespec.train.data.questions.json_tasks import SLOTS as FACTS
from adaptivespec.train.data.questions.topics import TOPICS
from adaptivespec.train.data.questions.words import people, things

SLOTS: dict[str, Slot] = {
    **FACTS,
    **TOPICS,
    "plan": entries(
        """a new bus line; a second library; a bike path along the river; a skate park; longer
        opening hours; a roof garden; a community kitchen; a weekly market; a pedestrian
        bridge; night trains"""
    ),
    "reason": entries(
        """costs have risen; many people asked for it; the old one was damaged by a storm; the
        budget is smaller than expected; visitors come from all over the region; there were
        too few volunteers; the first trial went well; safety rules have changed; a sponsor
        was found at the last minute"""
    ),
    "effect": entries(
        """traffic fell by {5-40} percent; sales doubled within a year; prices went up; people
        complained about the noise; the number of visitors grew; nobody noticed the change;
        schools joined in; the team had to start again; energy use fell by a {third}; local
        shops were delighted"""
    ),
    "third": ("third", "quarter", "half", "tenth"),
    "season": entries("spring; summer; autumn; winter"),
}
# Each passage takes some sentences of one story, in order.
STORIES = tuple(
    entries(text)
    for text in (
        """The town council of {city#1} has decided to build {plan#1}.; The work will begin in
        {month} and cost about {2-30} million dollars.; Mayor {first#m} {last#m} said that
        {reason#1}.; Some residents are unhappy, since {plan#2} was promised {2-9} years ago.;
        In {city#2}, where a similar project was finished in {2005-2020}, {effect#1}.; A
        public meeting will be held at the {place} on {day}.; {first#c} {last#c}, who has
        lived nearby for {10-50} years, hopes that the trees will stay.""",
        """{^animals#1} are [remarkable|surprising|often misunderstood] animals.; They live in
        groups of {3-9} to {10-60} and spend up to {8-18} hours a day looking for food.; In
        {season#1} they [move|travel] to warmer places, sometimes over {2-9}00 kilometers.;
        Researchers in {country} followed {20-90} of them for {2-9} years.; They found that
        young ones learn mostly by watching their mothers.; The greatest danger is the loss of
        their habitat.; Since {1990-2015}, a reserve near {city} protects some of them.""",
        """{first#p} {last#p} was born in {city#1} in {1900-1980} as the child of a {job#1}.;
        After school {last#p} [worked|trained] as a {job#2} and studied at night.; A journey
        to {country} in {1981-1990} changed everything.; There {last#p} saw {theme} and began
        to [paint|write|compose].; The first [exhibition|book| concert] failed, because
        {reason}.; The second one was a success, and {effect}.; Today a street in {city#2}
        bears the name.""",
        """We stayed {2-9} nights in a small hotel in {city}.; The room was [clean|tiny|bright]
        and {reason}, so we got a discount of {5-30} percent.; Breakfast was
        [excellent|poor|simple]: {food#1}, fruit and strong coffee.; The staff [were
        friendly|hardly spoke to us|helped us find {theme}].; At night one could hear the
        [street|trains|sea].; We would [gladly come back|not stay there again].""",
        """Minutes of the meeting on {day#1}: {p}, {q} and {r} were present.; {p} reported that
        {effect}.; {q} explained that {reason}.; It was agreed to order {10-90} {s} before
        {day#2}.; {r} will call {firm} and ask for a better price.; {p} wants to prepare
        {event} in {month}.; The next meeting is on {day#3} at {time}.""",
        """{firm#1} presented {gadget} in {city} on {day}.; It costs ${price} and will be sold
        from {month} on.; According to {first} {last}, head of design, the team worked on it
        for {2-6} years.; Early tests showed that {effect#1}.; Critics say that {firm#2}
        already sells something similar for less.; The company expects to sell {10-90},000 in
        the first year.; Its shares rose by {1-9} percent.""",
        """Every {season} the village of {last#v} celebrates {theme#1}.; The custom goes back to
        {1600-1890}, when {reason}.; Children make {s} out of paper and carry them through the
        streets.; In the evening there are songs, and everybody eats {food#1}.; {p}, a {job}
        from {country}, came for the first time this year.; "I did not expect {theme#2},"
        {p.he} said.; Next year the party is to last {2-5} days.""",
        """{p} woke up early, because {theme#1} had kept {p.him} awake.; {^p.he} put {s} and {t}
        into a bag and left the house.; At the corner {p.he} met {q}, who was looking for a
        {pet}.; Together they walked to the {place}.; Nobody was there except {hero}.; "You
        are late," {p} heard someone say.; That was when {q} understood everything.""",
    )
)
MISTAKES = (
    (" was ", " were "), (" were ", " was "), (" has ", " have "), (" their ", " there "),
    (" the ", " teh "), (" because ", " becuase "), (" and ", " an "), (" is ", " are "),
    ("ing ", "in "), (" which ", " wich "), (" from ", " form "), (", ", " "),
    (" said ", " sayed "),
    (" that ", " taht "), (" year", " yeer"), (" before ", " befor "),
)  # fmt: skip


def passage(rng: random.Random, low: int = 3, high: int = 6) -> str:
    """`low` to `high` sentences of one invented text."""
    sentences = rng.choice(STORIES)
    count = min(rng.randint(low, high), len(sentences))
    chosen = list(range(count))
    if rng.random() < 0.4:
        chosen = [0, *sorted(rng.sample(range(1, len(sentences)), count - 1))]
    bound = people(rng) | things(rng)
    text = " ".join(sentences[i] for i in chosen)
    return expand(rng, text, SLOTS, bound)


def misspelt(rng: random.Random) -> str:
    """A passage of one to three sentences with some mistakes in spelling and grammar."""
    text = passage(rng, 1, 3)
    found = [pair for pair in MISTAKES if pair[0] in text]
    for right, wrong in rng.sample(found, min(len(found), rng.randint(2, 4))):
        text = text.replace(right, wrong, 1)
    return text
