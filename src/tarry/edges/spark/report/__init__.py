"""The pipeline's report, for the terminal and as one HTML file. Needs no Spark: it reads the published results."""
