"""Whether it keeps what it promises, where links lose and nodes and links fail."""

from accord_flooding import Flooded

from accord.sim import check_template


def test_it_keeps_its_promises() -> None:
    check_template(Flooded, loss=0.3, nodes=8, seeds=range(8))
