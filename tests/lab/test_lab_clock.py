"""Stages of a run: named, timed, stopped in time."""

from __future__ import annotations

import pytest

from fastfill.lab.clock import OutOfTimeError, StageClock


def test_a_stage_is_named_when_it_begins_and_timed_when_it_ends() -> None:
    """The one before, the other after what is done in it."""
    seen: list[object] = []
    clock = StageClock(
        begun=seen.append, ended=lambda name, seconds: seen.append((name, seconds >= 0))
    )
    with clock.stage("map"):
        seen.append("learned")
    assert seen == ["map", "learned", ("map", True)]


def test_no_stage_begins_when_the_time_is_over() -> None:
    """Nothing of it is done."""
    clock, done = StageClock(minutes=0), []
    with pytest.raises(OutOfTimeError), clock.stage("curve"):
        done.append("curve")
    assert not done


def test_a_stage_that_fails_has_no_time() -> None:
    """An error goes through as it is."""
    ended: list[str] = []
    clock = StageClock(ended=lambda name, seconds: ended.append(name))
    with pytest.raises(ZeroDivisionError), clock.stage("map"):
        raise ZeroDivisionError
    assert not ended
