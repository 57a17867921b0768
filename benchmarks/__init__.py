"""How fast, at what cost, and against what: `make bench`. The method is in docs/explanation/benchmarks.md.

- `plan`: how much of everything (`--quick`, standard, `--full`)
- `server`, `measure`: the PostgreSQL under test, and what a slice of work cost it and us
- `contenders/`: the measured queues: Tarry, the originals' SQL, ceilings; peers are added in its registry
- `scenarios/`: what they do, in interleaved rounds
- `results`, `targets`, `report`: medians and ratios, the targets met or missed, tables and JSON
"""
