"""`FitOptions`: checked when it is made, kept as plain values, read again."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields

import pytest

from fastfill.align import METHOD_NAMES, METHODS, Alignment, FitOptions
from fastfill.errors import InputError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "rigde"}, "Unknown method 'rigde': did you mean 'ridge'? Use one of auto"),
        ({"method": "magic"}, "Unknown method 'magic': use one of auto, ridge"),
        ({"loss": "l2+disk"}, "Unknown loss 'l2+disk': did you mean 'l2+disc'?"),
        ({"penalty": 1.5}, "penalty is a share between 0 and 1, got 1.5"),
        ({"device": "gpu"}, "Unknown device 'gpu': use cpu or cuda"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more, got -1.0"),
        ({"seed": "3"}, "seed must be a whole number, got '3'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_cannot_be_used_is_refused_at_once(
    options: dict[str, object], said: str
) -> None:
    """No pairs are needed to find out: the sentence names the value and the choices."""
    with pytest.raises(InputError) as caught:
        FitOptions(**options)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", None])
def test_a_device_is_named_before_it_is_looked_for(device: str | None) -> None:
    """Whether there is one is asked when a network is trained."""
    assert FitOptions(device=device).device == device


def test_options_are_kept_as_plain_values() -> None:
    """What differs from the defaults, without the callback; read again, they are the same."""
    options = FitOptions(method="residual", seed=3, penalty=0.5, epochs=4, report=lambda *_: None)
    plain = json.loads(json.dumps(options.to_json()))
    assert plain == {"method": "residual", "seed": 3, "penalty": 0.5, "epochs": 4}
    assert FitOptions.from_json(plain) == options
    assert FitOptions().to_json() == {}
    assert FitOptions.from_json({}) == FitOptions()


def test_options_of_a_migration_of_version_0_1_0_are_read() -> None:
    """Its state holds all that the command line was given, the penalty under another name."""
    kept = {"loss": None, "seed": 1, "epochs": None, "setback": 0.25, "device": None,
            "discriminative": "cross-entropy"}  # fmt: skip
    assert FitOptions.from_json(kept) == FitOptions(seed=1, penalty=0.25)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"epoch": 3}, "Unknown option of a fit 'epoch': did you mean 'epochs'?"),
        ({"report": None}, "Unknown option of a fit 'report'"),
        ({"epochs": "three"}, "The options of a fit cannot be read"),
        ({"method": 5}, "Unknown method 5: use one of"),
    ],
)
def test_what_means_nothing_is_refused(plain: dict[str, object], said: str) -> None:
    """A key or a value that no option has is named, and never taken silently."""
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        FitOptions.from_json(plain)


def test_fit_takes_every_option_by_its_name() -> None:
    """The keywords of `Alignment.fit` are the options and what is no option: data and names."""
    keywords = inspect.signature(Alignment.fit).parameters
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in keywords.values())
    extra = {"pairs", "head", "distance", "models", "setback"}
    assert set(keywords) - extra == {each.name for each in fields(FitOptions)}
    for each in fields(FitOptions):
        assert keywords[each.name].default == each.default


def test_every_method_is_known_by_its_name() -> None:
    """A method's own name is its key, and `auto` is a choice beside them."""
    assert all(name == method.name for name, method in METHODS.items())
    assert list(METHOD_NAMES) == ["auto", *METHODS]
    assert {name for name, method in METHODS.items() if method.network} == {"residual", "paper"}
