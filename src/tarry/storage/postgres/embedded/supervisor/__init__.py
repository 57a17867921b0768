"""The detached parent process of PostgreSQL. Standard library only: it runs outside of the tarry package."""
