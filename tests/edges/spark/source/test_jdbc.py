"""The address that Spark's JDBC source gets. Needs no driver."""

from tarry.core.journal.snapshots import ServerAddress
from tarry.edges.spark.source.jdbc import connection


def test_a_connection_by_jdbc_is_encrypted_as_the_dsn_demands_and_no_name_adds_a_parameter() -> None:
    url, properties = connection(ServerAddress("::1", 5433, "shop?sslmode=disable", "reader", "secret", "require"))
    assert url == "jdbc:postgresql://[::1]:5433/shop%3Fsslmode%3Ddisable"
    assert (properties["sslmode"], properties["user"]) == ("require", "reader")
    assert "secret" not in url
