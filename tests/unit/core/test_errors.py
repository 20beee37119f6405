import pytest

from adaptivespec.core import errors


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({}, "is wrong"),
        ({"field": "kappa"}, "kappa: is wrong"),
        ({"remedy": "Mend it"}, "is wrong. Mend it"),
        ({"field": "kappa", "remedy": "Mend it"}, "kappa: is wrong. Mend it"),
    ],
)
def test_the_text_has_the_parts_that_were_given(kwargs, text):
    error = errors.AdaptiveSpecError("is wrong", **kwargs)
    assert str(error) == text
    assert error.message == "is wrong"
    assert (error.field, error.remedy) == (kwargs.get("field"), kwargs.get("remedy"))


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        (errors.ConfigError, (errors.AdaptiveSpecError, ValueError)),
        (errors.PromptError, (errors.AdaptiveSpecError, ValueError)),
        (errors.ContextLengthError, (errors.PromptError,)),
        (errors.TreeError, (errors.AdaptiveSpecError, ValueError)),
        (errors.ChecksumError, (errors.DownloadError, errors.AdaptiveSpecError)),
        (errors.ModelNotFoundError, (errors.AdaptiveSpecError,)),
        (errors.CheckpointError, (errors.AdaptiveSpecError,)),
        (errors.DiskFullError, (errors.AdaptiveSpecError,)),
        (errors.NumericalError, (errors.AdaptiveSpecError,)),
    ],
)
def test_families(child, parents):
    assert all(issubclass(child, parent) for parent in parents)


def test_a_numerical_error_carries_step_and_node():
    error = errors.NumericalError("are NaN", step=3, node=2, field="logits")
    assert (error.step, error.node, str(error)) == (3, 2, "logits: are NaN")
