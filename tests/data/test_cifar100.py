"""The superclasses of CIFAR-100."""

from __future__ import annotations

import pytest

from polarvit.data.cifar100 import CLASSES, SUPERCLASSES, superclass_of


def test_twenty_superclasses_of_five_make_a_hundred_classes() -> None:
    assert len(SUPERCLASSES) == 20
    assert {len(members) for members in SUPERCLASSES.values()} == {5}
    assert len(set(CLASSES)) == 100
    assert (CLASSES[0], CLASSES[8], CLASSES[99]) == ("apple", "bicycle", "worm")


def test_a_class_knows_its_superclass_and_a_stranger_is_named() -> None:
    homes = list(SUPERCLASSES)
    assert [homes[index] for index in superclass_of(("trout", "rocket", "girl"))] == ["fish", "vehicles 2", "people"]
    with pytest.raises(ValueError, match="not classes of CIFAR-100: dog"):
        superclass_of(("trout", "dog"))
