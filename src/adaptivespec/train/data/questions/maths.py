"""Mathematics: word problems, school exercises with LaTeX, arithmetic, units, explanations."""

from __future__ import annotations

import random
import re

from adaptivespec.train.data.questions.grammar import Slot, entries, expand, polish
from adaptivespec.train.data.questions.stories import FOLLOW_UPS, story


def _polynomial(rng: random.Random, degree: int, letter: str = "x") -> str:
    """A polynomial such as `3x^2 - x + 5`, with a leading term of `degree`."""
    text = ""
    for power in range(degree, -1, -1):
        value = rng.choice((*range(-9, 10), 1, -1))
        if power == degree:
            value = abs(value) or 2
        if value == 0:
            continue
        name = "" if power == 0 else letter if power == 1 else f"{letter}^{power}"
        size = "" if abs(value) == 1 and power else str(abs(value))
        sign = "-" if value < 0 else "+"
        text += f" {sign} {size}{name}" if text else f"{size}{name}"
    return text


def _fraction(rng: random.Random) -> str:
    low = rng.randint(2, 12)
    return rf"\frac{{{rng.randint(1, low * 2)}}}{{{low}}}"


def _factored(rng: random.Random) -> str:
    """A monic quadratic with whole roots."""
    a, b = rng.randint(-9, 9), rng.randint(-9, 9)
    text = "x^2"
    for value, name in ((-(a + b), "x"), (a * b, "")):
        if value:
            size = "" if abs(value) == 1 and name else str(abs(value))
            text += f" {'-' if value < 0 else '+'} {size}{name}"
    return text


def _matrix(rng: random.Random) -> str:
    a, b, c, d = (rng.randint(-6, 9) for _ in range(4))
    return rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}"


def _sum(rng: random.Random) -> str:
    """An arithmetic expression with two to four terms."""
    size = rng.choice((9, 20, 99, 999))
    text = str(rng.randint(2, size))
    for _ in range(rng.randint(1, 3)):
        sign = rng.choice(("+", "-", r"\times", "+", r"\div"))
        text += f" {sign} {rng.randint(2, 12 if len(sign) > 1 else size)}"
    return rf"({text}) \times {rng.randint(2, 9)}" if rng.random() < 0.2 else text


def _data(rng: random.Random) -> str:
    return ", ".join(str(rng.randint(1, 40)) for _ in range(rng.randint(5, 9)))


SLOTS: dict[str, Slot] = {
    "line": lambda rng: _polynomial(rng, 1),
    "quadratic": lambda rng: _polynomial(rng, 2),
    "cubic": lambda rng: _polynomial(rng, 3),
    "factored": _factored,
    "frac": _fraction,
    "matrix": _matrix,
    "sum": _sum,
    "data": _data,
    "find": ("Find", "Determine", "Compute", "Calculate", "What is"),
    "solve": ("Solve", "Find all real solutions of", "Find $x$ if", "Solve for $x$:"),
    "angle": (r"\frac{\pi}{6}", r"\frac{\pi}{4}", r"\frac{\pi}{3}", r"\frac{2\pi}{3}", r"\pi"),
    "trig": (r"\sin", r"\cos", r"\tan"),
    "vector": lambda rng: f"({rng.randint(-6, 9)}, {rng.randint(-6, 9)}, {rng.randint(-6, 9)})",
    "point": lambda rng: f"({rng.randint(-8, 9)}, {rng.randint(-8, 9)})",
    "unit": entries(
        """{2-90} kilometers to miles; {2-90} inches to centimeters; {3-40} pounds to kilograms;
        {2-9} gallons to liters; {50-400} minutes to hours and minutes; {20-110} degrees
        Fahrenheit to Celsius; {-}{5-40} degrees Celsius to Fahrenheit; {2-30} square feet to
        square meters; {10-120} km/h to meters per second; {1-9}.{1-9} meters to millimeters;
        {2-9} days to seconds; {100-900} grams to ounces; {2-40} cubic centimeters to
        milliliters; {3-80} feet to yards; {1-30*1000} bytes to kilobytes; {2-12} weeks to
        hours; {5-95} percent to a fraction in lowest terms; 0.{11-99} to a percentage;
        {10-250} from decimal to binary; {10-250} from decimal to hexadecimal; {3-39} to Roman
        numerals"""
    ),
    "topic": entries(
        """long division; adding fractions with different denominators; the Pythagorean theorem;
        completing the square; the quadratic formula; prime factorization; the order of
        operations; finding a percentage of a number; percentage increase; the slope of a
        line; similar triangles; the area of a circle; the volume of a cone; the difference
        between mean and median; standard deviation; independent events; permutations and
        combinations; the binomial theorem; negative numbers; scientific notation; logarithms;
        exponential growth; the derivative; the chain rule; integration by parts; limits;
        arithmetic sequences; geometric series; modular arithmetic; the Euclidean algorithm;
        vectors; the dot product; matrix multiplication; determinants; complex numbers;
        radians; the unit circle; the law of cosines; proof by induction; proof by
        contradiction; sets and Venn diagrams; functions and their inverses; systems of linear
        equations; inequalities; absolute value; rounding; estimation; ratios; unit rates;
        compound interest; probability trees; expected value; place value; decimals; square
        roots"""
    ),
}
EXERCISES = entries(
    r"""{solve} ${line#1} = {line#2}$.; {solve} ${factored} = 0$.; {solve} ${quadratic} =
    {line}$.; {solve} $|{line}| = {2-15}$.; {solve} $\frac{{line#1}}{{2-7}} =
    \frac{{line#2}}{{2-7}}$.; {solve} $\sqrt{{line}} = {2-9}$.; {solve} $2^{{line}} = {2-9}$.;
    {solve} $\log_{2-5} (x + {1-9}) = {1-4}$.; For which $x$ is ${line#1} [<|>|\le|\ge]
    {line#2}$? Write the answer [as an interval|on a number line].; [Factor|Factorize]
    ${factored}$.; Expand and simplify $({line#1})({line#2})[| - {factored}]$.; Simplify
    $\frac{x^2 - {1-9}x}{x}[ + {line}| - {line}|]$.; Divide ${cubic}$ by $x [-|+] {1-5}$ and
    [state|give] the remainder.; Let $f(x) = {quadratic}$ and $g(x) = {line}$. {find}
    $f(g({1-5}))[| - g(f({0-3}))]$[.|, step by step.]; Solve the system $y = {line#1}$ and $y
    = {line#2}$.; The sum of two numbers is {20-90} and their difference is {2-18}. {find} the
    [two|larger|smaller] numbers.; The product of two consecutive [even|odd|] integers is
    {2-12*10}. Do such integers exist? [Explain.|]; {find} the vertex of the parabola $y =
    {quadratic}$.; {find} the equation of the line through ${point#1}$ and ${point#2}$.;
    {find} the distance between ${point#1}$ and ${point#2}$[.|, and their midpoint.]; A
    [rectangle|rectangular field] is {3-12} [cm|m|inches] longer than wide and has perimeter
    {10-40*4}. {find} its area.; A circle has [radius|diameter] {2-30}. {find} its
    [area|circumference] in terms of $\pi$.; {find} the volume of a [cylinder|cone] with
    radius {2-12} and height {3-20}.; {find} the surface area of a box with sides {2-12},
    {2-12#b} and {2-12#c}.; In triangle $ABC$, $\angle A = {3-8*10}^\circ$ and $\angle B =
    {2-7*10}^\circ$. {find} [the third angle|$\angle C$].; A right triangle has legs {3-15}
    and {3-15#b}. {find} [its hypotenuse|its area|the altitude to the hypotenuse].; A regular
    polygon has {5-20} sides. {find} the measure of [an interior|an exterior] angle.; Two
    similar triangles have sides in ratio ${2-5}:{6-9}$. The smaller has area {4-40}. {find}
    the area of the larger.; [Find|Determine|Calculate] the greatest common factor and the
    least common multiple of {12-96} and {12-96#b}.; {find} the remainder when
    ${2-9}^{{10-60}}$ is divided by {5-13}.; How many positive divisors does {5-60*12} have?;
    What is the units digit of ${2-9}^{{20-99}} + {2-9}^{{20-99}}$?; {find} the sum of all
    multiples of {3-12} [between {10-40} and {100-300}|below {100-400}].; Write {10-250} in
    base {2-9}.; How many ways are there to [choose|pick] {2-4} [students|cards|books|colors]
    from {6-15}?; In how many ways can {4-8} [people|books] be arranged in a [row|circle][| if
    two of them must stay together]?; A bag has {2-9} red, {2-9} blue and {2-9} green balls.
    Two are drawn [with|without] replacement. {find} the probability that both are
    [red|blue|green].; A fair coin is tossed {3-7} times. {find} the probability of
    [exactly|at least|at most] {1-3} heads.; {find} the [mean|median|mode|range] of {data}.;
    The average of {4-9} numbers is {10-40}. One number, {5-50}, is removed. {find} the new
    average.; An arithmetic sequence begins {1-9}, {10-19}. {find} its {10-50}th term[.| and
    the sum of all terms up to it.]; A geometric sequence has first term {2-9} and common
    ratio ${frac}$. {find} [the sixth term|the sum to infinity if there is one].; {find}
    $\displaystyle\sum_{k=1}^{{5-30}} ({2-5}k [+|-] {1-9})$.; Differentiate $f(x) =
    [{cubic}|({line#1})({line#2})|\frac{{line#1}}{{line#2}}|e^{{line}}|\ln({line})|\sin({line})]$.;
    {find} $\int [({quadratic})|({cubic})|\cos({2-6}x)|e^{{2-6}x}] \, dx$.; {find}
    $\int_{{0-2}}^{{3-6}} ({quadratic}) \, dx$.; {find} the [maximum|minimum] of $f(x) =
    {cubic}$ on the interval $[{0-1}, {3-6}]$.; {find} $\lim_{x \to {0-5}} ({quadratic})[|$
    and explain why it exists.]; {find} the tangent line to $y = {cubic}$ at $x = {0-3}$.;
    {find} ${trig}({angle})[| + {trig}({angle#2})]$.; If ${trig} \theta = \frac{3}{5}$ and
    $\theta$ is acute, what is ${trig#2} 2\theta$?; {find} [the determinant of|the inverse
    of|the trace of] ${matrix}$.; Multiply ${matrix#1}$ by ${matrix#2}$.; {find} the dot
    product of ${vector#1}$ and ${vector#2}$[.| and the angle between them.]; Write
    $\frac{{2-9} [+|-] i}{{1-5} [+|-] {1-5#z}i}$ in the form $a+bi$.; Prove that [the sum of
    two odd numbers is even|$n^2+n$ is even for every integer $n$|$\sqrt{{2-3}}$ cannot be a
    fraction|the angles of a triangle add up to $180^\circ$|$1+3+\dots+(2n-1)=n^2$]. [Use
    simple words.|Be brief.|Explain every step.|]; Simplify ${frac#1} [+|-|\times|\div]
    {frac#2}$[.| and write it in lowest terms.]; {find} $[{5-95}\%|{frac}]$ of {20-900}.;
    {find} ${sum}$.; [Compute|Evaluate] ${sum}$[.| step by step.| and check the result.];
    Convert {unit}.; Convert {unit} and show [the steps|how you did it].; {^sum} = ?; [Round
    {1000-99999} to the nearest|Which digit of {1000-99999} stands for the]
    [ten|hundred|thousand]s[.|?]; Is {101-999} a prime number? [Explain how you checked.|Show
    the divisions.|]; Explain {topic}[.| with an example.| in simple words.| in two
    sentences.| to a beginner.| in three steps.]; How [do I|would you] explain {topic} to a
    [child|student|friend who dislikes math]?; Give me {2-5} practice problems on {topic}[.|
    with answers.| from easy to hard.]; What is a common mistake with {topic}, and how can it
    be avoided?; Why does one need {topic}? Give [an example|two examples] from everyday
    life.; Write a short quiz about {topic} with {3-6} questions.; What is the difference
    between {topic#1} and {topic#2}?"""
)
_ONE = re.compile(r"\b1(?=[ix]\b)")
PLURAL_FIX = (("tens.", "ten."), ("hundreds.", "hundred."), ("thousands.", "thousand."))


def _exercise(rng: random.Random) -> str:
    """One school exercise; a question mark replaces the full stop after `What is`."""
    text = expand(rng, rng.choice(EXERCISES), SLOTS).replace("{-}", rng.choice(("", "-")))
    if text.startswith("Round"):
        for wrong, right in PLURAL_FIX:
            text = text.replace(wrong, right)
    text = _ONE.sub("", text)
    if text.endswith(" = ?"):
        text = text.replace(r"\times", "*").replace(r"\div", "/")
    last = max(text.rfind(". "), text.rfind("? ")) + 1
    if "What is " in text[last:] and text.endswith("."):
        text = text[:-1] + "?"
    return text


def draw(rng: random.Random) -> tuple[str, ...]:
    """One question, one in twenty with a follow-up."""
    text = story(rng) if rng.random() < 0.6 else _exercise(rng)
    turns = [polish(text)]
    if rng.random() < 0.05:
        turns += [expand(rng, t, {}) for t in rng.sample(FOLLOW_UPS, rng.choice((1, 1, 2)))]
    return tuple(turns)
