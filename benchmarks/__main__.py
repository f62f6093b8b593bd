"""The commands of the benchmark suite.

python -m benchmarks run -o results.json              # ours
python -m benchmarks run --who peers -o results.json  # with the peers that are installed (extra `bench`)
python -m benchmarks run --who peers --legacy .bench/v02 -o results.json   # and TorchScan 0.2.0
python -m benchmarks table results.json --write       # into docs/explanation/performance.md
python -m benchmarks disagree --write                 # into docs/explanation/why-counters-disagree.md
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--who", choices=["ours", "peers", "legacy"], default="ours")
    run.add_argument("--smoke", action="store_true", help="the smallest sizes, to see that everything works")
    run.add_argument("--rounds", type=int, default=25, help="pairs per variant and case (default: 25)")
    run.add_argument("--budget", type=float, default=60, help="seconds per case (default: 60)")
    run.add_argument("--only", help="parts: timed,calls,memory,import,fake")
    run.add_argument("--legacy", type=Path, metavar="FOLDER", help="make an environment for TorchScan 0.2.0 there")
    run.add_argument("-o", "--output", type=Path)
    table = commands.add_parser("table", help="write the measured figures as Markdown")
    table.add_argument("results", type=Path)
    table.add_argument("--write", action="store_true", help="into docs/explanation/performance.md")
    disagree = commands.add_parser("disagree", help="ask every installed counter about the same six calls")
    disagree.add_argument("--write", action="store_true", help="into docs/explanation/why-counters-disagree.md")
    options = parser.parse_args()
    if options.command == "run":
        return measure(options)
    if options.command == "table":
        from benchmarks.tables import performance

        page, text = "performance.md", performance(json.loads(options.results.read_text()))
    else:
        from benchmarks.disagree import table_text

        page, text = "why-counters-disagree.md", table_text()
    if options.write:
        from benchmarks.tables import replace

        replace(page, text)
    else:
        print(text)
    return 0


def measure(options: argparse.Namespace) -> int:
    from benchmarks.suite import run

    only = None if options.only is None else set(options.only.split(","))
    rounds = 2 if options.smoke else options.rounds

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    results = run(options.who, smoke=options.smoke, rounds=rounds, budget=options.budget, only=only, say=say)
    if options.legacy is not None:
        from benchmarks import legacy

        say("TorchScan 0.2.0")
        arguments = ["--rounds", str(options.rounds), "--budget", str(options.budget)]
        arguments += ["--smoke"] if options.smoke else []
        arguments += ["--only", options.only] if options.only else []
        legacy.merge(results, legacy.run(legacy.make(options.legacy), arguments))
    text = json.dumps(results, indent=1) + "\n"
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
