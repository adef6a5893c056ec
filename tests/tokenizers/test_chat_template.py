"""Chat templates, rendered as transformers does."""

import pytest

from midstream._tokenizers.chat_template import ChatTemplate
from midstream._values.errors import UsageError

CHAT = [{"role": "user", "content": "Hi <3"}]


def render(source, messages=CHAT, **more):
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages, **more)


def test_a_conversation():
    source = (
        "{{ bos_token }}{% for m in messages %}\n"
        "  {% if m.role == 'user' %}\n"
        "[{{ m.content }}]\n"
        "  {% endif %}\n"
        "{% endfor %}\n"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    assert render(source) == "<s>[Hi <3]\nA:"
    assert render(source, add_generation_prompt=False) == "<s>[Hi <3]\n"


def test_what_templates_use():
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "Hi <3"}]'
    assert render("{{ 'é' | tojson(ensure_ascii=true) }}") == '"\\u00e9"'
    assert render("{% for x in [1, 2] %}{{ x }}{% break %}{% endfor %}") == "1"
    assert render("{%- generation -%} a {%- endgeneration -%}") == "a"
    assert render("{% generation %}a{% endgeneration %}b") == "ab"
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{{ tools is none and documents is none }}") == "True"
    assert render("{{ x }}", x=3) == "3"


def test_a_template_is_compiled_once(without):
    template = ChatTemplate("{{ messages[0].content }}", {})
    assert template.render(CHAT) == "Hi <3"
    without("jinja2", "jinja2.sandbox")
    assert template.render(CHAT) == "Hi <3"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "refuses"),
        ("{{ 'a' + none }}", "refuses"),
        ("{% if %}", "no Jinja"),
    ],
)
def test_what_templates_may_not(source, words):
    with pytest.raises(UsageError, match=words):
        render(source)


def test_jinja_is_an_extra(without):
    without("jinja2", "jinja2.sandbox")
    with pytest.raises(UsageError, match=r"needs jinja2: .*midstream\[tokenizers\]"):
        render("x")


def test_the_models_own_template(folder):
    template = ChatTemplate((folder / "chat_template.jinja").read_text(), {})
    assert template.render([{"role": "user", "content": "続けて"}]) == (
        "<|im_start|>user\n続けて<|im_end|>\n<|im_start|>assistant\n"
    )
