"""Several servers for one stream, and streams that another process began."""

import pytest

from midstream._values.endpoint import Endpoint
from midstream._values.errors import AuthenticationFailed, ConnectFailed, Dropped
from midstream._values.events import End, Failure, Resumed
from midstream._values.interruptions import ResumeUnsupported, StreamInterrupted

TEXT = "The quick brown fox"
DENIED = b'{"error": {"message": "no", "code": 401}}'


@pytest.fixture
def pair(world):
    """A run at two llama.cpp servers of the same model."""

    def make(breaks=(), *ways, others=("llama.cpp",), **more):
        resume = more.pop("resume", None) or world.only(*(ways or ("text",)))
        run = world.Run(
            "llama.cpp",
            world.Model(more.pop("text", TEXT), range(0, 99, 4)),
            breaks,
            resume=resume,
            others=others,
            **more,
        )
        for number, server in enumerate(run.servers):
            url = f"http://host{number}:1"
            server.endpoint = server.endpoint.model_copy(update={"base_url": url})
        return run

    return make


def hosts(run):
    return [call.url.partition("//")[2].partition(":")[0] for call in run.opens]


def test_a_server_that_denies_hands_over(pair, world):
    run = pair([world.Refused(401, DENIED)]).run()
    assert run.text == TEXT
    assert hosts(run) == ["host0", "host1"]
    assert run.session.history.resumes == []


def test_in_mid_stream_the_text_goes_along_and_ids_stay_behind(pair, world):
    run = pair([world.Cut(700), world.Unreachable()], "text").run()
    assert run.text == TEXT
    assert hosts(run) == ["host0", "host0", "host1"]
    _, received = run.asked[-1]
    assert received.text != ""
    assert received.token_ids == []
    assert str(run.session.history.resumes[0].endpoint).endswith("host1:1")


def test_another_server_does_not_keep_the_stream(pair, world):
    run = pair([world.Cut(700), world.Unreachable()], "replay", "text").run()
    assert run.text == TEXT
    assert run.session.history.resumes[0].strategy == "text"
    assert any("another server" in note for note in run.session.history.notes)


def test_a_way_that_is_refused_hands_over_when_it_was_the_last(pair, world):
    prefill = b'{"error": {"message": "prefill is not supported", "code": 400}}'
    run = pair([world.Cut(700), world.Refused(400, prefill)]).run()
    assert run.text == TEXT
    assert hosts(run) == ["host0", "host0", "host1"]


def test_a_server_that_cannot_continue_is_passed_over(pair, world):
    breaks = [world.Cut(700), world.Unreachable()]
    run = pair(breaks, others=("openai", "llama.cpp")).run()
    assert run.text == TEXT
    assert hosts(run) == ["host0", "host0", "host2"]


def test_with_no_server_left_the_stream_is_interrupted(pair, world):
    run = pair([world.Cut(700)] + [world.Unreachable()] * 99).run()
    assert isinstance(run.error, StreamInterrupted)
    assert isinstance(run.error.__cause__, Dropped)
    assert set(hosts(run)) == {"host0", "host1"}


def test_of_servers_that_cannot_continue_the_last_reason_is_told(pair, world):
    run = pair([world.Cut(700), world.Unreachable()], others=("openai",)).run()
    assert type(run.error) is ResumeUnsupported
    assert "openai" in str(run.error)
    assert isinstance(run.error.__cause__, Dropped)


def test_no_connection_anywhere_is_raised_as_itself(pair, world):
    run = pair([world.Unreachable()] * 99).run()
    assert type(run.error) is ConnectFailed


def test_a_server_that_failed_is_asked_last_for_a_while(pair, world):
    run = pair()
    run.servers[0].health.down_until = run.now + 5
    assert hosts(run.run()) == ["host1"]
    later = pair()
    later.servers[0].health.down_until = later.now - 1
    assert hosts(later.run()) == ["host0"]


def test_each_break_may_use_every_server_again(pair, world):
    breaks = [
        world.Cut(1900),
        world.Unreachable(),
        world.Cut(1900),
        world.Unreachable(),
    ]
    run = pair(breaks, text=TEXT * 4).run()
    assert run.text == TEXT * 4
    assert all(one.at > 16 for one in run.session.history.resumes)
    assert hosts(run) == ["host0", "host0", "host1", "host1", "host0"]


def test_without_resuming_nothing_is_handed_over(world):
    refused = world.Refused(401, DENIED)
    run = world.Run("llama.cpp", world.Model(TEXT), [refused], others=["ollama"]).run()
    assert type(run.error) is AuthenticationFailed
    assert len(run.opens) == 1


def test_the_endpoint_may_declare_an_echo(world):
    endpoint = {"echo": "whole"}
    run = world.Run(
        "llama.cpp",
        world.Model(TEXT, range(9)),
        [world.Cut(700)],
        resume=world.only("text"),
        endpoint=endpoint,
    )
    connect = run.session.connect

    def echoing(now):
        call = yield from connect(now)
        if run.asked[-1][0] == "text":
            received = run.asked[-1][1]
            dialect = run.session.server.dialect
            writer = dialect.writer()
            says = run.model.says(len(received.text), 0, received.text)
            run._answer = [r for event in says for r in writer.write(event)]
        return call

    run.session.connect = echoing
    assert run.run().text == TEXT


# -- what another process began --------------------------------------------------------


def stored(world, **more):
    model = world.Model(TEXT, range(0, 99, 4))
    run = world.Run("llama.cpp", model, [world.Cut(700)], **more).run()
    return run.error.checkpoint, run.kept


def test_the_server_that_had_answered_goes_on(pair, world):
    checkpoint, kept = stored(world)
    run = pair((), "replay")
    run.servers[1].endpoint = Endpoint("llama.cpp", model="m", base_url="http://host:1")
    run.kept = kept
    run.restore(checkpoint)
    assert run.run().text == TEXT
    assert hosts(run) == ["host"]


def test_a_replay_that_is_no_longer_there_becomes_text(pair, world):
    checkpoint, _ = stored(world)
    run = pair([world.Refused(404, b"{}")], "replay", "text")
    run.restore(checkpoint)
    assert run.run().text == TEXT
    assert run.strategies == ["replay", "text"]
    assert len([e for e in run.events if type(e) is Resumed]) == 1


def test_without_resuming_the_stored_text_is_all_there_is(world):
    checkpoint, _ = stored(world)
    run = world.Run("llama.cpp", world.Model(TEXT))
    run.restore(checkpoint, 2)
    assert run.text == checkpoint.text[2:]
    assert not run.session.complete


# -- the driver's and the leg's mistakes -----------------------------------------------


@pytest.mark.parametrize("signal", [Resumed(None), Failure(None)])
def test_what_no_leg_says_is_a_mistake_of_ours(signal, world):
    run = world.Run("llama.cpp", world.Model(TEXT))
    run.drive(run.session.connect(run.now))
    with pytest.raises(RuntimeError, match="comes from no leg"):
        run.session._fold([signal], [])


def test_an_end_closes_the_session(world):
    run = world.Run("llama.cpp", world.Model(TEXT))
    run.drive(run.session.connect(run.now))
    run.session._fold([End()], [])
    assert run.session.complete
