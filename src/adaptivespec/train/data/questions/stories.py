"""Word problems of the school kind: what happens to a number of things, money, time, distance."""

from __future__ import annotations

import random

from adaptivespec.train.data.questions.grammar import Slot, entries, expand
from adaptivespec.train.data.questions.words import people, things

SLOTS: dict[str, Slot] = {
    "bag": ("bags", "boxes", "baskets", "jars"),
    "shop": entries(
        """the corner store; a garden center; the school fair; a flea market; the bakery; a toy
        store; the craft shop; the supermarket; a stationery store; the farm stand; a thrift shop"""
    ),
    "kin": entries(
        "sister; brother; cousin; neighbor; best friend; classmate; uncle; aunt; roommate"
    ),
    "day": entries("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "cause": entries(
        """a new bike; a camping trip; a guitar; a present for [a friend|the family]; a tablet; a
        skateboard; concert tickets; a telescope; a winter coat; a used laptop; a drum kit"""
    ),
    "chore": entries(
        """mowing lawns; walking dogs; washing cars; babysitting; tutoring; shoveling snow; painting
        fences; delivering newspapers; raking leaves; cleaning windows"""
    ),
    "act": entries("read; swim; practice the piano; jog; draw; study Spanish; lift weights; dance"),
    "vehicle": entries("train; bus; car; truck; ferry; van; motorbike; cyclist"),
    "town": entries(
        "Ashford; Milton; Brookdale; Riverton; Lakeside; Fairview; Oakville; Hillcrest; Weston"
    ),
    "group": entries(
        """school; summer camp; choir; youth club; dance company; swim team; robotics club; company;
        hiking club; marching band"""
    ),
    "food": entries("soup; pancakes; lemonade; bread; granola; chili; fruit salad; pizza dough"),
    "part": entries("flour; sugar; milk; butter; oats; lemon juice; tomatoes; stock; yogurt"),
    "animal": entries("hens; goats; cows; rabbits; ducks; sheep; horses; pigs; geese; alpacas"),
}
# How a story of one growing and shrinking number goes on; none makes it negative or broken.
GAINS = entries(
    """{p} [buys|picks up|gets] {2-30} more [at {shop}|on {day}|]; {^p.his} {kin} gives {p.him}
    {2-9} [boxes|bags|packs] with {2-12} {s} in each; {^p.he} [finds|discovers] {2-25} more
    [in a drawer|at home|in the attic]; {q} gives {p.him} {1-3*10} of {q.his} own {s}; Then
    {p.he} doubles the number {p.he} has; On each of the next {2-6} days {p.he} adds {2-9}
    more; {p} wins {5-40} {s} in a [raffle|contest|game]; {^p.he} trades {p.his} {t} for
    {3-20} {s}"""
)
LOSSES = entries(
    """{^p.he} gives [half|a quarter|one third|{1-4*10}%|{2-8}] of them to {p.his} {kin}; {^p.he}
    sells [{2-9}|half] of them for ${1-4} each; {2-9} of them [break|get lost|go missing]; {q}
    [borrows|takes] {2-10} of them; {^p.he} shares [half|one third|a fifth] of them
    [with|among] {q} and {r}; {^p.he} uses {2-8} [every day for {2-4} days|for a school
    project]; {^p.he} leaves {3-10} of them at {p.his} {kin}'s house; On {day}, {p.he} throws
    away {2-6} damaged ones"""
)
ENDS = entries(
    """How many {s} does {p} have [left|now|in the end]?; How many {s} are left?; What is the
    number of {s} that {p} has [now|at the end]?; If {p.he} puts the remaining {s} into
    {bag#1} of {2-6}, how many full {bag#1} does {p.he} get?; How many more {s} does {p.he}
    need to have {2-4}00?; If each {s.one} is worth ${2-9}, what are {p.his} {s} worth now?;
    How many {s} fewer than at the start is that?"""
)
STARTS = entries(
    """{p} has {4-20*12} {s}.; {p} [starts the week with|begins with|owns] {4-20*12} {s}.;
    There are {3-9} shelves with {12-48} {s} each in {p}'s [shop|room].; {p} [bought|ordered]
    {2-9} [boxes|cases] of {s}, {12-40} in each.; {p} and {q} together have {4-20*24} {s}, and
    {p} owns [half|a third| three quarters] of them.; {p} has {2-5} times as many {s} as {q},
    who has {2-5*12}.; {q} has {3-9*12} {s} and {p} has {2-11} more than {q}."""
)
STORIES = entries(
    """{p} buys {2-9} {s} at ${1-9} each and {2-9} {t} at ${1-9} each at {shop}. [{^p.he} pays
    with a ${2-4*50} bill.|{^p.he} has ${2-5*50}.] How much [change does {p.he} get|money is
    left]?; At {shop}, {s} cost ${2-12} [apiece|each], and {t} cost {5-9*10}% [as much|of
    that]. What do {2-8} {s} and {2-8} {t} cost [together|in total]?; {p} [earns|makes]
    ${8-25} an hour {chore}. [Last week|This month] {p.he} worked {2-6} hours on {day#1},
    {2-6} on {day#2} and twice as long on {day#3}. {^p.he} needs ${3-9*100} for {cause}. How
    much is still missing?; {p} is saving for {cause}, which costs ${3-12*50}. {^p.he} already
    has ${1-9*10} and saves ${5-25} a week by {chore}. After how many weeks can {p.he} buy
    it?; {p} [sells|is selling] {s} for ${3-9} each. It costs {p.him} ${1-2}.{1-9}0 to make
    one. If {p.he} sold {3-12*10} on {day#1} and half as many on {day#2}, what was {p.his}
    profit?; A {vehicle} travels from {town#1} to {town#2} at {4-9*10} km/h for {2-5} hours
    and then at {3-7*10} km/h for {1-3} hours. How far [apart are the towns|did it travel]?
    What was the average speed?; {town#1} and {town#2} are {10-40*12} miles apart. {p} drives
    {3-6*10} miles per hour and {q} drives {2-9} miles per hour faster. How much earlier does
    {q} arrive if they leave at the same time?; {p} can {act} for {15-50} minutes [a|each] day
    on weekdays and twice as long on weekends. How many hours does {p.he} do this in {2-8}
    weeks?; {p} is {3-12} years older than {q}. In {2-9} years their ages will add up to
    {5-9*10}. How old is {p} now?; {p} is {2-4} times as old as {p.his} {kin} {q}, who is
    {4-12} years old. How old will {p} be when {q} is {15-30}?; The ages of {p}, {q} and {r}
    add up to {6-12*9}. {q} is twice as old as {p}, and {r} is {3-9} years younger than {q}.
    Find [the age of each|how old {r} is].; A recipe for {food} needs {2-6} cups of {part#1}
    and {1-4} cups of {part#2} for {2-6} people. How much {part#1} does {p} need for {8-30}
    people?; {p} [pours|fills] {3-9*4} liters of [milk|lemon juice|apple juice|olive oil] into
    bottles of {2-4} liters. {^p.he} sells each bottle for ${4-15} and keeps {1-2} for
    {p.himself}. How much money does {p.he} make?; A farm has {10-40} {animal#1} and {2-4}
    times as many {animal#2}. [{10-40}% of all animals are sold.|Then {5-9} {animal#1} are
    sold.] How many animals remain on the farm?; {p}'s farm feeds {8-30} {animal}. Each
    [needs|eats] {2-6} kilograms of feed a day, and feed comes in bags of {20-50} kilograms.
    How many bags does {p} need for {2-6} weeks?; There are {4-15*20} [people|members] in a
    {group}. {2-7*10}% of them [play|own] an instrument, and one quarter of those can also
    sing. How many can do both?; A {group} of {3-9*12} people rents buses with {20-50} seats.
    One bus costs ${2-8*50}. What does each person pay [for the buses|if they share the cost
    equally]?; A jacket [costs|is priced at] ${3-20*10}. It is reduced by {1-5*10}%, and {p}
    has a coupon for another ${5-15}. [Sales tax is {4-10}%.|] How much does {p} pay?; The
    price of a bag of {s} rose from ${2-9*10} by {1-4*5}% in {2010-2020} and fell by {1-4*10}%
    the year after. What does it cost now?; {p} puts ${2-20*100} in [a bank|an account] at
    {2-8}% simple interest a year. How much [money does {p.he} have|interest does {p.he} get]
    after {2-6} years?; {p} reads {10-30} pages of a {150-480}-page book every day. After
    {3-6} days {p.he} reads twice as many a day. How many days does the whole book take?; {p}
    paints {2-5} rooms in {3-9} hours. {q} is [twice as fast|half as fast]. How long do they
    need for {8-20} rooms if they work together?; A tank holds {2-9*120} gallons. One pipe
    fills it in {2-6} hours, and another empties it in {7-12} hours. How long does it take to
    fill the tank with both open?; The [length|long side] of {p}'s garden is {2-9} meters more
    than its width of {4-15} meters. A fence costs ${5-20} per meter. How much is a fence
    around [it|the garden, leaving out a {1-3}-meter gate]?; {p} tiles a floor of {3-9} by
    {4-12} feet with square tiles of {1-2} foot sides. A box has {4-10} tiles and costs
    ${12-40}. How much do the tiles cost?; In a jar there are {s}, {t} and {u} in the ratio
    {2-4}:{3-5}:{1-2}. There are {2-9*60} altogether. How many {t} are there?; {p}, {q} and
    {r} share a bill of ${4-15*10} [equally|so that {p} pays twice as much as each of the
    others]. They leave a tip of {10-20}%. What does {q} pay?; {p} scored {60-95}, {60-95#b}
    and {60-95#c} on {p.his} first three tests. What does {p.he} need on the fourth for an
    average of {75-90}?; {p} walks {2-9}00 steps [to school|to work] and back [5|4|6] days a
    week, and {3-9}000 steps on each other day. How many steps is that in {2-5} weeks?; A
    phone plan costs ${10-40} a month plus {5-20} cents per minute. {p} talked for {10-40*10}
    minutes in {day}'s billing month. What is {p.his} bill?; A factory makes {5-30*10} {s} an
    hour and runs {6-12} hours a day. {1-5}% are faulty. How many good {s} are made in [a week
    of {5-7} days|{5-20} days]?; {p} planted {4-12} rows of {5-15} {t}. {1-4*5}% did not grow,
    and each plant that did gives {3-9} pounds of harvest, sold at ${1-4} a pound. How much
    does {p} earn?; Tickets for the [play|concert|museum] cost ${8-20} for adults and ${3-7}
    for children. {p} takes {2-9} adults and three times as many children. A group [discount
    of {5-20}%|fee of ${5-20}] applies. What is the total?; {p} runs {2-6} miles on {day#1},
    {2-4} times as far on {day#2} and half of that on {day#3}. {q} runs {4-10} miles on each
    of these days. Who runs farther, and by how much?; {p} has {3-20} quarters, {3-20} dimes
    and {3-20} nickels. {^p.he} [spends ${1-3}.{1-9}5 on {s}|gives {q} two of each]. How much
    money does {p.he} have left?; A class of {18-32} students collects {s}. Each of {5-12}
    students brings {3-9}, and each of the others brings {2-5}. [Two thirds|Half] of the {s}
    are given to a shelter. How many is that?; {p} downloads a file of {2-9*40} megabytes at
    {2-8} megabytes per minute. After [half|a quarter] of it the connection drops for {5-20}
    minutes. How long does the download take in all?; {p} works {6-9} hours a day, {4-5} days
    a week, for ${12-30} an hour. Overtime pays [double|one and a half times as much]. What
    does {p.he} earn in a week with {2-8} hours of overtime?; An elevator can carry {4-9}00
    kilograms. {p} has boxes of {12-30} kilograms each and weighs {50-90} kilograms. How many
    boxes can {p.he} take along in one ride?; {p} mixes {2-8} liters of a {1-3*10}% salt
    solution with {2-8} liters of a {4-6*10}% one. What is the concentration of the mixture?;
    {p} collects {s} and {t}, {2-9*30} in all. For every {2-4} {s} there is one of the {t}.
    How many more {s} than {t} are there?; On a {3-8}-day hike {p} plans {40-160} miles. On
    the first two days {p.he} walks {8-20} and {8-20#b} miles. How many miles a day are left
    on average?; A bakery bakes {5-20*12} rolls each morning. By noon [two thirds|three
    quarters|half] are sold, and {4-20} of the rest go to staff. What is earned on the
    remaining ones at {40-90} cents each?; {p} bought a used {vehicle} for ${2-9*1000}, spent
    ${1-9*100} on repairs and sold it for {5-40}% more than all that. What was the selling
    price?; The water bill is ${5-20} plus ${1-4} for each cubic meter. {p} paid ${30-90}. How
    much water was used?; {p} can type {30-60} words per minute, {q} {10-25} words more. They
    type for {2-6*10} minutes. How many words do they type together?; In a {group} of
    {4-20*10}, [three fifths|half|two fifths] are women. {1-3*10}% of the women and {4-6*10}%
    of the men wear glasses. How many wear glasses?; A rope of {3-20*12} feet is cut into
    {2-4} equal pieces, and each of these into pieces of {2-3} feet. How many short pieces are
    there?; {p}'s car uses {5-9} liters per 100 kilometers. Fuel costs ${1-2}.{1-9}0 a liter.
    What does a trip of {2-9*100} kilometers and back cost?; {p} gets ${5-20} pocket money a
    week and spends [a quarter|a third|half] of it on {s}. How long does it take until
    ${3-9*20} is saved?; {p} bakes {2-6} trays of {10-24} [cookies|muffins|scones|bread
    rolls|pretzels]. {2-9} burn. The rest is packed in bags of {3-6}, sold at ${2-5} a bag.
    How much does {p.he} take in?; A theater has {10-30} rows with {12-30} seats. {5-9*10}% of
    the seats are sold at ${8-25}, and the others are given away. What is the income?; {p} and
    {q} pick {t}. {p} picks {5-20} a minute, {q} [twice|three times] as many. After {5-20}
    minutes {q} takes a break of {2-5} minutes. How many do they have after {25-60} minutes?;
    {p} lends {q} ${2-9*50}. {q} pays back ${10-40} at once and then ${5-20} every week. How
    much is still owed after {3-8} weeks?; A {vehicle} left {town#1} at {6-10} a.m. and
    reached {town#2} at {1-5} p.m. with a stop of {20-50} minutes. Its speed was {4-9*10}
    km/h. How long was the route?; {p} made {3-9} quarts of lemonade. A glass holds {6-10}
    ounces, and a quart is 32 ounces. At ${1-2}.50 a glass, how much could {p.he} earn if
    {2-8} glasses are spilled?; {p}'s heart beats {60-90} times a minute at rest and {100-160}
    times when {p.he} runs. How many beats are there in a day with {1-3} hours of running?;
    The temperature was {10-25} degrees at noon. It fell by {1-4} degrees an hour for {2-6}
    hours and then rose by {1-5}. What was it at the end?; {p} has {40-60} coins, only dimes
    and quarters, worth ${6-9}.{1-9}0. How many dimes could there be? Set up an equation.; {p}
    shared {s} with {2-5} friends. Each got {4-15}, and {1-3} were left over. How many were
    there, and how many would each get among {2-4} people?; A store has {2-9*40} {s}. On
    {day#1} it sells {1-4*10}% of them, on {day#2} [half|a quarter] of what is left, and on
    {day#3} it gets {20-90} new ones. How many are there now?; {q} is {120-180} centimeters
    tall and {p} is {3-20} centimeters shorter. {r} is as tall as the average of the two. How
    tall is {r}?; {p} needs {2-6} meters of ribbon for each of {8-24} [costumes|gift
    boxes|flags|wreaths|kites]. Ribbon comes in rolls of {10-25} meters at ${3-9}. What does
    the ribbon cost?; {p} drinks {5-9} glasses of water a day, each of {200-300} milliliters.
    How many liters is that in {2-6} weeks?; A photocopier makes {20-60} pages a minute. {p}
    copies a {30-90}-page script for {8-30} actors. How long does it take, if paper is
    refilled {2-4} times for {2-3} minutes?"""
)
LEADS = ("",) * 9 + ("Solve step by step: ", "Question: ", "Please solve this problem. ")
TAILS = (("",) * 9) + (
    " Show your work.",
    " Think step by step.",
    " Explain each step.",
    " Give the final number on its own line.",
    " Answer with a short calculation.",
    " Check your answer.",
)
FOLLOW_UPS = entries(
    """What if all the numbers were twice as large?; Now write the whole solution as one
    equation.; Explain the second step in more detail.; Check the result in another way.; What
    would the answer be if the first number were {2-9} more?; Make up a similar problem with
    other numbers.; Can you give only the final answer?; Explain it to a ten-year-old.; Which
    piece of information was most important?; Is there a shorter way?; Write the steps as a
    numbered list."""
)


def _chain(rng: random.Random) -> str:
    """A start, one to four events, and a question."""
    events = rng.sample(GAINS, rng.randint(0, 2)) + rng.sample(LOSSES, rng.randint(1, 2))
    rng.shuffle(events)
    body = ". ".join(event[:1].upper() + event[1:] for event in events)
    return f"{rng.choice(STARTS)} {body}. {rng.choice(ENDS)}"


def story(rng: random.Random) -> str:
    """One word problem with people, in two to six steps."""
    bound = people(rng) | things(rng)
    bound["p.himself"] = "herself" if bound["p.he"] == "she" else "himself"
    template = _chain(rng) if rng.random() < 0.35 else rng.choice(STORIES)
    return rng.choice(LEADS) + expand(rng, template, SLOTS, bound) + rng.choice(TAILS)
