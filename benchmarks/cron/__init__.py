"""What schedules cost: `python -m benchmarks.cron`."""
