"""What the fake models say: texts that show every loss, repetition and broken cluster.

Each is short, so that a stream can be cut at each of its places in a moderate number of
streams, and each is hard in a way of its own.
"""

TEXTS = {
    "japanese": (
        "吾輩は猫である。名前はまだ無い。\n「どこで生れたか」と、とんと見当がつかぬ。"
    ),
    "emoji": "家族 👩‍👩‍👧‍👦 と旗 🇯🇵🇫🇷、肌 👋🏽、ハート ❤️‍🔥 𠮷野🎉",
    "code": (
        'def f(x: int) -> str:\n    """日本"""\n    return f"{x:>4}"\n\n\nprint(f(1))\n'
    ),
    "markdown": (
        "# 見出し\n\n- **太字** と `code`\n- [a](http://x.test/b_(c))\n\n"
        "```py\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    ),
    "repeats": "ha ha ha ha ha! ha ha ha ha ha! やややや、のののの。ha ha ha",
    "whitespace": "One.  \n\n\n   Two.\t\t\n \n Three. \n  Four.   \n\n",
    "scripts": "Cafe\u0301, naïve; हिन्दी ไทยก็เป็น ﷺ \u200bend, Ελληνικά",
    "wire": (
        'quotes " \\ / \u2028\u2029\x85\x7f\r\n\ndata: [DONE]\n\n: ping\n'
        '{"error":{"message":"x"}} <|im_end|> \\ud83d event: error'
    ),
    "pangram": "いろはにほへと、ちりぬるを。わかよ🇯🇵たれそZephyr👩‍🚀つね(ならむ)うゐの",
}
DISTINCT = ("japanese", "emoji", "code", "markdown", "scripts", "wire", "pangram")
"""Texts of which no begin comes twice, so that a whole echo is told from them."""
SQUARE_FREE = TEXTS["pangram"]
"""No part of it is followed by itself, nor by whitespace."""
