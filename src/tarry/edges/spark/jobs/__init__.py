"""Jobs behind `tarry pipeline …`, `spark-submit` and notebooks: arguments in, a summary out."""
