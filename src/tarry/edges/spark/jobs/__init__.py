"""What `tarry pipeline …`, `spark-submit` and notebooks run: argument values in, a summary out."""
