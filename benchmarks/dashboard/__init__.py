"""Size and speed of every page of the dashboard on a large database."""
