"""What a timer costs, and how late it is: `make bench-timers`. The figures are in docs/explanation/timers.md.

- `contenders`: Tarry's strategies, and what Python has
- `measuring`: one contender with one number of timers, in a process of its own
- `chart`: the plot
"""
