"""What became of all messages, and everything that is wrong with it."""

from __future__ import annotations

import msgspec

from tests.scenarios.kills import checks
from tests.scenarios.kills.crew import Crew
from tests.scenarios.kills.node import MortalNode


class Outcome(msgspec.Struct):
    """Figures, and everything that is wrong."""

    kills: dict[str, int]
    starts: int = 0
    slowest_start_s: float = 0.0
    reconnects: int = 0
    published: int = 0
    acknowledged: int = 0
    refused: int = 0
    resent: int = 0
    kept: int = 0
    events: int = 0
    archived: int = 0
    kept_again: int = 0
    kept_again_at_qos_2: int = 0
    deliveries: int = 0
    delivered_again: int = 0
    churn_rounds: int = 0
    lost_events: list[str] = []
    lost_messages: list[str] = []
    repeated: list[str] = []
    disordered: list[str] = []
    unretained: list[str] = []
    problems: list[str] = []

    def failures(self) -> list[str]:
        return [
            *self.lost_events,
            *self.lost_messages,
            *self.repeated,
            *self.disordered,
            *self.unretained,
            *self.problems,
        ]


def judge(
    crew: Crew,
    node: MortalNode,
    kills: dict[str, int],
    retained: dict[str, int],
    problems: list[str],
) -> Outcome:
    """Compare what was promised with what is there, once the node has stopped."""
    journal = checks.read_journal(node.data / "journal")
    kept = checks.kept_of(crew.publishers)
    everybody = (*crew.publishers, *crew.retaining)
    outcome = Outcome(
        kills=kills,
        starts=node.starts,
        slowest_start_s=max(node.start_s, default=0.0),
        reconnects=sum(max(0, each.connects - 1) for each in crew.everybody()),
        published=sum(each.published for each in everybody),
        acknowledged=sum(len(each.acknowledged) for each in everybody),
        refused=sum(len(each.refused) for each in everybody),
        resent=sum(each.resent for each in everybody),
        kept=len(kept),
        events=journal.events,
        kept_again=journal.events - len(journal.messages),
        kept_again_at_qos_2=checks.kept_again(journal, crew.publishers),
        deliveries=sum(each.deliveries for each in crew.subscribers),
        delivered_again=sum(each.deliveries - len(each.seen) for each in crew.subscribers),
        churn_rounds=crew.churner.rounds,
        lost_events=[
            f"{number} of {name} is not in the journal"
            for name, number in sorted(kept - journal.messages.keys())
        ],
        unretained=list(checks.unretained(crew.retaining, retained)),
        problems=[*problems, *journal.problems, *checks.complaints(node.output())],
    )
    for subscriber in crew.subscribers:
        outcome.lost_messages += checks.undelivered(subscriber, crew.publishers)
        outcome.repeated += checks.repeated(subscriber, crew.publishers)
        outcome.disordered += subscriber.disorder
    for client in crew.everybody():
        outcome.problems += client.problems
    return outcome
