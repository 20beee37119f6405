from types import SimpleNamespace

import pytest
from pydantic import BaseModel, ConfigDict, Field

from adaptivespec.core import registry
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import Registry, Spec, bounds, parse_spec, spec_of


class Fruit:
    """A fruit, in one line.

    And more about it.
    """

    formula = "sugar + water"

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        weight: float = Field(1.0, ge=0, lt=5, description="kilograms")
        seeds: int | None = Field(None, ge=1)
        ripe: bool = False

    def __init__(self, options):
        self.options = options


@pytest.fixture
def fruits(monkeypatch):
    """A registry with one entry that loads and one whose module does not exist."""
    modules = {"orchard": SimpleNamespace(Fruit=Fruit)}
    monkeypatch.setattr(registry, "import_module", lambda name: modules[name])
    return Registry("fruit", {"apple": "orchard:Fruit", "pear": "nowhere:Pear"})


def test_nothing_is_imported_before_it_is_asked_for(fruits):
    assert fruits.names() == ["apple", "pear"]
    assert "pear" in fruits
    assert "plum" not in fruits
    assert fruits.load("apple") is Fruit
    with pytest.raises(KeyError):
        fruits.load("pear")


def test_an_unknown_name_lists_the_legal_ones_and_the_nearest(fruits):
    with pytest.raises(ConfigError) as caught:
        fruits.load("aple")
    assert str(caught.value) == (
        "fruit: unknown fruit 'aple'. Did you mean 'apple'? Legal: apple, pear"
    )
    with pytest.raises(ConfigError) as caught:
        fruits.load("zzz")
    assert "Did you mean" not in str(caught.value)


def test_options_are_validated(fruits):
    assert fruits.create("apple").options == Fruit.Options()
    assert fruits.create("apple", {"weight": "2.5", "ripe": "true"}).options.weight == 2.5


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"weight": -1}, "fruit_options.weight", ["greater than or equal to 0", "-1", "[0, 5)"]),
        ({"weight": 5}, "fruit_options.weight", ["less than 5", "got 5", "[0, 5)"]),
        ({"seeds": 0}, "fruit_options.seeds", ["greater than or equal to 1", "[1, inf) or null"]),
        ({"ripe": "mush"}, "fruit_options.ripe", ["must be a valid boolean", "'mush'"]),
        ({"wieght": 1}, "fruit_options.wieght", ["unknown", "Did you mean 'weight'", "ripe"]),
        ({"zzz": 1}, "fruit_options.zzz", ["Options of 'apple': weight, seeds, ripe"]),
    ],
)
def test_option_errors_name_field_value_and_bound(fruits, options, field, words):
    with pytest.raises(ConfigError) as caught:
        fruits.create("apple", options)
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)


def test_resolve_puts_positional_values_in_the_order_of_declaration(fruits):
    spec = parse_spec("apple:2,3")
    assert fruits.resolve(spec, {"ripe": True}) == {"weight": 2, "seeds": 3, "ripe": True}
    assert fruits.resolve(spec, {"weight": 2}) == {"weight": 2, "seeds": 3}


def test_resolve_refuses_contradictions_and_surplus(fruits):
    with pytest.raises(ConfigError, match=r"fruit_options.weight: given twice, as 2 and 4"):
        fruits.resolve(parse_spec("apple:2"), {"weight": 4})
    with pytest.raises(ConfigError, match="takes at most 3 options, got 4"):
        fruits.resolve(parse_spec("apple:1,2,3,4"))


def test_describe(fruits):
    entry = fruits.describe_one("apple")
    assert entry.summary == "A fruit, in one line."
    assert entry.doc == "A fruit, in one line.\n\nAnd more about it."
    assert (entry.formula, entry.source) == ("sugar + water", "")
    assert [option.value for option in entry.options] == [1.0, None, False]
    rows = [(o.name, o.default, o.bounds, o.help) for o in entry.options]
    assert rows == [
        ("weight", "1.0", "number in [0, 5)", "kilograms"),
        ("seeds", "null", "integer in [1, inf) or null", ""),
        ("ripe", "false", "true | false", ""),
    ]
    only = Registry("fruit", {"apple": "orchard:Fruit"})
    assert only.describe() == [entry]


def test_bounds_of_one_open_end():
    class Options(BaseModel):
        above: float = Field(1.0, gt=0)
        below: float = Field(1.0, le=3)
        free: float = 1.0

    assert [bounds(Options, key) for key in ("above", "below", "free")] == [
        "number in (0, inf)",
        "number in (-inf, 3]",
        "number",
    ]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("strict", Spec("strict", (), {})),
        (" static:5, 4 ,16 ", Spec("static", (5, 4, 16), {})),
        ("margin:0.2", Spec("margin", (0.2,), {})),
        ("m:a=0.2,b=true,c=none", Spec("m", (), {"a": 0.2, "b": True, "c": None})),
        ("m:3,b=text", Spec("m", (3,), {"b": "text"})),
        ("dcs:low=(3,4,4),high=[7,1,8]", Spec("dcs", (), {"low": [3, 4, 4], "high": [7, 1, 8]})),
        ("x:a=[[1,2],[3]],b=((4,5),6)", Spec("x", (), {"a": [[1, 2], [3]], "b": [[4, 5], 6]})),
    ],
)
def test_parse_spec(text, spec):
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read"),
        (":3", "cannot read"),
        ("margin:", "cannot read"),
        ("m:a=1,2", "follows a key=value"),
        ("m:a=1,a=1", "given twice"),
    ],
)
def test_parse_spec_refuses(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_spec(text, "rule")


def test_spec_of_is_the_inverse_of_parse_spec():
    options = {"a": 0.5, "b": True, "c": [1, 2], "d": "text"}
    assert parse_spec(spec_of("name", options)) == Spec("name", (), options)
    assert spec_of("name", {}) == "name"
