"""A model's files, from a folder or a zip."""

import io
import json
import zipfile

import pytest

from midstream._tokenizers import bundle
from midstream._tokenizers.bundle import Bundle, folder, unzip
from midstream._values.errors import UsageError, WireError

CHAT = [{"role": "user", "content": "x"}]


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def bundled(**files):
    return unzip(zipped(**{name: json.dumps(file) for name, file in files.items()}))


def prompt(files):
    return files.template.render(CHAT)


def test_a_folder_and_its_zip_are_the_same(request):
    path = request.getfixturevalue("folder")
    names = ["tokenizer.json", "tokenizer_config.json", "config.json"]
    names += ["generation_config.json", "chat_template.jinja"]
    files = {name.replace(".", "__"): (path / name).read_text() for name in names}
    for found in (folder(path), unzip(zipped(**files))):
        learned = found.learned()
        assert learned.ends == {2}
        assert learned.tokenizer.token_bytes(3) == b"!"
        assert learned.template is found.template
        assert prompt(found) == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"chat_template__jinja": "A"}, "A"),
        ({"chat_template__json": '{"chat_template": "B"}'}, "B"),
        ({"tokenizer_config__json": '{"chat_template": "C"}'}, "C"),
        (
            {
                "tokenizer_config__json": json.dumps(
                    {
                        "chat_template": [
                            {"name": "tool_use", "template": "T"},
                            {"name": "default", "template": "D"},
                        ]
                    }
                )
            },
            "D",
        ),
    ],
)
def test_where_templates_are(files, want):
    assert prompt(unzip(zipped(**files))) == want


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"chat_template": []},
        {"chat_template": [{"name": "rag", "template": "R"}]},
        {"chat_template": 3},
    ],
)
def test_no_template(settings):
    assert bundled(tokenizer_config__json=settings).template is None


def test_control_tokens_have_names():
    files = bundled(
        special_tokens_map__json={"bos_token": "<s>", "unk_token": "<u>"},
        tokenizer_config__json={
            "chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}",
            "bos_token": {"content": "<S>"},
            "eos_token": "</s>",
            "pad_token": None,
        },
    )
    assert prompt(files) == "<S></s><u>"


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        ({"eos_token_id": 2}, {"eos_token_id": [2, 3]}, {2, 3}),
        ({"eos_token_id": None}, {}, set()),
        ([], {"eos_token_id": 7}, {7}),
    ],
)
def test_ids_that_end_an_answer(config, generation, ends):
    files = bundled(config__json=config, generation_config__json=generation)
    assert files.ends == ends


def test_no_tokenizer_in_it():
    with pytest.raises(UsageError, match=r"there is no tokenizer\.json"):
        bundled(config__json={}).learned()


def test_files_that_are_no_json_are_as_if_they_were_not_there():
    files = unzip(zipped(config__json="{", tokenizer_config__json="no"))
    assert files.ends == frozenset()


@pytest.mark.parametrize(
    "data",
    [b"", b"no zip", zipped(a="x" * 99)[:-30]],
    ids=["empty", "other", "cut"],  # a zip holds the time of its making
)
def test_no_zip(data):
    with pytest.raises(WireError, match="the tokenizer's zip"):
        unzip(data)


def test_a_damaged_zip():
    data = zipped(tokenizer__json=json.dumps({"a": list(range(999))}))
    with pytest.raises(WireError, match="the tokenizer's zip"):
        unzip(data[:60] + bytes(40) + data[100:])


def test_files_have_a_limit(monkeypatch):
    monkeypatch.setattr(bundle, "_LIMIT", 10)
    with pytest.raises(WireError, match="more than 10 bytes"):
        unzip(zipped(config__json="{}" + " " * 10))


def test_files_are_read_by_name():
    asked = []
    Bundle(asked.append)
    assert "tokenizer.json" in asked
