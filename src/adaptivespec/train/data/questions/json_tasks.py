"""Tasks whose answer is JSON: extract fields, convert tables, fill a schema, classify."""

from __future__ import annotations

import json
import random

from adaptivespec.train.data.questions.grammar import Slot, entries, expand, polish
from adaptivespec.train.data.questions.words import (
    CITIES,
    COUNTRIES,
    JOBS,
    MEN,
    SURNAMES,
    WOMEN,
    people,
)
from adaptivespec.train.data.questions.words import things as draw_things

SLOTS: dict[str, Slot] = {
    "first": WOMEN + MEN,
    "last": SURNAMES,
    "city": CITIES,
    "country": COUNTRIES,
    "job": JOBS,
    "month": entries(
        "January; February; March; April; May; June; July; August; September; October; November"
    ),
    "day": entries("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "firm": entries(
        """Northwind Tools; Bluebird Bakery; Cedar & Sons; Atlas Logistics; Harbor Books; Solara
        Energy; Pinecrest Clinic; Quartz Software; Riverside Farm; Lumen Design; Oakline
        Furniture"""
    ),
    "product": entries(
        """wireless headphones; desk lamp; hiking boots; coffee grinder; office chair; rain jacket;
        electric kettle; backpack; board game; yoga mat; phone case; garden hose; alarm clock;
        water bottle; mechanical keyboard; wool blanket; camping stove; bicycle helmet; toaster"""
    ),
    "colour": entries("red; blue; black; green; white; grey; yellow; orange; brown; silver"),
    "event": entries(
        """book fair; jazz concert; charity run; science workshop; art exhibition; film night;
        cooking class; chess tournament; farmers' market; open-air play; robotics meetup"""
    ),
    "place": entries(
        """city library; town hall; city park; school gym; old theatre; community centre;
        harbour pavilion; university campus; main square; botanical garden"""
    ),
    "pet": entries("cat; dog; rabbit; parrot; hamster; tortoise; pony; goldfish"),
    "food": entries("pasta; sushi; lentil soup; tacos; pizza; curry; salad; pancakes; dumplings"),
    "meal": entries("breakfast; lunch; dinner"),
    "book": entries(
        """The Glass Orchard; Night Ferry; A Map of Small Hours; Salt and Cedar; The Ninth Lantern;
        Winter Arithmetic; Letters to the Tide; The Copper Garden; Under Quiet Hills"""
    ),
    "time": lambda rng: f"{rng.randint(7, 21)}:{rng.choice(('00', '15', '30', '45'))}",
    "price": lambda rng: f"{rng.randint(3, 180)}.{rng.choice(('00', '50', '99', '25'))}",
}
# A sentence and the keys it holds values for.
FACTS = (
    (
        "{first} {last} is {20-70} years old and [works as|is] a {job} in {city}.",
        "name age job city",
    ),
    (
        "My name is {first} {last}, I'm {20-70} and I live in {city}, where I work as a {job}.",
        "name age city job",
    ),
    (
        "[On {day}|Last {day}] {first} [bought|ordered] {2-9} {s} for ${price}.",
        "buyer item count price",
    ),
    (
        "The {event} takes place at the {place} in {city} on {month} {1-28} at {time}.",
        "event place city date time",
    ),
    (
        "{firm}, founded in {1920-2015} in {city}, has {12-900} employees and makes {s}.",
        "company founded city employees product",
    ),
    (
        "The {colour} {product} costs ${price} and weighs {1-9} kg.",
        "product colour price weight_kg",
    ),
    (
        "Order {10000-99999}: {2-9} {s} and {1-6} {t}, to be delivered to {first} {last} in "
        "{city}.",
        "order_id items customer city",
    ),
    (
        "Flight {ff}{100-999} leaves {city#1} at {time#1} and lands in {city#2} at {time#2}.",
        "flight from to departure arrival",
    ),
    (
        "{first}'s {pet} {q} is {2-12} years old, weighs {2-30} kg and likes {food}.",
        "owner animal name age weight_kg favourite_food",
    ),
    (
        '"{book}" by {first} {last} was published in {1950-2022} and has {120-640} pages.',
        "title author year pages",
    ),
    (
        "Dr. {last} will see you on {day}, {month} {1-28}, at {time} in room {1-40}.",
        "doctor day date time room",
    ),
    (
        "Yesterday it was {10-34} degrees in {city#1}, with [rain|sun|clouds|fog|wind] and "
        "{30-90} percent humidity.",
        "city temperature weather humidity",
    ),
    (
        "[Please reach|Contact] {first#1} {last#1} of {firm} at {first#1}.{last#1}@example.com or "
        "555-{1000-9999}.",
        "name company email phone",
    ),
    (
        "{first#1} lives in {city#1}, {first#2} in {city#2}, and both work for {firm}.",
        "people company",
    ),
    (
        "For {meal} {first} had {food}, {2-3} slices of bread and a glass of [milk|juice|water], "
        "about {300-900} calories in all.",
        "person meal foods drink calories",
    ),
    (
        "Room {100-499} is booked for {2-4} guests from {month#1} {1-12} to {month#1} {13-28} "
        "at ${60-240} a night.",
        "room guests check_in check_out price_per_night",
    ),
    (
        "{first} ran {5-42} km in {30-59} minutes and came {4-9}th in the {city} race.",
        "runner distance_km minutes place city",
    ),
    (
        "The train from {city#1} to {city#2} was {5-90} minutes late because of "
        "[snow|a signal fault|works on the line|a strike].",
        "from to delay_minutes reason",
    ),
    (
        "We are hiring a {job} in {city}: {2-8} years of experience, ${35-95},000 a year, "
        "[full time|part time|remote work possible].",
        "job city experience_years salary type",
    ),
    (
        "{country#1} beat {country#2} {3-5} to {0-2} in front of {10-60},000 people in {city}.",
        "winner loser score spectators city",
    ),
)
ASKS = (
    "[Extract|Get|Pull] [the fields|] {keys} from [this|the following] [sentence|text] [as|and "
    "return] JSON[.| only.|, nothing else.]\n\n{fact}",
    "{fact}\n\n[Write|Return|Give me] this as a JSON object with the keys {keys}.",
    "[Convert|Turn] [this|the following] text into [a JSON object|JSON] with the keys {keys}:\n"
    "{fact}",
    "Text: {fact}\nKeys: {keys}\n[Answer with JSON only.|JSON:|Output valid JSON.]",
    "[Read|Look at] the text and fill in this JSON template:\n{schema}\n\nText: {fact}",
    "Fill this schema from the [text|message] below. [Use null for what is missing.|]\n{schema}\n\n"
    "{fact}",
    "[You are a parser that only outputs JSON.|Respond only with valid JSON.] "
    "[Extract|Find] {keys}.\n\n{fact}",
)
REVIEWS = entries(
    """The {product} broke after {2-9} days and nobody answered my emails.; I love this
    {product}, it does [exactly what it should|more than I hoped for].; The {product} is fine,
    but ${price} is a lot of money for it.; Delivery took {2-6} weeks, yet the {product}
    itself is excellent.; Not what I ordered: the {product} is {colour#1} instead of
    {colour#2}.; My {pet} destroyed the {product} in {2-9} minutes, and they still refunded
    me.; The {product} arrived on time and works, nothing special.; Worst {product} I have
    owned in {2-9} years.; {first} gave me this {product} and I use it every {day}."""
)
MESSAGES = entries(
    """Where is my order {10000-99999}? It should have come on {day}.; I want to cancel the
    {product} I ordered [yesterday|on {day}].; Can I pay the ${price} in two parts?; The app
    crashes whenever I open the {product} page.; How do I change my address to {city}?; You
    charged me ${price} twice for one {product}.; Thank you, {first} from your team in {city}
    helped me very well!; Is the {product} available in {colour}?; I forgot my password and
    the reset mail [never came|is empty].; Do you ship the {product} to {country}?"""
)
CLASSIFY = (
    "Classify the sentiment of this review as positive, negative or neutral. Answer as JSON: "
    '{"sentiment": ...}\n\n{review}',
    'Would this customer buy again? Answer in JSON with the keys "buys_again" (yes, no, unclear) '
    'and "reason".\n\n{review}',
    "Assign this message to one category: billing, delivery, technical, account, praise, other. "
    '[Return|Answer with] {"category": "...", "urgent": true or false}.\n\n{message}',
    'Classify the message and name the product in it, as JSON with "intent" and "product".\n\n'
    "{message}",
    'Is this a question, a complaint or a thank-you? [JSON only|Reply in JSON], key "type".\n\n'
    "{message}",
    "List the nouns of this sentence as a JSON array.\n\n[{review}|{message}]",
    'Summarise this text in JSON with the keys "summary", "tone" and "keywords".\n\n'
    "[{review}|{message}]",
)
INVENT = (
    "[Make up|Invent|Generate] a JSON object for a {what} with the keys {keys}.",
    "[Write|Create] a JSON array of {2-4} {what} objects. Each has {keys}.",
    "Give an example of a valid JSON record for a {what}. [Include|It has] {keys}[.|, all "
    "filled in.]",
    "[Write|Give me] a JSON schema for a {what} with the properties {keys}.",
)
RECORDS = tuple(
    (name, tuple(keys.split()))
    for name, keys in (
        entry.split(":")
        for entry in entries(
            """library book:title author year isbn genre available; user profile:id name email age
        city; recipe:name servings ingredients steps minutes; movie:title director year genres
        rating; weather report:city date temperature humidity wind; invoice:number date
        customer items total; pet:name species age owner vaccinated; hotel room:number beds
        price balcony floor; bus route:number start end stops duration; song:title artist
        album seconds genre; job advert:title company city salary skills; student:name grade
        subjects average; car:make model year colour mileage; meeting:topic date start end
        attendees; plant:name family height_cm light water_per_week; order:id product quantity
        price status; game character:name class level health inventory; city:name country
        population mayor; sensor reading:sensor_id time value unit ok; contact:name phone
        email birthday notes; workout:date exercise sets reps weight_kg; course:code title
        teacher credits room"""
        )
    )
)


def _keys(rng: random.Random, keys: list[str]) -> str:
    """The keys as a list in words: all or some, quoted or not."""
    if len(keys) > 2 and rng.random() < 0.35:
        keys = sorted(rng.sample(keys, rng.randint(2, len(keys) - 1)), key=keys.index)
    quote = rng.choice(('"', "", "`", '"'))
    quoted = [f"{quote}{key}{quote}" for key in keys]
    return ", ".join(quoted[:-1]) + (" and " if rng.random() < 0.7 else ", ") + quoted[-1]


def _extract(rng: random.Random) -> str:
    bound = people(rng) | draw_things(rng) | {"ff": rng.choice(("AX", "KL", "TR", "BN", "OS"))}
    count = 2 if rng.random() < 0.15 else 1
    template, names = rng.choice(FACTS)
    fact = " ".join(
        expand(rng, template, SLOTS, dict(bound) if i == 0 else people(rng) | draw_things(rng))
        for i in range(count)
    ).replace("{ff}", "CX")
    keys = names.split()
    schema = json.dumps(
        dict.fromkeys(keys, rng.choice(("", None, "..."))), indent=rng.choice((2, None))
    )
    ask = expand(rng, rng.choice(ASKS), {})
    text = ask.replace("{keys}", _keys(rng, keys)).replace("{schema}", schema)
    if count == 2:
        text = text.replace("a JSON object", "JSON objects")
        text += rng.choice(("\n\nReturn a JSON array.", "\n\nThere are two records."))
    return text.replace("{fact}", fact)


def _table(rng: random.Random) -> str:
    columns = {
        "name": "{first} {last}", "age": "{18-80}", "city": "{city}", "job": "{job}",
        "product": "{product}", "price": "{price}", "quantity": "{1-40}", "colour": "{colour}",
        "day": "{day}", "time": "{time}", "country": "{country}", "event": "{event}",
    }  # fmt: skip
    names = rng.sample(list(columns), rng.randint(2, 4))
    rows = [[expand(rng, columns[n], SLOTS) for n in names] for _ in range(rng.randint(2, 4))]
    style = rng.choice(("csv", "markdown", "lines", "pipes"))
    if style == "csv":
        body = "\n".join(",".join(row) for row in [names, *rows])
    elif style == "markdown":
        lines = [names, ["---"] * len(names), *rows]
        body = "\n".join("| " + " | ".join(row) + " |" for row in lines)
    elif style == "pipes":
        body = "\n".join(" | ".join(row) for row in [names, *rows])
    else:
        body = "\n".join(
            "- " + ", ".join(f"{n}: {v}" for n, v in zip(names, row, strict=True)) for row in rows
        )
    ask = expand(
        rng,
        "[Convert|Turn] this [list|table|data] into [JSON|a JSON array of objects|a JSON array"
        ", one object per row]. [Keep the numbers as numbers.|Use the column names as keys.|]",
        {},
    )
    if style == "lines":
        ask = ask.replace("column names", "given names").replace("table", "list")
    return f"{ask}\n\n{body}"


def _classify(rng: random.Random) -> str:
    template = expand(rng, rng.choice(CLASSIFY), {})
    for slot, texts in (("{review}", REVIEWS), ("{message}", MESSAGES)):
        template = template.replace(slot, expand(rng, rng.choice(texts), SLOTS))
    return template


def _invent(rng: random.Random) -> str:
    name, keys = rng.choice(RECORDS)
    chosen = rng.sample(keys, rng.randint(2, len(keys)))
    return expand(rng, rng.choice(INVENT), {}, {"what": name, "keys": _keys(rng, chosen)})


def draw(rng: random.Random) -> tuple[str, ...]:
    """One question that wants JSON."""
    make = rng.choices((_extract, _table, _classify, _invent), (50, 22, 16, 12))[0]
    return (polish(make(rng)),)
