"""Runs an agent: registers what its program can provide, and adapts it when advised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accord.apps.agent.program import Program
from accord.apps.agent.settings import AgentSettings
from accord.client.quality import Advice, Coupling, Value
from accord.client.quality_files import from_core
from accord.client.session import Session

Notify = Callable[[str], None]


async def run_agent(
    session: Session, settings: AgentSettings, command: Sequence[str], notify: Notify
) -> int:
    """Run until the program ends by itself; returns its exit code."""
    program = Program(settings, command)
    await program.start()
    try:
        publisher = session.publisher(
            settings.channel,
            capabilities=[from_core(each) for each in settings.capabilities],
            couplings=[Coupling(each.of, each.on, each.per_unit) for each in settings.couplings],
            source=settings.source,
        )
        async with publisher:
            notify(f"{' '.join(command)} runs, {_words(program.values)} on {settings.channel}")

            @publisher.on_advice
            async def follow(advice: Advice) -> Value | None:
                if advice.property not in program.values:
                    return None
                if not await program.adapt(advice.property, advice.target):
                    return None
                less = " (less is enough)" if advice.is_release else ""
                notify(f"advised: {_words({advice.property: advice.target})}{less}")
                return advice.target

            return await program.ended
    finally:
        await program.stop()


def _words(values: dict[str, Value]) -> str:
    words = (
        f"{name} {value if isinstance(value, str) else format(value, 'g')}"
        for name, value in values.items()
    )
    return ", ".join(words)
