"""Readers beside the consumer end, and so does whoever waits for them."""

import anyio
import pytest

from midstream._streaming.beside import AsyncReader


class Source:
    """Reads as it is told."""

    def __init__(self, read, ahead=16):
        self.read = read
        self.ahead = ahead
        self.ended = 0

    async def end(self):
        self.ended += 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whoever_waits_for_a_reader_that_is_stopped_ends(backend):
    async def main():
        source = Source(anyio.sleep_forever)
        reader = AsyncReader(source)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.next, None)
                await anyio.wait_all_tasks_blocked()
                reader.stop()
                reader.loop.cancel()
            await reader.over.wait()
        return source.ended

    assert anyio.run(main, backend=backend) == 1
