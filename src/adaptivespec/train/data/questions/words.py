"""Words that several kinds of question share: people, things, places, subjects."""

from __future__ import annotations

import random

from adaptivespec.train.data.questions.grammar import entries

WOMEN = entries(
    """Ava; Priya; Naomi; Leila; Carmen; Ingrid; Yuki; Zara; Hannah; Fatima; Grace; Elena; Maya;
    Tessa; Ruth; Amina; Chloe; Bianca; Dalia; Freya; Gloria; Helen; Iris; Jasmine; Keiko; Lucia;
    Mei; Nadia; Olivia; Paula; Rosa; Sofia; Tanya; Uma; Vera; Wendy; Ximena; Abigail; Joan; Nora"""
)
MEN = entries(
    """Liam; Omar; Mateo; Hiro; Anders; Kofi; Raj; Dmitri; Caleb; Felix; Noah; Samir; Victor; Hugo;
    Ethan; Jamal; Pedro; Quentin; Tariq; Stefan; Wyatt; Andre; Boris; Carlos; Derek; Elias; Gavin;
    Henrik; Ivan; Julian; Kenji; Luca; Marcus; Nikhil; Oscar; Peter; Rafael; Simon; Theo; Walter"""
)
SURNAMES = entries(
    """Alvarez; Becker; Chen; Dubois; Eriksen; Fischer; Gupta; Haddad; Ito; Jensen; Kowalski; Lopez;
    Murphy; Novak; Okafor; Patel; Quinn; Rossi; Sato; Torres; Usman; Vargas; Walsh; Young; Zhang"""
)
# Singular and plural of things that one can count, buy and give away.
THINGS = tuple(
    tuple(entry.split("/"))
    for entry in entries(
        """apple/apples; pencil/pencils; sticker/stickers; marble/marbles; notebook/notebooks;
        cookie/cookies; candle/candles; balloon/balloons; postcard/postcards;
        seashell/seashells; orange/oranges; cupcake/cupcakes; button/buttons; stamp/stamps;
        bead/beads; mug/mugs; tomato/tomatoes; peach/peaches; badge/badges; eraser/erasers;
        comic book/comic books; tulip/tulips; lemon/lemons; muffin/muffins; poster/posters;
        bracelet/bracelets; pin/pins; sandwich/sandwiches; tennis ball/tennis balls; trading
        card/trading cards; pear/pears; jar of honey/jars of honey; bottle of juice/bottles of
        juice; crayon/crayons; coin/coins; toy car/toy cars; scarf/scarves; plant/plants; key
        ring/key rings; paper plane/paper planes"""
    )
)
CITIES = entries(
    """Lisbon; Nairobi; Osaka; Toronto; Oslo; Lima; Dublin; Cairo; Seoul; Prague; Melbourne; Quito;
    Vienna; Boston; Hanoi; Zagreb; Accra; Denver; Bergen; Valencia; Tallinn; Kyoto; Cardiff; Porto;
    Mumbai; Montreal; Leeds; Warsaw; Athens; Helsinki; Jakarta; Austin; Naples; Geneva; Santiago"""
)
COUNTRIES = entries(
    """Portugal; Kenya; Japan; Canada; Norway; Peru; Ireland; Egypt; South Korea; Mexico; Italy;
    Australia; Brazil; Vietnam; Greece; India; Chile; Morocco; Poland; Iceland; New Zealand;
    Argentina; Thailand; Turkey; Spain; Finland; Ghana; Indonesia; Germany; France"""
)
JOBS = entries(
    """nurse; carpenter; librarian; software developer; chef; electrician; journalist; gardener;
    accountant; architect; bus driver; biologist; photographer; plumber; veterinarian; pilot;
    graphic designer; baker; firefighter; teacher; pharmacist; farmer; tailor; lawyer; translator;
    civil engineer; museum guide; dentist; shop owner; data analyst; social worker; mechanic"""
)
ANIMALS = entries(
    """octopus; elephant; honeybee; penguin; wolf; owl; dolphin; spider; crocodile; hummingbird;
    camel; salmon; bat; kangaroo; fox; sea turtle; ant; polar bear; chameleon; giraffe; beaver;
    eagle; jellyfish; hedgehog; otter; squirrel; whale; horse; frog; crow; llama; snail; panda"""
)
ANIMALS_MANY = entries(
    """octopuses; elephants; honeybees; penguins; wolves; owls; dolphins; spiders; crocodiles;
    hummingbirds; camels; salmon; bats; kangaroos; foxes; sea turtles; ants; polar bears;
    chameleons; giraffes; beavers; eagles; jellyfish; hedgehogs; otters; squirrels; whales"""
)
# Short words for lists and strings.
WORDS = entries(
    """river; stone; lamp; cloud; garden; silver; bridge; paper; candle; forest; window; rocket;
    pepper; violin; market; harbor; blanket; island; mirror; copper; ladder; meadow; basket;
    thunder; pillow; castle; velvet; button; walnut; anchor; marble; ticket; pocket; desert;
    feather; cotton; dragon; hammer; winter; bottle; circle; planet; ribbon; tunnel; engine;
    orange; kettle; spring; needle; valley; jacket; butter; monkey; saddle; shadow; museum"""
)
CLASSES: dict[str, tuple[str, ...]] = {
    name: entries(members)
    for name, members in {
        "fruits": """apple; banana; cherry; mango; grape; kiwi; plum; pear; fig; lemon; papaya;
            apricot; peach; lime; melon; guava""",
        "animals": """tiger; horse; otter; falcon; lizard; zebra; rabbit; whale; badger; moose;
            goat; heron; beetle; turtle; panther; hamster""",
        "colours": """red; teal; violet; amber; green; indigo; white; crimson; beige; navy; gold;
            pink; turquoise; grey; maroon; olive""",
        "vegetables": """carrot; leek; spinach; potato; onion; celery; radish; pumpkin; beet; kale;
            cabbage; turnip; pea; garlic; zucchini""",
        "tools": """hammer; wrench; saw; drill; pliers; chisel; screwdriver; level; clamp; file;
            mallet; axe; crowbar; sander""",
        "countries": "; ".join(COUNTRIES),
        "cities": "; ".join(CITIES),
        "names": "; ".join(WOMEN + MEN),
        "instruments": """violin; drum; flute; guitar; piano; trumpet; harp; cello; oboe; banjo;
            tuba; clarinet; viola; organ; saxophone""",
        "sports": """tennis; rowing; soccer; judo; hockey; golf; fencing; rugby; archery; cricket;
            skiing; boxing; handball; cycling""",
        "words": "; ".join(WORDS),
    }.items()
}


def people(rng: random.Random) -> dict[str, str]:
    """Three persons `p`, `q`, `r` with their pronouns (`p.he`, `p.his`, `p.him`)."""
    bound: dict[str, str] = {}
    names = rng.sample(
        [(name, "she her her") for name in WOMEN] + [(n, "he his him") for n in MEN], 3
    )
    for letter, (name, pronouns) in zip("pqr", names, strict=True):
        he, his, him = pronouns.split()
        bound |= {letter: name, f"{letter}.he": he, f"{letter}.his": his, f"{letter}.him": him}
    return bound


def things(rng: random.Random) -> dict[str, str]:
    """Three things `s`, `t`, `u` in the plural, and in the singular as `s.one`."""
    bound: dict[str, str] = {}
    for letter, (one, many) in zip("stu", rng.sample(THINGS, 3), strict=True):
        bound |= {letter: many, f"{letter}.one": one}
    return bound
