"""A camera publishes images, a desk answers which it could use, and the camera answers back.

python examples/feedback.py                              # with a node in memory
python examples/feedback.py mqtt://localhost             # with one that runs,
python examples/feedback.py mqtt://north mqtt://south    # or two of one network
"""

from __future__ import annotations

import asyncio
import sys

import accord
from accord.client.session import Session
from accord.testing import MemoryNode

CHANNEL = "example/images"


async def camera(session: Session, count: int) -> None:
    """Publish, and hear what receivers think of it."""
    async with session.feedback() as answers:
        for number in range(count):
            while not await is_taken(session, number):
                await asyncio.sleep(0.1)
            answer = await anext(answers)
            data = (answer.correlation_data or b"").decode()
            print(f"camera: {answer.source} says {answer.text!r} of image {data}")
            if answer.attributes["usable"] is False:
                await answer.feedback(f"image {data} will be taken again")


async def is_taken(session: Session, number: int) -> bool:
    """Whether anybody wants it yet."""
    data = str(number).encode()
    outcome = await session.publish(
        CHANNEL, b"image", feedback=True, correlation_data=data, altitude_m=100 * number
    )
    return outcome.has_subscribers


async def desk(session: Session) -> None:
    """Answer each event, and print what comes back."""
    async with session.subscribe(CHANNEL) as events, session.feedback() as answers:
        async for event in events:
            is_usable = event.attributes["altitude_m"] != 100
            await event.feedback("sharp" if is_usable else "blurred", usable=is_usable)
            if not is_usable:
                print(f"desk: {(await anext(answers)).text}")


async def main(urls: list[str]) -> None:
    async with MemoryNode() as node:
        transport = None if urls else node.connect
        north, south = (*urls, *urls, "mqtt://memory", "mqtt://memory")[:2]
        async with (
            accord.connect(north, transport=transport, client_id="camera") as source,
            accord.connect(south, transport=transport, client_id="desk") as receiver,
        ):
            receiving = asyncio.create_task(desk(receiver))
            await camera(source, 3)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)


if __name__ == "__main__":
    if any(each.startswith("-") for each in sys.argv[1:]):
        print(__doc__)
    else:
        asyncio.run(main(sys.argv[1:]))
