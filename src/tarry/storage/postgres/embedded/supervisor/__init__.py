"""The detached process that is PostgreSQL's parent. Standard library only: it runs outside of the tarry package."""
