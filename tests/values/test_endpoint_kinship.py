"""Whether two endpoints have the same model, as far as one can know."""

import pytest

from midstream._values.endpoint import Endpoint


@pytest.mark.parametrize(
    ("mine", "other", "same"),
    [
        (("llama.cpp", "m"), ("ollama", "m"), True),
        (("llama.cpp", "m"), ("llama.cpp", "n"), False),
        (("llama.cpp", None), ("llama.cpp", "n"), True),
        (("llama.cpp", None), ("ollama", "n"), False),
    ],
)
def test_whether_two_servers_have_the_same_model(mine, other, same):
    endpoint = Endpoint(mine[0], model=mine[1])
    assert endpoint.same_model(Endpoint(other[0], model=other[1])) is same
