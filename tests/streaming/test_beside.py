"""Readers beside the consumer end, and so does whoever waits for them."""

import anyio
import pytest

from midstream._streaming.beside import read_beside


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whoever_waits_for_a_reader_that_is_closed_ends(backend):
    async def main():
        reader = read_beside(anyio.sleep_forever)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.next, None)
                await anyio.wait_all_tasks_blocked()
                await reader.aclose()

    anyio.run(main, backend=backend)
