"""Tasks whose code gives, prints or imports what is not JSON, comes from a library, is large, or takes too long."""

from compat.case import Case, code

VALUES = [
    Case(
        "no-numbers-of-json",
        "coder",
        "Answer with them.",
        [code("final_answer({'nan': float('nan'), 'more': [float('-inf'), 2 + 3j, 10 ** 20]})")],
        {"nan": {"float": "nan"}, "more": [{"float": "-inf"}, {"complex": "2+3j"}, 10**20]},
    ),
    Case(
        "keys-that-are-no-texts",
        "coder",
        "Answer with them.",
        [code("final_answer({'twins': {1: 'a', '1': 'b'}, 'pairs': {(1, 2): 'c'}})")],
        {"twins": {"dict": [[1, "a"], ["1", "b"]]}, "pairs": {"dict": [[[1, 2], "c"]]}},
    ),
    Case(
        "durations-and-fractions",
        "scientist",
        "Answer with them.",
        [
            code(
                "import datetime\nfrom fractions import Fraction\n"
                "final_answer([datetime.timedelta(days=1, seconds=2.5), datetime.date(2026, 1, 2), Fraction(1, 3)])"
            )
        ],
        [{"timedelta": 86402.5}, "2026-01-02", {"fraction": "1/3"}],
    ),
    Case(
        "collections",
        "coder",
        "Answer with them.",
        [
            code(
                "from collections import Counter, deque\n"
                "final_answer([deque([1, 2]), (3,), Counter('aab'), {5}, {'a': 1}.keys()])"
            )
        ],
        [[1, 2], [3], {"a": 2, "b": 1}, [5], ["a"]],
    ),
    Case(
        "large-answer",
        "coder",
        "Answer with much.",
        [code("much = [str(n) for n in range(300_000)]\nprint(len(much))"), code("final_answer(much)")],
        [str(n) for n in range(300_000)],
    ),
    Case("bytes", "coder", "Answer with them.", [code("final_answer(b'\\x00\\xff')")], {"bytes": "00ff"}),
    Case(
        "imported-by-c",
        "coder",
        "Read the date.",
        [
            code(
                "import datetime, time\nday = datetime.datetime.strptime('2026-01-02', '%Y-%m-%d')\n"
                "print(day.isoformat(), time.strptime('2026', '%Y').tm_year)"
            ),
            code("final_answer(day.day)"),
        ],
        2,
    ),
    Case(
        "numpy",
        "scientist",
        "Reckon.",
        [
            code("import numpy as np\na = np.arange(6).reshape(2, 3)\nprint(a.sum(axis=0))\na.mean()"),
            code("final_answer([a, a.max(), a.mean()])"),
        ],
        [[[0, 1, 2], [3, 4, 5]], 5, 2.5],
    ),
    Case(
        "pandas",
        "scientist",
        "Reckon.",
        [
            code(
                "import pandas as pd\ndf = pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]})\n"
                "print(df.groupby('k').v.sum())\ndf.k.value_counts()"
            ),
            code("final_answer(df.groupby('k').sum())"),
        ],
        {"table": "k,v\na,3\nb,3\n"},
    ),
    Case(
        "pandas-and-dates",
        "scientist",
        "Name the day.",
        [
            code(
                "import pandas as pd\ndays = pd.to_datetime(pd.Series(['2026-01-02', '2026-01-03']))\n"
                "print(days.dt.day_name())"
            ),
            code("final_answer(days.dt.strftime('%d').tolist())"),
        ],
        ["02", "03"],
    ),
    Case(
        "image-out",
        "scientist",
        "Draw.",
        [
            code("from PIL import Image\ndot = Image.new('RGB', (2, 1), (1, 2, 3))\nprint(dot.size)"),
            code("final_answer(dot)"),
        ],
        {"image": ["RGB", [2, 1], "010203010203"]},
    ),
    Case(
        "time-limit",
        "hasty",
        "Take your time.",
        [code("import time\nkept = 5\nprint('begun')\ntime.sleep(6)"), code("final_answer(kept)")],
        5,
    ),
    Case(
        "answer-of-a-form",
        "formal_coder",
        "How many?",
        [code("final_answer('three')"), code("final_answer({'count': 3})")],
        {"count": 3},
    ),
]
