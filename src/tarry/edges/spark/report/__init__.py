"""What the pipeline found, for people: in the terminal, and as one HTML file. Needs no Spark: it reads what was served."""
