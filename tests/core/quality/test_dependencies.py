from __future__ import annotations

from random import Random

from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.upstream_requests import ProfileDependencies

P: ProfileCopy = ("n#1", ())
Q: ProfileCopy = ("m#1", ("m",))


def test_what_is_needed_of_a_copy_is_what_the_most_demanding_needs() -> None:
    reliance = ProfileDependencies()
    reliance.replace("X", (P,), {"rate": 5.0, "trust": 1.0}, 2.0)
    reliance.replace("Y", (P, Q), {"rate": 8.0}, 1.0)
    assert reliance.required(P) == {"rate": 8.0, "trust": 1.0}
    assert reliance.usage(P) == (2, 3.0)
    assert reliance.take_changed() == [P, Q]
    assert list(reliance.between(P, "rate", 5.0, 8.0)) == ["Y"]
    assert list(reliance.between(P, "rate", 4.0, 8.0)) == ["X", "Y"]
    assert list(reliance.between(P, "rate", 4.0, 7.9)) == ["X"]
    reliance.release("Y")
    assert reliance.level(P, "rate") == 5.0
    assert reliance.level(Q, "rate") is None
    assert reliance.take_changed() == [P, Q]
    reliance.check_invariants()


def test_relying_on_the_same_again_is_no_change() -> None:
    reliance = ProfileDependencies()
    reliance.replace("X", (P,), {"rate": 5.0}, 2.0)
    reliance.take_changed()
    reliance.replace("X", (P,), {"rate": 5.0}, 2.0)
    assert reliance.take_changed() == []
    reliance.replace("X", (P,), {"rate": 5.0}, 3.0)
    assert reliance.take_changed() == [P]
    reliance.release("nobody")
    assert reliance.take_changed() == []


def test_against_brute_force() -> None:
    random = Random(1)  # noqa: S311
    reliance = ProfileDependencies()
    truth: dict[str, tuple[ProfileCopy, dict[str, float]]] = {}
    for _ in range(500):
        who = f"X{random.randrange(20)}"
        if random.random() < 0.3:
            reliance.release(who)
            truth.pop(who, None)
        else:
            needs = {name: float(random.randrange(5)) for name in random.sample("abc", 2)}
            copy = random.choice((P, Q))
            reliance.replace(who, (copy,), needs, 1.0)
            truth[who] = copy, needs
        reliance.check_invariants()
        for copy in (P, Q):
            on = {who: needs for who, (at, needs) in truth.items() if at == copy}
            assert sorted(reliance.dependents(copy)) == sorted(on)
            for name in "abc":
                above = [w for w, needs in on.items() if 1.0 < needs.get(name, 0.0) <= 3.0]
                assert sorted(reliance.between(copy, name, 1.0, 3.0)) == sorted(above)
