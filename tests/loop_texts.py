"""Texts of many kinds, as they come back from tools."""

import hashlib
import json

PROSE = (
    "The harbour was built when the trade in salt moved south, and for two centuries it was the only deep landing on"
    " that coast. Ships of up to forty tons could lie along the quay at any tide. "
)
RUSSIAN = (
    "Гавань построили, когда торговля солью ушла на юг, и два столетия она оставалась единственной глубокой стоянкой"
    " на этом берегу. Суда до сорока тонн могли стоять у причала при любой воде. "
)
CHINESE = "港口建于盐业贸易南移之时,两个世纪以来一直是该海岸唯一的深水码头。任何潮位下四十吨以下的船只都可以停靠。"
CODE = '''def ships(rows: list[dict[str, object]], limit: int = 40) -> dict[str, int]:
    """Counts by harbour."""
    found: dict[str, int] = {}
    for row in rows:
        if int(row["tons"]) <= limit:
            found[str(row["harbour"])] = found.get(str(row["harbour"]), 0) + 1
    return found

'''
ROWS = [{"harbour": f"H-{n:03d}", "tons": n * 7 % 61, "share": round(n / 7, 3)} for n in range(60)]

SAMPLES = {
    "prose": PROSE * 8,
    "russian": RUSSIAN * 6,
    "chinese": CHINESE * 12,
    "code": CODE * 5,
    "json": json.dumps(ROWS, indent=1),
    "table": "\n".join(f"{row['harbour']};{row['tons']};{row['share']}" for row in ROWS * 2),
    "html": "".join(f"<tr><td class='n'>{n}</td><td>{PROSE[:40]}</td></tr>\n" for n in range(40)),
    "log": "\n".join(f"2026-11-21T10:{n:02d}:00Z INFO worker-{n % 4} took call r1_{n}_0" for n in range(60)),
    "hashes": "\n".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(20)),
}
