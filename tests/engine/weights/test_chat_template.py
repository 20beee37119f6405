"""Chat templates: rendered as by Hugging Face, in a sandbox, with every failure typed."""

from __future__ import annotations

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.weights.chat_template import render

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for m in messages %}\n {% if 1 %}\n{{ m.role }}\n {% endif %}\n{% endfor %}",
            "user\n",
        ),
        ("{{ {'k': '\u00e9<&>'} | tojson }}", '{"k": "\u00e9<&>"}'),
        ("{{ {'k': [1]} | tojson(indent=1) }}", '{\n "k": [\n  1\n ]\n}'),
        ("{{ '<b>' }}", "<b>"),
        (
            "{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
        ),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hello!"),
        ("{{ strftime_now('%%') }}", "%"),
        ("{{ tools is none }}{{ nothing is defined }}", "TrueFalse"),
    ],
)
def test_rendered_as_hugging_face_does(source, expected):
    assert render(source, HELLO, tools=None) == expected


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "refuses them"),
        ("{{ messages[0].content + 1 }}", "fails on them"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ missing.attribute.of.it }}", "missing"),
        ("{% for i in range(10**9) %}{% endfor %}", "fails on them"),
    ],
)
def test_failures_are_typed(source, match):
    with pytest.raises(ConfigError, match=match) as caught:
        render(source, HELLO)
    assert caught.value.field == "messages"
    assert caught.value.remedy


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_the_sandbox_holds(source):
    with pytest.raises(ConfigError):
        render(source, HELLO)


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([], "empty"),
        ("hello", "a str where a list"),
        ({"role": "user", "content": "x"}, "a dict where a list"),
        (None, "a NoneType where a list"),
        (["hello"], "item 0 is a str"),
        ([*HELLO, {"role": "user"}], "item 1: content is missing"),
        ([{"content": "x"}], "item 0: role is missing"),
        ([{"role": "user", "content": None}], "item 0: content is missing or not a string"),
        ([{"role": "user", "content": [{"type": "text"}]}], "item 0: content"),
        ([{"role": "", "content": "x"}], "item 0: role is empty"),
    ],
)
def test_bad_messages(messages, match):
    with pytest.raises(ConfigError, match=match) as caught:
        render("x", messages)
    assert caught.value.field == "messages"
    assert caught.value.remedy
